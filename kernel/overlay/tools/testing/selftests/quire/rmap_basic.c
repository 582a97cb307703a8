// SPDX-License-Identifier: GPL-2.0
/*
 * Borrowed anon_vmas: processes write, split, move, merge and exit, in various orders. After
 * each step the contents must be right and the reverse map complete.
 */
#define _GNU_SOURCE
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "harness.h"
#include "rmap_child.h"
#include "rmap_common.h"

#define AREAS 64
#define HUGE (2UL << 20)

static void fill(void *base, unsigned int pages, uint64_t value)
{
	for (unsigned int i = 0; i < pages; i++)
		*word(base, i) = value + i;
}

static bool holds(void *base, unsigned int pages, uint64_t value)
{
	for (unsigned int i = 0; i < pages; i++)
		if (*word(base, i) != value + i)
			return false;
	return true;
}

/* How many areas of /proc/self/maps lie in a range. */
static int areas_in(void *base, size_t pages)
{
	unsigned long start, end, first = (unsigned long)base, last = first + pages * PAGE;
	FILE *file = fopen("/proc/self/maps", "r");
	char line[512];
	int n = 0;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%lx-%lx", &start, &end) == 2)
			n += start < last && end > first;
	if (file)
		fclose(file);
	return n;
}

/* Page i of each is an area by itself, because every other page is read-only. */
static void *map_areas(void)
{
	void *base = map(AREAS);

	if (base == MAP_FAILED)
		return base;
	fill(base, AREAS, 1000);
	for (int i = 1; i < AREAS; i += 2)
		if (mprotect(word(base, i), PAGE, PROT_READ))
			return MAP_FAILED;
	return base;
}

FIXTURE(rmap) {
	long enabled;
	struct child child;
	int fd[2];
};

FIXTURE_SETUP(rmap)
{
	self->enabled = read_number(RMAP "enabled");
	if (self->enabled < 0)
		SKIP(return, "no rmap feature in this kernel");
	ASSERT_TRUE(rmap_begin());
}

FIXTURE_TEARDOWN(rmap)
{
	ASSERT_TRUE(rmap_end(self->enabled));
}

static long upgrades(void)
{
	return rmap_counter("upgraded") + rmap_counter("adopted") + rmap_counter("joined");
}

TEST_F(rmap, reader_borrows_all)
{
	void *base = map_areas();
	long borrowed = rmap_counter("borrowed"), before;

	ASSERT_NE(MAP_FAILED, base);
	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd, MUST(holds(base, AREAS, 1000)););
		_exit(0);
	}
	EXPECT_GE(rmap_counter("borrowed") - borrowed, AREAS);
	before = upgrades();
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, rmap_check(NULL));
	/* The child writes to its stack and data, but not to these areas. */
	EXPECT_LT(upgrades() - before, AREAS / 2);
	EXPECT_EQ(0, reap(&self->child));
}

TEST_F(rmap, writer_upgrades)
{
	void *base = map_areas();
	long before;

	ASSERT_NE(MAP_FAILED, base);
	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd,
			for (int i = 0; i < AREAS; i += 2)
				*word(base, i) = 5000 + i;
		);
		STEP(self->fd,
			for (int i = 0; i < AREAS; i++)
				MUST(*word(base, i) == (i % 2 ? 1000 : 5000) + i);
		);
		_exit(0);
	}
	before = upgrades();
	EXPECT_TRUE(step(&self->child));
	EXPECT_GE(upgrades() - before, AREAS / 2);
	EXPECT_EQ(0, rmap_check(NULL));
	EXPECT_TRUE(holds(base, AREAS, 1000));
	fill(base, 1, 1);
	EXPECT_EQ(0, write_text("/proc/sys/vm/compact_memory", "1"));
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, reap(&self->child));
}

