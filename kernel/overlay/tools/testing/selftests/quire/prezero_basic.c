// SPDX-License-Identifier: GPL-2.0
/*
 * prezero: the switches and knobs; faults get zeroed memory, and it really is zero;
 * whatever else takes free memory removes the mark.
 *
 * kscrubd is kept quiet (scrub_start 0) where a test counts; scrub_now then does
 * its work at a known time.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <glob.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <time.h>

#include "harness.h"
#include "memory_block.h"
#include "prezero.h"

#define KPF_BUDDY	(1UL << 10)
#define KPF_OWNER_2	(1UL << 34)

FIXTURE(prezero) {
};

FIXTURE_SETUP(prezero)
{
	PREZERO_SETUP();
}

FIXTURE_TEARDOWN(prezero)
{
	PREZERO_TEARDOWN();
}

TEST_F_TIMEOUT(prezero, wrong_values_change_nothing, 600)
{
	static const struct {
		const char *path, *good, *bad[4];
	} knobs[] = {
		{ FOLDER "scrub_order_min", "9", { "11", "-1", "x", "" } },
		{ FOLDER "rate_mb_per_second", "0", { "1000001", "-1", "x", "1 2" } },
		{ FOLDER "sleep_milliseconds", "10", { "9", "60001", "0", "x" } },
		{ FOLDER "scrub_unused", "1", { "2", "-1", "x", "0x" } },
		{ FOLDER "verify", "1", { "2", "-1", "x", "1x" } },
		{ FOLDER "engine", "cpu", { "none", "cpux", "0", "c" } },
		{ FOLDER "engine_timeout_milliseconds", "2000", { "0", "60001", "-1", "x" } },
		{ FOLDER "trust_engine_stop", "0", { "2", "-1", "x", "1x" } },
		{ FOLDER "enabled", "1", { "3", "-1", "x", "on" } },
		{ SYSCTL "scrub_start", "0", { "1001", "-1", "x", "4294967296" } },
		{ SYSCTL "scrub_stop", "50", { "1001", "-1", "x", "4294967296" } },
		{ SYSCTL "scrub_load", "1", { "1001", "-1", "x", "4294967296" } },
	};
	unsigned int i, j;

	for (i = 0; i < ARRAY_SIZE(knobs); i++)
		for (j = 0; j < ARRAY_SIZE(knobs[i].bad); j++) {
			if (!knobs[i].bad[j][0])
				continue;
			EXPECT_EQ(EINVAL, put(knobs[i].path, knobs[i].bad[j]))
				TH_LOG("%s takes '%s'", knobs[i].path, knobs[i].bad[j]);
			EXPECT_TRUE(reads(knobs[i].path, knobs[i].good));
		}
	EXPECT_EQ(EINVAL, put(FOLDER "scrub_now", "2"));
	EXPECT_EQ(0UL, stat_of("zeroed_pages"));
}

TEST_F_TIMEOUT(prezero, scrub_now_needs_the_feature, 600)
{
	ASSERT_EQ(0, put(FOLDER "enabled", "0"));
	EXPECT_EQ(EAGAIN, put(FOLDER "scrub_now", "1"));
	EXPECT_EQ(0UL, stat_of("zeroed_pages"));
}

TEST_F_TIMEOUT(prezero, scrub_now_reaches_its_share, 600)
{
	unsigned long scrubbed = stat_of("scrubbed_pages"), less, more;

	ASSERT_EQ(0, put(SYSCTL "scrub_stop", "20"));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	less = stat_of("zeroed_pages");
	EXPECT_GT(less, 0UL);
	EXPECT_GT(stat_of("scrubbed_pages"), scrubbed);

	ASSERT_EQ(0, put(SYSCTL "scrub_stop", "40"));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	more = stat_of("zeroed_pages");
	EXPECT_GT(more, less);
	EXPECT_GT(checked("marked_pages"), 0UL);
}

/*
 * Each zone has its own pool. Faults take from the movable zone, zeroed or not, while it has
 * free memory, so its share must be enough for the test, however small the zone is.
 */
