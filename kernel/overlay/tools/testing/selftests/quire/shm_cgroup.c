// SPDX-License-Identifier: GPL-2.0
/*
 * Processes of several memory cgroups share the page tables of one segment. After a limit, an
 * OOM kill, a move and the end of one group, the other groups' data is right and the tables are
 * charged once. The OOM killer sees which process maps a lot.
 */
#define _GNU_SOURCE
#include <sched.h>

#include "harness.h"
#include "shm_test.h"

#define TOP "/sys/fs/cgroup/quire_shm_cgroup"
#include "cgroup.h"

#define TABLES 4
#define PAGES (TABLES * SLOTS)
#define LEN (TABLES * TABLE)
/* Tables of all levels that a process may need in addition, for what it does here. */
#define OWN_TABLES 3

/*
 * Do the tables of @a, of b and @others add up to all tables? Freed tables stop counting after
 * a while.
 */
static bool sum_is(const char *a, long others)
{
	for (int i = 0; i < 20000; i++) {
		if ((a ? tables_of(a) : 0) + tables_of("/b") + others == tables_of(""))
			return true;
		usleep(10000);
	}
	return false;
}

static bool falls_to(const char *group, long tables)
{
	for (int i = 0; i < 20000 && tables_of(group) != tables; i++)
		usleep(10000);
	return tables_of(group) == tables;
}

/* How many pages fill() had filled before it was killed; -1 if there is anything else. */
static long filled(const char *area, uint64_t seed)
{
	const uint64_t *word;
	long n = 0;

	for (unsigned long i = 0; i < PAGES; i++) {
		word = (const uint64_t *)(area + i * PAGE);
		if (*word == word_for(i, seed) && n == (long)i)
			n++;
		else if (*word)
			return -1;
	}
	return n;
}

/*
 * a, b, c: join a group; f, F: fill; r, R: pages that are wrong; t: touch each table; p: how
 * far the fill came; s: tables; e: eat memory
 */
static long serve(char command, void *area)
{
	switch (command) {
	case 'a':
		return write_word(TOP "/a/cgroup.procs", "0");
	case 'b':
		return write_word(TOP "/b/cgroup.procs", "0");
	case 'c':
		return write_word(TOP "/c/cgroup.procs", "0");
	case 'f':
	case 'F':
		fill(area, PAGES, command);
		return 0;
	case 'r':
		return wrong(area, PAGES, 'f');
	case 'R':
		return wrong(area, PAGES, 'F');
	case 't':
		for (int i = 1; i <= TABLES; i++)
			(void)*(volatile char *)(area + i * TABLE - 1);
		return 0;
	case 'p':
		return filled(area, 'f');
	case 's':
		return file_tables(getpid());
	case 'e':
		return eat();
	}
	return -1;
}

FIXTURE(groups) {
	struct helper a, b;
	long tables;
	char *area;
	int fd;
};

FIXTURE_SETUP(groups)
{
	NEED_SHM_FEATURE();
	signal(SIGPIPE, SIG_IGN);
	write_word("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	mkdir(TOP, 0755);
	write_word(TOP "/cgroup.subtree_control", "+memory");
	mkdir(TOP "/a", 0755);
	mkdir(TOP "/b", 0755);
	mkdir(TOP "/c", 0755);
	if (access(TOP "/c/memory.max", W_OK))
		SKIP(return, "no memory controller");
	self->tables = shm_number("tables");
	self->fd = memfd_create("quire", 0);
	ASSERT_EQ(0, ftruncate(self->fd, LEN));
	self->area = map_file(self->fd, TABLES, PROT_READ | PROT_WRITE);
	ASSERT_NE(NULL, self->area);
	ASSERT_EQ(0, start_helper(&self->a, serve, self->area));
	ASSERT_EQ(0, ask(&self->a, 'a'));
	ASSERT_EQ(0, start_helper(&self->b, serve, self->area));
	ASSERT_EQ(0, ask(&self->b, 'b'));
}

FIXTURE_TEARDOWN(groups)
{
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, end_helper(&self->a));
	EXPECT_EQ(0, end_helper(&self->b));
	munmap(self->area, LEN);
	close(self->fd);
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(self->tables, shm_number("tables"));
	EXPECT_TRUE(remove_group("/a"));
	EXPECT_TRUE(remove_group("/b"));
	EXPECT_TRUE(remove_group("/c"));
	EXPECT_TRUE(remove_group(""));
}

/*
 * The paying group has room for half of the pages, and every process sees all of them. The
 * limit is memory.high: at memory.max, reclaim may find nothing, see push_out(), and a process
 * of the group would be killed.
 */
