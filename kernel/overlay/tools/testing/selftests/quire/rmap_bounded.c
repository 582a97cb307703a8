// SPDX-License-Identifier: GPL-2.0
/*
 * How many areas a walk of the reverse map visits for the pages that a child made. The number
 * must not grow with the siblings that the parent forks later, whichever thread or system call
 * made the pages. Also, which writes a borrower defers, and what happens when the budget ends.
 */
#define _GNU_SOURCE
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "harness.h"
#include "rmap_child.h"
#include "rmap_common.h"

#define PAGES 384
#define PER_THREAD 16
#define SIBLINGS 48
#define HUGE (512 * PAGE)
#define THP "/sys/kernel/mm/transparent_hugepage/"
#define SIZE_64K THP "hugepages-64kB/enabled"

FIXTURE(bounded) {
	long enabled;
	struct child child;
	int fd[2], stay[2];
	char *area;	/* less than a table, no neighbours, has a page of the parent */
};

/* An area that has no neighbours. */
static char *map_alone(unsigned int pages)
{
	char *room = map(pages + 2);

	if (room == MAP_FAILED || munmap(room, PAGE) || munmap(room + (pages + 1) * PAGE, PAGE))
		return NULL;
	return room + PAGE;
}

FIXTURE_SETUP(bounded)
{
	self->enabled = read_number(RMAP "enabled");
	if (self->enabled < 0)
		SKIP(return, "no rmap feature in this kernel");
	ASSERT_TRUE(rmap_begin());
	ASSERT_EQ(0, write_text(RMAP "defer_faults", "32"));
	self->area = map_alone(PAGES);
	ASSERT_NE(NULL, self->area);
	madvise(self->area, PAGES * PAGE, MADV_NOHUGEPAGE);
	*word(self->area, 0) = 1;
	ASSERT_EQ(0, pipe(self->stay));
}

FIXTURE_TEARDOWN(bounded)
{
	ASSERT_TRUE(rmap_end(self->enabled));
}

static long folios_moved(void)
{
	return rmap_counter("folios_moved");
}

static long upgrades(void)
{
	return rmap_counter("upgraded") + rmap_counter("adopted") + rmap_counter("joined");
}

static long borrowed_areas(void)
{
	return field("/proc/self/quire", "rmap_borrowed:");
}

/* Starts children that share what the parent has, until the pipe is closed. */
static bool start_siblings(int stay[2])
{
	char byte;
	pid_t pid;

	for (int i = 0; i < SIBLINGS; i++) {
		pid = fork();
		if (pid < 0)
			return false;
		if (!pid) {
			close(stay[1]);
			_exit(read(stay[0], &byte, 1) != 0);
		}
	}
	return true;
}

static bool siblings_leave(int stay[2])
{
	int status, bad = 0;

	close(stay[1]);
	while (wait(&status) > 0)
		bad |= status;
	return !bad;
}

static void *touch(void *first)
{
	for (unsigned int i = 0; i < PER_THREAD; i++)
		*word(first, i) = 7;
	return NULL;
}

/* Runs short-lived threads one after the other; none of them makes many pages. */
static bool threads_fill(char *area, unsigned int from, unsigned int to)
{
	pthread_t thread;

	for (unsigned int i = from; i + PER_THREAD <= to; i += PER_THREAD)
		if (pthread_create(&thread, NULL, touch, area + i * PAGE) ||
		    pthread_join(thread, NULL))
			return false;
	return true;
}

/* Fills an area without a fault, by userfaultfd, as a process may do for itself. */
static bool copies_fill(char *area, unsigned int from, unsigned int to, unsigned int at_once)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = {
		.range = { .start = (unsigned long)area, .len = PAGES * PAGE },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	char *zero = map(at_once);

	/* If a page of the source were not mapped, the kernel would begin again. */
	for (unsigned int i = 0; i < at_once; i++)
		if (*word(zero, i))
			return false;
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &reg))
		return false;
	for (unsigned int i = from; i + at_once <= to; i += at_once) {
		struct uffdio_copy copy = {
			.dst = (unsigned long)word(area, i), .src = (unsigned long)zero,
			.len = at_once * PAGE,
		};

		if (ioctl(fd, UFFDIO_COPY, &copy) || copy.copy != (int64_t)copy.len)
			return false;
	}
	close(fd);
	return true;
}

static bool single_copies_fill(char *area, unsigned int from, unsigned int to)
{
	return copies_fill(area, from, to, 1);
}

static bool one_copy_fills(char *area, unsigned int from, unsigned int to)
{
	return copies_fill(area, from, to, to - from);
}

/*
 * In the child: what the checker reports about the child's pages. A few may be attached to the
 * parent's anon_vma: pages that were deferred while the budget lasted, and reused pages.
 */
static void count_visits(long least)
{
	long pages = field(RMAP_CHECK, "own_pages "), visits = field(RMAP_CHECK, "own_visits ");

	fprintf(stderr, "# %ld pages, %ld visits\n", pages, visits);
	MUST(pages < 0 || pages >= least);
	MUST(visits <= 2 * pages + 4 * SIBLINGS || pages < 0);
}

