// SPDX-License-Identifier: GPL-2.0
/*
 * prezero in hugetlb's own pool: free huge pages are zeroed there, a fault gets them without
 * a clear, every other use ends what is known of them, and no count or reservation changes.
 *
 * Boot with hugepagesz=2M hugepages=64 for a pool made at boot, and with hugepagesz=1G
 * hugepages=1 for the tests of gigantic pages. kscrubd is kept quiet (scrub_start 0) where
 * a test counts.
 */
#define _GNU_SOURCE
#include <linux/falloc.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "harness.h"
#include "prezero.h"

#define POOL_2M	"/sys/kernel/mm/hugepages/hugepages-2048kB/"
#define POOL_1G	"/sys/kernel/mm/hugepages/hugepages-1048576kB/"
#define GB	(1UL << 30)
#define PAGES	64UL
/* kscrubd zeroes this much at a time; see prezero/hugetlb.c. */
#define STEP	(64 << 10)

#ifndef MAP_HUGE_1GB
#define MAP_HUGE_1GB	(30 << 26)
#endif
#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE	101
#endif

static unsigned long pool(const char *folder, const char *name)
{
	char path[128], buf[32];

	snprintf(path, sizeof(path), "%s%s", folder, name);
	return get(path, buf, sizeof(buf)) ? strtoul(buf, NULL, 10) : 0;
}

static int resize(unsigned long pages)
{
	char number[32];

	snprintf(number, sizeof(number), "%lu", pages);
	return put(POOL_2M "nr_hugepages", number);
}

static char *map_pool(size_t size, int flags)
{
	char *start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_HUGETLB | flags,
			   -1, 0);

	return start == MAP_FAILED ? NULL : start;
}

/* Memory of the pool that is dirty, and in use until it is unmapped. */
static char *map_dirty(size_t size)
{
	char *start = map_pool(size, MAP_PRIVATE);

	return start ? memset(start, 0xa5, size) : NULL;
}

static bool use(size_t size, int flags)
{
	return zero_until_used(map_pool(size, flags), size);
}

/* Writes to both ends of each step, so that a step, or a part of one, that comes later shows. */
static void mark_steps(volatile char *start, size_t size)
{
	for (size_t i = 0; i < size; i += STEP) {
		start[i] = 0x5a;
		start[i + STEP - 1] = 1;
	}
}

/* The number of steps that have lost their marks. */
static size_t lost_steps(const volatile char *start, size_t size)
{
	size_t lost = 0;

	for (size_t i = 0; i < size; i += STEP)
		lost += start[i] != 0x5a || start[i + STEP - 1] != 1;
	return lost;
}

/* Whatever has happened to the pool, all of it is zero for the next user, zeroed or not. */
static bool pool_is_zero(void)
{
	size_t size = pool(POOL_2M, "free_hugepages") * HUGE;

	return use(size, MAP_PRIVATE) && !put(FOLDER "scrub_now", "1") && use(size, MAP_PRIVATE) &&
	       !put(FOLDER "scrub_now", "1");
}

FIXTURE(prezero_hugetlb) {
};

FIXTURE_SETUP(prezero_hugetlb)
{
	PREZERO_SETUP();
	if (pool(POOL_2M, "nr_hugepages") < PAGES)
		ASSERT_EQ(0, resize(PAGES));
	ASSERT_LE(PAGES, pool(POOL_2M, "free_hugepages"));
	ASSERT_EQ(0UL, stat_of("hugetlb_zeroed_pages"));
}

FIXTURE_TEARDOWN(prezero_hugetlb)
{
	PREZERO_TEARDOWN();
	EXPECT_EQ(0UL, stat_of("hugetlb_zeroed_pages"));
}

