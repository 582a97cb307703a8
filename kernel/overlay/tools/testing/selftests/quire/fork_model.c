// SPDX-License-Identifier: GPL-2.0
/*
 * Random trees of processes against a model. Every process keeps, in memory
 * that is not shared, what each page of the area must hold; it writes, reads,
 * maps memory and a file, unmaps, moves, protects, discards and forks at random, and
 * compares all pages before it ends. The seed decides everything a process does; who
 * runs when does not matter to the result.
 *
 *	fork_model [SEED [ROUNDS]]
 */
#define _GNU_SOURCE
#include <sys/stat.h>
#include <time.h>

#include "harness.h"
#include "fork_test.h"

#define TABLES 6
#define PAGES (TABLES * SLOTS)
#define MAX_DEPTH 4

static uint64_t seed = 1;
static unsigned int rounds = 6;

/* This program's own file: of a file system that is not tmpfs. */
static int file = -1;
static unsigned long file_pages;

/* Of all processes. */
static unsigned long *steps_done;

struct model {
	char *area;
	uint64_t word[PAGES];
	uint64_t clean[PAGES];	/* what it holds if never written, or discarded */
	bool mapped[PAGES];
	uint64_t random;
};

static uint64_t next(struct model *m)
{
	m->random ^= m->random << 13;
	m->random ^= m->random >> 7;
	m->random ^= m->random << 17;
	return m->random;
}

static unsigned long compare(struct model *m)
{
	unsigned long i, bad = 0;

	for (i = 0; i < PAGES; i++)
		if (m->mapped[i] && *(uint64_t *)(m->area + i * PAGE) != m->word[i])
			bad++;
	return bad;
}

/* A random range: some pages, or whole tables. */
static void range(struct model *m, unsigned long *first, unsigned long *count)
{
	if (next(m) & 1) {
		*first = next(m) % TABLES * SLOTS;
		*count = (next(m) % 2 + 1) * SLOTS;
	} else {
		*first = next(m) % PAGES;
		*count = next(m) % 40 + 1;
	}
	if (*first + *count > PAGES)
		*count = PAGES - *first;
}

static int map(struct model *m, unsigned long first, unsigned long count)
{
	bool of_file = next(m) & 1;
	unsigned long i, from = 0;

	if (of_file) {
		count = count < file_pages ? count : file_pages;
		from = next(m) % (file_pages - count + 1);
	}
	if (mmap(m->area + first * PAGE, count * PAGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_FIXED | (of_file ? 0 : MAP_ANONYMOUS), of_file ? file : -1,
		 from * PAGE) == MAP_FAILED)
		return 3;
	for (i = 0; i < count; i++) {
		m->mapped[first + i] = true;
		m->clean[first + i] = 0;
		if (of_file && pread(file, &m->clean[first + i], 8, (from + i) * PAGE) != 8)
			return 3;
		m->word[first + i] = m->clean[first + i];
	}
	return 0;
}

/* One page to another place: it is always in one area. */
static int move(struct model *m, unsigned long from, unsigned long to)
{
	if (from == to || !m->mapped[from])
		return 0;
	if (mremap(m->area + from * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		   m->area + to * PAGE) == MAP_FAILED)
		return 6;
	m->mapped[to] = true;
	m->mapped[from] = false;
	m->word[to] = m->word[from];
	m->clean[to] = m->clean[from];
	return 0;
}

