// SPDX-License-Identifier: GPL-2.0
/*
 * The reverse map on shared page tables: swap out, swap in, swapoff, compaction.
 * Swap is on zram; a memory cgroup's memory.reclaim makes reclaim certain.
 *
 *	fork_swap [lru_gen] [-t TEST]	with the multi-generational LRU
 */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/uio.h>

#include "harness.h"
#include "compat.h"
#include "cpus.h"
#define TOP "/sys/fs/cgroup/quire_fork_swap"
#include "cgroup.h"

#define TABLES 4
#define PAGES (TABLES * SLOTS)
#define LEN (TABLES * TABLE)

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
	case 'P':
		/*
		 * The kernel takes only what it may: it leaves alone what several processes
		 * map.
		 */
		return madvise(area, LEN, MADV_PAGEOUT);
	case 'F':
		return madvise(area, LEN, MADV_FREE);
	case 'k':
		return smaps_of(getpid(), area, "Swap");
	}
	return -1;
}

static int join_group(void)
{
	write_word("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	mkdir(TOP, 0755);
	return write_word(TOP "/cgroup.procs", "0");
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
	rmdir(TOP);
}

TEST_SLOW(fork_swap, out_and_in)
{
	ASSERT_TRUE(swap_out(self->area, LEN));
	/* The pages went out of the tables in place, for both processes. */
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
	ASSERT_TRUE(swap_out(self->area, LEN));
	fill(self->area, PAGES, 11);
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 11));
	EXPECT_TRUE(tables_consistent());
}

/* If one process frees pages lazily, the other must not lose them: its entries are dirty. */
TEST_SLOW(fork_swap, child_frees_lazily)
{
	ASSERT_EQ(0, ask(&self->child, 'F'));
	ASSERT_TRUE(swap_out(self->area, LEN));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_TRUE(tables_consistent());
}

TEST_SLOW(fork_swap, parent_frees_lazily)
{
	ASSERT_EQ(0, madvise(self->area, LEN, MADV_FREE));
	for (int i = 0; i < 2000 && ask(&self->child, 'k') < (long)(LEN / 1024 * 3 / 4); i++) {
		write_word(TOP "/memory.reclaim", "16M");
		usleep(10000);
	}
	EXPECT_LE((long)(LEN / 1024 * 3 / 4), ask(&self->child, 'k'));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	fill(self->area, PAGES, 11);
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 11));
	EXPECT_TRUE(tables_consistent());
}

/*
 * Pages that were written to after they were freed lazily are put back by reclaim. No TLB is wrong
 * then, so none needs a flush for each page.
 */
TEST_SLOW(fork_swap, freed_and_written_before_fork)
{
	char *area = map_tables(TABLES);
	struct helper child;
	long flushes;

	ASSERT_NE(NULL, area);
	fill(area, PAGES, 5);
	ASSERT_EQ(0, madvise(area, LEN, MADV_FREE));
	fill(area, PAGES, 7);
	ASSERT_EQ(0, start_helper(&child, serve, area));
	flushes = fork_stat("flushes_all");
	ASSERT_TRUE(swap_out(area, LEN));
	EXPECT_GT(flushes + PAGES / 16, fork_stat("flushes_all"));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, ask(&child, 'r'));
	EXPECT_EQ(0, wrong(area, PAGES, 7));
	EXPECT_EQ(0, stop_helper(&child));
}

/*
 * Each process, except a table's last user, gets a copy of each table, and all pages come back
 * from swap.
 */
TEST_SLOW(fork_swap, swapoff_with_all)
{
	long unshared = fork_stat("unshared_swapoff");

	ASSERT_TRUE(swap_out(self->area, LEN));
	ASSERT_LE(TABLES, shared_tables(getpid()));
	ASSERT_EQ(0, swapoff(SWAP));
	EXPECT_LE(unshared + TABLES - 1, fork_stat("unshared_swapoff"));
	EXPECT_EQ(0, smaps_of(getpid(), self->area, "Swap"));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
}

static void nothing(int sig)
{
}

/*
 * A swapoff that finds nothing empties the list of processes that have swap; sharers must stay
 * on it.
 */
TEST_SLOW(fork_swap, swapoff_twice)
{
	struct sigaction action = { .sa_handler = nothing };

	ASSERT_EQ(0, swapoff(SWAP));
	ASSERT_EQ(0, make_swap());
	ASSERT_TRUE(swap_out(self->area, LEN));
	/* The parent gets copies of its own; the child keeps the tables. */
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_TRUE(tables_consistent());
	/* A swapoff that misses a process tries again for ever, until there is a signal. */
	sigaction(SIGALRM, &action, NULL);
	alarm(300);
	ASSERT_EQ(0, swapoff(SWAP));
	alarm(0);
	EXPECT_EQ(0, smaps_of(self->child.pid, self->area, "Swap"));
	EXPECT_EQ(0, ask(&self->child, 'r'));
}

