// SPDX-License-Identifier: GPL-2.0
/*
 * prezero: base pages and the huge blocks that are split for them. Which base pages are zero
 * already, when small dirty blocks are used in place of a zeroed huge one, and how much of free
 * memory stays in huge blocks.
 */
#define _GNU_SOURCE
#include <sys/stat.h>
#include <sys/wait.h>

#include "harness.h"
#include "prezero.h"

#define ROUNDS	5
#define STAYS	256	/* one page of so many stays */
#define FILES	"/dev/shm/prezero_split"
#define HUGETLB_PAGES	64

FIXTURE(split) {
};

FIXTURE_SETUP(split)
{
	/* Little of free memory may be in small blocks at first. */
	put("/proc/sys/vm/compact_memory", "1");
	PREZERO_SETUP();
}

FIXTURE_TEARDOWN(split)
{
	PREZERO_TEARDOWN();
}

/* The size exceeds the dirty pages that are left on the CPUs' lists. */
TEST_F_TIMEOUT(split, base_pages_are_served, 600)
{
	const size_t size = 128 * MB;
	unsigned long hits;
	char *start;

	ASSERT_TRUE(fresh_is_zero(64 * MB, MADV_NOHUGEPAGE));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	hits = stat_of("hit_order0");
	start = map(size, MADV_NOHUGEPAGE);
	ASSERT_NE(NULL, start);
	EXPECT_TRUE(all_zero(start, size));
	EXPECT_GT(stat_of("hit_order0") - hits, 0UL);
	munmap(start, size);
}

/* Leaves @pages free dirty pages between used pages of the mapping that it returns. */
static char *leave_holes(size_t pages)
{
	char *start = map(2 * pages * PAGE, MADV_NOHUGEPAGE);
	size_t i;

	if (!start)
		return NULL;
	memset(start, 0xa5, 2 * pages * PAGE);
	for (i = 0; i < pages; i++)
		madvise(start + 2 * i * PAGE, PAGE, MADV_DONTNEED);
	return start;
}

/* Faults in base pages; returns how many of these faults hit, -1 if something is wrong. */
static long hits_of(size_t pages)
{
	unsigned long hits = stat_of("hit_order0");
	char *start = map(pages * PAGE, MADV_NOHUGEPAGE);

	if (!start || !all_zero(start, pages * PAGE))
		return -1;
	hits = stat_of("hit_order0") - hits;
	munmap(start, pages * PAGE);
	return hits;
}

/*
 * While the pool has more than scrub_start, few small dirty blocks are left alone. Below that,
 * they are used before a zeroed huge block is split. Even then there are some thousand zeroed
 * pages, which were on the CPUs' lists.
 */
TEST_F_TIMEOUT(split, a_full_pool_spares_huge_blocks, 600)
{
	const long few = 8 * MB / PAGE, more = 24 * MB / PAGE;
	char *start = leave_holes(few), *rest;
	long hits;

	ASSERT_NE(NULL, start);
	ASSERT_EQ(0, put(SYSCTL "scrub_stop", "300"));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	EXPECT_GT(hits_of(few), few / 2);
	rest = leave_holes(more - few);
	ASSERT_NE(NULL, rest);
	ASSERT_EQ(0, put(SYSCTL "scrub_start", "1000"));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	hits = hits_of(more);
	EXPECT_GE(hits, 0);
	EXPECT_LT(hits, more * 3 / 4);
	munmap(rest, 2 * (more - few) * PAGE);
	munmap(start, 2 * few * PAGE);
}

/*
 * Is there a zeroed block of just the size of a huge page? If not, takes one, which leaves another.
 * Sets @taken to it, or NULL.
 */
static bool have_single_zeroed_block(char **taken)
{
	*taken = NULL;
	if (zeroed_blocks(9))
		return true;
	*taken = map(HUGE, MADV_HUGEPAGE);
	return *taken && all_zero(*taken, HUGE) && zeroed_blocks(9);
}

/*
 * Huge pages that need not be zero come from larger dirty blocks, even if all blocks of just their
 * size are zeroed. With the feature off, hugetlb does not ask for zeroed ones, and the marks stay.
 */