TEST_F(rmap, orphan_adopts)
{
	long before;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (!fork_child(&self->child, self->fd)) {
		/*
		 * The area needs an anon_vma of its own, so it has no neighbour to share one
		 * with.
		 */
		void *base = map(18) + PAGE;
		pid_t parent = getpid();

		munmap(base - PAGE, PAGE);
		munmap(base + 16 * PAGE, PAGE);
		/*
		 * Leave out the last page: writes to pages that only the child maps need no new
		 * folio.
		 */
		fill(base, 15, 7);
		if (fork())
			_exit(0);
		while (getppid() == parent)
			usleep(1000);
		STEP(self->fd, MUST(holds(base, 15, 7)); fill(base, 16, 70););
		STEP(self->fd, MUST(holds(base, 16, 70)););
		_exit(0);
	}
	/* The parent has exited and was waited for, so its areas are gone, too. */
	EXPECT_EQ(self->child.pid, waitpid(self->child.pid, NULL, 0));
	before = rmap_counter("adopted");
	EXPECT_TRUE(step(&self->child));
	EXPECT_GE(rmap_counter("adopted"), before + 1);
	EXPECT_EQ(0, rmap_check(NULL));
	EXPECT_TRUE(step(&self->child));
	self->child.pid = -1;
	close(self->child.go);
	close(self->child.done);
	EXPECT_GT(wait(NULL), 0);
}

TEST_F(rmap, split_and_merge_borrowed)
{
	char *base = map(8);

	fill(base, 8, 10);
	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd, MUST(!mprotect(base + 2 * PAGE, 2 * PAGE, PROT_READ));
			MUST(areas_in(base, 8) == 3););
		STEP(self->fd, MUST(!mprotect(base + 2 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE));
			MUST(areas_in(base, 8) == 1););
		STEP(self->fd, *word(base, 3) = 99; MUST(*word(base, 4) == 14););
		_exit(0);
	}
	for (int i = 0; i < 3; i++) {
		EXPECT_TRUE(step(&self->child));
		EXPECT_EQ(0, rmap_check(NULL));
	}
	EXPECT_TRUE(holds(base, 8, 10));
	EXPECT_EQ(0, reap(&self->child));
}

/* Parts of a borrowed area become one area again, in whichever order they were written to. */
TEST_F(rmap, parts_merge)
{
	char *base = map(16);

	fill(base, 16, 10);
	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd,
			for (int i = 1; i < 16; i += 2)
				MUST(!mprotect(base + i * PAGE, PAGE, PROT_READ));
			MUST(areas_in(base, 16) == 16);
		);
		STEP(self->fd,
			for (int i = 0; i < 16; i += 4)
				*word(base, i) = i;
		);
		STEP(self->fd, MUST(!mprotect(base, 16 * PAGE, PROT_READ | PROT_WRITE));
			MUST(areas_in(base, 16) == 1););
		STEP(self->fd,
			for (int i = 0; i < 16; i++)
				MUST(*word(base, i) == (i % 4 ? 10 : 0) + i);
			fill(base, 16, 50);
		);
		_exit(0);
	}
	for (int i = 0; i < 4; i++) {
		EXPECT_TRUE(step(&self->child));
		EXPECT_EQ(0, rmap_check(NULL));
	}
	EXPECT_TRUE(holds(base, 16, 10));
	EXPECT_EQ(0, reap(&self->child));
}

/* A part is moved away and back, and the rest is written to meanwhile. */
TEST_F(rmap, part_moves_back)
{
	char *base = map(8), *to = map(8);

	fill(base, 8, 10);
	munmap(to, 8 * PAGE);
	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd, MUST(mremap(base + 4 * PAGE, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE |
				MREMAP_FIXED, to) == to);
			*word(base, 0) = 1;);
		STEP(self->fd, *word(to, 0) = 2;
			MUST(mremap(to, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
				base + 4 * PAGE) == base + 4 * PAGE);
			MUST(areas_in(base, 8) == 1);
			MUST(*word(base, 0) == 1 && *word(base, 4) == 2 && *word(base, 7) == 17););
		_exit(0);
	}
	for (int i = 0; i < 2; i++) {
		EXPECT_TRUE(step(&self->child));
		EXPECT_EQ(0, rmap_check(NULL));
	}
	EXPECT_TRUE(holds(base, 8, 10));
	EXPECT_EQ(0, reap(&self->child));
}

