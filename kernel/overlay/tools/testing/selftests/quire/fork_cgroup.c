// SPDX-License-Identifier: GPL-2.0
/*
 * Processes in several memory cgroups share page tables by fork. If a limit kills one of them,
 * the survivors' data does not change; when all of them have ended, nothing is left charged. A
 * process that is reaped early leaves its tables early.
 */
#define _GNU_SOURCE
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include "harness.h"
#define TOP "/sys/fs/cgroup/quire_fork_cgroup"
#include "cgroup.h"

#define TABLES 4
#define PAGES (TABLES * SLOTS)
#define LEN (TABLES * TABLE)
/* What the kernel keeps for an empty group: per-CPU memory, which is freed slowly. */
#define REST (1L << 20)

static int to_child[2], from_child[2];

/*
 * Forks a child that checks its memory, writes to it and ends. Returns 0 if the child shared
 * the tables and all contents were right.
 */
static long child_that_ends(char *area)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		if (shared_tables(getpid()) < TABLES || wrong(area, PAGES, 'f'))
			_exit(1);
		fill(area, PAGES / 2 + 5, 'x');
		_exit(!!wrong(area, PAGES / 2 + 5, 'x'));
	}
	return waitpid(pid, &status, 0) == pid ? status : -1;
}

static long serve(char command, void *area);

static long start_child(char *area)
{
	pid_t pid = fork();

	if (!pid) {
		/*
		 * Also close the parent's pipe: its end of file tells the test that the parent
		 * has ended.
		 */
		for (int fd = 3; fd < 64; fd++)
			if (fd != to_child[0] && fd != from_child[1])
				close(fd);
		serve_commands(to_child[0], from_child[1], serve, area);
	}
	close(to_child[0]);
	close(to_child[1]);
	close(from_child[0]);
	close(from_child[1]);
	return pid;
}

/*
 * a, b: join a group; f, F: fill; r, R: pages that are wrong; s: tables; k: fork the child; n:
 * fork a child that ends; e: eat memory
 */
static long serve(char command, void *area)
{
	switch (command) {
	case 'a':
		return write_word(TOP "/a/cgroup.procs", "0");
	case 'b':
		return write_word(TOP "/b/cgroup.procs", "0");
	case 'f':
	case 'F':
		fill(area, PAGES, command);
		return 0;
	case 'r':
		return wrong(area, PAGES, 'f');
	case 'R':
		return wrong(area, PAGES, 'F');
	case 's':
		return shared_tables(getpid());
	case 'k':
		return start_child(area);
	case 'n':
		return child_that_ends(area);
	case 'e':
		return eat();
	}
	return -1;
}

/* The test itself shares another area with the parent, until the parent forks in its own group. */
FIXTURE(fork_cgroup) {
	struct helper parent, child;
	char *area, *own;
};