TEST_F_TIMEOUT(split, huge_pages_that_need_no_zeroes, 600)
{
	unsigned long wasted;
	char before[32], more[32], *taken;

	ASSERT_TRUE(get(SYSCTL "nr_hugepages", before, sizeof(before)));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	ASSERT_TRUE(have_single_zeroed_block(&taken));
	ASSERT_EQ(0, put(FOLDER "enabled", "0"));
	wasted = stat_of("wasted_pages");
	snprintf(more, sizeof(more), "%lu", strtoul(before, NULL, 10) + HUGETLB_PAGES);
	ASSERT_EQ(0, put(SYSCTL "nr_hugepages", more));
	EXPECT_TRUE(reads(SYSCTL "nr_hugepages", more));
	EXPECT_TRUE(zeroed_blocks(9));
	EXPECT_LT(stat_of("wasted_pages"), wasted + HUGE / PAGE);
	EXPECT_EQ(0, put(SYSCTL "nr_hugepages", before));
	if (taken)
		munmap(taken, HUGE);
}

/* Many small dirty blocks are used first, however full the pool is. */
TEST_F_TIMEOUT(split, many_small_blocks_are_used_first, 600)
{
	const long holes = 96 * MB / PAGE, most = holes * 3 / 4;
	char *start = leave_holes(holes);
	long hits;

	ASSERT_NE(NULL, start);
	ASSERT_EQ(0, put(SYSCTL "scrub_stop", "300"));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	ASSERT_GT((long)stat_of("zeroed_pages"), holes);
	hits = hits_of(most);
	EXPECT_GE(hits, 0);
	EXPECT_LT(hits, most * 3 / 4);
	munmap(start, 2 * holes * PAGE);
}

/* Free memory in all zones, in pages; @small: only in blocks that are smaller than a huge page. */
static unsigned long free_pages(bool small)
{
	FILE *file = fopen("/proc/buddyinfo", "r");
	unsigned long pages = 0;
	char line[512];

	while (file && fgets(line, sizeof(line), file)) {
		char *at = counts_of(line);

		for (unsigned int order = 0; order <= (small ? 8 : 10); order++)
			pages += strtoul(at, &at, 10) << order;
	}
	if (file)
		fclose(file);
	return pages;
}

/* A program with so many base pages, which leaves files. Exits with 0 if all went well. */
static void come_and_go(int round, size_t pages)
{
	char *start = map(pages * PAGE, MADV_NOHUGEPAGE), name[64], page[PAGE] = { 1 };
	int fd;

	snprintf(name, sizeof(name), FILES "/%d", round);
	fd = open(name, O_CREAT | O_WRONLY, 0600);
	if (!start || fd < 0)
		_exit(1);
	for (size_t i = 0; i < pages; i++) {
		start[i * PAGE] = 1;
		if (i % STAYS == 0 && write(fd, page, PAGE) != PAGE)
			_exit(1);
	}
	_exit(0);
}

/* By how many pages do small free blocks grow while programs come and go? Returns 0, or -1. */
static int pieces_left(size_t pages, long *left)
{
	int status;

	put("/proc/sys/vm/compact_memory", "1");
	/* This drains the CPUs' lists, too. */
	if (put(FOLDER "scrub_now", "1"))
		return -1;
	*left = -(long)free_pages(true);
	for (int round = 0; round < ROUNDS; round++) {
		pid_t pid = fork();

		if (!pid)
			come_and_go(round, pages);
		if (waitpid(pid, &status, 0) != pid || status || put(FOLDER "scrub_now", "1"))
			return -1;
	}
	*left += free_pages(true);
	return 0;
}

/* The same with files that are removed afterwards. */
static int pieces_left_for_now(size_t pages, long *left)
{
	int ret = mkdir(FILES, 0700) ? -1 : pieces_left(pages, left);

	return system("rm -r " FILES) ? -1 : ret;
}

/* Huge pages are as easy to get, after some time, as they are where nothing is zeroed. */
TEST_F_TIMEOUT(split, free_memory_stays_in_one_piece, 1200)
{
	unsigned long all = free_pages(false);
	long without, with;

	ASSERT_EQ(0, put(SYSCTL "scrub_stop", "0"));
	ASSERT_EQ(0, pieces_left_for_now(all / 20, &without));
	ASSERT_EQ(0UL, stat_of("zeroed_pages"));
	ASSERT_EQ(0, put(SYSCTL "scrub_start", "100"));
	ASSERT_EQ(0, put(SYSCTL "scrub_stop", "300"));
	ASSERT_EQ(0, pieces_left_for_now(all / 20, &with));
	TH_LOG("of %lu free pages, %ld in small blocks, %ld with a pool", all, without, with);
	EXPECT_LT(with, without + (long)all / 16);
}

TEST_HARNESS_MAIN
