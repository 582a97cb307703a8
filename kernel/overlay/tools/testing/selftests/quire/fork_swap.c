// SPDX-License-Identifier: GPL-2.0
/*
 * The reverse map on shared page tables: swap out, swap in, swapoff, compaction.
 * Swap is on zram; a memory cgroup's memory.reclaim makes reclaim certain.
 */
#define _GNU_SOURCE
#include <sys/stat.h>

#include "harness.h"
#include "fork_test.h"

#define TABLES 4
#define PAGES (TABLES * SLOTS)
#define LEN (TABLES * TABLE)
#define GROUP "/sys/fs/cgroup/quire_fork_swap"

static long serve(char command, void *arg)
{
	char *area = arg;

	switch (command) {
	case 'r':
		return wrong(area, PAGES, 7);
	case '1':
		return *(uint64_t *)area != word_for(0, 7);
	case 'W':
		fill(area, PAGES, 3);
		return wrong(area, PAGES, 3);
	case 's':
		return shared_tables(getpid());
	}
	return -1;
}

static int join_group(void)
{
	write_word("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	mkdir(GROUP, 0755);
	return write_word(GROUP "/cgroup.procs", "0");
}

/*
 * Reclaim until most of the area is swapped out of this process. That may find
 * nothing until the group's statistics are brought up to date, which is every
 * other second.
 */
static bool swap_out(char *area)
{
	int i;

	for (i = 0; i < 2000; i++) {
		if (smaps_of(getpid(), area, "Swap") >= (long)(LEN / 1024 * 3 / 4))
			return true;
		write_word(GROUP "/memory.reclaim", "16M");
		usleep(10000);
	}
	return false;
}

FIXTURE(fork_swap) {
	char *area;
	struct helper child;
};

FIXTURE_SETUP(fork_swap)
{
	NEED_FORK_FEATURE();
	if (join_group())
		SKIP(return, "no memory cgroup");
	if (make_swap())
		SKIP(return, "no swap on zram");
	self->area = map_tables(TABLES);
	ASSERT_NE(NULL, self->area);
	fill(self->area, PAGES, 7);
	ASSERT_EQ(0, start_helper(&self->child, serve, self->area));
	ASSERT_LE(TABLES, shared_tables(getpid()));
}

FIXTURE_TEARDOWN(fork_swap)
{
	swapoff(SWAP);
	EXPECT_EQ(0, stop_helper(&self->child));
	EXPECT_TRUE(tables_consistent());
	write_word("/sys/fs/cgroup/cgroup.procs", "0");
	rmdir(GROUP);
}

TEST_SLOW(fork_swap, out_and_in)
{
	ASSERT_TRUE(swap_out(self->area));
	/* It went out of the tables in place, for both. */
	EXPECT_LE(TABLES - 1, shared_tables(getpid()));
	EXPECT_LE((long)(LEN / 2048), smaps_of(self->child.pid, self->area, "Swap"));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_TRUE(tables_consistent());
}

TEST_SLOW(fork_swap, written_after_out)
{
	ASSERT_TRUE(swap_out(self->area));
	fill(self->area, PAGES, 11);
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 11));
	EXPECT_TRUE(tables_consistent());
}

TEST_SLOW(fork_swap, swapoff_with_all)
{
	ASSERT_TRUE(swap_out(self->area));
	ASSERT_EQ(0, swapoff(SWAP));
	EXPECT_EQ(0, smaps_of(getpid(), self->area, "Swap"));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
}

static void nothing(int sig)
{
}

/* A swapoff that finds nothing forgets who has swap; sharers must not be. */
TEST_SLOW(fork_swap, swapoff_twice)
{
	struct sigaction action = { .sa_handler = nothing };

	ASSERT_EQ(0, swapoff(SWAP));
	ASSERT_EQ(0, make_swap());
	ASSERT_TRUE(swap_out(self->area));
	/* The parent gets its own copies; the child keeps the tables. */
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_TRUE(tables_consistent());
	/* One that misses a process tries for ever, until there is a signal. */
	sigaction(SIGALRM, &action, NULL);
	alarm(300);
	ASSERT_EQ(0, swapoff(SWAP));
	alarm(0);
	EXPECT_EQ(0, smaps_of(self->child.pid, self->area, "Swap"));
	EXPECT_EQ(0, ask(&self->child, 'r'));
}

/* Many use one table while its pages go out, and all get them back. */
TEST_SLOW(fork_swap, many_children)
{
	const char *word = getenv("FORK_CHILDREN");
	int children = word ? atoi(word) : 100, go[2], status, i, bad = 0;
	char byte;

	ASSERT_EQ(0, pipe(go));
	for (i = 0; i < children; i++) {
		pid_t pid = fork();

		ASSERT_LE(0, pid);
		if (!pid) {
			close(go[1]);
			if (read(go[0], &byte, 1))
				_exit(1);
			i %= PAGES;
			_exit(*(uint64_t *)(self->area + i * PAGE) != word_for(i, 7));
		}
	}
	close(go[0]);
	ASSERT_TRUE(swap_out(self->area));
	EXPECT_LE(TABLES - 1, shared_tables(getpid()));
	EXPECT_TRUE(tables_consistent());
	close(go[1]);
	for (i = 0; i < children; i++) {
		ASSERT_LT(0, wait(&status));
		bad += !!status;
	}
	EXPECT_EQ(0, bad);
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_EQ(0, ask(&self->child, 'r'));
}

TEST_SLOW(fork_swap, swapoff_after_owner_left)
{
	ASSERT_TRUE(swap_out(self->area));
	ASSERT_EQ(0, munmap(self->area, LEN));
	EXPECT_TRUE(tables_consistent());
	ASSERT_EQ(0, swapoff(SWAP));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, ask(&self->child, 'W'));
}

TEST_SLOW(fork_swap, leavers_swap_entries)
{
	ASSERT_TRUE(swap_out(self->area));
	EXPECT_EQ(0, stop_helper(&self->child));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	ASSERT_EQ(0, start_helper(&self->child, serve, self->area));
	EXPECT_EQ(0, ask(&self->child, 'r'));
}

TEST_SLOW(fork_swap, compaction)
{
	int i;

	for (i = 0; i < 3; i++) {
		if (write_word("/proc/sys/vm/compact_memory", "1"))
			SKIP(return, "no compaction");
		EXPECT_EQ(0, ask(&self->child, 'r'));
		EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	}
	EXPECT_LE(TABLES, shared_tables(getpid()));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
}

TEST_HARNESS_MAIN
