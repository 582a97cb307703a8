// SPDX-License-Identifier: GPL-2.0
/*
 * Random trees of processes against a model. Every process keeps, in memory
 * that is not shared, what each page of the area must hold; it writes, reads,
 * maps memory and a file, unmaps, moves, protects, discards, gives up, migrates, pages
 * out, takes offline and forks at random, and compares all pages before it ends. The
 * seed decides everything a process does; who runs when does not matter to the result.
 *
 *	fork_model [SEED [ROUNDS]]
 */
#define _GNU_SOURCE
#include <linux/mempolicy.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "harness.h"
#include "compat.h"
#include "fork_test.h"

#define TABLES 6
#define PAGES (TABLES * SLOTS)
#define MAX_DEPTH 4

static uint64_t seed = 1;
static unsigned int rounds = 6;

/* This program's own file: of a file system that is not tmpfs. */
static int file = -1;
static unsigned long file_pages;

/* Of all processes: steps, and pages that were taken offline, which are lost to this boot. */
static unsigned long *steps_done, *offline;
#define MOST_OFFLINE 200

/*
 * With swap in memory Linux itself loses pages that came back by a read if a child gives
 * them up after a fork (CAVEATS.md): then nobody does.
 */
static bool may_free_lazily;

struct model {
	char *area;
	uint64_t word[PAGES];
	uint64_t clean[PAGES];	/* what it holds if never written, or discarded */
	bool mapped[PAGES], readonly[PAGES];
	bool given_up[PAGES];	/* may hold zero instead, until it is written to */
	uint64_t random;
};

static uint64_t next(struct model *m)
{
	m->random ^= m->random << 13;
	m->random ^= m->random >> 7;
	m->random ^= m->random << 17;
	return m->random;
}

static bool holds(struct model *m, unsigned long i)
{
	uint64_t word = *(volatile uint64_t *)(m->area + i * PAGE);

	return word == m->word[i] || (m->given_up[i] && word == m->clean[i]);
}

static unsigned long compare(struct model *m)
{
	unsigned long i, bad = 0;

	for (i = 0; i < PAGES; i++)
		bad += m->mapped[i] && !holds(m, i);
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
		m->readonly[first + i] = m->given_up[first + i] = false;
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
	m->readonly[to] = m->readonly[from];
	m->given_up[to] = m->given_up[from];
	m->word[to] = m->word[from];
	m->clean[to] = m->clean[from];
	return 0;
}

static bool all_mapped(struct model *m, unsigned long first, unsigned long count)
{
	for (unsigned long i = first; i < first + count; i++)
		if (!m->mapped[i])
			return false;
	return true;
}

static void write_pages(struct model *m, unsigned long first, unsigned long count)
{
	for (unsigned long i = first; i < first + count; i++) {
		if (!m->mapped[i] || m->readonly[i])
			continue;
		*(uint64_t *)(m->area + i * PAGE) = m->word[i] = next(m);
		m->given_up[i] = false;
	}
}

static int unmap(struct model *m, unsigned long first, unsigned long count)
{
	if (munmap(m->area + first * PAGE, count * PAGE))
		return 2;
	for (unsigned long i = first; i < first + count; i++)
		m->mapped[i] = false;
	return 0;
}

static int discard(struct model *m, unsigned long first, unsigned long count)
{
	if (!all_mapped(m, first, count))
		return 0;
	if (madvise(m->area + first * PAGE, count * PAGE, MADV_DONTNEED))
		return 4;
	for (unsigned long i = first; i < first + count; i++) {
		m->word[i] = m->clean[i];
		m->given_up[i] = false;
	}
	return 0;
}

/* To read-only for a while, or back. */
static int protect(struct model *m, unsigned long first, unsigned long count, bool readonly)
{
	if (!all_mapped(m, first, count))
		return 0;
	if (mprotect(m->area + first * PAGE, count * PAGE,
		     PROT_READ | (readonly ? 0 : PROT_WRITE)))
		return 5;
	for (unsigned long i = first; i < first + count; i++)
		m->readonly[i] = readonly;
	return 0;
}

/* What it said before it may still hold; a page of a file may be the file's again. */
static void give_up(struct model *m, unsigned long first, unsigned long count)
{
	if (!may_free_lazily || !all_mapped(m, first, count))
		return;
	/* Areas of files refuse, maybe after some that did not. */
	madvise(m->area + first * PAGE, count * PAGE, MADV_FREE);
	for (unsigned long i = first; i < first + count; i++)
		m->given_up[i] = true;
}

static void migrate(struct model *m, unsigned long first, unsigned long count)
{
	int nodes[40], status[40], node = next(m) % 2;
	void *pages[40];

	count = count < 40 ? count : 40;
	for (unsigned long i = 0; i < count; i++) {
		pages[i] = m->area + (first + i) * PAGE;
		nodes[i] = node;
	}
	/* Also what others map; nothing where there is one node. */
	syscall(SYS_move_pages, 0, count, pages, nodes, status, MPOL_MF_MOVE_ALL);
}

static void take_offline(struct model *m, unsigned long page)
{
	if (m->mapped[page] && __atomic_fetch_add(offline, 1, __ATOMIC_RELAXED) < MOST_OFFLINE)
		madvise(m->area + page * PAGE, PAGE, MADV_SOFT_OFFLINE);
}

/* What changes where pages are and what is known of their use, and not what they hold. */
static void disturb(struct model *m, unsigned long first, unsigned long count)
{
	char *at = m->area + first * PAGE;

	switch (next(m) % 5) {
	case 0:
		madvise(at, count * PAGE, MADV_PAGEOUT);
		break;
	case 1:
		madvise(at, count * PAGE, MADV_COLD);
		break;
	case 2:
		write_word("/proc/self/clear_refs", next(m) & 1 ? "1" : "4");
		break;
	case 3:
		take_offline(m, first);
		break;
	default:
		migrate(m, first, count);
	}
}

static int step(struct model *m)
{
	unsigned long first, count;
	int kind = next(m) % 24;

	range(m, &first, &count);
	switch (kind) {
	case 0 ... 7:
		write_pages(m, first, count < 64 ? count : 64);
		return 0;
	case 8 ... 9:
		for (unsigned long i = first; i < first + count; i++)
			if (m->mapped[i] && !holds(m, i))
				return 1;
		return 0;
	case 10:
		return unmap(m, first, count);
	case 11:
		return map(m, first, count);
	case 12 ... 13:
		return discard(m, first, count);
	case 14 ... 15:
		return protect(m, first, count, true) ?: protect(m, first, count, false);
	case 16:
		return move(m, first, next(m) % PAGES);
	case 17 ... 18:
		return protect(m, first, count < 8 ? count : 1 + next(m) % 8, true);
	case 19:
		return protect(m, first, count, false);
	case 20:
		give_up(m, first, count);
		return 0;
	default:
		disturb(m, first, count);
		return 0;
	}
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

static long swap_kb(void)
{
	char line[128];
	long kb = 0;
	FILE *f = fopen("/proc/meminfo", "r");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "SwapTotal: %ld", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return kb;
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
	may_free_lazily = swap_kb() == 0;
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
	offline = steps_done + 1;
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