static int step(struct model *m)
{
	unsigned long first, count, i;
	int kind = next(m) % 17;

	range(m, &first, &count);
	if (kind < 8) {
		if (count > 64)
			count = 64;
		for (i = first; i < first + count; i++)
			if (m->mapped[i])
				*(uint64_t *)(m->area + i * PAGE) = m->word[i] = next(m);
	} else if (kind < 10) {
		for (i = first; i < first + count; i++)
			if (m->mapped[i] && *(uint64_t *)(m->area + i * PAGE) != m->word[i])
				return 1;
	} else if (kind == 10) {
		if (munmap(m->area + first * PAGE, count * PAGE))
			return 2;
		for (i = first; i < first + count; i++)
			m->mapped[i] = false;
	} else if (kind == 11) {
		return map(m, first, count);
	} else if (kind == 16) {
		return move(m, first, next(m) % PAGES);
	} else if (kind == 12 || kind == 13) {
		for (i = first; i < first + count; i++)
			if (!m->mapped[i])
				return 0;
		if (madvise(m->area + first * PAGE, count * PAGE, MADV_DONTNEED))
			return 4;
		for (i = first; i < first + count; i++)
			m->word[i] = m->clean[i];
	} else {
		for (i = first; i < first + count; i++)
			if (!m->mapped[i])
				return 0;
		if (mprotect(m->area + first * PAGE, count * PAGE, PROT_READ) ||
		    mprotect(m->area + first * PAGE, count * PAGE, PROT_READ | PROT_WRITE))
			return 5;
	}
	return 0;
}

/* Returns 0, or what went wrong in this process or in one below it. */
static int live(struct model *m, int depth)
{
	int steps = 10 + next(m) % 20, bad = 0, i, status;
	int children = 0;

	for (i = 0; i < steps && !bad; i++) {
		if (depth < MAX_DEPTH && next(m) % 8 == 0) {
			uint64_t its = next(m) | 1;
			pid_t pid = fork();

			if (pid < 0)
				return 10;
			if (!pid) {
				m->random = its;
				_exit(live(m, depth + 1));
			}
			children++;
		}
		bad = step(m);
	}
	__atomic_fetch_add(steps_done, i, __ATOMIC_RELAXED);
	if (compare(m))
		bad = bad ? bad : 20;
	/* At half of the nodes the parent ends, or goes on, before its children. */
	while (children--) {
		if (wait(&status) < 0)
			return 30;
		if (status && !bad)
			bad = WIFEXITED(status) ? WEXITSTATUS(status) : 40;
	}
	if (!bad && compare(m))
		bad = 21;
	return bad;
}

FIXTURE(fork_model) {
};

FIXTURE_VARIANT(fork_model) {
	const char *mixed;
};

FIXTURE_VARIANT_ADD(fork_model, whole) {
	.mixed = "0",
};

FIXTURE_VARIANT_ADD(fork_model, mixed) {
	.mixed = "1",
};

FIXTURE_SETUP(fork_model)
{
	struct stat st;

	NEED_FORK_FEATURE();
	if (write_word(FOLDER "mixed", variant->mixed))
		SKIP(return, "no mixed tables without shm in this kernel");
	file = open("/proc/self/exe", O_RDONLY);
	ASSERT_LE(0, file);
	ASSERT_EQ(0, fstat(file, &st));
	file_pages = st.st_size / PAGE;
}

FIXTURE_TEARDOWN(fork_model)
{
	write_word(FOLDER "mixed", "0");
}

TEST_F_TIMEOUT(fork_model, random_trees, 3600)
{
	struct timespec begin, end;
	struct model *m;
	unsigned int i;
	double seconds;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	steps_done = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)steps_done);
	m = mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)m);
	for (i = 0; i < rounds; i++) {
		pid_t pid = fork();
		int status;

		ASSERT_LE(0, pid);
		if (!pid) {
			m->random = (seed + i) * 0x9E3779B97F4A7C15ull | 1;
			m->area = map_tables(TABLES);
			for (i = 0; i < PAGES; i++) {
				m->mapped[i] = true;
				m->word[i] = word_for(i, seed);
			}
			fill(m->area, PAGES, seed);
			_exit(live(m, 0));
		}
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		ASSERT_EQ(0, status) TH_LOG("seed %lu, round %u", seed, i);
		ASSERT_TRUE(tables_consistent());
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	seconds = end.tv_sec - begin.tv_sec + (end.tv_nsec - begin.tv_nsec) / 1e9;
	TH_LOG("%lu steps, %.0f a second", *steps_done, *steps_done / seconds);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoul(argv[1], NULL, 0);
	if (argc > 2)
		rounds = strtoul(argv[2], NULL, 0);
	return test_harness_run(1, argv);
}