TEST_SLOW(groups, limit_of_one)
{
	ASSERT_EQ(0, make_swap());
	ASSERT_EQ(0, write_word(TOP "/a/memory.high", "5M"));
	EXPECT_EQ(0, ask(&self->a, 'f'));
	EXPECT_TRUE(counts("/a", "high"));
	EXPECT_TRUE(push_out(TOP "/a/memory.reclaim", self->area, PAGES, PAGES * 3 / 4));
	EXPECT_GT(number_of("/a", "memory.swap.current", NULL), 0);
	EXPECT_EQ(0, ask(&self->b, 'r'));
	EXPECT_EQ(TABLES, ask(&self->a, 's'));
	EXPECT_EQ(TABLES, ask(&self->b, 's'));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, ask(&self->a, 'r'));
	EXPECT_EQ(0, ask(&self->b, 'F'));
	EXPECT_EQ(0, ask(&self->a, 'R'));
	EXPECT_EQ(0, swapoff(SWAP));
	EXPECT_EQ(0, ask(&self->b, 'R'));
	write_word("/sys/block/zram0/reset", "1");
}

/* The process that made the tables and paid for the pages is killed for other memory. */
TEST_SLOW(groups, oom_kill_of_one)
{
	EXPECT_EQ(0, ask(&self->a, 'f'));
	EXPECT_EQ(0, ask(&self->b, 'r'));
	ASSERT_EQ(0, write_word(TOP "/a/memory.swap.max", "0"));
	ASSERT_EQ(0, write_word(TOP "/a/memory.max", "16M"));
	EXPECT_EQ(-1, ask(&self->a, 'e'));
	EXPECT_EQ(256 + SIGKILL, end_helper(&self->a));
	EXPECT_TRUE(counts("/a", "oom_kill"));
	EXPECT_EQ(0, number_of("/b", "memory.events", "oom_kill"));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(TABLES, ask(&self->b, 's'));
	EXPECT_EQ(0, ask(&self->b, 'r'));
	EXPECT_EQ(0, ask(&self->b, 'F'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 'F'));
}

/* A process is killed while it fills tables that another process uses, with no room for more. */
TEST_SLOW(groups, oom_kill_in_a_table)
{
	long n;

	EXPECT_EQ(0, ask(&self->b, 't'));
	ASSERT_EQ(0, write_word(TOP "/a/memory.swap.max", "0"));
	ASSERT_EQ(0, write_word(TOP "/a/memory.max", "5M"));
	EXPECT_EQ(-1, ask(&self->a, 'f'));
	EXPECT_EQ(256 + SIGKILL, end_helper(&self->a));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(TABLES, ask(&self->b, 's'));
	n = ask(&self->b, 'p');
	EXPECT_LT(0, n);
	EXPECT_GT((long)PAGES, n);
	EXPECT_EQ(0, ask(&self->b, 'F'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 'F'));
}

/* Memory that a group was charged for outlives the group, in memory and in swap. */
TEST_SLOW(groups, move_and_remove)
{
	ASSERT_EQ(0, make_swap());
	EXPECT_EQ(0, ask(&self->a, 'f'));
	EXPECT_EQ(0, ask(&self->b, 'r'));
	ASSERT_EQ(0, ask(&self->a, 'c'));
	ASSERT_TRUE(remove_group("/a"));
	EXPECT_EQ(0, ask(&self->b, 'r'));
	EXPECT_EQ(0, ask(&self->a, 'F'));
	EXPECT_TRUE(push_out(TOP "/memory.reclaim", self->area, PAGES, PAGES / 4));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, ask(&self->b, 'R'));
	EXPECT_EQ(0, ask(&self->a, 'R'));
	EXPECT_EQ(TABLES, ask(&self->a, 's'));
	EXPECT_EQ(TABLES, ask(&self->b, 's'));
	EXPECT_EQ(0, swapoff(SWAP));
	EXPECT_EQ(0, ask(&self->b, 'R'));
	write_word("/sys/block/zram0/reset", "1");
}

/*
 * A table is charged once, to the group of the process that made it, as long as any process
 * uses it.
 */
TEST_SLOW(groups, tables_are_charged_once)
{
	long pmds;

	EXPECT_EQ(0, ask(&self->a, 'f'));
	EXPECT_LE(TABLES, tables_of("/a"));
	EXPECT_GE(TABLES + OWN_TABLES, tables_of("/a"));
	pmds = proc_sum(self->b.pid, "status", "VmPTE");
	EXPECT_EQ(0, ask(&self->b, 'r'));
	EXPECT_LE(pmds + TABLES * 4, proc_sum(self->b.pid, "status", "VmPTE"));
	EXPECT_GE(OWN_TABLES, tables_of("/b"));
	EXPECT_TRUE(sum_is("/a", 0));
	EXPECT_EQ(0, end_helper(&self->a));
	EXPECT_TRUE(falls_to("/a", TABLES));
	EXPECT_EQ(0, ask(&self->b, 'r'));
	ASSERT_TRUE(remove_group("/a"));
	EXPECT_TRUE(sum_is(NULL, TABLES));
	EXPECT_EQ(0, end_helper(&self->b));
	EXPECT_TRUE(falls_to("", 0));
}

