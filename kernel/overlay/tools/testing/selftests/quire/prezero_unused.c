// SPDX-License-Identifier: GPL-2.0
/*
 * prezero: with scrub_unused at 0, as a virtual machine starts, kscrubd zeroes only memory
 * that was freed since the feature was switched on.
 *
 * The feature starts without a record of used memory in each case. Some memory is freed by
 * others meanwhile, such as what was on the CPUs' lists: STRAY bounds it.
 */
#define _GNU_SOURCE
#include "harness.h"
#include "memory_block.h"
#include "prezero.h"

#define SIZE	(256 * MB)
#define STRAY	(128 * MB / PAGE)

FIXTURE(unused) {
};

/* Leaves the feature on with an empty pool, and no memory of which it knows that it was used. */
FIXTURE_SETUP(unused)
{
	if (access(FOLDER "enabled", W_OK))
		SKIP(return, "no prezero, or not root");
	ASSERT_TRUE(fresh_start());
	ASSERT_EQ(0, put(FOLDER "scrub_unused", "0"));
	ASSERT_EQ(0, put(SYSCTL "scrub_stop", "1000"));
	EXPECT_TRUE(fresh_is_zero(SIZE, MADV_HUGEPAGE));
	ASSERT_EQ(0, put(FOLDER "enabled", "2"));
	ASSERT_EQ(0, put(FOLDER "enabled", "1"));
	ASSERT_EQ(0UL, stat_of("zeroed_pages"));
}

FIXTURE_TEARDOWN(unused)
{
	EXPECT_FALSE(reads(FOLDER "state", "disabled_by_warning"));
	put(FOLDER "scrub_unused", "1");
	put(SYSCTL "scrub_start", "0");
	put(FOLDER "enabled", "2");
}

/* Waits up to two minutes until a counter has risen above @than. */
static bool rises(const char *name, unsigned long than)
{
	int i;

	for (i = 0; i < 1200 && stat_of(name) <= than; i++)
		usleep(100000);
	return stat_of(name) > than;
}

/* Waits up to two minutes until a counter has not changed for five seconds. */
static bool stands_still(const char *name)
{
	unsigned long was = stat_of(name);
	int i, same;

	for (i = 0, same = 0; i < 1200 && same < 50; i++) {
		usleep(100000);
		same = stat_of(name) == was ? same + 1 : 0;
		was = stat_of(name);
	}
	return same == 50;
}

/* What was freed before the feature was switched on does not count, either. */
TEST_F_TIMEOUT(unused, an_idle_pool_stays_empty, 600)
{
	unsigned long skipped = stat_of("skipped_unused");

	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	EXPECT_GT(stat_of("skipped_unused"), skipped);
	skipped = stat_of("skipped_unused");
	ASSERT_EQ(0, put(SYSCTL "scrub_start", "1000"));
	EXPECT_TRUE(rises("skipped_unused", skipped));
	EXPECT_LT(stat_of("zeroed_pages"), STRAY);
}

/* At worst, each huge page that was freed is half of the block that its record is kept for. */
TEST_F_TIMEOUT(unused, freed_memory_is_zeroed, 600)
{
	ASSERT_TRUE(fresh_is_zero(SIZE, MADV_HUGEPAGE));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	EXPECT_GT(stat_of("zeroed_pages"), SIZE / PAGE * 3 / 4);
	EXPECT_LT(stat_of("zeroed_pages"), 2 * SIZE / PAGE + STRAY);
}

TEST_F_TIMEOUT(unused, kscrubd_is_woken_by_freed_memory, 600)
{
	unsigned long skipped = stat_of("skipped_unused"), before;

	ASSERT_EQ(0, put(SYSCTL "scrub_start", "1000"));
	ASSERT_TRUE(rises("skipped_unused", skipped));
	/* Now it sleeps, and would look by itself only after a quarter of an hour. */
	ASSERT_TRUE(stands_still("skipped_unused"));
	before = stat_of("zeroed_pages");
	ASSERT_TRUE(fresh_is_zero(SIZE, MADV_HUGEPAGE));
	EXPECT_TRUE(rises("zeroed_pages", before + SIZE / PAGE / 2));
}

/*
 * However many unused blocks there are, allocations find the zeroed ones: they look at the ends
 * of a list only. Of the huge faults, some may be served by a zone without zeroed blocks.
 */