/* Nobody has used the pool since it was made at boot, if this runs first. */
TEST_F(prezero_hugetlb, all_free_pages_are_zeroed)
{
	unsigned long pages = pool(POOL_2M, "free_hugepages") * HUGE / PAGE +
			      pool(POOL_1G, "free_hugepages") * GB / PAGE;

	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	EXPECT_EQ(pages, stat_of("hugetlb_zeroed_pages"));
	EXPECT_EQ(pages, checked("hugetlb_pages"));
}

TEST_F(prezero_hugetlb, the_second_touch_hits)
{
	unsigned long hits, misses = stat_of("hugetlb_misses");

	ASSERT_TRUE(use(PAGES * HUGE, MAP_PRIVATE));
	EXPECT_EQ(PAGES, stat_of("hugetlb_misses") - misses);
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	hits = stat_of("hugetlb_hits");
	misses = stat_of("hugetlb_misses");
	ASSERT_TRUE(use(PAGES * HUGE, MAP_PRIVATE));
	EXPECT_EQ(PAGES, stat_of("hugetlb_hits") - hits);
	EXPECT_EQ(misses, stat_of("hugetlb_misses"));
	/* They have come back dirty. */
	EXPECT_EQ(0UL, checked("hugetlb_pages") - pool(POOL_1G, "free_hugepages") * GB / PAGE -
		       (pool(POOL_2M, "free_hugepages") - PAGES) * HUGE / PAGE);
	ASSERT_TRUE(use(PAGES * HUGE, MAP_SHARED));
	EXPECT_EQ(PAGES, stat_of("hugetlb_misses") - misses);
}

/* Zeroed pages go out first, even if others were freed after they were zeroed. */
TEST_F(prezero_hugetlb, zeroed_pages_go_out_first)
{
	char *held = map_dirty(PAGES / 2 * HUGE);
	unsigned long hits;

	ASSERT_NE(NULL, held);
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	munmap(held, PAGES / 2 * HUGE);
	hits = stat_of("hugetlb_hits");
	ASSERT_TRUE(use(PAGES / 2 * HUGE, MAP_PRIVATE));
	EXPECT_EQ(PAGES / 2, stat_of("hugetlb_hits") - hits);
}

TEST_F_TIMEOUT(prezero_hugetlb, gigantic_second_touch_hits, 1200)
{
	unsigned long hits;

	if (!pool(POOL_1G, "free_hugepages"))
		SKIP(return, "no free page of 1 GB");
	ASSERT_TRUE(use(GB, MAP_PRIVATE | MAP_HUGE_1GB));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	hits = stat_of("hugetlb_hits");
	ASSERT_TRUE(use(GB, MAP_PRIVATE | MAP_HUGE_1GB));
	EXPECT_EQ(1UL, stat_of("hugetlb_hits") - hits);
}

/* kscrubd rests between the parts of a gigantic page; a fault then takes it as it is. */
TEST_F_TIMEOUT(prezero_hugetlb, a_fault_takes_a_gigantic_page_that_is_half_done, 1200)
{
	unsigned long interrupted = stat_of("hugetlb_interrupted");
	int round;

	if (!pool(POOL_1G, "free_hugepages"))
		SKIP(return, "no free page of 1 GB");
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	ASSERT_EQ(0, put(FOLDER "rate_mb_per_second", "16"));
	ASSERT_EQ(0, put(SYSCTL "scrub_load", "0"));
	ASSERT_EQ(0, put(SYSCTL "scrub_start", "1"));
	for (round = 0; round < 60 && stat_of("hugetlb_interrupted") == interrupted; round++) {
		char *start = map_pool(GB, MAP_PRIVATE | MAP_HUGE_1GB);

		ASSERT_NE(NULL, start);
		EXPECT_EQ(0, start[GB - 1]);
		EXPECT_EQ(0, start[0]);
		mark_steps(start, GB);
		/* As long as the next part may take to come, if it did not know of the fault. */
		usleep(500000);
		EXPECT_EQ(0UL, lost_steps(start, GB));
		munmap(start, GB);
		usleep(200000);
	}
	EXPECT_LT(interrupted, stat_of("hugetlb_interrupted"));
	ASSERT_EQ(0, put(SYSCTL "scrub_start", "0"));
}