#define BIG 64

static long own_score(void)
{
	long score = -1;
	FILE *f = fopen("/proc/self/oom_score", "r");

	if (f && fscanf(f, "%ld", &score) != 1)
		score = -1;
	if (f)
		fclose(f);
	return score;
}

/* Starts a process that reads the first tables, shared or not; returns the process's score. */
static long score_of(char *area, int tables, const char *policy)
{
	int status, up[2];
	long score = -1;
	pid_t pid;

	if (pipe(up))
		return -1;
	pid = fork();
	if (!pid) {
		if (write_word("/proc/self/quire", policy))
			_exit(1);
		for (unsigned long i = 0; i < tables * SLOTS; i++)
			(void)*(volatile char *)(area + i * PAGE);
		if (file_tables(getpid()) != (*policy == '0' ? 0 : tables))
			_exit(2);
		score = own_score();
		_exit(write(up[1], &score, sizeof(score)) != sizeof(score));
	}
	close(up[1]);
	if (read(up[0], &score, sizeof(score)) != sizeof(score))
		score = -1;
	close(up[0]);
	waitpid(pid, &status, 0);
	return status ? -1 : score;
}

/*
 * Memory that is reached through shared tables counts like memory that private tables map, and
 * no more.
 */
TEST(oom_score)
{
	static char block[TABLE];
	long none, alone, shared, few;
	char *area;
	int fd;

	NEED_SHM_FEATURE();
	fd = memfd_create("quire", 0);
	for (int i = 0; i < BIG; i++)
		ASSERT_EQ((ssize_t)sizeof(block), write(fd, block, sizeof(block)));
	area = map_file(fd, BIG, PROT_READ | PROT_WRITE);
	ASSERT_NE(NULL, area);
	none = score_of(area, 0, "0");
	alone = score_of(area, BIG, "0");
	ASSERT_LT(none + 10, alone);
	shared = score_of(area, BIG, "1");
	EXPECT_LE(alone - 2, shared);
	EXPECT_GE(alone + 2, shared);
	/* However much memory there is, the process's own tables do not reach it. */
	for (unsigned long i = 0; i < BIG * SLOTS; i++)
		(void)*(volatile char *)(area + i * PAGE);
	few = score_of(area, 1, "1");
	EXPECT_LT(0, few);
	EXPECT_GT(none + (alone - none) / 2, few);
	munmap(area, BIG * TABLE);
	close(fd);
}

static char *own_file(unsigned long tables)
{
	int fd = memfd_create("own", 0);
	char *area = ftruncate(fd, tables * TABLE) ? NULL :
		map_file(fd, tables, PROT_READ | PROT_WRITE);

	close(fd);
	return area;
}

/* Touches a table of a file of its own, as a user that does nothing else. */
static char *touch_as(uid_t uid)
{
	char *own;

	if (seteuid(uid))
		return NULL;
	own = own_file(1);
	if (own)
		*own = 1;
	return seteuid(0) ? NULL : own;
}

#define USERS 4
#define TRIES 6

/*
 * A process has tables of a limited number of users; if it leaves one user's, it may join
 * another's.
 */
static long be_many(void)
{
	char *own[TRIES];

	for (int i = 0; i < TRIES; i++) {
		own[i] = touch_as(2000 + i);
		if (!own[i])
			return -1;
	}
	if (file_tables(getpid()) != USERS)
		return -2;
	munmap(own[0], TABLE);
	if (file_tables(getpid()) != USERS - 1 || !touch_as(2000 + TRIES))
		return -3;
	return file_tables(getpid());
}

/*
 * h: a sparse heap; u: become another user; n: get a user namespace; t: read all of the area;
 * f, F: map a file of one table or many and touch all; c: become many users; o: score
 */
static long serve_score(char command, void *area)
{
	unsigned long tables = command == 'F' ? BIG : 1;
	char *own;

	switch (command) {
	case 'h':
		own = map_tables(BIG);
		for (unsigned long i = 0; i < BIG; i++)
			own[i * TABLE] = 1;
		return 0;
	case 'u':
		return setresuid(1001, 1001, 1001);
	case 'n':
		return unshare(CLONE_NEWUSER) ? -errno : 0;
	case 't':
		for (unsigned long i = 0; i < BIG * SLOTS; i++)
			(void)*(volatile char *)((char *)area + i * PAGE);
		return file_tables(getpid());
	case 'f':
	case 'F':
		own = own_file(tables);
		for (unsigned long i = 0; own && i < tables * SLOTS; i++)
			own[i * PAGE] = 1;
		return own ? file_tables(getpid()) : -1;
	case 'c':
		return be_many();
	case 'o':
		return own_score();
	}
	return -1;
}