/* Many processes use one table while its pages go out, and all of them get the pages back. */
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
	ASSERT_TRUE(swap_out(self->area, LEN));
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
	ASSERT_TRUE(swap_out(self->area, LEN));
	ASSERT_EQ(0, munmap(self->area, LEN));
	EXPECT_TRUE(tables_consistent());
	ASSERT_EQ(0, swapoff(SWAP));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, ask(&self->child, 'W'));
}

TEST_SLOW(fork_swap, leavers_swap_entries)
{
	ASSERT_TRUE(swap_out(self->area, LEN));
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

/* Forks two children, which share with each other the tables that only it has, and ends. */
static pid_t owner(char *area, struct helper *heirs)
{
	int pipes[4][2];
	pid_t pid;

	for (int i = 0; i < 4; i++)
		if (pipe(pipes[i]))
			return -1;
	pid = fork();
	for (int i = 0; !pid && i < 2; i++) {
		if (i == 0)
			fill(area, PAGES, 7);
		if (fork())
			continue;
		for (int j = 0; j < 4; j++)
			close(pipes[j][~j & 1]);
		serve_commands(pipes[2 * i][0], pipes[2 * i + 1][1], serve, area);
	}
	if (!pid)
		_exit(0);
	for (int i = 0; i < 2; i++) {
		heirs[i].to = pipes[2 * i][1];
		heirs[i].from = pipes[2 * i + 1][0];
		close(pipes[2 * i][0]);
		close(pipes[2 * i + 1][1]);
	}
	return pid;
}

/* No process is left that is charged for the entries that the heirs share. */
TEST_SLOW(fork_swap, swapoff_after_owner_ended)
{
	long unshared = fork_stat("unshared_swapoff");
	struct helper heirs[2];
	char *area = map_tables(TABLES);
	int status, i;
	pid_t pid;

	ASSERT_NE(NULL, area);
	pid = owner(area, heirs);
	ASSERT_LT(0, pid);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_EQ(0, status);
	ASSERT_LE(TABLES, ask(&heirs[0], 's'));
	/* Both heirs have the area at the same address. */
	for (i = 0; i < 2000 && ask(&heirs[1], 'k') < (long)(LEN / 1024 * 3 / 4); i++) {
		write_word(TOP "/memory.reclaim", "16M");
		usleep(10000);
	}
	EXPECT_LE((long)(LEN / 1024 * 3 / 4), ask(&heirs[0], 'k'));
	ASSERT_LE(TABLES, ask(&heirs[0], 's'));
	ASSERT_EQ(0, swapoff(SWAP));
	EXPECT_LE(unshared + TABLES - 1, fork_stat("unshared_swapoff"));
	EXPECT_TRUE(tables_consistent());
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(0, ask(&heirs[i], 'k'));
		EXPECT_EQ(0, ask(&heirs[i], 'r'));
	}
	EXPECT_EQ(0, ask(&heirs[0], 'W'));
	EXPECT_EQ(0, ask(&heirs[1], 'r'));
	/*
	 * The heirs have another parent now. Both hold the pipes, whose end of file tells that
	 * both have ended.
	 */
	for (i = 0; i < 2; i++)
		EXPECT_EQ(1, write(heirs[i].to, "q", 1));
	for (i = 0; i < 2; i++)
		EXPECT_EQ(0, read(heirs[i].from, &status, 1));
}

/* The parent gives advice about itself or about its child. */
static long advise(pid_t pid, char *area, int advice)
{
	struct iovec range = { area, LEN };
	int fd = syscall(SYS_pidfd_open, pid, 0);
	long ret = syscall(440 /* process_madvise */, fd, &range, 1UL, advice, 0);

	close(fd);
	return ret;
}

/*
 * Pages that several processes share stay; pages that one process has for itself go to swap and
 * come back.
 */
TEST_SLOW(fork_swap, advised_to_go_out)
{
	long adopted;

	EXPECT_EQ(0, serve('P', self->area));
	EXPECT_EQ(0, ask(&self->child, 'P'));
	EXPECT_EQ((long)LEN, advise(self->child.pid, self->area, MADV_PAGEOUT));
	EXPECT_EQ((long)LEN, advise(self->child.pid, self->area, MADV_COLD));
	EXPECT_EQ(0, serve('k', self->area));
	EXPECT_LE(TABLES, shared_tables(getpid()));
	/* Now only the child has the old tables and pages, and it has not touched them. */
	fill(self->area, PAGES, 5);
	adopted = fork_stat("tables_adopted");
	EXPECT_EQ((long)LEN, advise(self->child.pid, self->area, MADV_COLD));
	EXPECT_LE(adopted + TABLES, fork_stat("tables_adopted"));
	EXPECT_EQ((long)LEN, advise(self->child.pid, self->area, MADV_PAGEOUT));
	EXPECT_LE((long)(LEN / 1024 * 3 / 4), ask(&self->child, 'k'));
	EXPECT_EQ(0, serve('k', self->area));
	EXPECT_EQ(0, serve('P', self->area));
	EXPECT_LE((long)(LEN / 1024 * 3 / 4), serve('k', self->area));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 5));
}

