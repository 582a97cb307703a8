// SPDX-License-Identifier: GPL-2.0
/*
 * fork shares page tables: what each process sees, which process is charged, and in which order
 * the processes end.
 */
#define _GNU_SOURCE
#include <sys/prctl.h>

#include "harness.h"
#include "fork_test.h"

#define TABLES 8
#define PAGES (TABLES * SLOTS)

struct area {
	char *start;
	uint64_t seed;
};

/*
 * r: read all; w: write a word in table 2; W: rewrite all; v: verify the rewrite;
 * x: unmap; s: shared tables
 */
static long serve(char command, void *arg)
{
	struct area *area = arg;

	switch (command) {
	case 'r':
		return wrong(area->start, PAGES, area->seed);
	case 'w':
		*(uint64_t *)(area->start + 2 * TABLE) = 42;
		return *(uint64_t *)(area->start + 2 * TABLE);
	case 'W':
		fill(area->start, PAGES, 99);
		return 0;
	case 'v':
		return wrong(area->start, PAGES, 99);
	case 'x':
		return munmap(area->start, TABLES * TABLE);
	case 's':
		return shared_tables(getpid());
	}
	return -1;
}

FIXTURE(fork_basic) {
	struct area area;
	struct helper child;
};

FIXTURE_SETUP(fork_basic)
{
	NEED_FORK_FEATURE();
	self->area.start = map_tables(TABLES);
	self->area.seed = 7;
	ASSERT_NE(NULL, self->area.start);
	fill(self->area.start, PAGES, 7);
}

FIXTURE_TEARDOWN(fork_basic)
{
	EXPECT_TRUE(tables_consistent());
}

TEST_SLOW(fork_basic, shares_and_reads)
{
	ASSERT_EQ(0, start_helper(&self->child, serve, &self->area));
	EXPECT_LE(TABLES, ask(&self->child, 's'));
	EXPECT_LE(TABLES, shared_tables(getpid()));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, wrong(self->area.start, PAGES, 7));
	/* Reading does not unshare a table. */
	EXPECT_LE(TABLES, ask(&self->child, 's'));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, stop_helper(&self->child));
	EXPECT_EQ(0, wrong(self->area.start, PAGES, 7));
}

TEST_SLOW(fork_basic, child_writes)
{
	long before;

	ASSERT_EQ(0, start_helper(&self->child, serve, &self->area));
	before = ask(&self->child, 's');
	EXPECT_EQ(42, ask(&self->child, 'w'));
	EXPECT_EQ(before - 1, ask(&self->child, 's'));
	EXPECT_EQ(0, wrong(self->area.start, PAGES, 7));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, ask(&self->child, 'v'));
	EXPECT_EQ(0, wrong(self->area.start, PAGES, 7));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, stop_helper(&self->child));
	EXPECT_EQ(0, wrong(self->area.start, PAGES, 7));
	/* The parent is the only user again and adopts the tables. */
	fill(self->area.start, PAGES, 8);
	EXPECT_EQ(0, wrong(self->area.start, PAGES, 8));
}

TEST_SLOW(fork_basic, parent_writes)
{
	ASSERT_EQ(0, start_helper(&self->child, serve, &self->area));
	*(uint64_t *)(self->area.start + 3 * TABLE) = 1;
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_TRUE(tables_consistent());
	fill(self->area.start, PAGES, 1000);
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, wrong(self->area.start, PAGES, 1000));
	EXPECT_TRUE(tables_consistent());
	/* The child is the only user of all tables. */
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, ask(&self->child, 'v'));
	EXPECT_EQ(0, wrong(self->area.start, PAGES, 1000));
	EXPECT_EQ(0, stop_helper(&self->child));
}

/* The parent's own copy of a table is as hot as the table was: it may be about to be reclaimed. */
TEST_SLOW(fork_basic, parent_writes_and_stays_hot)
{
	long before = smaps_of(getpid(), self->area.start, "Referenced");

	ASSERT_EQ((long)(TABLES * TABLE / 1024), before);
	ASSERT_EQ(0, start_helper(&self->child, serve, &self->area));
	for (int i = 0; i < TABLES; i++)
		self->area.start[i * TABLE] ^= 1;
	EXPECT_EQ(0, shared_tables(getpid()));
	EXPECT_EQ(before, smaps_of(getpid(), self->area.start, "Referenced"));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, stop_helper(&self->child));
}

TEST_SLOW(fork_basic, parent_unmaps_first)
{
	ASSERT_EQ(0, start_helper(&self->child, serve, &self->area));
	ASSERT_EQ(0, munmap(self->area.start, TABLES * TABLE));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(42, ask(&self->child, 'w'));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, ask(&self->child, 'v'));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, ask(&self->child, 'x'));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, stop_helper(&self->child));
}