TEST_F(rmap, new_area_beside_borrowed)
{
	char *base = map(24), *middle = base + 8 * PAGE;

	munmap(base, 8 * PAGE);
	munmap(base + 16 * PAGE, 8 * PAGE);
	fill(middle, 8, 10);
	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd, MUST(mmap(base, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE |
				MAP_ANONYMOUS | MAP_FIXED, -1, 0) == base);
			MUST(mmap(base + 16 * PAGE, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE |
				MAP_ANONYMOUS | MAP_FIXED, -1, 0) == base + 16 * PAGE););
		STEP(self->fd, fill(base, 24, 300););
		STEP(self->fd, MUST(holds(base, 24, 300));
			MUST(!munmap(base + 4 * PAGE, 16 * PAGE)););
		_exit(0);
	}
	for (int i = 0; i < 3; i++) {
		EXPECT_TRUE(step(&self->child));
		EXPECT_EQ(0, rmap_check(NULL));
	}
	EXPECT_TRUE(holds(middle, 8, 10));
	EXPECT_EQ(0, reap(&self->child));
}

TEST_F(rmap, move)
{
	char *base = map(8), *to = map(64);

	fill(base, 8, 10);
	munmap(to, 64 * PAGE);
	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd, MUST(mremap(base, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
				to) == to); MUST(holds(to, 8, 10)););
		STEP(self->fd, *word(to, 1) = 0; MUST(*word(to, 2) == 12););
		STEP(self->fd, MUST(mremap(to + 4 * PAGE, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE |
				MREMAP_FIXED, to + 32 * PAGE) == to + 32 * PAGE);
			MUST(holds(to + 32 * PAGE, 4, 14)););
		STEP(self->fd, MUST(mremap(to + 32 * PAGE, 4 * PAGE, 16 * PAGE, MREMAP_MAYMOVE) !=
				MAP_FAILED););
		_exit(0);
	}
	for (int i = 0; i < 4; i++) {
		EXPECT_TRUE(step(&self->child));
		EXPECT_EQ(0, rmap_check(NULL));
	}
	EXPECT_TRUE(holds(base, 8, 10));
	EXPECT_EQ(0, reap(&self->child));
}

TEST_F(rmap, move_and_keep)
{
	char *base = map(8), *to = map(8);

	fill(base, 8, 10);
	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd, MUST(mremap(base, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE |
				MREMAP_DONTUNMAP | MREMAP_FIXED, to) == to);
			MUST(holds(to, 8, 10)););
		STEP(self->fd, MUST(*word(base, 0) == 0); fill(base, 8, 20););
		STEP(self->fd, fill(to, 8, 30); MUST(holds(base, 8, 20)););
		_exit(0);
	}
	for (int i = 0; i < 3; i++) {
		EXPECT_TRUE(step(&self->child));
		EXPECT_EQ(0, rmap_check(NULL));
	}
	EXPECT_TRUE(holds(base, 8, 10));
	EXPECT_EQ(0, reap(&self->child));
}

TEST_F(rmap, wiped_on_fork)
{
	char *base = map(8);

	fill(base, 8, 10);
	ASSERT_EQ(0, madvise(base, 4 * PAGE, MADV_WIPEONFORK));
	if (!fork_child(&self->child, self->fd)) {
		struct child child;
		int fd[2];

		/* Twice, so that the copy of a borrower is wiped too. */
		if (!fork_child(&child, fd)) {
			STEP(fd, MUST(*word(base, 1) == 0); *word(base, 1) = 5;
				*word(base, 5) = 6;);
			_exit(0);
		}
		STEP(self->fd, MUST(step(&child)););
		STEP(self->fd, MUST(!reap(&child)); MUST(*word(base, 1) == 0);
			MUST(*word(base, 5) == 15); fill(base, 8, 40););
		_exit(0);
	}
	for (int i = 0; i < 2; i++) {
		EXPECT_TRUE(step(&self->child));
		EXPECT_EQ(0, rmap_check(NULL));
	}
	EXPECT_TRUE(holds(base, 8, 10));
	EXPECT_EQ(0, reap(&self->child));
}

