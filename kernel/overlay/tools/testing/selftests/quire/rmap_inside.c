// SPDX-License-Identifier: GPL-2.0
/*
 * Links that are inside an area: which areas have them, what moves them out, and what must find
 * them: reclaim, migration, and a process that takes all its locks.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "harness.h"
#include "rmap_child.h"
#include "rmap_common.h"

#define AREAS 32
#define NOTIFIER "/sys/kernel/debug/quire/mmu_notifier"

FIXTURE(inside) {
	long enabled;
	struct child child;
	int fd[2];
	char *base;
};

/* Every other page is read-only, so each page is an area. */
FIXTURE_SETUP(inside)
{
	self->enabled = read_number(RMAP "enabled");
	if (self->enabled < 0)
		SKIP(return, "no rmap feature in this kernel");
	ASSERT_TRUE(rmap_begin());
	self->base = map(AREAS);
	ASSERT_NE(MAP_FAILED, self->base);
	for (int i = 0; i < AREAS; i++)
		*word(self->base, i) = 100 + i;
	for (int i = 1; i < AREAS; i += 2)
		ASSERT_EQ(0, mprotect(self->base + i * PAGE, PAGE, PROT_READ));
}

FIXTURE_TEARDOWN(inside)
{
	ASSERT_TRUE(rmap_end(self->enabled));
}

static bool holds(char *base)
{
	for (int i = 0; i < AREAS; i++)
		if (*word(base, i) != 100UL + i)
			return false;
	return true;
}

static int fork_and_wait(void)
{
	pid_t pid = fork();
	int status = -1;

	if (!pid)
		_exit(0);
	return waitpid(pid, &status, 0) == pid ? status : -1;
}

/* Touches more of the stack below the caller than reading a file needs. */
static __attribute__((noinline)) void touch_stack(void)
{
	volatile char room[16 * PAGE];

	for (size_t i = 0; i < sizeof(room); i += PAGE)
		room[i] = 1;
}

/*
 * Counts the areas of this process that have their link inside. Counting writes to stack and
 * heap, some of it after the count. So do all of that once before: then no write between two
 * counts is the first to its page.
 */
static long inside(void)
{
	touch_stack();
	field("/proc/self/quire", "rmap_inside:");
	return field("/proc/self/quire", "rmap_inside:");
}

static long links(void)
{
	return field("/proc/self/quire", "rmap_links:");
}

/* Runs in a child: @left generations that only read, one after the other. */
static void generations(char *base, int left)
{
	pid_t pid;
	int status;

	MUST(inside() >= AREAS && links() < AREAS && holds(base));
	if (!left)
		return;
	pid = fork();
	if (!pid) {
		generations(base, left - 1);
		_exit(0);
	}
	MUST(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
}

/*
 * Generations that only read need no allocated link, and the last one needs no more than the
 * first.
 */
TEST_F(inside, readers_of_readers)
{
	char *base = self->base;
	long borrowed = rmap_counter("borrowed"), found = rmap_counter("linked_inside");

	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd, generations(base, 4););
		_exit(0);
	}
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, reap(&self->child));
	EXPECT_GE(rmap_counter("linked_inside") - found, 5 * AREAS);
	EXPECT_LE(rmap_counter("linked_inside") - found, rmap_counter("borrowed") - borrowed);
}

/*
 * A write turns one link inside into two allocated ones; the neighbours of the area keep
 * theirs.
 */
TEST_F(inside, write_moves_it_out)
{
	char *base = self->base;

	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd, long had = inside();
			*word(base, 4) = 1;
			MUST(inside() < had && inside() > had - AREAS / 2););
		STEP(self->fd, MUST(*word(base, 4) == 1 && *word(base, 5) == 105););
		_exit(0);
	}
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, rmap_check(NULL));
	EXPECT_TRUE(holds(base));
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, reap(&self->child));
}