TEST_F_TIMEOUT(prezero, huge_faults_take_from_the_pool, 600)
{
	const size_t size = 32 * HUGE;
	unsigned long hits, pool;
	char *start;

	ASSERT_EQ(0, put(SYSCTL "scrub_stop", "300"));
	ASSERT_TRUE(fresh_is_zero(128 * MB, MADV_HUGEPAGE));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	pool = stat_of("zeroed_pages");
	hits = stat_of("hit_huge");
	start = map(size, MADV_HUGEPAGE);
	ASSERT_NE(NULL, start);
	EXPECT_TRUE(all_zero(start, size));
	EXPECT_GE(stat_of("hit_huge") - hits, 16UL);
	EXPECT_LE(stat_of("zeroed_pages") + 16 * HUGE / PAGE, pool);
	munmap(start, size);
}

/* If the pool has no zeroed memory, a page is cleared once, whichever code does it. */
TEST_F_TIMEOUT(prezero, an_empty_pool_costs_one_clear, 600)
{
	const size_t size = 16 * HUGE;
	unsigned long misses = stat_of("miss_huge");
	char *start = map(size, MADV_HUGEPAGE);

	ASSERT_NE(NULL, start);
	EXPECT_TRUE(all_zero(start, size));
	misses = stat_of("miss_huge") - misses;
	EXPECT_GE(misses, 16UL);
	EXPECT_LT(misses, 24UL);
	munmap(start, size);
}

/* Memory that was dirtied again and again is zero whenever it is fresh. */
TEST_F_TIMEOUT(prezero, rounds_of_dirtying, 600)
{
	int round;

	for (round = 0; round < 3; round++) {
		EXPECT_TRUE(fresh_is_zero(64 * MB, MADV_HUGEPAGE));
		EXPECT_TRUE(fresh_is_zero(64 * MB, MADV_NOHUGEPAGE));
		ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	}
	EXPECT_TRUE(fresh_is_zero(256 * MB, MADV_NOHUGEPAGE));
	EXPECT_TRUE(fresh_is_zero(256 * MB, MADV_HUGEPAGE));
}

/* Blocks smaller than a huge page are zeroed, too, down to single pages. */
TEST_F_TIMEOUT(prezero, all_orders, 600)
{
	ASSERT_EQ(0, put(FOLDER "scrub_order_min", "0"));
	EXPECT_TRUE(fresh_is_zero(64 * MB, MADV_NOHUGEPAGE));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	EXPECT_GT(stat_of("zeroed_pages"), 0UL);
	EXPECT_EQ(0UL, checked("dirty_blocks"));
	EXPECT_TRUE(fresh_is_zero(128 * MB, MADV_NOHUGEPAGE));
	EXPECT_TRUE(fresh_is_zero(128 * MB, MADV_HUGEPAGE));
}

TEST_F_TIMEOUT(prezero, off_keeps_the_pool_and_drain_empties_it, 600)
{
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	ASSERT_GT(stat_of("zeroed_pages"), 0UL);
	ASSERT_EQ(0, put(FOLDER "enabled", "0"));
	EXPECT_TRUE(reads(FOLDER "state", "off"));
	EXPECT_GT(stat_of("zeroed_pages"), 0UL);
	EXPECT_TRUE(fresh_is_zero(64 * MB, MADV_HUGEPAGE));
	EXPECT_TRUE(fresh_is_zero(64 * MB, MADV_NOHUGEPAGE));

	ASSERT_EQ(0, put(FOLDER "enabled", "2"));
	EXPECT_TRUE(reads(FOLDER "state", "off"));
	EXPECT_EQ(0UL, stat_of("zeroed_pages"));
	EXPECT_EQ(0UL, checked("marked_pages"));
	EXPECT_TRUE(fresh_is_zero(64 * MB, MADV_HUGEPAGE));
	EXPECT_TRUE(fresh_is_zero(64 * MB, MADV_NOHUGEPAGE));
	EXPECT_EQ(0UL, stat_of("zeroed_pages"));
}

/* Below scrub_start, kscrubd starts by itself; the test waits for as long as it takes. */
TEST_F_TIMEOUT(prezero, kscrubd_fills_the_pool, 600)
{
	ASSERT_EQ(0, put(SYSCTL "scrub_load", "0"));
	ASSERT_EQ(0, put(SYSCTL "scrub_start", "20"));
	while (!stat_of("zeroed_pages"))
		usleep(10000);
	ASSERT_EQ(0, put(SYSCTL "scrub_start", "0"));
	EXPECT_TRUE(fresh_is_zero(64 * MB, MADV_HUGEPAGE));
}

