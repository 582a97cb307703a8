// SPDX-License-Identifier: GPL-2.0
/*
 * A process reads through tables that it shares, on a CPU of its own, while another process has
 * the pages swapped out or moved and writes to the freed memory. If a TLB still has an old
 * page, the reader sees what was written there.
 */
#define _GNU_SOURCE
#include <sys/syscall.h>

#include "cpus.h"
#include "harness.h"
#define TOP "/sys/fs/cgroup/quire_fork_stale"
#include "fork_test.h"
#include "cgroup.h"

#define TABLES 2
#define PAGES (TABLES * SLOTS)
#define LEN (TABLES * TABLE)
#define ROUNDS 12

/* What the reader reports, and what it is told. */
struct talk {
	volatile unsigned long rounds, bad;
	volatile bool stop;
};

FIXTURE(fork_stale) {
	struct talk *talk;
	char *area;
	long cleared, flushes_all;
};

FIXTURE_SETUP(fork_stale)
{
	NEED_FORK_FEATURE();
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		SKIP(return, "needs two CPUs");
	self->talk = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	self->area = map_tables(TABLES);
	ASSERT_NE(NULL, self->area);
	ASSERT_NE(MAP_FAILED, (void *)self->talk);
	run_on(0, 0);
	fill(self->area, PAGES, 'a');
	self->cleared = fork_stat("rmap_cleared");
	self->flushes_all = fork_stat("flushes_all");
}

FIXTURE_TEARDOWN(fork_stale)
{
	EXPECT_TRUE(tables_consistent());
}

/*
 * Starts a process that reads all the time; it shares its tables with its parent and with @idle
 * children.
 */
static pid_t start_reader(struct talk *talk, const char *area, int idle)
{
	pid_t pid;

	*talk = (struct talk){};
	for (int i = 0; i <= idle; i++) {
		pid = fork();
		if (pid)
			continue;
		while (i < idle)
			pause();
		run_on(0, 1);
		for (; !talk->stop; talk->rounds++)
			talk->bad += wrong(area, PAGES, 'a');
		_exit(0);
	}
	while (pid > 0 && talk->rounds < 3)
		sched_yield();
	return pid;
}

/* Lets the reader go round again and report, and ends all children. */
static unsigned long end_reader(struct talk *talk)
{
	unsigned long now = talk->rounds;

	while (talk->rounds < now + 3)
		sched_yield();
	talk->stop = true;
	now = talk->bad;
	signal(SIGTERM, SIG_IGN);
	kill(0, SIGTERM);
	signal(SIGTERM, SIG_DFL);
	while (wait(NULL) > 0)
		;
	return now;
}

/* Takes free memory, at least as much as the area has, and writes to it. */
static void use_free_pages(void)
{
	char *more = mmap(NULL, 2 * LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memset(more, 0x5a, 2 * LEN);
	munmap(more, 2 * LEN);
}

/*
 * Reclaim defers the flush to the end of its batch, and flushes only for the processes that use
 * the table.
 */
TEST_SLOW(fork_stale, swapped_out)
{
	long flushes = fork_stat("flushes_reclaim");
	unsigned long bad = 0;

	setpgid(0, 0);
	write_word("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	mkdir(TOP, 0755);
	if (access(TOP "/memory.reclaim", W_OK) || make_swap())
		SKIP(return, "no memory controller, or no swap");
	ASSERT_EQ(0, write_word(TOP "/cgroup.procs", "0"));
	for (int i = 0; i < ROUNDS && !bad; i++) {
		/* Fill the area with pages that the group is charged for. */
		munmap(self->area, LEN);
		ASSERT_EQ(self->area, mmap(self->area, LEN, PROT_READ | PROT_WRITE,
					   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
		fill(self->area, PAGES, 'a');
		ASSERT_LT(0, start_reader(self->talk, self->area, i % 3));
		/*
		 * Reclaim some of it: reclaim keeps pages that the reader has used again in
		 * time.
		 */
		for (int n = 0; n < 8; n++)
			write_word(TOP "/memory.reclaim", "2M");
		use_free_pages();
		bad = end_reader(self->talk);
	}
	EXPECT_EQ(0, bad);
	EXPECT_LT(self->cleared, fork_stat("rmap_cleared"));
	EXPECT_LT(flushes, fork_stat("flushes_reclaim"));
	EXPECT_EQ(self->flushes_all, fork_stat("flushes_all"));
	EXPECT_EQ(0, wrong(self->area, PAGES, 'a'));
	ASSERT_EQ(0, write_word("/sys/fs/cgroup/cgroup.procs", "0"));
	munmap(self->area, LEN);
	EXPECT_EQ(0, swapoff(SWAP));
	EXPECT_TRUE(remove_group(""));
}

static long move_to(int node)
{
	unsigned long from = 1UL << !node, to = 1UL << node;

	return syscall(SYS_migrate_pages, 0, 8 * sizeof(long), &from, &to);
}

/* Migration flushes at once, for one user after the other. */
TEST_SLOW(fork_stale, moved)
{
	long flushes = fork_stat("flushes_migration");
	unsigned long bad = 0;

	setpgid(0, 0);
	if (access("/sys/devices/system/node/node1", F_OK))
		SKIP(return, "needs two nodes");
	for (int i = 0; i < ROUNDS && !bad; i++) {
		ASSERT_LT(0, start_reader(self->talk, self->area, i % 3));
		for (int node = 1; node >= 0; node--) {
			EXPECT_LE(0, move_to(node));
			use_free_pages();
		}
		bad = end_reader(self->talk);
	}
	EXPECT_EQ(0, bad);
	EXPECT_LT(self->cleared + PAGES, fork_stat("rmap_cleared"));
	EXPECT_LT(flushes + PAGES, fork_stat("flushes_migration"));
	EXPECT_EQ(self->flushes_all, fork_stat("flushes_all"));
	EXPECT_EQ(0, wrong(self->area, PAGES, 'a'));
}

TEST_HARNESS_MAIN