struct racer {
	pthread_t thread;
	pthread_barrier_t *barrier;
	void *base;
	int page;
};

static void *race(void *arg)
{
	struct racer *racer = arg;

	pthread_barrier_wait(racer->barrier);
	*word(racer->base, racer->page) = 900 + racer->page;
	return NULL;
}

/* Whichever thread faults first upgrades the area; the result is the same. */
static void race_to_write(void *base, int threads)
{
	struct racer racers[16];
	pthread_barrier_t barrier;

	pthread_barrier_init(&barrier, NULL, threads);
	for (int i = 0; i < threads; i++) {
		racers[i] = (struct racer){ .barrier = &barrier, .base = base, .page = i };
		MUST(!pthread_create(&racers[i].thread, NULL, race, &racers[i]));
	}
	for (int i = 0; i < threads; i++)
		pthread_join(racers[i].thread, NULL);
}

TEST_F(rmap, threads_upgrade)
{
	char *base = map(16);

	fill(base, 16, 10);
	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd, race_to_write(base, 16); MUST(holds(base, 16, 900)););
		_exit(0);
	}
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, rmap_check(NULL));
	EXPECT_TRUE(holds(base, 16, 10));
	EXPECT_EQ(0, reap(&self->child));
}

TEST_F(rmap, collapse_borrowed)
{
	char *area = map(2 * HUGE / PAGE), *base;

	base = (char *)(((unsigned long)area + HUGE - 1) & ~(HUGE - 1));
	fill(base, HUGE / PAGE, 10);
	if (!fork_child(&self->child, self->fd)) {
		/* This may fail for lack of a huge page: then nothing has changed. */
		STEP(self->fd, madvise(base, HUGE, MADV_COLLAPSE);
			MUST(holds(base, HUGE / PAGE, 10)););
		STEP(self->fd, MUST(!mprotect(base + HUGE / 2, HUGE / 2, PROT_READ));
			fill(base, HUGE / 2 / PAGE, 20););
		_exit(0);
	}
	for (int i = 0; i < 2; i++) {
		EXPECT_TRUE(step(&self->child));
		EXPECT_EQ(0, rmap_check(NULL));
	}
	EXPECT_TRUE(holds(base, HUGE / PAGE, 10));
	EXPECT_EQ(0, reap(&self->child));
}

TEST_F(rmap, swap)
{
	char *base = map(64);

	if (!have_swap())
		SKIP(return, "no swap");
	fill(base, 64, 10);
	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd, MUST(!madvise(base, 64 * PAGE, MADV_PAGEOUT)););
		STEP(self->fd, MUST(holds(base, 64, 10)););
		STEP(self->fd, fill(base, 32, 50); MUST(!madvise(base, 64 * PAGE, MADV_PAGEOUT)););
		STEP(self->fd, MUST(holds(base, 32, 50)); MUST(holds(base + 32 * PAGE, 32, 42)););
		_exit(0);
	}
	for (int i = 0; i < 4; i++) {
		EXPECT_TRUE(step(&self->child));
		EXPECT_EQ(0, madvise(base, 64 * PAGE, MADV_PAGEOUT));
		EXPECT_EQ(0, rmap_check(NULL));
	}
	EXPECT_TRUE(holds(base, 64, 10));
	EXPECT_EQ(0, reap(&self->child));
}

