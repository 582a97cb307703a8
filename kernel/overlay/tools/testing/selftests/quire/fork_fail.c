// SPDX-License-Identifier: GPL-2.0
/*
 * System calls that need private tables, in a child that shares all tables of its parent, while
 * one allocation after another fails. Each call reports that there is no memory, or succeeds,
 * and both processes keep their data.
 */
#define _GNU_SOURCE
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "harness.h"
#include "compat.h"
#include "fork_test.h"

#define TABLES 3
#define PAGES (TABLES * SLOTS)
#define LEN (TABLES * TABLE)
/* The pages lie on both sides of the boundary between two tables. */
#define FIRST (SLOTS - 5)
#define NR 10
#define MOST 500

struct victim {
	char *area, *other;	/* both full; calls change pages FIRST .. FIRST + NR */
	/*
	 * The child's, opened beforehand: a lookup in /proc reports a lack of memory
	 * differently.
	 */
	int uffd, refs;
};

static char *range(struct victim *v)
{
	return v->area + FIRST * PAGE;
}

static int protect(struct victim *v)
{
	return mprotect(range(v), NR * PAGE, PROT_READ);
}

static int lock(struct victim *v)
{
	return mlock(range(v), NR * PAGE);
}

static int merge(struct victim *v)
{
	return madvise(range(v), NR * PAGE, MADV_MERGEABLE);
}

static int populate(struct victim *v)
{
	return madvise(range(v), NR * PAGE, MADV_POPULATE_WRITE);
}

static int discard(struct victim *v)
{
	return madvise(range(v), NR * PAGE, MADV_DONTNEED);
}

static int move(struct victim *v)
{
	return mremap(range(v), NR * PAGE, NR * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		      v->other + (FIRST + 1) * PAGE) == MAP_FAILED ? -1 : 0;
}

static int watch(struct victim *v)
{
	struct uffdio_register reg = { .range = { (uintptr_t)range(v), NR * PAGE },
				       .mode = UFFDIO_REGISTER_MODE_MISSING };

	return ioctl(v->uffd, UFFDIO_REGISTER, &reg);
}

static int unmap(struct victim *v)
{
	return munmap(range(v), NR * PAGE);
}

static int clear_soft_dirty(struct victim *v)
{
	return write(v->refs, "4", 1) == 1 ? 0 : -1;
}

static int pin(struct victim *v)
{
	struct pin_longterm_test pages = { .addr = (uintptr_t)range(v), .size = NR * PAGE };
	int fd = open(GUP_TEST, O_RDWR), ret, saved;

	if (fd < 0)
		return -1;
	ret = ioctl(fd, PIN_START, &pages);
	saved = errno;
	close(fd);
	errno = saved;
	return ret;
}

FIXTURE(fork_fail) {
	struct victim v;
};

FIXTURE_VARIANT(fork_fail) {
	int (*call)(struct victim *v);
	bool keeps;		/* the pages keep their contents */
};
#define CALL(name, keep) \
	FIXTURE_VARIANT_ADD(fork_fail, name) { .call = name, .keeps = keep }
CALL(protect, true);
CALL(lock, true);
CALL(merge, true);
CALL(populate, true);
CALL(discard, false);
CALL(move, false);
CALL(watch, true);
CALL(unmap, false);
CALL(clear_soft_dirty, true);
CALL(pin, true);

FIXTURE_SETUP(fork_fail)
{
	NEED_FORK_FEATURE();
	if (inject("fail_page_alloc", "0") || inject("failslab", "0") ||
	    access("/proc/thread-self/fail-nth", W_OK))
		SKIP(return, "no fault injection");
	self->v.area = map_tables(TABLES);
	self->v.other = map_tables(TABLES);
	ASSERT_TRUE(self->v.area && self->v.other);
	fill(self->v.area, PAGES, 7);
	fill(self->v.other, PAGES, 7);
}

FIXTURE_TEARDOWN(fork_fail)
{
	EXPECT_TRUE(tables_consistent());
}

/* Counts the pages that do not have their old contents, except the @nr pages from @but on. */
static unsigned long harmed(const char *area, unsigned long but, unsigned long nr)
{
	unsigned long bad = 0;

	for (unsigned long i = 0; i < PAGES; i++)
		if (i < but || i >= but + nr)
			bad += *(const uint64_t *)(area + i * PAGE) != word_for(i, 7);
	return bad;
}

/*
 * Makes the call with its allocation number @nth failing. The exit status has a bit for each
 * thing that is wrong, and MORE if there was such an allocation.
 */
#define HARM_AREA	1
#define HARM_OTHER	2
#define BAD_ERROR	4
#define NOT_SHARED	8
#define MORE		16

static void child(struct victim *v, int (*call)(struct victim *v), bool keeps, int nth)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = open("/proc/thread-self/fail-nth", O_RDWR);
	bool shared = shared_tables(getpid()) >= 2 * TABLES;
	int ret, error, left, status = 0;
	char text[16] = "";

	v->uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1);
	ioctl(v->uffd, UFFDIO_API, &api);
	v->refs = open("/proc/self/clear_refs", O_WRONLY);
	snprintf(text, sizeof(text), "%d", nth);
	(void)!write(fd, text, strlen(text));
	ret = call(v);
	error = errno;
	/*
	 * 0: the call reached that allocation. Clear what is left of the count, or a later
	 * allocation would fail.
	 */
	left = pread(fd, text, sizeof(text) - 1, 0) > 0 ? atoi(text) : -1;
	(void)!pwrite(fd, "0", 1, 0);
	status |= shared ? 0 : NOT_SHARED;
	status |= ret && error != ENOMEM && error != EAGAIN ? BAD_ERROR : 0;
	status |= harmed(v->area, FIRST, keeps || ret ? 0 : NR) ? HARM_AREA : 0;
	/* The call moves pages to here, and discards what was here before it can fail. */
	status |= harmed(v->other, FIRST + 1, keeps ? 0 : NR) ? HARM_OTHER : 0;
	for (unsigned long i = 0; i < FIRST; i += 97)
		*(uint64_t *)(v->area + i * PAGE) = *(uint64_t *)(v->other + i * PAGE) = i;
	_exit(status | (left == 0 ? MORE : 0));
}

/* Fails one allocation after the other, until each of the call's allocations has failed. */
TEST_SLOW(fork_fail, call)
{
	int nth, status = MORE;

	for (nth = 1; status == MORE && nth < MOST; nth++) {
		pid_t pid = fork();

		ASSERT_LE(0, pid);
		if (!pid)
			child(&self->v, variant->call, variant->keeps, nth);
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		ASSERT_TRUE(WIFEXITED(status));
		status = WEXITSTATUS(status);
		ASSERT_EQ(0, status & ~MORE) TH_LOG("allocation %d", nth);
		ASSERT_EQ(0, harmed(self->v.area, 0, 0));
		ASSERT_EQ(0, harmed(self->v.other, 0, 0));
	}
	EXPECT_EQ(0, status);
	/* The call has some allocations: a table's copy, or the part that is split off an area. */
	EXPECT_LT(2, nth) TH_LOG("%d allocations failed", nth - 2);
}

TEST_HARNESS_MAIN
