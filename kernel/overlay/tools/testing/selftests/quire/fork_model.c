// SPDX-License-Identifier: GPL-2.0
/*
 * Random trees of processes against a model. Every process keeps, in memory
 * that is not shared, what each page of the area must hold. It takes random steps
 * (fork_model.h), forks, and compares all pages before it ends. KSM merges pages, and
 * folios are of three sizes. The seed decides what a process does. What depends on the
 * other processes is whether userfaultfd moves a page; the result is the same.
 *
 *	fork_model [SEED [ROUNDS]]
 */
#define _GNU_SOURCE
#include <sys/stat.h>
#include <time.h>

#include "harness.h"
#include "compat.h"
#include "fork_test.h"
#include "fork_model.h"

#define MAX_DEPTH 4
#define KSM "/sys/kernel/mm/ksm/run"
#define LARGE "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled"

static uint64_t seed = 1;
static unsigned int rounds = 6;

/* Steps of all processes. */
static unsigned long *steps_done;

/* Returns 0, or what went wrong in this process or in a descendant. */
static int live(struct model *m, int depth)
{
	int steps = 10 + next(m) % 20, bad = 0, i, status;
	int children = 0;

	for (i = 0; i < steps && !bad; i++) {
		if (depth < MAX_DEPTH && next(m) % 8 == 0) {
			uint64_t its = next(m) | 1;
			pid_t pid = fork_some(m);

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
	/* In half of the cases, the parent ends or goes on before its children. */
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
	/* Without KSM and large folios, all pages are base pages, and none are merged. */
	write_word(KSM, "1");
	write_word(LARGE, "madvise");
}

FIXTURE_TEARDOWN(fork_model)
{
	write_word(LARGE, "never");
	write_word(KSM, "0");
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
