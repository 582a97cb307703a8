// SPDX-License-Identifier: GPL-2.0
/*
 * userfaultfd fills and moves pages in areas that borrow their anon_vma. The reverse map finds
 * the pages that arrive that way, in the child and not in its parent.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "harness.h"
#include "compat.h"
#include "rmap_child.h"
#include "rmap_common.h"

#define PAGES 64
#define FILLED 32			/* the first pages, filled by the parent */
#define HUGE (2UL << 20)

static void fill(char *base, unsigned int pages, uint64_t value)
{
	for (unsigned int i = 0; i < pages; i++)
		*word(base, i) = value + i;
}

static bool holds(char *base, unsigned int pages, uint64_t value)
{
	for (unsigned int i = 0; i < pages; i++)
		if (*word(base, i) != value + i)
			return false;
	return true;
}

/* Returns a userfaultfd that reports the missing pages of an area, or -1. */
static int watch(char *area, size_t len)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_MOVE };
	struct uffdio_register reg = {
		.range = { .start = (unsigned long)area, .len = len },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &reg))
		return -1;
	return fd;
}

static bool copy_in(int fd, char *to, const char *from, unsigned int pages)
{
	struct uffdio_copy copy = {
		.dst = (unsigned long)to, .src = (unsigned long)from, .len = pages * PAGE,
	};

	return !ioctl(fd, UFFDIO_COPY, &copy) && copy.copy == (int64_t)(pages * PAGE);
}

static int move_in(int fd, char *to, const char *from, unsigned int pages)
{
	struct uffdio_move move = {
		.dst = (unsigned long)to, .src = (unsigned long)from, .len = pages * PAGE,
	};

	for (;;) {
		if (!ioctl(fd, UFFDIO_MOVE, &move))
			return move.move == (int64_t)move.len ? 0 : -EIO;
		if (errno != EAGAIN)
			return -errno;
		if (move.move > 0) {
			move.dst += move.move;
			move.src += move.move;
			move.len -= move.move;
		}
		move.move = 0;
	}
}

static long upgrades(void)
{
	return rmap_counter("upgraded") + rmap_counter("adopted") + rmap_counter("joined");
}

static long borrowed_areas(void)
{
	return field("/proc/self/quire", "rmap_borrowed:");
}

FIXTURE(uffd) {
	long enabled;
	struct child child;
	int fd[2];
	char *to, *from;	/* two areas, a hole between them; the parent has pages in both */
};

FIXTURE_VARIANT(uffd) {
	const char *defer;
};
/* A child's first write ends the borrowing in the first variant only. */
FIXTURE_VARIANT_ADD(uffd, at_once) { .defer = "0" };
FIXTURE_VARIANT_ADD(uffd, deferred) { .defer = "4096" };

FIXTURE_SETUP(uffd)
{
	self->enabled = read_number(RMAP "enabled");
	if (self->enabled < 0)
		SKIP(return, "no rmap feature in this kernel");
	ASSERT_TRUE(rmap_begin());
	ASSERT_EQ(0, write_text(RMAP "defer_faults", variant->defer));
	self->to = map(3 * PAGES);
	ASSERT_NE(MAP_FAILED, (void *)self->to);
	self->from = self->to + 2 * PAGES * PAGE;
	ASSERT_EQ(0, munmap(self->to + PAGES * PAGE, PAGES * PAGE));
	madvise(self->to, PAGES * PAGE, MADV_NOHUGEPAGE);
	madvise(self->from, PAGES * PAGE, MADV_NOHUGEPAGE);
	fill(self->to, FILLED, 10);
	fill(self->from, FILLED, 100);
}

FIXTURE_TEARDOWN(uffd)
{
	/* The parent has its old contents, and nothing where the child's pages arrived. */
	EXPECT_TRUE(holds(self->to, FILLED, 10));
	EXPECT_EQ(0, *word(self->to, FILLED + 1));
	EXPECT_TRUE(holds(self->from, FILLED, 100));
	munmap(self->to, PAGES * PAGE);
	munmap(self->from, PAGES * PAGE);
	ASSERT_TRUE(rmap_end(self->enabled));
}

/* Reclaim and migration find the child's pages; the contents do not change in either process. */
static bool found_by_reclaim(void)
{
	return !rmap_check(NULL) && !write_text("/proc/sys/vm/compact_memory", "1") &&
	       !rmap_check(NULL);
}

TEST_F(uffd, copy)
{
	long borrowed = rmap_counter("borrowed"), deferred = rmap_counter("deferred");
	bool defer = strcmp(variant->defer, "0"), swap = have_swap();
	int fd;

	if (!fork_child(&self->child, self->fd)) {
		long before = upgrades();

		MUST(borrowed_areas() >= 2);
		fd = watch(self->to, PAGES * PAGE);
		MUST(fd >= 0);
		MUST(borrowed_areas() >= 2);
		STEP(self->fd, MUST(copy_in(fd, self->to + FILLED * PAGE, self->from, 16)););
		MUST(upgrades() > before);
		STEP(self->fd, MUST(holds(self->to, FILLED, 10));
			MUST(holds(self->to + FILLED * PAGE, 16, 100)););
		STEP(self->fd, MUST(!madvise(self->to, PAGES * PAGE, MADV_PAGEOUT)););
		STEP(self->fd, MUST(holds(self->to + FILLED * PAGE, 16, 100)););
		_exit(0);
	}
	ASSERT_LE(borrowed + 2, rmap_counter("borrowed"));
	for (int i = 0; i < 4; i++) {
		EXPECT_TRUE(step(&self->child));
		EXPECT_TRUE(found_by_reclaim());
	}
	if (defer)
		EXPECT_LT(deferred, rmap_counter("deferred"));
	if (!swap)
		TH_LOG("no swap: MADV_PAGEOUT does nothing");
	EXPECT_EQ(0, reap(&self->child));
}