TEST_F_TIMEOUT(unused, zeroed_blocks_are_found, 600)
{
	const size_t size = 64 * MB;
	unsigned long hits;

	ASSERT_TRUE(fresh_is_zero(SIZE, MADV_HUGEPAGE));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	ASSERT_GT(stat_of("zeroed_pages"), SIZE / PAGE * 3 / 4);
	hits = stat_of("hit_huge");
	ASSERT_TRUE(fresh_is_zero(size, MADV_HUGEPAGE));
	EXPECT_GT(stat_of("hit_huge") - hits, size / HUGE * 3 / 4);
}

/* Switching the feature off without a drain, and on again, keeps the record. */
TEST_F_TIMEOUT(unused, off_forgets_nothing, 600)
{
	ASSERT_TRUE(fresh_is_zero(SIZE, MADV_HUGEPAGE));
	ASSERT_EQ(0, put(FOLDER "enabled", "0"));
	ASSERT_EQ(0, put(FOLDER "enabled", "1"));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	EXPECT_GT(stat_of("zeroed_pages"), SIZE / PAGE * 3 / 4);
}

/* Every other page is freed, so nothing merges. */
TEST_F_TIMEOUT(unused, small_blocks_count_when_kscrubd_takes_them, 600)
{
	unsigned long holes = SIZE / PAGE / 2, i;
	char *start = map(SIZE, MADV_NOHUGEPAGE);

	ASSERT_NE(NULL, start);
	ASSERT_EQ(0, put(FOLDER "scrub_order_min", "0"));
	memset(start, 0xa5, SIZE);
	for (i = 0; i < holes; i++)
		madvise(start + 2 * i * PAGE, PAGE, MADV_DONTNEED);
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	EXPECT_GT(stat_of("zeroed_pages"), holes * 3 / 4);
	munmap(start, SIZE);
}

/* kscrubd sleeps; the knob itself wakes it. */
TEST_F_TIMEOUT(unused, one_zeroes_all, 600)
{
	unsigned long skipped = stat_of("skipped_unused"), before;

	ASSERT_EQ(0, put(SYSCTL "scrub_start", "1000"));
	ASSERT_TRUE(rises("skipped_unused", skipped));
	before = stat_of("zeroed_pages");
	EXPECT_LT(before, STRAY);
	ASSERT_EQ(0, put(FOLDER "scrub_unused", "1"));
	EXPECT_TRUE(rises("zeroed_pages", before + SIZE / PAGE));
	ASSERT_EQ(0, put(SYSCTL "scrub_start", "0"));
	ASSERT_EQ(0, put(SYSCTL "scrub_stop", "1000"));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	skipped = stat_of("skipped_unused");
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	EXPECT_EQ(skipped, stat_of("skipped_unused"));
}

/* Takes a movable block of memory offline. Returns its number, or -1. */
static long take_offline(void)
{
	long nr = -1;

	while ((nr = next_movable_block(nr)) >= 0)
		if (!take_block_offline(nr))
			break;
	return nr;
}

/* Returns how many blocks with memory that cannot be moved did not go offline. */
static int fail_to_go_offline(void)
{
	int failed = 0;

	for (long nr = 0; nr < MOST_MEMORY_BLOCKS; nr++) {
		if (!memory_block_reads(nr, "state", "online") ||
		    memory_block_reads(nr, "valid_zones", "Movable"))
			continue;
		if (take_block_offline(nr))
			failed++;
		else
			set_memory_block(nr, "online");
	}
	return failed;
}

/* It isolates free blocks, may have to split them for that, and puts them back. */
TEST_F_TIMEOUT(unused, a_failed_offline_uses_nothing, 600)
{
	if (!fail_to_go_offline())
		SKIP(return, "all memory can go offline, or none is in blocks");
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	EXPECT_LT(stat_of("zeroed_pages"), STRAY);
}

/* Going online frees memory that nothing has used. Its record from before is forgotten. */
TEST_F_TIMEOUT(unused, memory_that_goes_online_is_unused, 600)
{
	unsigned long block = memory_block_size() / PAGE, zeroed;
	long nr;

	ASSERT_NE(0UL, block);
	nr = take_offline();
	if (nr < 0)
		SKIP(return, "no movable memory that can go offline");
	ASSERT_EQ(0, set_memory_block(nr, "online_movable"));
	/* More than the movable zone has. */
	ASSERT_TRUE(fresh_is_zero(8 * SIZE, MADV_HUGEPAGE));
	nr = take_offline();
	ASSERT_GE(nr, 0);
	/* Nothing ends the case while the memory is offline. */
	EXPECT_EQ(0, put(FOLDER "scrub_now", "1"));
	zeroed = stat_of("zeroed_pages");
	ASSERT_EQ(0, set_memory_block(nr, "online_movable"));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	EXPECT_LT(stat_of("zeroed_pages"), zeroed + block / 2);
}

TEST_HARNESS_MAIN