TEST_F(rmap, ksm)
{
	char *base = map(32);
	long scans;
	int i;

	if (access("/sys/kernel/mm/ksm/run", W_OK))
		SKIP(return, "no KSM");
	for (i = 0; i < 32; i++)
		memset(base + i * PAGE, 7, PAGE);
	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd, MUST(!madvise(base, 32 * PAGE, MADV_MERGEABLE)););
		STEP(self->fd, for (int n = 0; n < 16; n++)
				MUST(*word(base, n) == 0x0707070707070707); fill(base, 8, 3););
		STEP(self->fd, MUST(holds(base, 8, 3)););
		_exit(0);
	}
	EXPECT_EQ(0, madvise(base, 16 * PAGE, MADV_MERGEABLE));
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, write_text("/sys/kernel/mm/ksm/pages_to_scan", "4000"));
	EXPECT_EQ(0, write_text("/sys/kernel/mm/ksm/sleep_millisecs", "1"));
	scans = read_number("/sys/kernel/mm/ksm/full_scans");
	EXPECT_EQ(0, write_text("/sys/kernel/mm/ksm/run", "1"));
	for (i = 0; i < 6000 && read_number("/sys/kernel/mm/ksm/full_scans") < scans + 3; i++)
		usleep(10000);
	EXPECT_GT(read_number("/sys/kernel/mm/ksm/pages_sharing"), 0);
	EXPECT_EQ(0, rmap_check(NULL));
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, write_text("/proc/sys/vm/compact_memory", "1"));
	EXPECT_EQ(0, rmap_check(NULL));
	EXPECT_EQ(0, write_text("/sys/kernel/mm/ksm/run", "2"));
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, write_text("/sys/kernel/mm/ksm/run", "0"));
	EXPECT_EQ(0, rmap_check(NULL));
	EXPECT_EQ(0, reap(&self->child));
}

TEST_F(rmap, hugetlb)
{
	static const char nr_path[] = "/proc/sys/vm/nr_hugepages";
	uint64_t *base;

	if (write_text(nr_path, "4") || read_number(nr_path) < 4)
		SKIP(return, "no huge pages");
	base = mmap(NULL, HUGE, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	ASSERT_NE(MAP_FAILED, base);
	*base = 1;
	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd, MUST(*base == 1););
		STEP(self->fd, *base = 2;);
		STEP(self->fd, MUST(*base == 2););
		_exit(0);
	}
	for (int i = 0; i < 3; i++) {
		EXPECT_TRUE(step(&self->child));
		EXPECT_EQ(0, rmap_check(NULL));
	}
	EXPECT_EQ(1, *base);
	EXPECT_EQ(0, reap(&self->child));
	munmap(base, HUGE);
	EXPECT_EQ(0, write_text(nr_path, "0"));
}

/*
 * Borrowers remain when the feature is switched off. They fork by Linux's own code, and
 * upgrade.
 */
TEST_F(rmap, off_with_borrowers)
{
	void *base = map_areas();

	if (!fork_child(&self->child, self->fd)) {
		struct child child;
		int fd[2];

		STEP(self->fd, MUST(holds(base, AREAS, 1000)););
		STEP(self->fd,
			if (!fork_child(&child, fd)) {
				STEP(fd, *word(base, 2) = 4;);
				MUST(*word(base, 2) == 4);
				MUST(*word(base, 3) == 1003);
				_exit(0);
			}
			MUST(step(&child)););
		STEP(self->fd, *word(base, 4) = 5; MUST(!reap(&child)););
		MUST(*word(base, 4) == 5);
		_exit(0);
	}
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, write_text(RMAP "enabled", "0"));
	for (int i = 0; i < 2; i++) {
		EXPECT_TRUE(step(&self->child));
		EXPECT_EQ(0, rmap_check(NULL));
	}
	EXPECT_EQ(0, reap(&self->child));
	EXPECT_TRUE(holds(base, AREAS, 1000));
	EXPECT_EQ(0, write_text(RMAP "enabled", "1"));
}

TEST_F(rmap, drain)
{
	void *base = map_areas();
	struct rmap_report report;

	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd, MUST(holds(base, AREAS, 1000)););
		STEP(self->fd, *word(base, 4) = 5; MUST(*word(base, 5) == 1005););
		_exit(0);
	}
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, rmap_check(&report));
	if (report.borrowed >= 0)
		EXPECT_GE(report.borrowed, AREAS);
	EXPECT_EQ(0, write_text(RMAP "enabled", "2"));
	EXPECT_EQ(0, rmap_check(&report));
	if (report.borrowed >= 0)
		EXPECT_EQ(0, report.borrowed);
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, rmap_check(NULL));
	EXPECT_EQ(0, reap(&self->child));
	EXPECT_TRUE(holds(base, AREAS, 1000));
	EXPECT_EQ(0, write_text(RMAP "enabled", "1"));
}