static unsigned long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000UL + now.tv_nsec / 1000000;
}

/*
 * kscrubd never zeroes more than the rate allows in the time that has passed, plus one batch,
 * because it rests after each batch. An eighth is for rests that end within a tick. Without a
 * rate it needs a fraction of a second for what this test waits for. It may also be slower.
 */
TEST_F_TIMEOUT(prezero, kscrubd_keeps_to_its_rate, 600)
{
	const unsigned long rate = 8, batch = 4;
	unsigned long scrubbed = stat_of("scrubbed_pages"), began, done, passed;

	/* The rate is per node. */
	if (!access("/sys/devices/system/node/node1", F_OK))
		SKIP(return, "more than one node");
	ASSERT_EQ(0, put(FOLDER "rate_mb_per_second", "8"));
	ASSERT_EQ(0, put(SYSCTL "scrub_load", "0"));
	ASSERT_EQ(0, put(SYSCTL "scrub_stop", "1000"));
	began = now_ms();
	ASSERT_EQ(0, put(SYSCTL "scrub_start", "1000"));
	do {
		usleep(10000);
		done = (stat_of("scrubbed_pages") - scrubbed) * PAGE / MB;
		passed = now_ms() - began;
		EXPECT_LE(done * 1000, (passed + passed / 8) * rate + batch * 1000);
	} while (done < 8 * batch);
	ASSERT_EQ(0, put(SYSCTL "scrub_start", "0"));
}