/*
 * Pages that were swapped out before the fork are shared as they are, and both processes read
 * them.
 */
TEST_SLOW(fork_swap, forked_after_it_went_out)
{
	fill(self->area, PAGES, 5);
	EXPECT_EQ(0, serve('P', self->area));
	ASSERT_LE((long)(LEN / 1024 * 3 / 4), serve('k', self->area));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, finish(&self->child));
	ASSERT_EQ(0, start_helper(&self->child, serve, self->area));
	ASSERT_LE(TABLES, ask(&self->child, 's'));
	EXPECT_LE((long)(LEN / 1024 * 3 / 4), ask(&self->child, 'k'));
	EXPECT_EQ((long)PAGES, ask(&self->child, 'r'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 5));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 5));
}

#define MEET	"/sys/kernel/debug/quire/pt_meet"
#define AT_ONCE	32	/* tables that are left in one go: at most LEAVE_BATCH of pt.c */
#define PMD_PAGE (1UL << 30)	/* what the PMDs of one page map; no batch goes beyond */
#define ROUNDS	3

/*
 * Has a process and its child unmap shared tables together: each table has a page, and one in swap.
 * @meet is MEET: the first of them does not go on at the last table before the other has left the
 * rest. 0, or -1.
 */
static int leave_together(char *area, int meet)
{
	size_t len = AT_ONCE * TABLE;
	int status, failed;
	pid_t pid;

	if (mmap(area, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		 0) == MAP_FAILED)
		return -1;
	for (size_t at = 0; at < len; at += TABLE) {
		area[at] = area[at + PAGE] = 1;
		if (madvise(area + at, PAGE, MADV_PAGEOUT))
			return -1;
	}
	if (dprintf(meet, "%#lx", (unsigned long)area + len - TABLE) < 0)
		return -1;
	pid = fork();
	if (pid < 0)
		return -1;
	/* The one that waits does not let go of its CPU, so whichever runs first parts them. */
	failed = run_on(pid, 1) || munmap(area, len);
	if (!pid)
		_exit(failed);
	return waitpid(pid, &status, 0) != pid || status || failed ? -1 : 0;
}

/*
 * Neither of the last two users of a table finds itself alone there, so neither adopts it: the
 * later one frees what is in it. What is left in swap would keep swapoff() from its end.
 */
TEST_SLOW(fork_swap, both_leave_at_once)
{
	char *area = map_tables(2 * AT_ONCE);
	long dropped, tables, anon;
	int meet, i;

	meet = open(MEET, O_WRONLY);
	if (meet < 0 && errno == ENOENT)
		SKIP(return, "no " MEET);
	if (run_on(0, 1) || run_on(0, 0))
		SKIP(return, "needs CPUs 0 and 1");
	ASSERT_LE(0, meet);
	ASSERT_NE(NULL, area);
	if (((unsigned long)area ^ ((unsigned long)area + AT_ONCE * TABLE - 1)) & -PMD_PAGE)
		area += -(unsigned long)area % PMD_PAGE;
	ASSERT_EQ(0, leave_together(area, meet));
	tables = tables_of("");
	anon = number_of("", "memory.stat", "anon");
	dropped = fork_stat("tables_dropped");
	for (i = 0; i < ROUNDS; i++)
		ASSERT_EQ(0, leave_together(area, meet));
	EXPECT_LE(dropped + ROUNDS * (AT_ONCE - 1), fork_stat("tables_dropped"));
	/* RCU frees the tables. */
	for (i = 0; i < 20000 && tables_of("") > tables; i++)
		usleep(10000);
	EXPECT_GE(tables, tables_of(""));
	EXPECT_GE(anon + 16 * (long)PAGE, number_of("", "memory.stat", "anon"));
	close(meet);
}

#define LRU_GEN "/sys/kernel/mm/lru_gen/enabled"

static char lru_gen_was[16];

static void put_back(void)
{
	write_word(LRU_GEN, lru_gen_was);
}

int main(int argc, char **argv)
{
	bool gen = argc > 1 && !strcmp(argv[1], "lru_gen");
	int fd;

	if (!gen)
		return test_harness_run(argc, argv);
	fd = open(LRU_GEN, O_RDONLY);
	if (fd < 0 || read(fd, lru_gen_was, sizeof(lru_gen_was) - 1) <= 0 ||
	    write_word(LRU_GEN, "y"))
		ksft_exit_fail_msg("no multi-generational LRU\n");
	close(fd);
	/* The harness does not return. */
	atexit(put_back);
	return test_harness_run(argc - 1, argv + 1);
}