/*
 * The checker must be able to find something: it breaks something of this process and looks for
 * it.
 */
TEST_F(rmap, checker_sees_a_break)
{
	char *base = map(3);
	int err;

	/* Remove the neighbours, so that no neighbour's anon_vma is used. */
	ASSERT_EQ(0, munmap(base, PAGE));
	ASSERT_EQ(0, munmap(base + 2 * PAGE, PAGE));
	*word(base, 1) = 1;
	do {
		err = write_text(RMAP_CHECK, "break");
	} while (err == -EAGAIN);
	if (err == -ENOENT)
		SKIP(return, "no checker in this kernel");
	EXPECT_EQ(-EUCLEAN, err);
	EXPECT_EQ(-EUCLEAN, write_text(RMAP_CHECK, "migrate"));
	EXPECT_EQ(-EINVAL, write_text(RMAP_CHECK, "broken"));
	EXPECT_EQ(1, *word(base, 1));
	EXPECT_EQ(0, rmap_check(NULL));
}

TEST_F(rmap, shown_in_proc)
{
	void *base = map_areas();

	ASSERT_NE(MAP_FAILED, base);
	if (access("/proc/self/quire", F_OK))
		SKIP(return, "no /proc/PID/quire in this kernel");
	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd, MUST(field("/proc/self/quire", "rmap_borrowed:") >= AREAS);
			MUST(field("/proc/self/quire", "rmap_areas:") >= AREAS);
			MUST(field("/proc/self/quire", "rmap_inside:") >= AREAS););
		_exit(0);
	}
	EXPECT_GE(field("/proc/self/quire", "rmap_links:"), AREAS / 2);
	EXPECT_GE(field("/proc/self/quire", "rmap_links_kb:"), 1);
	EXPECT_GE(read_number(RMAP "borrowers"), AREAS);
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, reap(&self->child));
}

/* The checker reads tables that fork shares, and leaves them shared. */
TEST_F(rmap, checker_leaves_tables_shared)
{
	long fork_enabled = read_number(FORK_FEATURE "enabled"), shared;
	struct rmap_report report;
	char *area, *base;

	if (fork_enabled < 0)
		SKIP(return, "no fork feature in this kernel");
	area = map(3 * HUGE / PAGE);
	ASSERT_NE(MAP_FAILED, area);
	base = (char *)(((unsigned long)area + HUGE - 1) & ~(HUGE - 1));
	madvise(area, 3 * HUGE, MADV_NOHUGEPAGE);
	fill(base, HUGE / PAGE, 10);
	ASSERT_EQ(0, write_text(FORK_FEATURE "enabled", "1"));
	ASSERT_EQ(0, write_text("/proc/self/quire", "1"));
	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd, MUST(holds(base, HUGE / PAGE, 10)););
		_exit(0);
	}
	shared = field("/proc/self/quire", "fork_shared_tables:");
	EXPECT_GE(shared, 1);
	EXPECT_EQ(0, rmap_check(&report));
	EXPECT_EQ(shared, field("/proc/self/quire", "fork_shared_tables:"));
	/* The checker, if there is one, visits them in both processes. */
	if (report.pages >= 0)
		EXPECT_GE(report.pages, 2 * (long)(HUGE / PAGE));
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, reap(&self->child));
	EXPECT_EQ(0, write_text(FORK_FEATURE "enabled", fork_enabled ? "1" : "0"));
}

/*
 * The first writes of a young child attach pages to the anon_vma that it borrows, up to a
 * limit.
 */
