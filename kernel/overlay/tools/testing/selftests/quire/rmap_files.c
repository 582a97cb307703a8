// SPDX-License-Identifier: GPL-2.0
/*
 * Many areas of one file at fork. Those that map nothing enter the file's tree together, and a
 * truncation must still find the child's pages.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "harness.h"
#include "rmap_child.h"
#include "rmap_common.h"

#define AREAS 40
#define AREA_PAGES 2
#define FILE_PAGES (AREAS * AREA_PAGES)
#define FILE_SIZE (FILE_PAGES * PAGE)
/*
 * Three areas go with the next written one, four times; those after the last written one fill
 * two batches.
 */
#define LINKED (4 * 3 + 2 * 7 + 6)
#define ROUNDS 60

static sigjmp_buf no_page;

static void on_bus_error(int signal)
{
	siglongjmp(no_page, 1);
}

static bool is_gone(void *base, unsigned int page)
{
	if (sigsetjmp(no_page, 1))
		return true;
	(void)*(volatile uint64_t *)word(base, page);
	return false;
}

/* Some private areas are written to, so that fork copies their pages. */
static bool is_written(unsigned int area)
{
	return area < 20 && area % 4 == 0;
}

/* Only the first page of an area is ever written to; the second one stays the file's. */
static uint64_t expected(unsigned int page)
{
	return page % AREA_PAGES == 0 && is_written(page / AREA_PAGES) ? page : 0;
}

/* Uses a page, which may be past the file's end. The jump leaves nothing half done here. */
static __attribute__((noinline)) void touch(void *base, unsigned int page)
{
	if (sigsetjmp(no_page, 1))
		return;
	if (page % AREA_PAGES == 0 && is_written(page / AREA_PAGES))
		*(volatile uint64_t *)word(base, page) = page;
	else
		(void)*(volatile uint64_t *)word(base, page);
}

static void touch_all(void *base)
{
	for (unsigned int page = 0; page < FILE_PAGES; page++)
		touch(base, page);
}

/* Maps private and shared areas of a file in turn, so that none is merged with its neighbour. */
static void *map_file(int fd)
{
	char *base = map(FILE_PAGES);

	for (unsigned int i = 0; base != MAP_FAILED && i < AREAS; i++) {
		int prot = is_written(i) || i % 8 == 1 ? PROT_READ | PROT_WRITE : PROT_READ;
		unsigned long at = i * AREA_PAGES * PAGE;

		if (mmap(base + at, AREA_PAGES * PAGE, prot,
			 MAP_FIXED | (i % 2 ? MAP_SHARED : MAP_PRIVATE), fd, at) == MAP_FAILED)
			return MAP_FAILED;
	}
	if (base != MAP_FAILED)
		touch_all(base);
	return base;
}

/* How many areas of one fork are linked under a lock that was taken for another area. */
static long linked_by_fork(void)
{
	long linked = rmap_counter("file_linked");
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	waitpid(pid, NULL, 0);
	return rmap_counter("file_linked") - linked;
}

FIXTURE(files) {
	long enabled, own;
	struct child child;
	int fd[2], file;
	void *base;
};

FIXTURE_SETUP(files)
{
	self->enabled = read_number(RMAP "enabled");
	if (self->enabled < 0)
		SKIP(return, "no rmap feature in this kernel");
	ASSERT_TRUE(rmap_begin());
	signal(SIGBUS, on_bus_error);
	self->file = memfd_create("areas", 0);
	ASSERT_EQ(0, ftruncate(self->file, FILE_SIZE));
	self->own = linked_by_fork();
	self->base = map_file(self->file);
	ASSERT_NE(MAP_FAILED, self->base);
}

FIXTURE_TEARDOWN(files)
{
	close(self->file);
	ASSERT_TRUE(rmap_end(self->enabled));
}

/* What the child maps after fork goes away in each of its areas when the file is truncated. */
TEST_F(files, truncated_after_fork)
{
	EXPECT_LE(LINKED, linked_by_fork() - self->own);
	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd,
			for (unsigned int page = 0; page < FILE_PAGES; page++)
				MUST(*word(self->base, page) == expected(page));
		);
		STEP(self->fd,
			for (unsigned int page = 0; page < FILE_PAGES; page++)
				MUST(is_gone(self->base, page));
		);
		_exit(0);
	}
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, ftruncate(self->file, 0));
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, reap(&self->child));
}

/* The child's writable shared areas count: a file that has some cannot be sealed. */
TEST_F(files, writers_count)
{
	int file = memfd_create("sealed", MFD_ALLOW_SEALING);
	void *base;

	ASSERT_EQ(0, ftruncate(file, FILE_SIZE));
	base = map_file(file);
	ASSERT_NE(MAP_FAILED, base);
	if (!fork_child(&self->child, self->fd)) {
		STEP(self->fd, MUST(!munmap(base, FILE_SIZE)););
		_exit(0);
	}
	EXPECT_EQ(0, munmap(base, FILE_SIZE));
	EXPECT_EQ(-1, fcntl(file, F_ADD_SEALS, F_SEAL_WRITE));
	EXPECT_EQ(EBUSY, errno);
	EXPECT_TRUE(step(&self->child));
	EXPECT_EQ(0, fcntl(file, F_ADD_SEALS, F_SEAL_WRITE));
	EXPECT_EQ(0, reap(&self->child));
	close(file);
}

struct truncation {
	int file;
	atomic_bool stop;
};

static void *truncate_often(void *arg)
{
	struct truncation *to = arg;

	for (unsigned int n = 0; !to->stop; n++) {
		if (n % 32 == 0 && write_text(RMAP "enabled", n % 64 ? "0" : "1"))
			return to;
		if (ftruncate(to->file, 0) || ftruncate(to->file, FILE_SIZE))
			return to;
	}
	return NULL;
}

/*
 * A file shrinks and grows, and the feature is switched off and on, while the processes that
 * map the file fork. The kernel complains if a page leaves the page cache while it is still
 * mapped.
 */
TEST_F(files, truncated_during_fork)
{
	struct truncation to = { .file = self->file };
	int status, failed = 0;
	pthread_t thread;
	void *bad;

	ASSERT_EQ(0, pthread_create(&thread, NULL, truncate_often, &to));
	for (unsigned int n = 0; n < ROUNDS; n++) {
		touch_all(self->base);
		if (!fork()) {
			touch_all(self->base);
			_exit(0);
		}
		failed += wait(&status) < 0 || status;
	}
	to.stop = true;
	ASSERT_EQ(0, pthread_join(thread, &bad));
	EXPECT_EQ(NULL, bad);
	EXPECT_EQ(0, failed);
	EXPECT_EQ(0, rmap_check(NULL));
}

TEST_HARNESS_MAIN