/* The parent, in group a, has filled the area; its child, in group b, shares it. */
FIXTURE_SETUP(fork_cgroup)
{
	long copied;

	NEED_FORK_FEATURE();
	signal(SIGPIPE, SIG_IGN);
	ASSERT_EQ(0, prctl(PR_SET_CHILD_SUBREAPER, 1));
	write_word("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	mkdir(TOP, 0755);
	write_word(TOP "/cgroup.subtree_control", "+memory");
	mkdir(TOP "/a", 0755);
	mkdir(TOP "/b", 0755);
	if (access(TOP "/b/memory.max", W_OK))
		SKIP(return, "no memory controller");
	self->own = map_tables(TABLES);
	self->area = map_tables(TABLES);
	ASSERT_TRUE(self->own && self->area);
	fill(self->own, PAGES, 'o');
	ASSERT_EQ(0, pipe(to_child));
	ASSERT_EQ(0, pipe(from_child));
	ASSERT_EQ(0, start_helper(&self->parent, serve, self->area));
	close(to_child[0]);
	close(from_child[1]);
	self->child.to = to_child[1];
	self->child.from = from_child[0];
	ASSERT_EQ(0, ask(&self->parent, 'a'));
	ASSERT_EQ(0, ask(&self->parent, 'f'));
	copied = fork_stat("tables_copied");
	self->child.pid = ask(&self->parent, 'k');
	ASSERT_LT(0, self->child.pid);
	ASSERT_EQ(0, ask(&self->child, 'b'));
	/*
	 * The parent has copied the tables that the test's group is charged for, and shares its
	 * copies.
	 */
	ASSERT_LE(copied + TABLES, fork_stat("tables_copied"));
	ASSERT_LE(2 * TABLES, ask(&self->child, 's'));
	ASSERT_LE(2 * TABLES, ask(&self->parent, 's'));
	ASSERT_EQ(0, write_word(TOP "/a/memory.swap.max", "0"));
	ASSERT_EQ(0, write_word(TOP "/b/memory.swap.max", "0"));
}

/*
 * Waits until nothing is charged to the group: both processes have ended and their memory is
 * free.
 */
static bool empty(const char *group)
{
	for (int i = 0; i < 20000; i++) {
		if (!tables_of(group) && !number_of(group, "memory.stat", "anon") &&
		    number_of(group, "memory.current", NULL) < REST)
			return true;
		usleep(10000);
	}
	return false;
}

FIXTURE_TEARDOWN(fork_cgroup)
{
	EXPECT_TRUE(tables_consistent());
	/* A helper that was killed does not read this. */
	(void)!write(self->child.to, "q", 1);
	(void)!write(self->parent.to, "q", 1);
	while (wait(NULL) > 0)
		;
	EXPECT_TRUE(empty("/a"));
	EXPECT_TRUE(empty("/b"));
	EXPECT_EQ(0, wrong(self->own, PAGES, 'o'));
	EXPECT_TRUE(tables_consistent());
	EXPECT_TRUE(remove_group("/a"));
	EXPECT_TRUE(remove_group("/b"));
	EXPECT_TRUE(remove_group(""));
}

/* The child is killed for memory of its own, while its tables are shared. */
TEST_SLOW(fork_cgroup, child_is_killed)
{
	long left = fork_stat("tables_left");

	ASSERT_EQ(0, write_word(TOP "/b/memory.max", "16M"));
	EXPECT_EQ(-1, ask(&self->child, 'e'));
	EXPECT_TRUE(counts("/b", "oom_kill"));
	EXPECT_TRUE(empty("/b"));
	EXPECT_EQ(0, number_of("/a", "memory.events", "oom_kill"));
	EXPECT_LE(left + 2 * TABLES, fork_stat("tables_left"));
	EXPECT_EQ(0, ask(&self->parent, 'r'));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, ask(&self->parent, 'F'));
	EXPECT_EQ(0, ask(&self->parent, 'R'));
}

/*
 * The child is killed for the copies of pages that its writes make, while some tables are still
 * shared.
 */
TEST_SLOW(fork_cgroup, child_is_killed_as_it_writes)
{
	long copied = fork_stat("tables_copied"), left = fork_stat("tables_left");

	ASSERT_EQ(0, write_word(TOP "/b/memory.max", "5M"));
	EXPECT_EQ(-1, ask(&self->child, 'F'));
	EXPECT_TRUE(counts("/b", "oom_kill"));
	EXPECT_TRUE(empty("/b"));
	EXPECT_LT(copied, fork_stat("tables_copied"));
	EXPECT_LT(left + TABLES, fork_stat("tables_left"));
	EXPECT_EQ(0, ask(&self->parent, 'r'));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, ask(&self->parent, 'F'));
	EXPECT_EQ(0, ask(&self->parent, 'R'));
}

/*
 * The parent is killed. Its group pays for the parent's pages that the child uses, for as long
 * as the child has them.
 */
TEST_SLOW(fork_cgroup, parent_is_killed)
{
	ASSERT_EQ(0, write_word(TOP "/a/memory.max", "32M"));
	EXPECT_EQ(-1, ask(&self->parent, 'e'));
	EXPECT_TRUE(counts("/a", "oom_kill"));
	EXPECT_EQ(self->parent.pid, waitpid(self->parent.pid, NULL, 0));
	EXPECT_EQ(0, number_of("/b", "memory.events", "oom_kill"));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, ask(&self->child, 'r'));
	tables_of("/a");
	EXPECT_LE((long)LEN, number_of("/a", "memory.stat", "anon"));
	EXPECT_EQ(0, ask(&self->child, 'F'));
	EXPECT_EQ(0, ask(&self->child, 'R'));
}