TEST_F(rmap, young_writer_borrows)
{
	unsigned int pages = 128;
	char *base = map(pages + 2) + PAGE;
	long deferred = rmap_counter("deferred"), before;

	/* Remove the neighbours: pages are not deferred to an anon_vma that many areas use. */
	ASSERT_EQ(0, munmap(base - PAGE, PAGE));
	ASSERT_EQ(0, munmap(base + pages * PAGE, PAGE));
	madvise(base, pages * PAGE, MADV_NOHUGEPAGE);
	fill(base, pages, 10);
	EXPECT_EQ(-EINVAL, write_text(RMAP "defer_faults", "4097"));
	ASSERT_EQ(0, write_text(RMAP "defer_faults", "32"));
	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd, fill(base, 8, 50););
		STEP(self->fd, fill(base, pages, 90););
		STEP(self->fd, MUST(holds(base, pages, 90)););
		_exit(0);
	}
	EXPECT_TRUE(step(&self->child));
	EXPECT_GE(rmap_counter("deferred"), deferred + 8);
	EXPECT_EQ(0, rmap_check(NULL));
	EXPECT_TRUE(holds(base, pages, 10));
	before = upgrades();
	EXPECT_TRUE(step(&self->child));
	/* The child is no longer young. */
	EXPECT_GE(upgrades(), before + 1);
	EXPECT_EQ(0, rmap_check(NULL));
	EXPECT_EQ(0, write_text("/proc/sys/vm/compact_memory", "1"));
	EXPECT_TRUE(step(&self->child));
	EXPECT_TRUE(holds(base, pages, 10));
	EXPECT_EQ(0, reap(&self->child));
}

static pid_t clone_with(uint64_t flags)
{
	struct clone_args args = { .flags = flags, .exit_signal = SIGCHLD };

	return syscall(SYS_clone3, &args, sizeof(args));
}

/* clone3() forks, too, with and without the flags that it adds. */
TEST_F(rmap, clone3)
{
	static const uint64_t flags[] = { 0, CLONE_CLEAR_SIGHAND, CLONE_FS | CLONE_FILES,
					  CLONE_PARENT_SETTID };
	void *base = map_areas();
	int status;

	ASSERT_NE(MAP_FAILED, base);
	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
		pid_t parent_tid = 0;
		struct clone_args args = { .flags = flags[i], .exit_signal = SIGCHLD,
					   .parent_tid = (unsigned long)&parent_tid };
		long borrowed = rmap_counter("borrowed");
		pid_t pid = syscall(SYS_clone3, &args, sizeof(args));

		if (!pid) {
			*word(base, 0) = 7;
			/* A grandchild borrows what the child borrows or owns. */
			pid = clone_with(0);
			if (!pid)
				_exit(*word(base, 0) != 7 || *word(base, 1) != 1001);
			_exit(waitpid(pid, &status, 0) != pid || status);
		}
		ASSERT_GT(pid, 0);
		EXPECT_EQ(0, rmap_check(NULL));
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		EXPECT_EQ(0, status);
		EXPECT_GE(rmap_counter("borrowed") - borrowed, 2 * AREAS - 8);
	}
	EXPECT_TRUE(holds(base, AREAS, 1000));
}

/* Many mappings and a chain of forks: bulk allocation needs more than one round. */
TEST_F(rmap, many_areas_and_holes)
{
	unsigned int pages = 300;
	char *base = map(pages);
	int status;

	ASSERT_NE(MAP_FAILED, base);
	fill(base, pages, 4000);
	for (unsigned int i = 1; i < pages; i += 2)
		ASSERT_EQ(0, mprotect(word(base, i), PAGE, PROT_READ));
	/* Areas that a child does not get, so that its tree differs. */
	for (unsigned int i = 20; i < pages; i += 20)
		ASSERT_EQ(0, madvise(word(base, i), 3 * PAGE, MADV_DONTFORK));
	for (int depth = 0; depth < 3; depth++) {
		pid_t pid = fork();

		if (pid > 0) {
			EXPECT_EQ(pid, waitpid(pid, &status, 0));
			EXPECT_EQ(0, status);
			if (depth)
				_exit(status || rmap_check(NULL));
			return;
		}
		for (unsigned int i = 0; i < pages; i++) {
			if (i >= 20 && i % 20 < 3)
				MUST(msync(word(base, i), PAGE, MS_ASYNC));
			else
				MUST(*word(base, i) == 4000 + i);
		}
		MUST(!rmap_check(NULL));
	}
	_exit(0);
}