/*
 * An area of a file has no room for a link: it needs its place in the file's tree. /dev/zero is
 * a file.
 */
TEST_F(inside, not_in_areas_of_files)
{
	int zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
	char *base;

	ASSERT_GE(zero, 0);
	base = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, zero, 0);
	ASSERT_NE(MAP_FAILED, base);
	*word(base, 1) = 7;
	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd, long had = inside();
			MUST(had >= AREAS && *word(base, 1) == 7);
			/*
			 * The mapping becomes three areas. None of them had its link inside,
			 * and none has it now.
			 */
			MUST(!mprotect(base + PAGE, PAGE, PROT_READ) && inside() == had););
		STEP(self->fd, MUST(!munmap(base, 3 * PAGE)););
		_exit(0);
	}
	for (int i = 0; i < 2; i++) {
		EXPECT_TRUE(step(&self->child));
		EXPECT_EQ(0, rmap_check(NULL));
	}
	EXPECT_EQ(0, reap(&self->child));
	close(zero);
}

/* Areas that grow, shrink, split, merge and go. */
TEST_F(inside, ranges_change)
{
	char *base = self->base;

	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd, long had = inside();
			MUST(!munmap(base + 30 * PAGE, 2 * PAGE));
			/* The addresses after the area are free, so it grows in place. */
			MUST(mremap(base + 29 * PAGE, PAGE, 3 * PAGE, 0) == base + 29 * PAGE);
			MUST(inside() == had - 2););
		/* Three areas become one. */
		STEP(self->fd, long had = inside();
			MUST(!mprotect(base + 3 * PAGE, PAGE, PROT_READ | PROT_WRITE));
			MUST(inside() == had - 2););
		STEP(self->fd, MUST(!munmap(base + 29 * PAGE, PAGE));
			MUST(!munmap(base + 8 * PAGE, 2 * PAGE)););
		STEP(self->fd, char *to = map(4);
			MUST(mremap(base + 10 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
				    to) == to);
			MUST(*word(to, 0) == 110););
		STEP(self->fd, for (int i = 0; i < 8; i++)
				MUST(*word(base, i) == 100UL + i););
		_exit(0);
	}
	for (int i = 0; i < 5; i++) {
		EXPECT_TRUE(step(&self->child));
		EXPECT_EQ(0, rmap_check(NULL));
	}
	EXPECT_EQ(0, reap(&self->child));
	EXPECT_TRUE(holds(base));
}

/* A stack grows while its area borrows; its new pages are found by the link inside. */
TEST_F(inside, stack_grows)
{
	char *room = map(600), *low = room + 596 * PAGE;

	/* Leave room with nothing mapped, for the guard gap. */
	ASSERT_EQ(0, munmap(room, 600 * PAGE));
	ASSERT_EQ(low, mmap(low, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS |
			    MAP_FIXED | MAP_GROWSDOWN, -1, 0));
	*word(low, 0) = 100;
	ASSERT_EQ(0, write_text(RMAP "defer_faults", "4096"));
	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd, long had = inside();
			for (int i = 1; i < 9; i++)
				*word(low - i * PAGE, 0) = i;
			MUST(had > AREAS && inside() == had););
		STEP(self->fd, for (int i = 1; i < 9; i++)
				MUST(*word(low - i * PAGE, 0) == (unsigned long)i);
			MUST(*word(low, 0) == 100););
		_exit(0);
	}
	for (int i = 0; i < 2; i++) {
		EXPECT_TRUE(step(&self->child));
		EXPECT_EQ(0, rmap_check(NULL));
		EXPECT_EQ(0, write_text("/proc/sys/vm/compact_memory", "1"));
	}
	EXPECT_EQ(0, reap(&self->child));
	EXPECT_EQ(0, munmap(low, 4 * PAGE));
}

/*
 * The owner of the anon_vmas is gone: reclaim and migration find the pages through the
 * borrowers.
 */
