// SPDX-License-Identifier: GPL-2.0
/*
 * userfaultfd fills, moves and protects pages of memory whose page tables are shared: the
 * process sees that, its parent does not.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/syscall.h>

#include "harness.h"
#include "compat.h"
#include "fork_test.h"

#define TABLES 4
#define PAGES (TABLES * SLOTS)
#define LEN (TABLES * TABLE)
/* A range that begins and ends inside a table. */
#define FIRST (SLOTS - 5)
#define NR 10UL
#define OTHER 13

struct memory {
	char *area;	/* shared with the parent */
	char *other;	/* likewise */
	int uffd;
};

static char *range(struct memory *m)
{
	return m->area + FIRST * PAGE;
}

/* Checks that nothing but the range has changed in this process. */
static bool kept_beside(const char *area)
{
	unsigned long bad = 0;

	for (unsigned long i = 0; i < PAGES; i++)
		if (i < FIRST || i >= FIRST + NR)
			bad += *(const uint64_t *)(area + i * PAGE) != word_for(i, 7);
	return !bad;
}

/* Registers the range, and drops its pages unless it is to be protected. */
static int watch(struct memory *m, uint64_t mode)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = {
		.range = { (uintptr_t)range(m), NR * PAGE }, .mode = mode,
	};

	m->uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1);
	if (m->uffd < 0)
		return -errno;
	if (mode == UFFDIO_REGISTER_MODE_MISSING)
		api.features = UFFD_FEATURE_MOVE;
	if (ioctl(m->uffd, UFFDIO_API, &api) || ioctl(m->uffd, UFFDIO_REGISTER, &reg))
		return -errno;
	return mode == UFFDIO_REGISTER_MODE_MISSING ?
		madvise(range(m), NR * PAGE, MADV_DONTNEED) : 0;
}

static long copy(struct memory *m)
{
	struct uffdio_copy arg = {
		.dst = (uintptr_t)range(m), .src = (uintptr_t)m->other, .len = NR * PAGE,
	};

	if (watch(m, UFFDIO_REGISTER_MODE_MISSING))
		return 1;
	if (ioctl(m->uffd, UFFDIO_COPY, &arg) || arg.copy != (long)(NR * PAGE))
		return 2;
	return wrong(range(m), NR, OTHER) || !kept_beside(m->area) ? 3 : 0;
}

static long zeropage(struct memory *m)
{
	struct uffdio_zeropage arg = { .range = { (uintptr_t)range(m), NR * PAGE } };

	if (watch(m, UFFDIO_REGISTER_MODE_MISSING))
		return 1;
	if (ioctl(m->uffd, UFFDIO_ZEROPAGE, &arg) || arg.zeropage != (long)(NR * PAGE))
		return 2;
	for (unsigned long i = 0; i < NR; i++)
		if (*(uint64_t *)(range(m) + i * PAGE))
			return 3;
	return kept_beside(m->area) ? 0 : 4;
}

/* Moves the first pages of @m->other into the range; returns 0, or the error. */
static int move_pages_in(struct memory *m)
{
	struct uffdio_move arg = {
		.dst = (uintptr_t)range(m), .src = (uintptr_t)m->other, .len = NR * PAGE,
	};

	if (!ioctl(m->uffd, UFFDIO_MOVE, &arg))
		return arg.move == (long)(NR * PAGE) ? 0 : EIO;
	return errno;
}

/* Nothing is left where the moved pages were. */
static long moved(struct memory *m)
{
	for (unsigned long i = 0; i < NR; i++)
		if (*(uint64_t *)(m->other + i * PAGE))
			return 10;
	if (wrong(range(m), NR, OTHER) || !kept_beside(m->area))
		return 11;
	return 0;
}

/* A page that the parent also has cannot be moved, whichever process's table it is in. */
static long move(struct memory *m)
{
	if (watch(m, UFFDIO_REGISTER_MODE_MISSING))
		return 1;
	if (move_pages_in(m) != EBUSY)
		return 2;
	if (wrong(m->other, PAGES, OTHER))
		return 3;
	fill(m->other, NR, OTHER);
	return move_pages_in(m) ? 4 : moved(m);
}

static void *write_all(void *arg)
{
	struct memory *m = arg;

	fill(range(m), NR, OTHER);
	return NULL;
}

