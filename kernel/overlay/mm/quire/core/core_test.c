// SPDX-License-Identifier: GPL-2.0
/* KUnit tests of the boot option and of a feature's states. */
#include <kunit/test.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>

#include "quire.h"

static DEFINE_STATIC_KEY_FALSE(test_key);
static int drained, start_result;

static int test_start(void)
{
	return start_result;
}

static int test_drain(void)
{
	drained++;
	return 0;
}

static struct quire_feature test_feature = {
	.name = "kunit",
	.key = &test_key,
	.start = test_start,
	.drain = test_drain,
	.lock = __MUTEX_INITIALIZER(test_feature.lock),
};

static void boot_list(struct kunit *test)
{
	KUNIT_EXPECT_TRUE(test, quire_list_has("on", "fork"));
	KUNIT_EXPECT_FALSE(test, quire_list_has("off", "fork"));
	KUNIT_EXPECT_FALSE(test, quire_list_has("", "fork"));
	KUNIT_EXPECT_TRUE(test, quire_list_has("fork", "fork"));
	KUNIT_EXPECT_TRUE(test, quire_list_has("text,fork", "fork"));
	KUNIT_EXPECT_FALSE(test, quire_list_has("forks,for", "fork"));
	KUNIT_EXPECT_FALSE(test, quire_list_has("on,text", "fork"));
	KUNIT_EXPECT_TRUE(test, quire_list_has("off,fork", "fork"));
	KUNIT_EXPECT_FALSE(test, quire_list_has(",,", "fork"));
}

static void states(struct kunit *test)
{
	start_result = -ENOMEM;
	KUNIT_EXPECT_EQ(test, quire_switch(&test_feature, 1), -ENOMEM);
	KUNIT_EXPECT_FALSE(test, static_key_enabled(&test_key));
	start_result = 0;
	KUNIT_EXPECT_EQ(test, quire_switch(&test_feature, 3), -EINVAL);
	KUNIT_EXPECT_EQ(test, quire_switch(&test_feature, 1), 0);
	KUNIT_EXPECT_TRUE(test, static_key_enabled(&test_key));
	KUNIT_EXPECT_EQ(test, quire_switch(&test_feature, 0), 0);
	KUNIT_EXPECT_FALSE(test, static_key_enabled(&test_key));
	KUNIT_EXPECT_EQ(test, drained, 0);
	KUNIT_EXPECT_EQ(test, quire_switch(&test_feature, 2), 0);
	KUNIT_EXPECT_EQ(test, drained, 1);
	KUNIT_EXPECT_EQ(test, (int)test_feature.state, (int)QUIRE_OFF);
}

/* A broken feature cannot be opened, but it can still be drained. */
static void broken_stays_off(struct kunit *test)
{
	test_feature.broken = true;
	drained = 0;
	KUNIT_EXPECT_EQ(test, quire_switch(&test_feature, 1), -EPERM);
	KUNIT_EXPECT_EQ(test, (int)test_feature.state, (int)QUIRE_DISABLED_BY_WARNING);
	KUNIT_EXPECT_EQ(test, quire_switch(&test_feature, 2), 0);
	KUNIT_EXPECT_EQ(test, drained, 1);
	KUNIT_EXPECT_EQ(test, (int)test_feature.state, (int)QUIRE_DISABLED_BY_WARNING);
}

/* A signal interrupts a drain that waits for a process's mmap_lock. */
static void interrupted(struct kunit *test)
{
	struct mm_struct *mm = mm_alloc();

	KUNIT_ASSERT_NOT_NULL(test, mm);
	KUNIT_EXPECT_EQ(test, 0, quire_mm_lock(mm));
	mmap_read_unlock(mm);
	mmap_write_lock(mm);
	set_thread_flag(TIF_SIGPENDING);
	KUNIT_EXPECT_EQ(test, -EINTR, quire_mm_lock(mm));
	clear_thread_flag(TIF_SIGPENDING);
	mmap_write_unlock(mm);
	mmput(mm);
}

static struct kunit_case core_cases[] = {
	KUNIT_CASE(interrupted),
	KUNIT_CASE(boot_list),
	KUNIT_CASE(states),
	KUNIT_CASE(broken_stays_off),
	{}
};

static struct kunit_suite core_suite = {
	.name = "quire_core",
	.test_cases = core_cases,
};
kunit_test_suite(core_suite);
