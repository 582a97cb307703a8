// SPDX-License-Identifier: GPL-2.0
/*
 * prezero's engine "dma", on a device that fails, lies or hangs on request: the memory
 * is zeroed all the same, and memory that the device may still write to is not given
 * to anybody.
 *
 * prezero_engine [refused]: with "refused" the device's addresses are too short
 * for this machine's memory. The device is slow, so the blocks are few; its time
 * costs nothing if the guest's clock counts instructions. The channel is of no use
 * after lies_for_good and after hangs, so a boot can run one of them, as its last test.
 */
#define _GNU_SOURCE
#include "harness.h"
#include "prezero.h"

#define DEVICE	"/sys/module/edu_dma/parameters/"

FIXTURE(engine) {
};

FIXTURE_SETUP(engine)
{
	if (access(FOLDER "engine", W_OK) || access(DEVICE "fail_in", W_OK))
		SKIP(return, "no prezero, no device, or not root");
	if (!have_checker())
		SKIP(return, "no checker (CONFIG_QUIRE_DEBUG), or no debugfs");
	ASSERT_TRUE(fresh_start());
	ASSERT_EQ(0, put(SYSCTL "scrub_stop", "1"));
	ASSERT_EQ(0, put(FOLDER "engine_timeout_milliseconds", "60000"));
	ASSERT_EQ(0, put(FOLDER "engine", "dma"));
	ASSERT_TRUE(reads(FOLDER "engine", "dma"));
}

FIXTURE_TEARDOWN(engine)
{
	EXPECT_EQ(0UL, checked("dirty_blocks"));
	EXPECT_EQ(0UL, checked("miscounted_pages"));
	EXPECT_TRUE(reads(FOLDER "state", "on"));
	EXPECT_EQ(0, put(FOLDER "engine", "cpu"));
	EXPECT_TRUE(fresh_is_zero(32 * MB, MADV_HUGEPAGE));
	EXPECT_TRUE(fresh_is_zero(32 * MB, MADV_NOHUGEPAGE));
}

TEST_F_TIMEOUT(engine, zeroes, 6000)
{
	unsigned long pages = stat_of("engine_pages"), failures = stat_of("engine_failures");

	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	EXPECT_GT(stat_of("engine_pages"), pages);
	EXPECT_EQ(stat_of("engine_failures"), failures);
	EXPECT_GT(stat_of("zeroed_pages"), 0UL);
	EXPECT_TRUE(reads(FOLDER "engine", "dma"));
}

/* After a single failure the CPU zeroes the block, and the engine stays in use. */
TEST_F_TIMEOUT(engine, fails, 6000)
{
	unsigned long failures = stat_of("engine_failures");

	ASSERT_EQ(0, put(DEVICE "fail_in", "3"));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	EXPECT_EQ(failures + 1, stat_of("engine_failures"));
	EXPECT_GT(stat_of("zeroed_pages"), 0UL);
	EXPECT_TRUE(reads(FOLDER "engine", "dma"));
}

/* An engine that reports completion without having done the work is not used any more. */
TEST_F_TIMEOUT(engine, lies, 6000)
{
	unsigned long drops = stat_of("engine_drops");

	ASSERT_EQ(0, put(FOLDER "trust_engine_stop", "1"));
	ASSERT_EQ(0, put(DEVICE "lie_in", "2"));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	EXPECT_EQ(drops + 1, stat_of("engine_drops"));
	EXPECT_GT(stat_of("zeroed_pages"), 0UL);
	EXPECT_TRUE(reads(FOLDER "engine", "cpu"));
	/* It stays unused until it is selected again. */
	EXPECT_EQ(0, put(FOLDER "engine", "dma"));
	EXPECT_TRUE(reads(FOLDER "engine", "dma"));
	EXPECT_EQ(0, put(FOLDER "trust_engine_stop", "0"));
}

/*
 * An engine that is not trusted may do later what it has reported as done. Needs a boot of its
 * own.
 */
TEST_F_TIMEOUT(engine, lies_for_good, 6000)
{
	unsigned long kept = stat_of("quarantined_pages");

	ASSERT_EQ(0, put(DEVICE "lie_in", "2"));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	EXPECT_GE(stat_of("quarantined_pages"), kept + HUGE / PAGE);
	EXPECT_GT(stat_of("zeroed_pages"), 0UL);
	EXPECT_TRUE(reads(FOLDER "engine", "cpu"));
	EXPECT_EQ(EBUSY, put(FOLDER "engine", "dma"));
}

/* The device says that it has stopped, and writes to the memory a second later. */
TEST_F_TIMEOUT(engine, hangs, 6000)
{
	unsigned long drops = stat_of("engine_drops"), kept = stat_of("quarantined_pages");

	ASSERT_EQ(0, put(DEVICE "late_write", "1"));
	ASSERT_EQ(0, put(DEVICE "hang_in", "1"));
	ASSERT_EQ(0, put(FOLDER "engine_timeout_milliseconds", "500"));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	EXPECT_EQ(drops + 1, stat_of("engine_drops"));
	EXPECT_GE(stat_of("quarantined_pages"), kept + HUGE / PAGE);
	EXPECT_GT(stat_of("zeroed_pages"), 0UL);
	EXPECT_TRUE(reads(FOLDER "engine", "cpu"));
	while (!reads(DEVICE "late_write", "N"))
		usleep(10000);
	EXPECT_EQ(0UL, checked("dirty_blocks"));
	EXPECT_TRUE(fresh_is_zero(256 * MB, MADV_NOHUGEPAGE));
	EXPECT_EQ(EBUSY, put(FOLDER "engine", "dma"));
}

static int refused(void)
{
	int error = fresh_start() ? put(FOLDER "engine", "dma") : 0;
	bool good = error == EOPNOTSUPP && reads(FOLDER "engine", "cpu");

	printf("TAP version 13\n1..1\n# error %d\n%sok 1 refused\n", error, good ? "" : "not ");
	return !good;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "refused"))
		return refused();
	return test_harness_run(argc, argv);
}