TEST_F(inside, owner_is_gone)
{
	if (!have_swap())
		SKIP(return, "no swap");
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (!fork_child(&self->child, self->fd)) {
		char *own = map(AREAS), *one = map(4);
		pid_t parent = getpid();

		/* An area without neighbours, before it has an anon_vma. */
		MUST(!munmap(one, PAGE) && !munmap(one + 3 * PAGE, PAGE));
		*word(one, 1) = 7;
		for (int i = 0; i < AREAS; i++)
			*word(own, i) = 100 + i;
		for (int i = 1; i < AREAS; i += 2)
			MUST(!mprotect(own + i * PAGE, PAGE, PROT_READ));
		if (fork())
			_exit(0);
		while (getppid() == parent)
			usleep(1000);
		STEP(self->fd, MUST(inside() >= AREAS); MUST(holds(own)););
		STEP(self->fd, MUST(!madvise(own, AREAS * PAGE, MADV_PAGEOUT));
			MUST(field("/proc/self/status", "VmSwap:") > 0););
		STEP(self->fd, MUST(holds(own)););
		/*
		 * An anon_vma that no other process uses is adopted: for that, the link moves
		 * out, too. A write to a page that is here would not need an anon_vma.
		 */
		STEP(self->fd, long had = inside();
			long adopted = rmap_counter("adopted");
			*word(one, 2) = 8;
			MUST(*word(one, 1) == 7);
			MUST(inside() == had - 1 && rmap_counter("adopted") > adopted);
			MUST(!madvise(own, PAGE, MADV_DONTNEED));
			*word(own, 0) = 1;
			MUST(*word(own, 1) == 101 && inside() == had - 2););
		_exit(0);
	}
	EXPECT_EQ(self->child.pid, waitpid(self->child.pid, NULL, 0));
	for (int i = 0; i < 4; i++) {
		EXPECT_TRUE(step(&self->child));
		EXPECT_EQ(0, write_text("/proc/sys/vm/compact_memory", "1"));
		EXPECT_EQ(0, rmap_check(NULL));
	}
	close(self->child.go);
	close(self->child.done);
	EXPECT_GT(wait(NULL), 0);
}

/*
 * A process that takes all its locks takes the locks of these areas' anon_vmas, and releases
 * them.
 */
TEST_F(inside, all_locks)
{
	char *base = self->base;

	if (access(NOTIFIER, R_OK))
		SKIP(return, "no notifier for tests in this kernel");
	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd, int fd = open(NOTIFIER, O_RDONLY | O_CLOEXEC);
			MUST(fd >= 0 && inside() >= AREAS);
			MUST(!fork_and_wait());
			close(fd);
			*word(base, 0) = 1;
			MUST(*word(base, 1) == 101););
		_exit(0);
	}
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, rmap_check(NULL));
	EXPECT_EQ(0, reap(&self->child));
	/* The locks were also the parent's. */
	EXPECT_TRUE(holds(base));
	*word(base, 2) = 102;
}

/* A child that wipes the area, and a child that gets a copy of it while the feature is off. */
TEST_F(inside, wiped_and_off)
{
	char *base = self->base;

	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd, MUST(!madvise(base, PAGE, MADV_WIPEONFORK)); MUST(inside() >= AREAS - 2););
		STEP(self->fd, struct child child;
			int fd[2];

			if (!fork_child(&child, fd)) {
				STEP(fd, MUST(!*word(base, 0) && *word(base, 1) == 101););
				MUST(!inside());
				*word(base, 0) = *word(base, 2) = 3;
				_exit(0);
			}
			MUST(step(&child));
			MUST(!reap(&child)););
		_exit(0);
	}
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, write_text(RMAP "enabled", "0"));
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, write_text(RMAP "enabled", "1"));
	EXPECT_EQ(0, rmap_check(NULL));
	EXPECT_EQ(0, reap(&self->child));
	EXPECT_TRUE(holds(base));
}

TEST_HARNESS_MAIN