/* Returns the number of a running kscrubd, or 0. */
static int kscrubd_pid(void)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	char path[384];
	int found = 0;

	while (dir && !found && (entry = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/%s/comm", entry->d_name);
		if (reads(path, "kscrubd/0"))
			found = atoi(entry->d_name);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* How often a task has gone to sleep. */
static unsigned long sleeps_of(int pid)
{
	unsigned long times = 0;
	char path[64], line[256];
	FILE *status;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	status = fopen(path, "r");
	while (status && fgets(line, sizeof(line), status))
		if (sscanf(line, "voluntary_ctxt_switches: %lu", &times) == 1)
			break;
	if (status)
		fclose(status);
	return times;
}

/*
 * Waits until kscrubd sleeps for long. While it has work, it zeroes, or sleeps for 10 ms at a
 * time.
 */
static void until_it_sleeps_long(int pid)
{
	unsigned long slept, scrubbed;

	do {
		slept = sleeps_of(pid);
		scrubbed = stat_of("scrubbed_pages");
		usleep(1000000);
	} while (sleeps_of(pid) != slept || stat_of("scrubbed_pages") != scrubbed);
}

/* kscrubd sleeps when its zones have their share, and is woken when allocations have taken it. */
TEST_F_TIMEOUT(prezero, kscrubd_sleeps_over_a_full_pool, 600)
{
	unsigned long scrubbed;
	int pid = kscrubd_pid();

	ASSERT_NE(0, pid);
	ASSERT_EQ(0, put(SYSCTL "scrub_load", "0"));
	ASSERT_EQ(0, put(SYSCTL "scrub_start", "20"));
	until_it_sleeps_long(pid);
	EXPECT_GT(stat_of("zeroed_pages"), 0UL);
	scrubbed = stat_of("scrubbed_pages");
	EXPECT_TRUE(fresh_is_zero(512 * MB, MADV_HUGEPAGE));
	while (stat_of("scrubbed_pages") == scrubbed)
		usleep(10000);
	EXPECT_EQ(pid, kscrubd_pid());
}

/* kscrubd sleeps when no block is left, and is woken when pages have merged into one. */
TEST_F_TIMEOUT(prezero, kscrubd_waits_for_blocks_to_merge, 600)
{
	unsigned long scrubbed;
	int pid = kscrubd_pid();
	char *start;

	ASSERT_NE(0, pid);
	ASSERT_EQ(0, put(SYSCTL "scrub_stop", "1000"));
	ASSERT_EQ(0, put(SYSCTL "scrub_load", "0"));
	start = map(256 * MB, MADV_NOHUGEPAGE);
	ASSERT_NE(NULL, start);
	memset(start, 0xa5, 256 * MB);
	ASSERT_EQ(0, put(SYSCTL "scrub_start", "1000"));
	until_it_sleeps_long(pid);
	scrubbed = stat_of("scrubbed_pages");
	munmap(start, 256 * MB);
	while (stat_of("scrubbed_pages") < scrubbed + HUGE / PAGE)
		usleep(10000);
}

/* There are more tasks that never sleep than CPUs: kscrubd leaves the CPUs to them. */
TEST_F_TIMEOUT(prezero, kscrubd_yields_to_load, 600)
{
	unsigned long busy = stat_of("skipped_busy");
	long nr = 2 * sysconf(_SC_NPROCESSORS_ONLN);
	pid_t group = 0, pid;

	while (nr--) {
		pid = fork();
		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				;
		}
		ASSERT_GT(pid, 0);
		ASSERT_EQ(0, setpgid(pid, group));
		group = group ?: pid;
	}
	ASSERT_EQ(0, put(SYSCTL "scrub_start", "20"));
	while (stat_of("skipped_busy") == busy)
		usleep(10000);
	EXPECT_EQ(0UL, stat_of("zeroed_pages"));
	kill(-group, SIGKILL);
}

/*
 * Zeroed pages that are lost are counted by reason: here they merge with others, or a drain
 * takes them all.
 */
TEST_F_TIMEOUT(prezero, losses_have_reasons, 600)
{
	unsigned long merged, drained, taken;

	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	merged = stat_of("lost_merged");
	taken = stat_of("lost_taken");
	do {
		/* The last block is used in part, and its zeroed rest merges with that part. */
		ASSERT_TRUE(fresh_is_zero(16 * MB + 37 * PAGE, MADV_NOHUGEPAGE));
		/* This gives back the pages on the CPUs' lists. */
		ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	} while (stat_of("lost_merged") == merged);
	EXPECT_EQ(taken, stat_of("lost_taken"));
	drained = stat_of("lost_drained");
	ASSERT_EQ(0, put(FOLDER "enabled", "2"));
	EXPECT_GT(stat_of("lost_drained"), drained);
	EXPECT_EQ(taken, stat_of("lost_taken"));
}

/* Folios whose size is between a base page and a huge page. */
TEST_F_TIMEOUT(prezero, large_folios_take_from_the_pool, 600)
{
	static const char how[] = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled";
	const size_t size = 32 * MB;
	unsigned long hits;
	char *start;

	ASSERT_EQ(0, put(how, "always"));
	ASSERT_EQ(0, put(SYSCTL "scrub_stop", "300"));
	ASSERT_TRUE(fresh_is_zero(size, MADV_NORMAL));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	hits = stat_of("hit_large");
	start = map(size, MADV_NORMAL);
	ASSERT_NE(NULL, start);
	EXPECT_TRUE(all_zero(start, size));
	EXPECT_GT(stat_of("hit_large"), hits);
	munmap(start, size);
	ASSERT_EQ(0, put(how, "never"));
}

/* Compaction moves pages into free memory, and moves blocks about on the free lists. */
TEST_F_TIMEOUT(prezero, compaction, 600)
{
	const size_t size = 128 * MB;
	char *start;
	size_t i;

	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	start = map(size, MADV_NOHUGEPAGE);
	ASSERT_NE(NULL, start);
	memset(start, 0xa5, size);
	for (i = 0; i < size; i += 2 * PAGE)
		madvise(start + i, PAGE, MADV_DONTNEED);
	ASSERT_EQ(0, put(SYSCTL "compact_memory", "1"));
	EXPECT_EQ(0UL, checked("dirty_blocks"));
	EXPECT_TRUE(fresh_is_zero(128 * MB, MADV_HUGEPAGE));
	EXPECT_TRUE(fresh_is_zero(128 * MB, MADV_NOHUGEPAGE));
	for (i = PAGE; i < size; i += 2 * PAGE)
		if (start[i] != (char)0xa5)
			break;
	EXPECT_GE(i, size);
	munmap(start, size);
}

static unsigned long pages_in_blocks(void)
{
	unsigned long pages = 0;
	unsigned int order;

	for (order = 0; order <= 10; order++)
		pages += zeroed_blocks(order) << order;
	return pages;
}

/*
 * The marked blocks of all orders add up to the marked pages, if nothing changes between the
 * reads.
 */
TEST_F_TIMEOUT(prezero, blocks_by_order, 600)
{
	unsigned int tries = 1000;

	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	EXPECT_GT(zeroed_blocks(9) + zeroed_blocks(10), 0UL);
	while (pages_in_blocks() != stat_of("zeroed_pages") && --tries)
		;
	EXPECT_GT(tries, 0U);
}

static volatile bool enough;

static void *keep_faulting(void *data)
{
	unsigned long dirty = 0;

	while (!enough) {
		dirty += !fresh_is_zero(8 * MB, MADV_NOHUGEPAGE);
		dirty += !fresh_is_zero(8 * MB, MADV_HUGEPAGE);
	}
	return (void *)dirty;
}

/* Other threads split marked blocks and free memory while all marks are removed. */
TEST_F_TIMEOUT(prezero, drain_beside_faults, 600)
{
	pthread_t threads[3];
	unsigned int i;
	void *dirty;

	ASSERT_EQ(0, put(SYSCTL "scrub_stop", "20"));
	enough = false;
	for (i = 0; i < ARRAY_SIZE(threads); i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, keep_faulting, NULL));
	for (i = 0; i < 8; i++) {
		EXPECT_EQ(0, put(FOLDER "scrub_now", "1"));
		EXPECT_EQ(0, put(FOLDER "enabled", "2"));
		EXPECT_EQ(0UL, stat_of("zeroed_pages"));
		EXPECT_EQ(0, put(FOLDER "enabled", "1"));
	}
	enough = true;
	for (i = 0; i < ARRAY_SIZE(threads); i++) {
		pthread_join(threads[i], &dirty);
		EXPECT_EQ(NULL, dirty);
	}
}