/* The writes of a thread wait, with one message for each page, until they may go on. */
static long serve_writes(struct memory *m)
{
	struct uffdio_writeprotect wp = { .range = { (uintptr_t)range(m), PAGE } };
	pthread_t thread;

	if (pthread_create(&thread, NULL, write_all, m))
		return 3;
	for (unsigned long i = 0; i < NR; i++, wp.range.start += PAGE) {
		struct uffd_msg msg;

		while (read(m->uffd, &msg, sizeof(msg)) != sizeof(msg))
			usleep(1000);
		if (!(msg.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP) ||
		    (msg.arg.pagefault.address & ~(PAGE - 1)) != wp.range.start ||
		    *(uint64_t *)(range(m) + i * PAGE) != word_for(FIRST + i, 7))
			return 4;
		if (ioctl(m->uffd, UFFDIO_WRITEPROTECT, &wp))
			return 5;
	}
	pthread_join(thread, NULL);
	return wrong(range(m), NR, OTHER) || !kept_beside(m->area) ? 6 : 0;
}

static long protect(struct memory *m)
{
	struct uffdio_writeprotect wp = {
		.range = { (uintptr_t)range(m), NR * PAGE },
		.mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};

	if (watch(m, UFFDIO_REGISTER_MODE_WP))
		return 1;
	return ioctl(m->uffd, UFFDIO_WRITEPROTECT, &wp) ? 2 : serve_writes(m);
}

FIXTURE(fork_uffd) {
	struct memory m;
};

FIXTURE_VARIANT(fork_uffd) {
	long (*call)(struct memory *m);
};
#define CALL(name) FIXTURE_VARIANT_ADD(fork_uffd, name) { .call = name }
CALL(copy);
CALL(zeropage);
CALL(move);
CALL(protect);

FIXTURE_SETUP(fork_uffd)
{
	NEED_FORK_FEATURE();
	self->m.area = map_tables(TABLES);
	self->m.other = map_tables(TABLES);
	ASSERT_TRUE(self->m.area && self->m.other);
	fill(self->m.area, PAGES, 7);
	fill(self->m.other, PAGES, OTHER);
}

FIXTURE_TEARDOWN(fork_uffd)
{
	EXPECT_TRUE(tables_consistent());
}

static long serve(char command, void *arg)
{
	struct memory *m = arg;

	switch (command) {
	case 's':
		return shared_tables(getpid());
	case 'r':
		return wrong(m->area, PAGES, 7) + wrong(m->other, PAGES, OTHER);
	}
	return -1;
}

/* One process makes the call, and the other sees nothing of it, whichever makes it. */
TEST_SLOW(fork_uffd, in_child)
{
	int status;
	pid_t pid = fork();

	ASSERT_LE(0, pid);
	if (!pid)
		_exit(shared_tables(getpid()) < 2 * TABLES ? 100 : variant->call(&self->m));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status) TH_LOG("step %d", WEXITSTATUS(status));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, wrong(self->m.area, PAGES, 7));
	EXPECT_EQ(0, wrong(self->m.other, PAGES, OTHER));
}

TEST_SLOW(fork_uffd, in_parent)
{
	struct helper child;

	ASSERT_EQ(0, start_helper(&child, serve, &self->m));
	ASSERT_LE(2 * TABLES, ask(&child, 's'));
	EXPECT_EQ(0, variant->call(&self->m));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, ask(&child, 'r'));
	EXPECT_EQ(0, finish(&child));
	close(self->m.uffd);
}

/*
 * If the child has left the table, the process moves its own pages out of the table without a
 * copy.
 */
TEST(fork_uffd_moves_from_a_table_that_the_child_left)
{
	struct memory m = { .area = map_tables(TABLES), .other = map_tables(TABLES) };
	long adopted;
	int status;
	pid_t pid;

	NEED_FORK_FEATURE();
	ASSERT_TRUE(m.area && m.other);
	fill(m.area, PAGES, 7);
	fill(m.other, PAGES, OTHER);
	pid = fork();
	if (!pid)
		_exit(shared_tables(getpid()) < 2 * TABLES);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_EQ(0, status);
	ASSERT_EQ(0, watch(&m, UFFDIO_REGISTER_MODE_MISSING));
	adopted = fork_stat("tables_adopted");
	EXPECT_EQ(0, move_pages_in(&m));
	EXPECT_EQ(adopted + 1, fork_stat("tables_adopted"));
	EXPECT_EQ(0, moved(&m));
	EXPECT_TRUE(tables_consistent());
	close(m.uffd);
}

TEST_HARNESS_MAIN