static void fill_and_count(struct __test_metadata *_metadata, FIXTURE_DATA(bounded) *self,
			   bool (*fill)(char *, unsigned int, unsigned int))
{
	if (!fork_child(&self->child, self->fd)) {
		close(self->stay[1]);
		STEP(self->fd, MUST(fill(self->area, PER_THREAD, PAGES)););
		STEP(self->fd, count_visits(PAGES - PER_THREAD););
		_exit(0);
	}
	EXPECT_TRUE(step(&self->child));
	EXPECT_TRUE(start_siblings(self->stay));
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, rmap_check(NULL));
	EXPECT_EQ(0, write_text("/proc/sys/vm/compact_memory", "1"));
	EXPECT_EQ(0, reap(&self->child));
	EXPECT_TRUE(siblings_leave(self->stay));
}

TEST_F(bounded, short_lived_threads)
{
	long moved = folios_moved();

	fill_and_count(_metadata, self, threads_fill);
	EXPECT_LT(moved, folios_moved());
}

TEST_F(bounded, userfaultfd)
{
	if (syscall(SYS_userfaultfd, O_CLOEXEC) < 0)
		SKIP(return, "no userfaultfd");
	fill_and_count(_metadata, self, single_copies_fill);
}

/* The kernel prepares the area once for all pages of a call. */
TEST_F(bounded, userfaultfd_in_one_call)
{
	if (syscall(SYS_userfaultfd, O_CLOEXEC) < 0)
		SKIP(return, "no userfaultfd");
	fill_and_count(_metadata, self, one_copy_fills);
}

/* Two areas of the parent that the child can merge. */
#define HALF 32U
static char *halves;

/*
 * The lower half has deferred nothing, and takes over the pages that the upper half has
 * deferred.
 */
static bool merge_and_fill(char *area, unsigned int from, unsigned int to)
{
	long had = borrowed_areas();

	for (unsigned int i = HALF; i < HALF + 24; i++)
		*word(halves, i) = i;
	if (borrowed_areas() != had ||
	    mprotect(halves + HALF * PAGE, HALF * PAGE, PROT_READ) ||
	    borrowed_areas() != had - 1 || !threads_fill(area, from, to))
		return false;
	for (unsigned int i = HALF; i < HALF + 24; i++)
		if (*word(halves, i) != i)
			return false;
	return true;
}

TEST_F(bounded, merged_areas)
{
	halves = map_alone(2 * HALF);
	ASSERT_NE(NULL, halves);
	for (unsigned int i = 0; i < 2 * HALF; i++)
		*word(halves, i) = 1;
	ASSERT_EQ(0, mprotect(halves, HALF * PAGE, PROT_READ));
	ASSERT_EQ(0, write_text(RMAP "defer_faults", "64"));
	fill_and_count(_metadata, self, merge_and_fill);
	EXPECT_EQ(0, munmap(halves, 2 * HALF * PAGE));
}

/* With a limit of 0 the budget is used up: the next write moves what was deferred before. */
TEST_F(bounded, limit_becomes_zero)
{
	long moved = folios_moved();
	char *other = map_alone(2);

	ASSERT_NE(NULL, other);
	*word(other, 0) = 1;
	ASSERT_EQ(0, write_text(RMAP "defer_faults", "128"));
	if (!fork_child(&self->child, self->fd)) {
		close(self->stay[1]);
		STEP(self->fd, long had = borrowed_areas();
			MUST(threads_fill(self->area, PER_THREAD, 4 * PER_THREAD));
			MUST(borrowed_areas() == had););
		STEP(self->fd, *word(other, 1) = 2;);
		STEP(self->fd, count_visits(3 * PER_THREAD););
		_exit(0);
	}
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(moved, folios_moved());
	EXPECT_EQ(0, write_text(RMAP "defer_faults", "0"));
	EXPECT_TRUE(step(&self->child));
	EXPECT_LE(moved + 3 * PER_THREAD, folios_moved());
	EXPECT_TRUE(start_siblings(self->stay));
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, reap(&self->child));
	EXPECT_TRUE(siblings_leave(self->stay));
	EXPECT_EQ(0, munmap(other, 2 * PAGE));
}

/* Does a new child still borrow after it has written to a page of the area? */
static bool child_defers(struct child *child, int fd[2], char *area)
{
	if (!fork_child(child, fd)) {
		STEP(fd, long had = borrowed_areas();
			*word(area, 1) = 2;
			if (borrowed_areas() != had)
				_exit(3););
		_exit(0);
	}
	step(child);
	return !reap(child);
}