/* Before hibernation all marks are removed, and none is set until it is over. */
TEST_F_TIMEOUT(prezero, hibernation, 600)
{
	static const char event[] = "/sys/kernel/debug/quire/prezero_hibernate";

	if (access(event, W_OK))
		SKIP(return, "no checkers");
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	ASSERT_GT(stat_of("zeroed_pages"), 0UL);
	EXPECT_EQ(0, put(event, "1"));
	EXPECT_EQ(0UL, stat_of("zeroed_pages"));
	EXPECT_EQ(0, put(FOLDER "scrub_now", "1"));
	EXPECT_EQ(0UL, stat_of("zeroed_pages"));
	EXPECT_EQ(0UL, checked("marked_pages"));
	EXPECT_EQ(0, put(event, "0"));
	EXPECT_EQ(0, put(FOLDER "scrub_now", "1"));
	EXPECT_GT(stat_of("zeroed_pages"), 0UL);
}

/* After hibernation, all that kscrubd had found to be zero before it went to sleep is dirty. */
TEST_F_TIMEOUT(prezero, kscrubd_wakes_after_hibernation, 600)
{
	static const char event[] = "/sys/kernel/debug/quire/prezero_hibernate";
	unsigned long scrubbed;
	int pid = kscrubd_pid();

	if (access(event, W_OK))
		SKIP(return, "no checkers");
	ASSERT_EQ(0, put(SYSCTL "scrub_stop", "1000"));
	ASSERT_EQ(0, put(SYSCTL "scrub_load", "0"));
	ASSERT_EQ(0, put(SYSCTL "scrub_start", "1000"));
	until_it_sleeps_long(pid);
	scrubbed = stat_of("scrubbed_pages");
	ASSERT_EQ(0, put(event, "1"));
	ASSERT_EQ(0, put(event, "0"));
	while (stat_of("scrubbed_pages") < scrubbed + HUGE / PAGE)
		usleep(10000);
}

/*
 * Each read here needs a page table and no page, because it maps the zero page. So nearly all
 * requests for small zeroed memory are for page tables, and a thousand hits are theirs. Page
 * tables are not movable: small dirty blocks are used up for them first, however full the pool
 * is; then zeroed huge blocks are split.
 */
