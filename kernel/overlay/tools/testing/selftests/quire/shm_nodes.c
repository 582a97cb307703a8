// SPDX-License-Identifier: GPL-2.0
/*
 * Pages move between two memory nodes, or out of use, while processes share the tables that map
 * them: they move once, for all processes. A process that may move only its own pages moves
 * none.
 */
#define _GNU_SOURCE
#include <linux/mempolicy.h>

#include "harness.h"
#include "shm_test.h"

#define TABLES 4
#define PAGES (TABLES * SLOTS)
#define LEN (TABLES * TABLE)
#define CHILDREN 3
#define USER 1000
#define BAD (SLOTS + 5)
#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE 101
#endif

static char *area;

static long move_pages(pid_t pid, int node, int flags, int *status)
{
	static int nodes[PAGES];
	static void *pages[PAGES];

	for (unsigned long i = 0; i < PAGES; i++) {
		pages[i] = area + i * PAGE;
		nodes[i] = node;
		status[i] = -1;
	}
	return syscall(SYS_move_pages, pid, PAGES, pages, node < 0 ? NULL : nodes, status, flags);
}

/* How many pages are on a node. */
static long on_node(int node)
{
	static int status[PAGES];
	long n = 0;

	if (move_pages(0, -1, 0, status))
		return -1;
	for (unsigned long i = 0; i < PAGES; i++)
		n += status[i] == node;
	return n;
}

/* Counts the pages that move_pages() refused to move because others use them, too. */
static long refused(int node, int flags)
{
	static int status[PAGES];
	long n = 0;

	if (move_pages(0, node, flags, status) < 0)
		return -1;
	for (unsigned long i = 0; i < PAGES; i++)
		n += status[i] == -EACCES;
	return n;
}

static long bind_to(int node, int flags)
{
	unsigned long mask = 1UL << node;

	return syscall(SYS_mbind, area, LEN, MPOL_BIND, &mask, 8 * sizeof(mask), flags);
}

static long migrate(pid_t pid, int from, int to)
{
	unsigned long old = 1UL << from, new = 1UL << to;

	return syscall(SYS_migrate_pages, pid, 8 * sizeof(old), &old, &new);
}

/*
 * r: pages that are wrong; l: the same, again and again; W: rewrite; s: tables; u: give up
 * privileges; b, m, g: bind, move, migrate to node 1; e: signal of a read of BAD; d: forget BAD
 */
static long serve(char command, void *arg)
{
	long bad = 0;

	switch (command) {
	case 'r':
		return wrong(area, PAGES, 7);
	case 'l':
		for (int i = 0; i < 10; i++)
			bad += wrong(area, PAGES, 7);
		return bad;
	case 'W':
		fill(area, PAGES, 7);
		return 0;
	case 's':
		return file_tables(getpid());
	case 'b':
		return bind_to(1, MPOL_MF_MOVE);
	case 'm':
		return refused(1, MPOL_MF_MOVE);
	case 'g':
		return migrate(0, 0, 1);
	case 'e':
		return touch_signal(area + BAD * PAGE, false);
	case 'd':
		return madvise(area + BAD * PAGE, PAGE, MADV_DONTNEED);
	case 'u':
		return setresuid(USER, USER, USER);
	}
	return -1;
}

/* Starts a child that has read all, through the tables that others use. */
static bool start_reader(struct helper *child)
{
	return !start_helper(child, serve, NULL) && !ask(child, 'r') &&
	       ask(child, 's') == TABLES;
}

FIXTURE(nodes) {
	struct helper child[CHILDREN];
	long tables;
};

FIXTURE_SETUP(nodes)
{
	NEED_SHM_FEATURE();
	if (access("/sys/devices/system/node/node1", F_OK))
		SKIP(return, "one node");
	self->tables = shm_number("tables");
	area = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)area);
	ASSERT_EQ(0, bind_to(0, 0));
	fill(area, PAGES, 7);
	for (int i = 0; i < CHILDREN; i++)
		ASSERT_TRUE(start_reader(&self->child[i]));
	ASSERT_EQ(self->tables + TABLES, shm_number("tables"));
	ASSERT_EQ((long)PAGES, on_node(0));
}