TEST_SLOW(fork_basic, owner_exits_first)
{
	int sync[2], status, i;
	pid_t pid;

	/* The owner forks three children and ends; they outlive it. */
	ASSERT_EQ(0, prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
	ASSERT_EQ(0, pipe(sync));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		int bad = 0;

		fill(self->area.start, PAGES, 5);
		self->area.seed = 5;
		for (i = 0; i < 3; i++)
			if (!fork()) {
				char go;

				close(sync[1]);
				/* Wait until the owner is gone. */
				if (read(sync[0], &go, 1) != 0)
					_exit(3);
				bad += !!wrong(self->area.start, PAGES, 5);
				fill(self->area.start, PAGES / 2, 50 + i);
				bad += !!wrong(self->area.start, PAGES / 2, 50 + i);
				bad += *(uint64_t *)(self->area.start + (PAGES - 1) * PAGE) !=
				       word_for(PAGES - 1, 5);
				_exit(bad);
			}
		_exit(0);
	}
	close(sync[1]);
	for (i = 0; i < 4; i++) {
		ASSERT_LT(0, wait(&status));
		EXPECT_EQ(0, status);
	}
	EXPECT_EQ(0, wrong(self->area.start, PAGES, 7));
}

TEST_SLOW(fork_basic, fork_of_fork)
{
	struct area *area = &self->area;
	int status;
	pid_t pid;

	ASSERT_EQ(0, start_helper(&self->child, serve, area));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		pid_t inner = fork();

		if (!inner) {
			int bad = !!wrong(area->start, PAGES, 7);

			fill(area->start, PAGES, 3);
			_exit(bad + !!wrong(area->start, PAGES, 3));
		}
		waitpid(inner, &status, 0);
		_exit(WEXITSTATUS(status) + !!wrong(area->start, PAGES, 7));
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, stop_helper(&self->child));
}

TEST_SLOW(fork_basic, who_is_charged)
{
	long before = proc_sum(getpid(), "status", "RssAnon");
	long tables = proc_sum(getpid(), "status", "VmPTE");

	ASSERT_EQ(0, start_helper(&self->child, serve, &self->area));
	EXPECT_LE(before, proc_sum(getpid(), "status", "RssAnon") + 64);
	/* The child is charged only for what it does not share. */
	EXPECT_GT((long)(PAGES * 4), proc_sum(self->child.pid, "status", "RssAnon"));
	EXPECT_LE(TABLES * 4, proc_sum(self->child.pid, "status", "VmPTE"));
	EXPECT_LE(tables, proc_sum(getpid(), "status", "VmPTE") + 8);
	/* smaps shows all memory that the child can reach, as shared. */
	EXPECT_EQ((long)(PAGES * 4), smaps_of(self->child.pid, self->area.start, "Rss"));
	EXPECT_EQ((long)(PAGES * 2), smaps_of(self->child.pid, self->area.start, "Pss"));
	EXPECT_EQ(0, smaps_of(self->child.pid, self->area.start, "Private_Dirty"));
	EXPECT_EQ((long)(PAGES * 4), smaps_of(getpid(), self->area.start, "Shared_Dirty"));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ((long)(PAGES * 4), smaps_of(self->child.pid, self->area.start, "Private_Dirty"));
	EXPECT_EQ(0, stop_helper(&self->child));
	EXPECT_EQ((long)(PAGES * 4), smaps_of(getpid(), self->area.start, "Rss"));
}

TEST_SLOW(fork_basic, holes_and_partial_unmap)
{
	char *a = self->area.start;

	ASSERT_EQ(0, munmap(a + TABLE + 8 * PAGE, 16 * PAGE));
	ASSERT_EQ(0, start_helper(&self->child, serve, &self->area));
	EXPECT_EQ(0, munmap(a + 4 * TABLE + PAGE, PAGE));
	EXPECT_EQ(word_for(4 * SLOTS + 3, 7), *(uint64_t *)(a + 4 * TABLE + 3 * PAGE));
	EXPECT_EQ(42, ask(&self->child, 'w'));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, stop_helper(&self->child));
}

TEST_SLOW(fork_basic, policy)
{
	struct helper grandchild;

	ASSERT_EQ(0, write_word("/proc/self/quire", "0"));
	ASSERT_EQ(0, start_helper(&self->child, serve, &self->area));
	EXPECT_EQ(0, ask(&self->child, 's'));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, stop_helper(&self->child));
	EXPECT_EQ(-EINVAL, write_word("/proc/self/quire", "2"));
	ASSERT_EQ(0, write_word("/proc/self/quire", "1"));
	ASSERT_EQ(0, start_helper(&grandchild, serve, &self->area));
	EXPECT_LE(TABLES, ask(&grandchild, 's'));
	EXPECT_EQ(0, stop_helper(&grandchild));
}

#define KB(pages)	((long)((pages) * PAGE / 1024))

static void dirty_of(struct __test_metadata *_metadata, pid_t pid, char *start, long private)
{
	EXPECT_EQ(KB(private), smaps_of(pid, start, "Private_Dirty"));
	EXPECT_EQ(KB(PAGES - private), smaps_of(pid, start, "Shared_Dirty"));
	EXPECT_EQ(KB(PAGES), smaps_of(pid, start, "Rss"));
}

/*
 * When the parent writes to a page, that page counts as the child's own; the rest of the table
 * does not.
 */
