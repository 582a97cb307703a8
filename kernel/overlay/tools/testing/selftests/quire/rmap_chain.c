// SPDX-License-Identifier: GPL-2.0
/*
 * A chain of forks, in which each generation is a child of the one before. A pattern decides
 * which generations write where, and in which order they exit. The contents must be right and
 * the reverse map complete at all times.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "harness.h"
#include "rmap_common.h"

#define DEPTH 32
#define CHAIN_PAGES 8
#define PATTERNS 6

enum leaving { PARENTS_FIRST, CHILDREN_FIRST, MIXED };

struct chain {
	pid_t pid[DEPTH];
	int ready;		/* generations that are running and have written */
	int leave[DEPTH];	/* told to exit */
	int bad[DEPTH];
};

FIXTURE(rmap) {
	long enabled;
};

FIXTURE_SETUP(rmap)
{
	self->enabled = read_number(RMAP "enabled");
	if (self->enabled < 0)
		SKIP(return, "no rmap feature in this kernel");
	ASSERT_TRUE(rmap_begin());
}

FIXTURE_TEARDOWN(rmap)
{
	ASSERT_TRUE(rmap_end(self->enabled));
}

static bool writes(int pattern, int generation)
{
	switch (pattern) {
	case 0:
		return false;
	case 1:
		return true;
	case 2:
		return generation == 0;
	case 3:
		return generation == DEPTH / 2;
	case 4:
		return generation == DEPTH - 1;
	default:
		return generation % 3 == 1;
	}
}

/* One generation; its child becomes the next one. */
static void generations_live(struct chain *chain, int pattern, void *base,
			     uint64_t expected[CHAIN_PAGES])
{
	int generation = 0, i;

	do {
		chain->pid[generation] = getpid();
		if (writes(pattern, generation)) {
			i = generation % CHAIN_PAGES;
			expected[i] = 100 + generation;
			*word(base, i) = expected[i];
		}
		__atomic_add_fetch(&chain->ready, 1, __ATOMIC_SEQ_CST);
	} while (generation + 1 < DEPTH && !fork() && ++generation);

	while (!__atomic_load_n(&chain->leave[generation], __ATOMIC_SEQ_CST))
		syscall(SYS_futex, &chain->leave[generation], FUTEX_WAIT, 0, NULL);
	for (i = 0; i < CHAIN_PAGES; i++)
		chain->bad[generation] += *word(base, i) != expected[i];
	_exit(0);
}

/* Returns when all generations are running; false if they do not start. */
static bool chain_starts(struct chain *chain, int pattern, void *base)
{
	uint64_t expected[CHAIN_PAGES];
	int i;

	for (i = 0; i < CHAIN_PAGES; i++)
		*word(base, i) = expected[i] = 50 + i;
	if (!fork())
		generations_live(chain, pattern, base, expected);
	for (i = 0; i < 60000 && __atomic_load_n(&chain->ready, __ATOMIC_SEQ_CST) < DEPTH; i++)
		usleep(2000);
	return __atomic_load_n(&chain->ready, __ATOMIC_SEQ_CST) == DEPTH;
}

static int leaver(enum leaving order, int n)
{
	switch (order) {
	case PARENTS_FIRST:
		return n;
	case CHILDREN_FIRST:
		return DEPTH - 1 - n;
	default:
		return n * 13 % DEPTH;
	}
}

/* A zombie counts as ended, because it has no memory: its parent may live and not wait for it. */
static bool has_ended(pid_t pid)
{
	siginfo_t info = { 0 };
	char path[32], state = 0;
	FILE *file;

	waitid(P_PID, pid, &info, WEXITED | WNOHANG);
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "r");
	if (!file)
		return true;
	if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	fclose(file);
	return state == 'Z';
}

/* Has one generation exit, and waits until its memory is gone; false if it stays. */
static bool leaves(struct chain *chain, int generation)
{
	int i;

	__atomic_store_n(&chain->leave[generation], 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &chain->leave[generation], FUTEX_WAKE, 1);
	for (i = 0; i < 60000; i++) {
		if (has_ended(chain->pid[generation]))
			return true;
		usleep(1000);
	}
	return false;
}

static void chain_run(struct __test_metadata *_metadata, int pattern, enum leaving order)
{
	struct chain *chain = mmap(NULL, sizeof(*chain), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	void *base = map(CHAIN_PAGES);
	int i, generation;

	ASSERT_NE(MAP_FAILED, chain);
	ASSERT_NE(MAP_FAILED, base);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	ASSERT_TRUE(chain_starts(chain, pattern, base));
	EXPECT_EQ(0, rmap_check(NULL));
	EXPECT_EQ(0, write_text("/proc/sys/vm/compact_memory", "1"));
	for (i = 0; i < DEPTH; i++) {
		generation = leaver(order, i);
		EXPECT_EQ(0, kill(chain->pid[generation], 0));
		EXPECT_TRUE(leaves(chain, generation));
		if (i % 8 == 7)
			EXPECT_EQ(0, rmap_check(NULL));
	}
	while (wait(NULL) > 0)
		;
	for (i = 0; i < DEPTH; i++)
		EXPECT_EQ(0, chain->bad[i]);
	munmap(chain, sizeof(*chain));
	munmap(base, CHAIN_PAGES * PAGE);
}

TEST_F_TIMEOUT(rmap, chain_parents_first, 600)
{
	for (int pattern = 0; pattern < PATTERNS; pattern++)
		chain_run(_metadata, pattern, PARENTS_FIRST);
}

TEST_F_TIMEOUT(rmap, chain_children_first, 600)
{
	for (int pattern = 0; pattern < PATTERNS; pattern++)
		chain_run(_metadata, pattern, CHILDREN_FIRST);
}

TEST_F_TIMEOUT(rmap, chain_mixed, 600)
{
	for (int pattern = 0; pattern < PATTERNS; pattern++)
		chain_run(_metadata, pattern, MIXED);
}

TEST_HARNESS_MAIN