FIXTURE_TEARDOWN(nodes)
{
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(TABLES, file_tables(getpid()));
	for (int i = 0; i < CHILDREN; i++) {
		EXPECT_EQ(0, ask(&self->child[i], 'r'));
		EXPECT_EQ(TABLES, ask(&self->child[i], 's'));
		EXPECT_EQ(0, end_helper(&self->child[i]));
	}
	munmap(area, LEN);
	EXPECT_EQ(self->tables, shm_number("tables"));
}

/* All pages but a few, which may have been in use for a moment. */
#define NEARLY_ALL ((long)PAGES * 9 / 10)

static void begin_reading(struct helper *child)
{
	char loop = 'l';

	for (int i = 0; i < CHILDREN; i++)
		(void)!write(child[i].to, &loop, 1);
}

static long end_reading(struct helper *child)
{
	long answer, bad = 0;

	for (int i = 0; i < CHILDREN; i++)
		bad += read(child[i].from, &answer, sizeof(answer)) != sizeof(answer) || answer;
	return bad;
}

/* The pages move there and back for all processes, while all of them read. */
TEST_SLOW(nodes, moved_for_all)
{
	long flushes = shm_number("stats/flushes_migration");

	begin_reading(self->child);
	EXPECT_EQ(0, bind_to(1, MPOL_MF_MOVE_ALL));
	EXPECT_LE(NEARLY_ALL, on_node(1));
	EXPECT_LE(0, refused(0, MPOL_MF_MOVE_ALL));
	EXPECT_LE(NEARLY_ALL, on_node(0));
	EXPECT_LE(0, migrate(self->child[1].pid, 0, 1));
	EXPECT_LE(NEARLY_ALL, on_node(1));
	EXPECT_EQ(0, end_reading(self->child));
	EXPECT_EQ(0, wrong(area, PAGES, 7));
	/* The children's TLBs were flushed for each page. */
	EXPECT_LT(flushes + CHILDREN * NEARLY_ALL, shm_number("stats/flushes_migration"));
}

/*
 * Pages that others use through the same table are not a process's own, whatever their mapcount
 * is.
 */
TEST_SLOW(nodes, not_ones_own)
{
	EXPECT_EQ(0, ask(&self->child[0], 'u'));
	EXPECT_EQ(0, ask(&self->child[0], 'b'));
	EXPECT_LE(0, ask(&self->child[0], 'g'));
	EXPECT_EQ((long)PAGES, on_node(0));
	EXPECT_EQ((long)PAGES, ask(&self->child[0], 'm'));
	EXPECT_EQ((long)PAGES, on_node(0));
	/* Root, too, may ask to move only its own pages. */
	EXPECT_EQ((long)PAGES, refused(1, MPOL_MF_MOVE));
	EXPECT_EQ((long)PAGES, on_node(0));
}

/* When the last other user is gone, the pages are the process's own. */
TEST_SLOW(nodes, ones_own_again)
{
	for (int i = 0; i < CHILDREN; i++)
		ASSERT_EQ(0, end_helper(&self->child[i]));
	EXPECT_EQ(0, refused(1, MPOL_MF_MOVE));
	EXPECT_LE(NEARLY_ALL, on_node(1));
	EXPECT_EQ(0, wrong(area, PAGES, 7));
	for (int i = 0; i < CHILDREN; i++)
		ASSERT_TRUE(start_reader(&self->child[i]));
}

static uint64_t frame_of(char *page)
{
	uint64_t entry = 0;
	int fd = open("/proc/self/pagemap", O_RDONLY);

	if (pread(fd, &entry, sizeof(entry), (unsigned long)page / PAGE * sizeof(entry)) < 0)
		entry = 0;
	close(fd);
	return entry & ((1ULL << 55) - 1);
}