static void copies_count(struct __test_metadata *_metadata, FIXTURE_DATA(fork_basic) *self,
			 bool shares)
{
	char *a = self->area.start;
	unsigned long i, n = 0;
	long before;

	ASSERT_EQ(0, write_word("/proc/self/quire", shares ? "1" : "0"));
	ASSERT_EQ(0, start_helper(&self->child, serve, &self->area));
	ASSERT_EQ(shares, ask(&self->child, 's') >= TABLES);
	dirty_of(_metadata, self->child.pid, a, 0);
	dirty_of(_metadata, getpid(), a, 0);
	before = proc_sum(self->child.pid, "smaps_rollup", "Private_Dirty");
	for (i = 0; i < PAGES / 2; i += 16, n++)
		*(uint64_t *)(a + i * PAGE) = 1;
	dirty_of(_metadata, self->child.pid, a, n);
	dirty_of(_metadata, getpid(), a, n);
	/* A page of the parent's stack may be counted, too. */
	EXPECT_LE(before + KB(n), proc_sum(self->child.pid, "smaps_rollup", "Private_Dirty"));
	EXPECT_GE(before + KB(n + 8), proc_sum(self->child.pid, "smaps_rollup", "Private_Dirty"));
	/*
	 * A write to a page that the parent has left to the child makes no further copy; writes
	 * to all other pages do.
	 */
	EXPECT_EQ(42, ask(&self->child, 'w'));
	dirty_of(_metadata, self->child.pid, a, n);
	EXPECT_EQ(0, ask(&self->child, 'W'));
	dirty_of(_metadata, self->child.pid, a, PAGES);
	dirty_of(_metadata, getpid(), a, PAGES);
	EXPECT_EQ(0, stop_helper(&self->child));
}

TEST_SLOW(fork_basic, copies_count_with_shared_tables)
{
	copies_count(_metadata, self, true);
}

TEST_SLOW(fork_basic, copies_count_with_copied_tables)
{
	copies_count(_metadata, self, false);
}

/*
 * Returns how many tables a child shares, or -1 if it failed. With @has_area the child also
 * checks the contents of the area.
 */
static long child_shares(const char *area, bool has_area, uint64_t seed)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		long tables = shared_tables(getpid());

		if (has_area && wrong((char *)area, SLOTS, seed))
			_exit(255);
		_exit(tables < 255 ? tables : 254);
	}
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) == 255)
		return -1;
	return WEXITSTATUS(status);
}

/*
 * fork copies areas that docs/fork.md excludes from sharing, or leaves them out of the child,
 * and counts them.
 */
TEST_SLOW(fork_basic, excluded_areas_are_copied)
{
	static const struct {
		const char *name;
		int flags, advice;
		bool lock, counted, in_child;
	} kinds[] = {
		{ "locked", 0, 0, true, true, true },
		{ "mergeable", 0, MADV_MERGEABLE, false, true, true },
		{ "grows down", MAP_GROWSDOWN, 0, false, true, true },
		{ "wiped on fork", 0, MADV_WIPEONFORK, false, false, false },
		{ "not for the child", 0, MADV_DONTFORK, false, false, false },
	};
	long ordinary, refused;
	char *area;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		TH_LOG("%s", kinds[i].name);
		area = map_tables(1);
		ASSERT_NE(NULL, area);
		ASSERT_EQ(area, mmap(area, TABLE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS |
				     MAP_FIXED | kinds[i].flags, -1, 0));
		ordinary = child_shares(area, false, 0);
		EXPECT_LE(TABLES, ordinary);
		fill(area, SLOTS, 11);
		if (kinds[i].lock)
			ASSERT_EQ(0, mlock(area, TABLE));
		if (kinds[i].advice)
			ASSERT_EQ(0, madvise(area, TABLE, kinds[i].advice));
		refused = fork_stat("refused_vma");
		EXPECT_EQ(ordinary, child_shares(area, kinds[i].in_child, 11));
		if (kinds[i].counted)
			EXPECT_LT(refused, fork_stat("refused_vma"));
		EXPECT_EQ(0, wrong(area, SLOTS, 11));
		ASSERT_EQ(0, munmap(area, TABLE));
	}
	/* An ordinary area is shared, so the checks above can fail. */
	area = map_tables(1);
	ordinary = child_shares(area, false, 0);
	fill(area, SLOTS, 11);
	EXPECT_EQ(ordinary + 1, child_shares(area, true, 11));
}

TEST_SLOW(fork_basic, switched_off_and_drained)
{
	ASSERT_EQ(0, start_helper(&self->child, serve, &self->area));
	EXPECT_LE(TABLES, shared_tables(getpid()));
	ASSERT_EQ(0, write_word(FOLDER "enabled", "2"));
	EXPECT_EQ(0, shared_tables(getpid()));
	EXPECT_EQ(0, ask(&self->child, 's'));
	EXPECT_EQ(fork_stat("pmds_marked"), fork_stat("pmds_unmarked"));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area.start, PAGES, 7));
	EXPECT_EQ(0, stop_helper(&self->child));
	ASSERT_EQ(0, write_word(FOLDER "enabled", "1"));
}

TEST_HARNESS_MAIN