/*
 * A small area without pages is not linked; an area with a page is linked, even if it hides the
 * page.
 */
TEST_F(rmap, areas_that_map_nothing)
{
	void *base = map(AREAS);
	long empty;

	ASSERT_NE(MAP_FAILED, base);
	for (int i = 0; i < AREAS; i += 2)
		*word(base, i) = 1000 + i;
	for (int i = 1; i < AREAS; i += 2)
		ASSERT_EQ(0, mprotect(word(base, i), PAGE, PROT_READ));
	ASSERT_EQ(0, mprotect(word(base, 2), PAGE, PROT_NONE));
	empty = rmap_counter("fork_empty");
	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd,
			MUST(!mprotect(word(base, 2), PAGE, PROT_READ | PROT_WRITE));
			for (int i = 0; i < AREAS; i++)
				MUST(*word(base, i) == (i % 2 ? 0 : 1000 + i));
		);
		STEP(self->fd,
			MUST(!mprotect(base, AREAS * PAGE, PROT_READ | PROT_WRITE));
			for (int i = 1; i < AREAS; i += 2)
				*word(base, i) = 3000 + i;
		);
		STEP(self->fd,
			int status;
			pid_t pid = fork();

			if (!pid) {
				for (int i = 0; i < AREAS; i++)
					MUST(*word(base, i) == (i % 2 ? 3000 : 1000) + i);
				_exit(0);
			}
			MUST(waitpid(pid, &status, 0) == pid && !status);
		);
		_exit(0);
	}
	EXPECT_GE(rmap_counter("fork_empty") - empty, AREAS / 2);
	for (int i = 0; i < 3; i++) {
		EXPECT_TRUE(step(&self->child));
		EXPECT_EQ(0, rmap_check(NULL));
	}
	for (int i = 1; i < AREAS; i += 2)
		EXPECT_EQ(0, *word(base, i));
	EXPECT_EQ(0, reap(&self->child));
}

#define TOUCHED 96

static struct {
	void *base;
	atomic_int forks;
	atomic_bool done;
} touch;

/* Writes to one area after the other, a few while each fork is under way. */
static void *touch_all(void *unused)
{
	for (int i = 1, forks; i < TOUCHED; i++) {
		*word(touch.base, i) = i + 1;
		if (i % 4)
			continue;
		forks = atomic_load(&touch.forks);
		while (atomic_load(&touch.forks) == forks)
			sched_yield();
	}
	atomic_store(&touch.done, true);
	return unused;
}

/* A child has all that was written before some moment, and nothing that was written after it. */
TEST_F(rmap, fork_races_with_first_writes)
{
	pthread_t thread;
	int status;

	touch.base = map(TOUCHED);
	ASSERT_NE(MAP_FAILED, touch.base);
	*word(touch.base, 0) = 1;
	for (int i = 1; i < TOUCHED; i += 2)
		ASSERT_EQ(0, mprotect(word(touch.base, i), PAGE, PROT_READ | PROT_WRITE | PROT_EXEC));
	ASSERT_EQ(0, pthread_create(&thread, NULL, touch_all, NULL));
	while (!atomic_load(&touch.done)) {
		pid_t pid;

		atomic_fetch_add(&touch.forks, 1);
		pid = fork();
		ASSERT_GE(pid, 0);
		if (!pid) {
			int i = 0;

			while (i < TOUCHED && *word(touch.base, i) == (uint64_t)i + 1)
				i++;
			while (i < TOUCHED && !*word(touch.base, i))
				i++;
			_exit(i < TOUCHED);
		}
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		EXPECT_EQ(0, status);
	}
	pthread_join(thread, NULL);
}

TEST_HARNESS_MAIN