/* A page goes out of use, and its contents go to another page, for all processes. */
TEST_SLOW(nodes, soft_offline)
{
	char *page = area + BAD * PAGE, number[32];
	uint64_t frame = frame_of(page);
	int ret = -1;

	ASSERT_NE(0, frame);
	snprintf(number, sizeof(number), "0x%lx", (unsigned long)frame);
	begin_reading(self->child);
	/* The page may be in use for a moment. */
	for (int i = 0; ret && i < 1000; i++) {
		ret = madvise(page, PAGE, MADV_SOFT_OFFLINE);
		if (ret)
			usleep(10000);
	}
	EXPECT_EQ(0, ret);
	EXPECT_EQ(0, end_reading(self->child));
	EXPECT_EQ(0, wrong(area, PAGES, 7));
	EXPECT_NE(frame, frame_of(page));
	EXPECT_EQ(0, ask(&self->child[2], 'W'));
	EXPECT_EQ(0, wrong(area, PAGES, 7));
	EXPECT_EQ(0, write_word("/sys/kernel/debug/hwpoison/unpoison-pfn", number));
}

/* Linux may tell this process at once that it has lost the page. */
static __attribute__((noinline)) int poison(char *page)
{
	struct sigaction old, action = { .sa_handler = on_fault };
	int ret = 0;

	sigaction(SIGBUS, &action, &old);
	if (!sigsetjmp(fault_jump, 1))
		ret = madvise(page, PAGE, 100 /* MADV_HWPOISON */);
	sigaction(SIGBUS, &old, NULL);
	return ret;
}

/*
 * A page is lost, for all processes. A process that has met the lost page goes on meeting it
 * after a hole is punched there, as it would with a table of its own, until it forgets the
 * page. The last process to do so keeps the table for itself.
 */
TEST_SLOW(nodes, bad_memory)
{
	struct helper *last = &self->child[CHILDREN - 1];
	char *page = area + BAD * PAGE, number[32];
	long mapped = shm_number("mapped_kb");

	if (!wait_for_leavers())
		SKIP(return, "one CPU");
	snprintf(number, sizeof(number), "0x%lx", (unsigned long)frame_of(page));
	if (poison(page))
		SKIP(return, "no MADV_HWPOISON");
	EXPECT_EQ(mapped - 4, shm_number("mapped_kb"));
	EXPECT_TRUE(tables_consistent());
	for (int i = 0; i < CHILDREN; i++)
		EXPECT_EQ(SIGBUS, ask(&self->child[i], 'e'));
	EXPECT_EQ(SIGBUS, touch_signal(page, true));
	EXPECT_EQ(0, wrong(area, BAD, 7));
	EXPECT_EQ(TABLES, file_tables(getpid()));
	ASSERT_EQ(0, madvise(page, PAGE, MADV_REMOVE));
	EXPECT_EQ(0, write_word("/sys/kernel/debug/hwpoison/unpoison-pfn", number));
	EXPECT_EQ(SIGBUS, touch_signal(page, false));
	EXPECT_EQ(SIGBUS, ask(&self->child[1], 'e'));
	EXPECT_TRUE(tables_consistent());
	ASSERT_EQ(0, madvise(page, PAGE, MADV_DONTNEED));
	for (int i = 0; i < CHILDREN - 1; i++)
		ASSERT_EQ(0, ask(&self->child[i], 'd'));
	ASSERT_TRUE(wait_for_leavers());
	ASSERT_EQ(0, ask(last, 'd'));
	EXPECT_EQ(TABLES - 1, ask(last, 's'));
	EXPECT_EQ(0, touch_signal(page, false));
	EXPECT_EQ(0, ask(&self->child[1], 'e'));
	EXPECT_EQ(0, ask(&self->child[1], 'W'));
	EXPECT_EQ(0, wrong(area, PAGES, 7));
	EXPECT_EQ(0, ask(last, 'r'));
	EXPECT_TRUE(tables_consistent());
	ASSERT_EQ(0, end_helper(last));
	EXPECT_TRUE(start_reader(last));
}

TEST_HARNESS_MAIN