TEST_F_TIMEOUT(prezero, page_tables_are_served, 600)
{
	const unsigned long most = 64 * 512, enough_hits = 2 * 512;
	unsigned long hits, tables = 0, i;
	char *start;

	ASSERT_EQ(0, put(SYSCTL "scrub_stop", "1000"));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	start = map(most * HUGE, MADV_NOHUGEPAGE);
	ASSERT_NE(NULL, start);
	hits = stat_of("hit_order0");
	while (tables < most && stat_of("hit_order0") - hits < enough_hits)
		for (i = 0; i < 512; i++)
			(void)*(volatile char *)(start + tables++ * HUGE);
	hits = stat_of("hit_order0") - hits;
	EXPECT_GE(hits, enough_hits);
	/* No more hits than requests: one table for each read, and the tables above them. */
	EXPECT_LE(hits, 2 * tables);
	munmap(start, most * HUGE);
}

/* Shared memory: cleared for a fault, but not for a write or by fallocate(). */
TEST_F_TIMEOUT(prezero, shmem, 600)
{
	static const char how[] = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
	const size_t size = 16 * HUGE;
	unsigned long hits;
	char *start;
	size_t i;
	int fd;

	ASSERT_EQ(0, put(how, "advise"));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	hits = stat_of("hit_huge");
	fd = memfd_create("prezero", 0);
	ASSERT_EQ(0, ftruncate(fd, 3 * size));
	start = mmap(NULL, 3 * size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ASSERT_NE(MAP_FAILED, start);
	madvise(start, 3 * size, MADV_HUGEPAGE);
	EXPECT_TRUE(all_zero(start, size));
	EXPECT_GE(stat_of("hit_huge") - hits, 8UL);

	EXPECT_EQ(0, fallocate(fd, 0, size, size));
	EXPECT_TRUE(all_zero(start + size, size));
	for (i = 2 * size; i < 3 * size; i += 64 * PAGE)
		EXPECT_EQ(1, pwrite(fd, "", 1, i + 100));
	EXPECT_TRUE(all_zero(start + 2 * size, size));

	memset(start, 0xa5, 3 * size);
	munmap(start, 3 * size);
	close(fd);
	EXPECT_EQ(0, put(how, "never"));
	EXPECT_TRUE(fresh_is_zero(64 * MB, MADV_HUGEPAGE));
}

static bool hugetlb_is_zero(size_t size, int flags)
{
	char *start = mmap(NULL, size, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | flags, -1, 0);
	bool good;

	if (start == MAP_FAILED)
		return false;
	good = all_zero(start, size);
	memset(start, 0xa5, size);
	munmap(start, size);
	return good;
}

/*
 * A folio that was zeroed when it was allocated counts as zero once, wherever it waits in
 * between.
 */
TEST_F_TIMEOUT(prezero, hugetlb_counts_as_zero_once, 600)
{
	static const char pool[] = SYSCTL "nr_hugepages", more[] = SYSCTL "nr_overcommit_hugepages";
	unsigned long hits;

	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	hits = stat_of("hit_huge");
	ASSERT_EQ(0, put(pool, "16"));
	EXPECT_GE(stat_of("hit_huge") - hits, 8UL);
	EXPECT_TRUE(hugetlb_is_zero(16 * HUGE, 0));
	EXPECT_TRUE(hugetlb_is_zero(16 * HUGE, 0));
	/* Switch the feature off and on between one use and the next. */
	ASSERT_EQ(0, put(FOLDER "enabled", "2"));
	EXPECT_TRUE(hugetlb_is_zero(16 * HUGE, 0));
	ASSERT_EQ(0, put(FOLDER "enabled", "1"));
	EXPECT_TRUE(hugetlb_is_zero(16 * HUGE, 0));
	ASSERT_EQ(0, put(pool, "0"));

	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	ASSERT_EQ(0, put(more, "16"));
	hits = stat_of("hit_huge");
	EXPECT_TRUE(hugetlb_is_zero(16 * HUGE, MAP_NORESERVE));
	EXPECT_GE(stat_of("hit_huge") - hits, 8UL);
	EXPECT_TRUE(hugetlb_is_zero(16 * HUGE, 0));
	ASSERT_EQ(0, put(more, "0"));
	EXPECT_EQ(0UL, checked("dirty_blocks"));
}

/* hugetlb's pool is filled with zeroed and other blocks, and given back. */
TEST_F_TIMEOUT(prezero, hugetlb_pool, 600)
{
	static const char path[] = SYSCTL "nr_hugepages";

	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	ASSERT_EQ(0, put(path, "32"));
	ASSERT_EQ(0, put(path, "0"));
	EXPECT_EQ(0UL, checked("dirty_blocks"));
	EXPECT_TRUE(fresh_is_zero(64 * MB, MADV_HUGEPAGE));
}

/* Returns a page inside a marked block between two others, or 0. */
static unsigned long find_marked(unsigned long pfn, unsigned long end)
{
	int fd = open("/proc/kpageflags", O_RDONLY);
	unsigned long found = 0;
	uint64_t flags[4096];
	ssize_t len;
	int i;

	for (; fd >= 0 && !found && pfn < end; pfn += len / sizeof(*flags)) {
		len = pread(fd, flags, sizeof(flags), pfn * sizeof(*flags));
		if (len <= 0)
			break;
		for (i = 0; i < len / (ssize_t)sizeof(*flags) && pfn + i < end; i++)
			if (flags[i] & KPF_BUDDY && flags[i] & KPF_OWNER_2)
				found = pfn + i + 5;
	}
	if (fd >= 0)
		close(fd);
	return found;
}

/* Memory failure takes a page out of the middle of a marked block. */
TEST_F_TIMEOUT(prezero, memory_failure, 600)
{
	static const char inject[] = "/sys/kernel/debug/hwpoison/corrupt-pfn";
	unsigned long pfn, lost;
	char number[32];

	if (access(inject, W_OK))
		SKIP(return, "no hwpoison injection");
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	pfn = find_marked(0, ~0UL);
	ASSERT_NE(0UL, pfn);
	lost = stat_of("lost_taken");
	snprintf(number, sizeof(number), "%lu", pfn);
	ASSERT_EQ(0, put(inject, number));
	EXPECT_GT(stat_of("lost_taken"), lost);
	EXPECT_EQ(0UL, checked("dirty_blocks"));
	EXPECT_EQ(0, put("/sys/kernel/debug/hwpoison/unpoison-pfn", number));
	EXPECT_TRUE(fresh_is_zero(64 * MB, MADV_NOHUGEPAGE));
}

/* A memory block with marked pages goes offline, and comes back without marks. */
TEST_F_TIMEOUT(prezero, memory_hotplug, 600)
{
	unsigned long block = memory_block_size() / PAGE, first = 0, offlined = 0;
	long nr = -1;

	if (next_movable_block(nr) < 0)
		SKIP(return, "no movable memory");
	ASSERT_NE(0UL, block);
	ASSERT_EQ(0, put(SYSCTL "scrub_stop", "1000"));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	while (!offlined && (nr = next_movable_block(nr)) >= 0) {
		first = nr * block;
		if (!find_marked(first, first + block))
			continue;
		offlined += !take_block_offline(nr);
	}
	EXPECT_EQ(1UL, offlined);
	EXPECT_EQ(0UL, checked("miscounted_pages"));
	EXPECT_EQ(0, set_memory_block(nr, "online_movable"));
	EXPECT_EQ(0UL, find_marked(first, first + block));
	EXPECT_EQ(0UL, checked("dirty_blocks"));
	EXPECT_TRUE(fresh_is_zero(64 * MB, MADV_HUGEPAGE));
}

/* A contiguous area is taken and given back beside a full pool. */
TEST_F_TIMEOUT(prezero, contiguous_area, 600)
{
	static const char take[] = "/sys/kernel/debug/cma/reserved/alloc";
	static const char give[] = "/sys/kernel/debug/cma/reserved/free";
	unsigned int taken = 0, i;

	if (access(take, W_OK))
		SKIP(return, "no contiguous area (cma=)");
	ASSERT_TRUE(fresh_is_zero(128 * MB, MADV_NOHUGEPAGE));
	ASSERT_EQ(0, put(SYSCTL "scrub_stop", "1000"));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	while (taken < 8 && !put(take, "1024"))
		taken++;
	EXPECT_GT(taken, 0U);
	EXPECT_EQ(0UL, checked("dirty_blocks"));
	for (i = 0; i < taken; i++)
		EXPECT_EQ(0, put(give, "1024"));
	EXPECT_EQ(0UL, checked("dirty_blocks"));
	EXPECT_TRUE(fresh_is_zero(128 * MB, MADV_NOHUGEPAGE));
	EXPECT_TRUE(fresh_is_zero(128 * MB, MADV_HUGEPAGE));
}

/*
 * Memory that is reported to a hypervisor, which may take it away, loses its mark. Memory that
 * was reported before is not zeroed, so the test uses the memory first. Draining the CPUs'
 * lists loses some marks, too, but not as many.
 */
TEST_F_TIMEOUT(prezero, page_reporting, 600)
{
	unsigned long lost;
	glob_t found;

	if (glob("/sys/bus/virtio/drivers/virtio_balloon/virtio*", 0, NULL, &found))
		SKIP(return, "no balloon");
	globfree(&found);
	ASSERT_EQ(0, put(SYSCTL "scrub_stop", "300"));
	do {
		ASSERT_TRUE(fresh_is_zero(512 * MB, MADV_HUGEPAGE));
		lost = stat_of("lost_taken");
		ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	} while (stat_of("zeroed_pages") < 64 * MB / PAGE);
	while (stat_of("lost_taken") < lost + 32 * MB / PAGE)
		usleep(100000);
	EXPECT_EQ(0UL, checked("dirty_blocks"));
	EXPECT_TRUE(fresh_is_zero(512 * MB, MADV_HUGEPAGE));
	EXPECT_TRUE(fresh_is_zero(256 * MB, MADV_NOHUGEPAGE));
	EXPECT_EQ(0UL, checked("dirty_blocks"));
}

static bool trace_has(const char *word)
{
	char line[512];
	bool found = false;
	FILE *trace = fopen("/sys/kernel/tracing/trace", "r");

	while (trace && !found && fgets(line, sizeof(line), trace))
		found = strstr(line, word);
	if (trace)
		fclose(trace);
	return found;
}

TEST_F_TIMEOUT(prezero, tracepoints, 600)
{
	static const char event[] = "/sys/kernel/tracing/events/quire/prezero_scrubbed/enable";

	if (access(event, W_OK))
		SKIP(return, "no tracefs");
	put("/sys/kernel/tracing/trace", "");
	ASSERT_EQ(0, put("/sys/kernel/tracing/events/quire/prezero_hit/enable", "1"));
	ASSERT_EQ(0, put(event, "1"));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	ASSERT_EQ(0, put(event, "0"));
	EXPECT_TRUE(trace_has("prezero_scrubbed: pfn="));
	EXPECT_TRUE(fresh_is_zero(8 * MB, MADV_HUGEPAGE));
	ASSERT_EQ(0, put("/sys/kernel/tracing/events/quire/prezero_hit/enable", "0"));
	EXPECT_TRUE(trace_has("prezero_hit: pfn="));
	put("/sys/kernel/tracing/trace", "");
}

/* Fills a file in memory; returns whether all was written. */
static bool fill_file(size_t size)
{
	char block[64 * 1024];
	int fd = memfd_create("prezero", 0);
	size_t done = 0;

	memset(block, 0xa5, sizeof(block));
	while (fd >= 0 && done < size && write(fd, block, sizeof(block)) == sizeof(block))
		done += sizeof(block);
	if (fd >= 0)
		close(fd);
	return done == size;
}

/* With init_on_alloc, all memory that anybody gets must be zero. */
static bool all_is_initialised(void)
{
	char line[4096];

	return get("/proc/cmdline", line, sizeof(line)) && strstr(line, "init_on_alloc=1");
}

/* The page cache and other users get zeroed memory that they do not ask for; that is counted. */
TEST_F_TIMEOUT(prezero, others_waste_it, 600)
{
	const char *name = all_is_initialised() ? "hit_order0" : "wasted_pages";
	unsigned long before = stat_of(name), wasted = stat_of("wasted_pages");

	ASSERT_EQ(0, put(SYSCTL "scrub_stop", "1000"));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	EXPECT_TRUE(fill_file(256 * MB));
	EXPECT_GT(stat_of(name), before);
	if (all_is_initialised())
		EXPECT_EQ(stat_of("wasted_pages"), wasted);
	EXPECT_TRUE(fresh_is_zero(128 * MB, MADV_NOHUGEPAGE));
}

TEST_HARNESS_MAIN