/* A memory hog that has not touched the area yet, and its score. */
FIXTURE(score) {
	struct helper hog;
	long tables, none;
	char *area;
	int fd;
};

FIXTURE_SETUP(score)
{
	NEED_SHM_FEATURE();
	self->tables = shm_number("tables");
	self->fd = memfd_create("quire", 0);
	ASSERT_EQ(0, ftruncate(self->fd, BIG * TABLE));
	self->area = map_file(self->fd, BIG, PROT_READ | PROT_WRITE);
	ASSERT_NE(NULL, self->area);
	ASSERT_EQ(0, start_helper(&self->hog, serve_score, self->area));
	self->none = ask(&self->hog, 'o');
	ASSERT_LT(0, self->none);
}

FIXTURE_TEARDOWN(score)
{
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, end_helper(&self->hog));
	munmap(self->area, BIG * TABLE);
	close(self->fd);
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(self->tables, shm_number("tables"));
}

/* What other users map is not added to the score, however far the process's own tables reach. */
TEST_SLOW(score, of_another_user)
{
	struct helper other;
	long before;

	ASSERT_EQ(0, start_helper(&other, serve_score, self->area));
	ASSERT_EQ(0, ask(&other, 'u'));
	EXPECT_EQ(0, ask(&other, 'h'));
	EXPECT_EQ(1, ask(&other, 'f'));
	before = ask(&other, 'o');
	EXPECT_EQ(BIG, ask(&self->hog, 't'));
	EXPECT_LT(self->none + 10, ask(&self->hog, 'o'));
	EXPECT_EQ(before, ask(&other, 'o'));
	EXPECT_EQ(0, end_helper(&other));
}

/*
 * Tables that the process joined as another user still count, and so do those that it joins
 * now.
 */
TEST_SLOW(score, after_setuid)
{
	long alone;

	EXPECT_EQ(BIG, ask(&self->hog, 't'));
	alone = ask(&self->hog, 'o');
	ASSERT_LT(self->none + 10, alone);
	ASSERT_EQ(0, ask(&self->hog, 'u'));
	EXPECT_LE(alone, ask(&self->hog, 'o'));
	EXPECT_EQ(2 * BIG, ask(&self->hog, 'F'));
	EXPECT_LE(2 * alone - self->none - 2, ask(&self->hog, 'o'));
}

TEST_SLOW(score, in_a_user_namespace)
{
	long alone, ret;

	EXPECT_EQ(BIG, ask(&self->hog, 't'));
	alone = ask(&self->hog, 'o');
	ASSERT_LT(self->none + 10, alone);
	ret = ask(&self->hog, 'n');
	if (ret)
		SKIP(return, "no user namespaces");
	EXPECT_LE(alone, ask(&self->hog, 'o'));
	EXPECT_EQ(2 * BIG, ask(&self->hog, 'F'));
	EXPECT_LE(2 * alone - self->none - 2, ask(&self->hog, 'o'));
}

#define HELPERS 4

/* Other processes that map the same memory do not lower the score, and score as much. */
TEST_SLOW(score, with_helpers)
{
	struct helper helper[HELPERS];
	long alone;
	int i;

	EXPECT_EQ(BIG, ask(&self->hog, 't'));
	alone = ask(&self->hog, 'o');
	ASSERT_LT(self->none + 10, alone);
	for (i = 0; i < HELPERS; i++) {
		ASSERT_EQ(0, start_helper(&helper[i], serve_score, self->area));
		EXPECT_EQ(BIG, ask(&helper[i], 't'));
		EXPECT_LE(alone - 2, ask(&helper[i], 'o'));
	}
	EXPECT_LE(alone, ask(&self->hog, 'o'));
	EXPECT_GE(alone + 2, ask(&self->hog, 'o'));
	for (i = 0; i < HELPERS; i++)
		EXPECT_EQ(0, end_helper(&helper[i]));
}

/* Beyond a few users at a time, a process fills tables of its own. */
TEST_SLOW(score, of_many_users)
{
	long refused = shm_number("stats/refused_users");

	EXPECT_EQ(USERS, ask(&self->hog, 'c'));
	EXPECT_EQ(refused + TRIES - USERS, shm_number("stats/refused_users"));
}

TEST_HARNESS_MAIN