/* All processes that share an area are killed at once, as a group. */
TEST_SLOW(fork_cgroup, group_is_killed)
{
	ASSERT_EQ(0, ask(&self->child, 'a'));
	ASSERT_EQ(0, write_word(TOP "/a/memory.oom.group", "1"));
	ASSERT_EQ(0, write_word(TOP "/a/memory.max", "32M"));
	EXPECT_EQ(-1, ask(&self->child, 'e'));
	EXPECT_TRUE(counts("/a", "oom_group_kill"));
	EXPECT_EQ(-1, ask(&self->parent, 'r'));
	EXPECT_TRUE(empty("/a"));
	/* The process that the OOM killer chooses is counted twice. */
	EXPECT_LE(2, number_of("/a", "memory.events", "oom_kill"));
}

/*
 * The child is killed and reaped while it still exists: it has left the tables, and the other
 * processes still have them.
 */
TEST_SLOW(fork_cgroup, killed_child_is_reaped)
{
	long left = fork_stat("tables_left"), adopted = fork_stat("tables_adopted");
	int pidfd, status;

	ASSERT_EQ(0, ptrace(PTRACE_SEIZE, self->child.pid, 0, PTRACE_O_TRACEEXIT));
	pidfd = syscall(SYS_pidfd_open, self->child.pid, 0);
	ASSERT_LE(0, pidfd);
	ASSERT_EQ(0, kill(self->child.pid, SIGKILL));
	ASSERT_EQ(self->child.pid, waitpid(self->child.pid, &status, __WALL));
	ASSERT_EQ(SIGTRAP | PTRACE_EVENT_EXIT << 8, status >> 8);
	ASSERT_EQ(0, syscall(448 /* process_mrelease */, pidfd, 0));
	EXPECT_LE(left + 2 * TABLES, fork_stat("tables_left"));
	EXPECT_EQ(0, shared_tables(self->child.pid));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, ask(&self->parent, 'r'));
	/* No other process uses the tables: they are adopted and not copied. */
	EXPECT_EQ(0, ask(&self->parent, 'F'));
	EXPECT_EQ(0, ask(&self->parent, 'R'));
	EXPECT_LE(adopted + TABLES, fork_stat("tables_adopted"));
	EXPECT_EQ(0, ptrace(PTRACE_CONT, self->child.pid, 0, 0));
	close(pidfd);
}

/*
 * Reading memory.stat adds up the CPUs' counts only if they are large, and the kernel's timer
 * for the rest waits for as long as its CPU is idle. Reading cpu.stat adds up all counts.
 */
static long charged_anon(void)
{
	number_of("/a", "cpu.stat", "usage_usec");
	return number_of("/a", "memory.stat", "anon");
}

/* Memory of a process that has ended is freed a moment later. */
static bool settles(long anon, long tables)
{
	for (int i = 0; i < 200; i++) {
		if (charged_anon() == anon && tables_of("/a") == tables)
			return true;
		usleep(10000);
	}
	return false;
}

/* If a child shares tables, copies some of them and ends, the charge is as it was before. */
TEST_SLOW(fork_cgroup, charge_is_as_before)
{
	long anon, tables;
	int i;

	ASSERT_EQ(1, write(self->child.to, "q", 1));
	ASSERT_TRUE(empty("/b"));
	/*
	 * A few pages of the parent are charged to the test's group until the parent writes to
	 * such a page before its child does, and copies it. That may happen in any round, once
	 * for each page.
	 */
	for (i = 0; i < 8; i++) {
		anon = charged_anon();
		tables = tables_of("/a");
		EXPECT_LE((long)LEN, anon);
		ASSERT_EQ(0, ask(&self->parent, 'n'));
		if (settles(anon, tables))
			break;
	}
	EXPECT_LT(i, 8);
	EXPECT_EQ(0, ask(&self->parent, 'r'));
}

TEST_HARNESS_MAIN