/* The copy of a page goes to a zeroed one, which then counts as wasted. */
TEST_F(prezero_hugetlb, a_copy_wastes_it)
{
	char *start = map_dirty(4 * HUGE);
	unsigned long wasted;
	int status;
	pid_t child;

	ASSERT_NE(NULL, start);
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	wasted = stat_of("hugetlb_wasted_pages");
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		for (size_t i = 0; i < 4 * HUGE; i += HUGE)
			start[i] = 1;
		_exit(start[HUGE + 1] != (char)0xa5);
	}
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(4 * HUGE / PAGE, stat_of("hugetlb_wasted_pages") - wasted);
	munmap(start, 4 * HUGE);
	EXPECT_TRUE(pool_is_zero());
}

static int pool_file(size_t size)
{
	int fd = memfd_create("prezero", MFD_HUGETLB);

	if (fd >= 0 && ftruncate(fd, size)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

TEST_F(prezero_hugetlb, fallocate_hits)
{
	int fd = pool_file(8 * HUGE), punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	unsigned long hits;
	char *start;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	hits = stat_of("hugetlb_hits");
	ASSERT_EQ(0, fallocate(fd, 0, 0, 8 * HUGE));
	EXPECT_EQ(8UL, stat_of("hugetlb_hits") - hits);
	start = mmap(NULL, 8 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ASSERT_NE(MAP_FAILED, start);
	EXPECT_TRUE(all_zero(start, 8 * HUGE));
	memset(start, 0xa5, 8 * HUGE);
	ASSERT_EQ(0, fallocate(fd, punch, 0, 4 * HUGE));
	EXPECT_TRUE(all_zero(start, 4 * HUGE));
	/* These are allocated and freed, and nobody maps them. */
	ASSERT_EQ(0, fallocate(fd, punch, 0, 8 * HUGE));
	ASSERT_EQ(0, fallocate(fd, 0, 0, 8 * HUGE));
	munmap(start, 8 * HUGE);
	close(fd);
	EXPECT_TRUE(pool_is_zero());
}

/* A read of a hole takes no page. */
TEST_F(prezero_hugetlb, a_read_of_a_hole_takes_none)
{
	int fd = pool_file(2 * HUGE);
	unsigned long before;
	char buf[PAGE];

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	before = stat_of("hugetlb_zeroed_pages");
	memset(buf, 1, sizeof(buf));
	ASSERT_EQ(sizeof(buf), pread(fd, buf, sizeof(buf), HUGE));
	EXPECT_EQ(0, buf[0] | buf[sizeof(buf) - 1]);
	EXPECT_EQ(before, stat_of("hugetlb_zeroed_pages"));
	close(fd);
}

TEST_F(prezero_hugetlb, uffd_copy_wastes_it)
{
	struct uffdio_api api = { .api = UFFD_API };
	char *start = map_pool(2 * HUGE, MAP_PRIVATE), *from = map(HUGE, MADV_NOHUGEPAGE);
	struct uffdio_register range = {
		.range = { .start = (unsigned long)start, .len = 2 * HUGE },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	struct uffdio_copy copy = { .dst = (unsigned long)start, .src = (unsigned long)from,
				    .len = HUGE };
	int fd = syscall(__NR_userfaultfd, O_CLOEXEC);
	unsigned long wasted;

	if (fd < 0)
		SKIP(return, "no userfaultfd");
	ASSERT_NE(NULL, start);
	ASSERT_NE(NULL, from);
	memset(from, 0x5a, HUGE);
	ASSERT_EQ(0, ioctl(fd, UFFDIO_API, &api));
	ASSERT_EQ(0, ioctl(fd, UFFDIO_REGISTER, &range));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	wasted = stat_of("hugetlb_wasted_pages");
	ASSERT_EQ(0, ioctl(fd, UFFDIO_COPY, &copy));
	EXPECT_EQ(HUGE / PAGE, stat_of("hugetlb_wasted_pages") - wasted);
	EXPECT_EQ(0, memcmp(start, from, HUGE));
	munmap(start, 2 * HUGE);
	munmap(from, HUGE);
	close(fd);
	EXPECT_TRUE(pool_is_zero());
}

/* Soft offline migrates a page in use into a free one, and takes the old one away. */
TEST_F(prezero_hugetlb, migration_wastes_it)
{
	char *start = map_dirty(HUGE);
	unsigned long wasted, size;

	ASSERT_NE(NULL, start);
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	wasted = stat_of("hugetlb_wasted_pages");
	size = pool(POOL_2M, "nr_hugepages");
	if (madvise(start, PAGE, MADV_SOFT_OFFLINE))
		SKIP(return, "no soft offline");
	EXPECT_LE(HUGE / PAGE, stat_of("hugetlb_wasted_pages") - wasted);
	EXPECT_EQ((char)0xa5, start[HUGE - 1]);
	munmap(start, HUGE);
	ASSERT_EQ(0, resize(size));
	EXPECT_TRUE(pool_is_zero());
}

/* Pages of the pool go back to the page allocator, and are zero for whoever gets them. */
TEST_F(prezero_hugetlb, the_pool_shrinks_and_grows)
{
	unsigned long pages = pool(POOL_2M, "nr_hugepages");

	ASSERT_TRUE(use(PAGES * HUGE, MAP_PRIVATE));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	ASSERT_EQ(0, resize(pages / 4));
	EXPECT_EQ(pages / 4, pool(POOL_2M, "free_hugepages"));
	EXPECT_EQ(0UL, checked("miscounted_pages"));
	EXPECT_TRUE(fresh_is_zero(PAGES * HUGE, MADV_HUGEPAGE));
	ASSERT_EQ(0, resize(pages));
	EXPECT_TRUE(pool_is_zero());
	EXPECT_EQ(pages, pool(POOL_2M, "free_hugepages"));
}

/* What a smaller pool gives back is dirty; the zeroed pages stay. */
TEST_F(prezero_hugetlb, a_smaller_pool_keeps_its_zeroed_pages)
{
	unsigned long pages = pool(POOL_2M, "nr_hugepages"), half = PAGES / 2, hits, wasted, zeroed;
	char *held;

	/* Nodes give pages back in turn, whatever they have. */
	if (!access("/sys/devices/system/node/node1", F_OK))
		SKIP(return, "more than one node");
	held = map_dirty(half * HUGE);
	ASSERT_NE(NULL, held);
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	munmap(held, half * HUGE);
	wasted = stat_of("hugetlb_wasted_pages");
	zeroed = stat_of("hugetlb_zeroed_pages");
	ASSERT_EQ(0, resize(pages - half));
	EXPECT_EQ(pages - half, pool(POOL_2M, "free_hugepages"));
	EXPECT_EQ(wasted, stat_of("hugetlb_wasted_pages"));
	EXPECT_EQ(zeroed, stat_of("hugetlb_zeroed_pages"));
	hits = stat_of("hugetlb_hits");
	EXPECT_TRUE(use((pages - half) * HUGE, MAP_PRIVATE));
	EXPECT_EQ(pages - half, stat_of("hugetlb_hits") - hits);
	ASSERT_EQ(0, resize(pages));
	EXPECT_TRUE(pool_is_zero());
}

/* Have the kernel allocate unmovable memory, and free it: so much of it is in whole blocks. */
static int use_unmovable(void)
{
	static const char buf[MB];
	int pipes[64][2], i, ret = 0;

	memset(pipes, -1, sizeof(pipes));
	for (i = 0; i < 64; i++)
		if (pipe2(pipes[i], O_NONBLOCK) || fcntl(pipes[i][1], F_SETPIPE_SZ, MB) < 0 ||
		    write(pipes[i][1], buf, MB) != MB)
			ret = -1;
	for (i = 0; i < 64; i++) {
		close(pipes[i][0]);
		close(pipes[i][1]);
	}
	return ret;
}

/* Take huge pages until there are no zeroed ones left. Returns the memory, or NULL. */
static char *take_all_zeroed(size_t size)
{
	char *start = map(size, MADV_HUGEPAGE);
	unsigned long hits, at = 0;

	while (start && at < size) {
		hits = stat_of("hit_huge");
		for (int i = 0; i < 8 && at < size; i++, at += HUGE)
			start[at] = 1;
		if (hits == stat_of("hit_huge"))
			return start;
	}
	return NULL;
}

/* The pool gets pages without a clear, unless there are zeroed ones that are movable, too. */
TEST_F(prezero_hugetlb, what_is_zeroed_but_not_movable_does_not_count)
{
	unsigned long pages = pool(POOL_2M, "nr_hugepages"), zeroed;
	const size_t most = GB + GB / 4, size = 2 * GB;
	char *most_of_it, *start;

	/* The other node has zeroed pages of its own. */
	if (!access("/sys/devices/system/node/node1", F_OK))
		SKIP(return, "more than one node");
	ASSERT_EQ(0, use_unmovable());
	most_of_it = map(most, MADV_HUGEPAGE);
	ASSERT_NE(NULL, most_of_it);
	for (size_t i = 0; i < most; i += HUGE)
		most_of_it[i] = 1;
	ASSERT_EQ(0, put(SYSCTL "scrub_stop", "1000"));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	munmap(most_of_it, most);
	start = take_all_zeroed(size);
	ASSERT_NE(NULL, start);
	zeroed = stat_of("hugetlb_zeroed_pages");
	EXPECT_EQ(0, resize(pages + 16));
	EXPECT_EQ(zeroed, stat_of("hugetlb_zeroed_pages"));
	munmap(start, size);
	ASSERT_EQ(0, resize(pages));
}

static pid_t scrub_in_a_loop(void)
{
	pid_t child = fork();

	if (!child)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!child)
		if (put(FOLDER "scrub_now", "1"))
			_exit(1);
	return child;
}

static int end(pid_t child)
{
	int status;

	kill(child, SIGKILL);
	return waitpid(child, &status, 0) == child && WIFSIGNALED(status) ? 0 : -1;
}

/*
 * Maps and touches each page of the pool again and again while it is zeroed: a reservation
 * that fails, or a fault that does, which ends the test by SIGBUS, would have missed a page. It
 * is rare that a page of 2 MB is taken while it is zeroed: that is for the gigantic page above.
 */
TEST_F_TIMEOUT(prezero_hugetlb, reservations_hold_while_it_scrubs, 1200)
{
	unsigned long pages = pool(POOL_2M, "nr_hugepages"), scrubbed;
	pid_t child;
	int round;

	scrubbed = stat_of("hugetlb_scrubbed_pages");
	child = scrub_in_a_loop();
	ASSERT_LT(0, child);
	for (round = 0; round < 30; round++) {
		int flags = round % 3 == 0 ? MAP_SHARED : round % 3 == 1 ? MAP_PRIVATE :
			    MAP_PRIVATE | MAP_NORESERVE;
		char *start = map_pool(pages * HUGE, flags);

		ASSERT_NE(NULL, start);
		for (size_t i = 0; i < pages * HUGE; i += HUGE) {
			EXPECT_EQ(0, start[i] | start[i + HUGE - 1]);
			mark_steps(start + i, HUGE);
		}
		EXPECT_EQ(0UL, lost_steps(start, pages * HUGE));
		munmap(start, pages * HUGE);
		ASSERT_EQ(pages, pool(POOL_2M, "free_hugepages"));
	}
	EXPECT_EQ(0, end(child));
	EXPECT_LT(scrubbed, stat_of("hugetlb_scrubbed_pages"));
}

TEST_F_TIMEOUT(prezero_hugetlb, the_pools_size_changes_while_it_scrubs, 1200)
{
	static const unsigned long sizes[] = { 16, 96, 0, 64, 1 };
	unsigned long pages = pool(POOL_2M, "nr_hugepages");
	pid_t child = scrub_in_a_loop();
	unsigned int i;

	ASSERT_LT(0, child);
	for (i = 0; i < 4 * ARRAY_SIZE(sizes); i++) {
		ASSERT_EQ(0, resize(sizes[i % ARRAY_SIZE(sizes)]));
		EXPECT_EQ(sizes[i % ARRAY_SIZE(sizes)], pool(POOL_2M, "nr_hugepages"));
		EXPECT_EQ(sizes[i % ARRAY_SIZE(sizes)], pool(POOL_2M, "free_hugepages"));
		EXPECT_EQ(0UL, pool(POOL_2M, "resv_hugepages"));
	}
	EXPECT_EQ(0, end(child));
	ASSERT_EQ(0, resize(pages));
	EXPECT_TRUE(pool_is_zero());
}

static int switch_often(void)
{
	for (int i = 0; i < 20; i++)
		if (put(FOLDER "enabled", i % 2 ? "1" : "0"))
			return 1;
	return 0;
}

/* Pages are taken and freed while the stamps become void, and while there may be none. */
TEST_F_TIMEOUT(prezero_hugetlb, switched_while_pages_are_taken, 1200)
{
	int status = -1;
	pid_t child;

	ASSERT_EQ(0, put(SYSCTL "scrub_load", "0"));
	ASSERT_EQ(0, put(SYSCTL "scrub_start", "1"));
	child = fork();
	ASSERT_LE(0, child);
	if (!child)
		_exit(switch_often());
	while (!waitpid(child, &status, WNOHANG)) {
		char *start = map_pool(PAGES * HUGE, MAP_PRIVATE);

		ASSERT_NE(NULL, start);
		for (size_t i = 0; i < PAGES * HUGE; i += STEP)
			EXPECT_EQ(0, start[i] | start[i + STEP - 1]);
		mark_steps(start, PAGES * HUGE);
		EXPECT_EQ(0UL, lost_steps(start, PAGES * HUGE));
		munmap(start, PAGES * HUGE);
	}
	EXPECT_EQ(0, status);
	ASSERT_EQ(0, put(SYSCTL "scrub_start", "0"));
	EXPECT_TRUE(pool_is_zero());
}

TEST_F(prezero_hugetlb, off_drops_it)
{
	unsigned long zeroed, lost, misses;

	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	zeroed = stat_of("hugetlb_zeroed_pages");
	lost = stat_of("hugetlb_lost_pages");
	ASSERT_LE(PAGES * HUGE / PAGE, zeroed);
	ASSERT_EQ(0, put(FOLDER "enabled", "0"));
	EXPECT_EQ(0UL, stat_of("hugetlb_zeroed_pages"));
	EXPECT_EQ(0UL, checked("hugetlb_pages"));
	EXPECT_EQ(zeroed, stat_of("hugetlb_lost_pages") - lost);
	EXPECT_TRUE(use(PAGES / 2 * HUGE, MAP_PRIVATE));
	ASSERT_EQ(0, put(FOLDER "enabled", "1"));
	EXPECT_EQ(0UL, checked("hugetlb_pages"));
	misses = stat_of("hugetlb_misses");
	EXPECT_TRUE(use(PAGES * HUGE, MAP_PRIVATE));
	EXPECT_EQ(PAGES, stat_of("hugetlb_misses") - misses);
}

TEST_F(prezero_hugetlb, hibernation_drops_it)
{
	static const char control[] = "/sys/kernel/debug/quire/prezero_hibernate";

	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	ASSERT_LT(0UL, stat_of("hugetlb_zeroed_pages"));
	ASSERT_EQ(0, put(control, "1"));
	EXPECT_EQ(0UL, checked("hugetlb_pages"));
	EXPECT_EQ(0, put(FOLDER "scrub_now", "1"));
	EXPECT_EQ(0UL, stat_of("hugetlb_zeroed_pages"));
	ASSERT_EQ(0, put(control, "0"));
	EXPECT_EQ(0, put(FOLDER "scrub_now", "1"));
	EXPECT_LT(0UL, stat_of("hugetlb_zeroed_pages"));
}

/* kscrubd zeroes the pool by itself, and is woken when pages come back dirty. */
TEST_F(prezero_hugetlb, kscrubd_zeroes_the_pool)
{
	unsigned long pages = pool(POOL_2M, "free_hugepages") * HUGE / PAGE +
			      pool(POOL_1G, "free_hugepages") * GB / PAGE;
	int round;

	ASSERT_EQ(0, put(SYSCTL "scrub_load", "0"));
	ASSERT_EQ(0, put(SYSCTL "scrub_start", "1"));
	for (round = 0; round < 3; round++) {
		while (stat_of("hugetlb_zeroed_pages") != pages)
			usleep(10000);
		EXPECT_TRUE(use(PAGES * HUGE, MAP_PRIVATE));
	}
	ASSERT_EQ(0, put(SYSCTL "scrub_start", "0"));
}

static unsigned long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000UL + now.tv_nsec / 1000000;
}

/*
 * Leaves only pages of 2 MB to zero, at 8 MB per second: a gigantic page would count at its end
 * only, so it is zero from the start.
 */
static bool slow_down(void)
{
	return !put(FOLDER "scrub_now", "1") && use(PAGES * HUGE, MAP_PRIVATE) &&
	       !put(FOLDER "rate_mb_per_second", "8") && !put(SYSCTL "scrub_load", "0");
}

/* As kscrubd_keeps_to_its_rate of prezero_basic.c: one part, and an eighth, may be ahead. */
TEST_F(prezero_hugetlb, kscrubd_keeps_to_its_rate)
{
	const unsigned long rate = 8, part = 4;
	unsigned long scrubbed, began, done, passed;

	if (!access("/sys/devices/system/node/node1", F_OK))
		SKIP(return, "more than one node");
	ASSERT_TRUE(slow_down());
	scrubbed = stat_of("hugetlb_scrubbed_pages");
	began = now_ms();
	ASSERT_EQ(0, put(SYSCTL "scrub_start", "1"));
	do {
		usleep(10000);
		done = (stat_of("hugetlb_scrubbed_pages") - scrubbed) * PAGE / MB;
		passed = now_ms() - began;
		EXPECT_LE(done * 1000, (passed + passed / 8) * rate + part * 1000);
	} while (done < 8 * part);
	ASSERT_EQ(0, put(SYSCTL "scrub_start", "0"));
}

/* With a scrub_start of 0 kscrubd zeroes no more than the part under way. */
TEST_F(prezero_hugetlb, kscrubd_stops_at_once)
{
	unsigned long scrubbed;

	if (!access("/sys/devices/system/node/node1", F_OK))
		SKIP(return, "more than one node");
	ASSERT_TRUE(slow_down());
	scrubbed = stat_of("hugetlb_scrubbed_pages");
	ASSERT_EQ(0, put(SYSCTL "scrub_start", "1"));
	while (stat_of("hugetlb_scrubbed_pages") == scrubbed)
		usleep(10000);
	ASSERT_EQ(0, put(SYSCTL "scrub_start", "0"));
	scrubbed = stat_of("hugetlb_scrubbed_pages");
	/* Four pages at this rate. */
	usleep(1000000);
	EXPECT_GE(HUGE / PAGE, stat_of("hugetlb_scrubbed_pages") - scrubbed);
}

/*
 * As a virtual machine starts, pages that nobody has used stay as they are. A page counts as used
 * when a part of its 4 MB was, so some others are zeroed too.
 */
TEST_F(prezero_hugetlb, unused_pages_are_left_out)
{
	unsigned long pages = pool(POOL_2M, "free_hugepages") * HUGE / PAGE, zeroed;
	char *held;

	ASSERT_EQ(0, put(FOLDER "scrub_unused", "0"));
	ASSERT_EQ(0, put(FOLDER "enabled", "2"));
	ASSERT_EQ(0, put(FOLDER "enabled", "1"));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	EXPECT_GE(pages / 8, stat_of("hugetlb_zeroed_pages"));
	held = map_dirty(PAGES / 4 * HUGE);
	ASSERT_NE(NULL, held);
	munmap(held, PAGES / 4 * HUGE);
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	zeroed = stat_of("hugetlb_zeroed_pages");
	EXPECT_LE(PAGES / 4 * HUGE / PAGE, zeroed);
	EXPECT_GE(pages * 3 / 4, zeroed);
	ASSERT_EQ(0, put(FOLDER "scrub_unused", "1"));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	pages += pool(POOL_1G, "free_hugepages") * GB / PAGE;
	EXPECT_EQ(pages, stat_of("hugetlb_zeroed_pages"));
}

/*
 * Pages that are freed while the feature is off get to the head of hugetlb's list. Behind them are
 * pages of a new pool that nobody has used, more than kscrubd looks at from the list's tail.
 */
TEST_F(prezero_hugetlb, pages_that_are_freed_while_off_are_used)
{
	unsigned long pages = pool(POOL_2M, "nr_hugepages"), many = PAGES / 4 + 300;
	char *held;

	if (!access("/sys/devices/system/node/node1", F_OK))
		SKIP(return, "more than one node");
	ASSERT_EQ(0, put(FOLDER "scrub_unused", "0"));
	ASSERT_EQ(0, resize(0));
	ASSERT_EQ(0, put(FOLDER "enabled", "2"));
	ASSERT_EQ(0, put(FOLDER "enabled", "1"));
	ASSERT_EQ(0, resize(many));
	if (pool(POOL_2M, "nr_hugepages") < many)
		SKIP(goto out, "too little memory for a large pool");
	held = map_dirty(PAGES / 4 * HUGE);
	ASSERT_NE(NULL, held);
	ASSERT_EQ(0, put(FOLDER "enabled", "0"));
	munmap(held, PAGES / 4 * HUGE);
	ASSERT_EQ(0, put(FOLDER "enabled", "1"));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	EXPECT_LE(PAGES / 4 * HUGE / PAGE, stat_of("hugetlb_zeroed_pages"));
	EXPECT_GE(many * HUGE / PAGE / 2, stat_of("hugetlb_zeroed_pages"));
out:
	ASSERT_EQ(0, resize(pages));
}

/* A gigantic page is split into pages of 2 MB. Comes last: it cannot be made again. */
TEST_F_TIMEOUT(prezero_hugetlb, demotion, 1200)
{
	unsigned long pages = pool(POOL_2M, "nr_hugepages");

	if (!pool(POOL_1G, "free_hugepages"))
		SKIP(return, "no free page of 1 GB");
	ASSERT_TRUE(use(GB, MAP_PRIVATE | MAP_HUGE_1GB));
	ASSERT_EQ(0, put(FOLDER "scrub_now", "1"));
	ASSERT_EQ(0, put(POOL_1G "demote", "1"));
	EXPECT_EQ(pages + GB / HUGE, pool(POOL_2M, "free_hugepages"));
	EXPECT_EQ(pages * HUGE / PAGE, checked("hugetlb_pages"));
	EXPECT_TRUE(pool_is_zero());
	EXPECT_EQ(0, resize(pages));
	EXPECT_EQ(pages, pool(POOL_2M, "free_hugepages"));
}

TEST_HARNESS_MAIN