/* Siblings with anon_vmas of their own do not use the parent's, but a walk visits them, too. */
TEST_F(bounded, upgraded_siblings)
{
	struct child siblings[9];

	EXPECT_TRUE(child_defers(&self->child, self->fd, self->area));
	ASSERT_EQ(0, write_text(RMAP "defer_faults", "0"));
	for (int i = 0; i < 9; i++) {
		if (!fork_child(&siblings[i], self->fd)) {
			STEP(self->fd, *word(self->area, 1) = i;);
			child_hears(self->fd[0]);
			_exit(0);
		}
		EXPECT_TRUE(step(&siblings[i]));
	}
	ASSERT_EQ(0, write_text(RMAP "defer_faults", "32"));
	EXPECT_FALSE(child_defers(&self->child, self->fd, self->area));
	/* End the last one first, because it has copies of the others' pipes. */
	for (int i = 8; i >= 0; i--)
		EXPECT_EQ(0, reap(&siblings[i]));
	EXPECT_TRUE(child_defers(&self->child, self->fd, self->area));
}

/* An area defers nothing if there is room in it for a large folio of an allowed size. */
TEST_F(bounded, large_folios)
{
	char *small = map_alone(15), *area = map_alone(64);

	if (access(SIZE_64K, F_OK))
		SKIP(return, "no large folios");
	ASSERT_NE(NULL, small);
	ASSERT_NE(NULL, area);
	*word(small, 0) = 1;
	*word(area, 0) = 1;
	EXPECT_EQ(0, write_text(THP "enabled", "always"));
	EXPECT_TRUE(child_defers(&self->child, self->fd, small));
	EXPECT_TRUE(child_defers(&self->child, self->fd, area));
	EXPECT_EQ(0, write_text(SIZE_64K, "always"));
	EXPECT_TRUE(child_defers(&self->child, self->fd, small));
	EXPECT_FALSE(child_defers(&self->child, self->fd, area));
	EXPECT_EQ(0, write_text(SIZE_64K, "never"));
	EXPECT_EQ(0, write_text(THP "enabled", "madvise"));
	EXPECT_EQ(0, munmap(small, 15 * PAGE));
	EXPECT_EQ(0, munmap(area, 64 * PAGE));
}

/* The checker does not count the pages of a table that fork shares as the reader's own. */
TEST_F(bounded, shared_tables_are_not_own)
{
	long fork_enabled = read_number(FORK_FEATURE "enabled"), tables, own;
	char *area = map_alone(3 * 512), *base;

	if (fork_enabled < 0)
		SKIP(return, "no fork feature in this kernel");
	ASSERT_NE(NULL, area);
	base = (char *)(((unsigned long)area + HUGE - 1) & ~(HUGE - 1));
	madvise(area, 3 * HUGE, MADV_NOHUGEPAGE);
	for (unsigned int i = 0; i < 512; i++)
		*word(base, i) = 1;
	own = field(RMAP_CHECK, "own_pages ");
	EXPECT_TRUE(own < 0 || own >= 512);
	ASSERT_EQ(0, write_text(FORK_FEATURE "enabled", "1"));
	tables = share_tables();
	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd, MUST(*word(base, 1) == 1););
		_exit(0);
	}
	EXPECT_TRUE(own < 0 || field(RMAP_CHECK, "own_pages ") <= own - 512);
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, reap(&self->child));
	EXPECT_TRUE(shared_tables_since(tables));
	EXPECT_EQ(0, write_text("/proc/self/quire", "default"));
	EXPECT_EQ(0, write_text(FORK_FEATURE "enabled", fork_enabled ? "1" : "0"));
	EXPECT_EQ(0, munmap(area, 3 * HUGE));
}

/* When the budget ends, areas that are longer than a table are not searched: they never defer. */
TEST_F(bounded, large_area)
{
	unsigned int pages = 3 * 512;
	char *area = map(pages);

	ASSERT_NE(MAP_FAILED, (void *)area);
	madvise(area, pages * PAGE, MADV_NOHUGEPAGE);
	*word(area, 0) = 1;
	if (!fork_child(&self->child, self->fd)) {
		close(self->stay[1]);
		STEP(self->fd, long before = upgrades();
			*word(area, 1) = 2;
			MUST(upgrades() > before););
		_exit(0);
	}
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, reap(&self->child));
	EXPECT_EQ(0, munmap(area, pages * PAGE));
}

/* When the budget ends in one area, the deferred folios of all areas move; the contents stay. */
TEST_F(bounded, other_areas_are_upgraded)
{
	char *mine = map_alone(2);

	ASSERT_NE(NULL, mine);
	*word(mine, 0) = 1;
	if (!fork_child(&self->child, self->fd)) {
		close(self->stay[1]);
		STEP(self->fd, long had = borrowed_areas();
			*word(mine, 1) = 5;
			MUST(borrowed_areas() == had);
			MUST(threads_fill(self->area, PER_THREAD, PAGES));
			MUST(borrowed_areas() <= had - 2););
		STEP(self->fd, MUST(*word(mine, 0) == 1 && *word(mine, 1) == 5););
		_exit(0);
	}
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, rmap_check(NULL));
	EXPECT_EQ(0, write_text("/proc/sys/vm/compact_memory", "1"));
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, reap(&self->child));
	EXPECT_EQ(0, munmap(mine, 2 * PAGE));
}

TEST_HARNESS_MAIN