/* A page of the child's own moves from one borrower to another; a page of its parent's may not. */
TEST_F(uffd, move)
{
	long borrowed = rmap_counter("borrowed");
	int fd;

	if (!fork_child(&self->child, self->fd)) {
		MUST(borrowed_areas() >= 2);
		fd = watch(self->to, PAGES * PAGE);
		MUST(fd >= 0);
		MUST(move_in(fd, self->to + FILLED * PAGE, self->from, 1) == -EBUSY);
		MUST(*word(self->from, 0) == 100);
		/* These are new pages and copies, which no other process has. */
		STEP(self->fd, fill(self->from, FILLED + 8, 300););
		STEP(self->fd, MUST(!move_in(fd, self->to + FILLED * PAGE, self->from, 16)););
		STEP(self->fd, MUST(holds(self->to, FILLED, 10));
			MUST(holds(self->to + FILLED * PAGE, 16, 300));
			MUST(holds(self->from + 16 * PAGE, FILLED - 8, 316)););
		/* Pages also move from swap; swap entries move as they are. */
		STEP(self->fd, MUST(!madvise(self->from, PAGES * PAGE, MADV_PAGEOUT)););
		STEP(self->fd, MUST(!move_in(fd, self->to + (FILLED + 16) * PAGE,
					     self->from + 16 * PAGE, 8)););
		STEP(self->fd, MUST(holds(self->to + (FILLED + 16) * PAGE, 8, 316));
			fill(self->to, FILLED, 500););
		STEP(self->fd, MUST(!madvise(self->to, PAGES * PAGE, MADV_PAGEOUT)););
		STEP(self->fd, MUST(holds(self->to, FILLED, 500));
			MUST(holds(self->to + FILLED * PAGE, 16, 300)););
		_exit(0);
	}
	ASSERT_LE(borrowed + 2, rmap_counter("borrowed"));
	for (int i = 0; i < 8; i++) {
		EXPECT_TRUE(step(&self->child));
		EXPECT_TRUE(found_by_reclaim());
	}
	EXPECT_EQ(0, reap(&self->child));
}

/* The same, in a page table that both processes share until then. */
TEST_F(uffd, in_a_shared_table)
{
	long fork_enabled = read_number(FORK_FEATURE "enabled"), tables;
	char *area, *base;
	int fd;

	if (fork_enabled < 0)
		SKIP(return, "no fork feature in this kernel");
	area = map(3 * HUGE / PAGE);
	ASSERT_NE(MAP_FAILED, (void *)area);
	base = (char *)(((unsigned long)area + HUGE - 1) & ~(HUGE - 1));
	madvise(area, 3 * HUGE, MADV_NOHUGEPAGE);
	fill(base, FILLED, 10);
	fill(base + HUGE / 2, FILLED, 100);
	ASSERT_EQ(0, write_text(FORK_FEATURE "enabled", "1"));
	tables = share_tables();
	if (!fork_child(&self->child, self->fd)) {
		MUST(field("/proc/self/quire", "fork_shared_tables:") >= 1);
		fd = watch(area, 3 * HUGE);
		MUST(fd >= 0);
		STEP(self->fd, MUST(copy_in(fd, base + FILLED * PAGE, base + HUGE / 2, 16)););
		STEP(self->fd, fill(base + HUGE / 2, FILLED, 300);
			MUST(!move_in(fd, base + (FILLED + 16) * PAGE, base + HUGE / 2, 8)););
		STEP(self->fd, MUST(holds(base, FILLED, 10));
			MUST(holds(base + FILLED * PAGE, 16, 100));
			MUST(holds(base + (FILLED + 16) * PAGE, 8, 300)););
		_exit(0);
	}
	EXPECT_TRUE(shared_tables_since(tables));
	for (int i = 0; i < 3; i++) {
		EXPECT_TRUE(step(&self->child));
		EXPECT_TRUE(found_by_reclaim());
		EXPECT_TRUE(holds(base, FILLED, 10));
		EXPECT_TRUE(holds(base + HUGE / 2, FILLED, 100));
	}
	EXPECT_EQ(0, *word(base, FILLED));
	EXPECT_EQ(0, reap(&self->child));
	munmap(area, 3 * HUGE);
	EXPECT_EQ(0, write_text("/proc/self/quire", "default"));
	EXPECT_EQ(0, write_text(FORK_FEATURE "enabled", fork_enabled ? "1" : "0"));
}

TEST_HARNESS_MAIN
