// SPDX-License-Identifier: GPL-2.0
/*
 * Pins that come and go. Fork searches a table for pinned pages once, and again only after a
 * pin may have come into it, in whichever way. A table with a pinned page is never shared.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/uio.h>

#include "harness.h"
#include "compat.h"
#include "fork_test.h"

#define TABLES 4
#define PAGES (TABLES * SLOTS)
#define ROUNDS 200

FIXTURE(fork_pins) {
	char *area;
	char *page;	/* the page that is pinned */
	long searched, refused;
	int fd;
};

/*
 * Pins a page of a private table: this first writes to the page, which makes the table private.
 * So GUP-fast, if requested, reaches the table, and no code makes the table private for the
 * pin.
 */
static bool start(int fd, char *page, unsigned int flags)
{
	struct pin_longterm_test args = { (uintptr_t)page, PAGE, flags };
	long unshared;

	*(volatile char *)page = 'a';
	unshared = fork_stat("unshared_gup");
	return !ioctl(fd, PIN_START, &args) && fork_stat("unshared_gup") == unshared;
}

/* A child that reports how many tables it shares, and ends. */
static int child_shares(char *page)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(*page == 'a' ? shared_tables(getpid()) : 100);
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* What a debugger or a profiler does. */
static bool look_at(char *page)
{
	char byte;
	struct iovec to = { &byte, 1 }, from = { page, 1 };

	return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1 && byte == 'a';
}

/* A fork has searched all tables, so they are known to have no pins. */
FIXTURE_SETUP(fork_pins)
{
	NEED_FORK_FEATURE();
	self->fd = open(GUP_TEST, O_RDWR);
	if (self->fd < 0)
		SKIP(return, "no gup_test");
	self->area = map_tables(TABLES);
	ASSERT_NE(NULL, self->area);
	fill(self->area, PAGES, 7);
	self->page = self->area + TABLE + 100 * PAGE;
	memset(self->page, 'a', PAGE);
	ASSERT_TRUE(look_at(self->page));
	self->searched = fork_stat("tables_searched");
	ASSERT_EQ(TABLES, child_shares(self->page));
	EXPECT_EQ(TABLES, fork_stat("tables_searched") - self->searched);
	self->searched = fork_stat("tables_searched");
	self->refused = fork_stat("refused_pinned");
}

FIXTURE_TEARDOWN(fork_pins)
{
	close(self->fd);
	EXPECT_TRUE(tables_consistent());
}

/* How many tables were searched, and how many had a pin, since the last check. */
#define EXPECT_SEARCHED(tables, with_pins) do {						\
	EXPECT_EQ((tables), fork_stat("tables_searched") - self->searched);		\
	EXPECT_EQ((with_pins), fork_stat("refused_pinned") - self->refused);		\
	self->searched = fork_stat("tables_searched");					\
	self->refused = fork_stat("refused_pinned");					\
} while (0)

/* The pin still shows what its process writes. */
#define EXPECT_PINNED(byte) do {							\
	char seen[PAGE];								\
	uint64_t to = (uintptr_t)seen;							\
	memset(self->page, (byte), PAGE);						\
	ASSERT_EQ(0, ioctl(self->fd, PIN_READ, &to));					\
	EXPECT_EQ((byte), seen[77]);							\
} while (0)

TEST_SLOW(fork_pins, a_search_is_remembered)
{
	for (int i = 0; i < 3; i++) {
		EXPECT_EQ(TABLES, child_shares(self->page));
		EXPECT_SEARCHED(0, 0);
		/* Each table is this process's own again. */
		fill(self->area, PAGES, 8 + i);
		memset(self->page, 'a', PAGE);
	}
	EXPECT_TRUE(look_at(self->page));
	EXPECT_EQ(TABLES, child_shares(self->page));
	EXPECT_SEARCHED(1, 0);
	EXPECT_EQ(TABLES, child_shares(self->page));
	EXPECT_SEARCHED(0, 0);
}

/* Fork also remembers that a table was shared before the first pin. */
TEST_SLOW(fork_pins, shared_before_any_pin)
{
	pid_t pid = fork();
	int status;

	ASSERT_LE(0, pid);
	if (!pid) {
		char *own = map_tables(TABLES);

		/* The child has not pinned anything, although its parent has. */
		fill(own, PAGES, 3);
		memset(own, 'a', PAGE);
		if (child_shares(own) < TABLES)
			_exit(1);
		fill(own, PAGES, 4);
		memset(own, 'a', PAGE);
		self->searched = fork_stat("tables_searched");
		if (!look_at(own) || child_shares(own) < TABLES)
			_exit(2);
		_exit(fork_stat("tables_searched") - self->searched == 1 ? 0 : 3);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
}

/* A copied table is also known to have no pins. */
TEST_SLOW(fork_pins, of_copies_too)
{
	int go[2], status;
	pid_t pid;
	char byte;

	ASSERT_EQ(0, pipe(go));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		close(go[1]);
		_exit(read(go[0], &byte, 1));
	}
	fill(self->area, PAGES, 9);
	memset(self->page, 'a', PAGE);
	EXPECT_EQ(TABLES, child_shares(self->page));
	EXPECT_SEARCHED(0, 0);
	ASSERT_TRUE(start(self->fd, self->page, PIN_FLAG_FAST | PIN_FLAG_WRITE));
	EXPECT_EQ(TABLES - 1, child_shares(self->page));
	EXPECT_SEARCHED(1, 1);
	EXPECT_PINNED('w');
	close(go[1]);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
}

/* Each way to take a pin is noticed, for as long as the pin lasts. */
static void taken_by(struct __test_metadata *_metadata, FIXTURE_DATA(fork_pins) *self,
		     unsigned int flags)
{
	ASSERT_TRUE(start(self->fd, self->page, flags));
	for (int i = 0; i < 2; i++) {
		EXPECT_EQ(TABLES - 1, child_shares(self->page));
		EXPECT_SEARCHED(1, 1);
	}
	EXPECT_PINNED('z');
	memset(self->page, 'a', PAGE);
	ASSERT_EQ(0, ioctl(self->fd, PIN_STOP));
	EXPECT_EQ(TABLES, child_shares(self->page));
	EXPECT_SEARCHED(1, 0);
	EXPECT_EQ(TABLES, child_shares(self->page));
	EXPECT_SEARCHED(0, 0);
}

TEST_SLOW(fork_pins, for_reading)
{
	taken_by(_metadata, self, 0);
}

TEST_SLOW(fork_pins, for_writing)
{
	taken_by(_metadata, self, PIN_FLAG_WRITE);
}

TEST_SLOW(fork_pins, fast_for_reading)
{
	taken_by(_metadata, self, PIN_FLAG_FAST);
}

TEST_SLOW(fork_pins, fast_for_writing)
{
	taken_by(_metadata, self, PIN_FLAG_FAST | PIN_FLAG_WRITE);
}

/*
 * A pinned page moves away, and comes back into its table after a fork has searched the table.
 * Only at its old place is the page in one area with its neighbours, so that fork can share the
 * table as a whole.
 */
TEST_SLOW(fork_pins, page_moves)
{
	char *home = self->page, *away = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
					      -1, 0);

	ASSERT_NE(MAP_FAILED, (void *)away);
	ASSERT_TRUE(start(self->fd, home, PIN_FLAG_WRITE));
	ASSERT_EQ(away, (char *)mremap(home, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, away));
	ASSERT_EQ(home, (char *)mmap(home, PAGE, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	EXPECT_EQ(TABLES, child_shares(away));
	EXPECT_SEARCHED(1, 0);
	ASSERT_EQ(home, (char *)mremap(away, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, home));
	EXPECT_EQ(TABLES - 1, child_shares(home));
	EXPECT_SEARCHED(1, 1);
	EXPECT_PINNED('m');
}

/* A whole table with a pinned page moves. */
TEST_SLOW(fork_pins, table_moves)
{
	char *from = self->area + TABLE, *to = map_tables(1);

	ASSERT_NE(NULL, to);
	ASSERT_TRUE(start(self->fd, self->page, PIN_FLAG_WRITE));
	ASSERT_EQ(to, (char *)mremap(from, TABLE, TABLE, MREMAP_MAYMOVE | MREMAP_FIXED, to));
	self->page = to + (self->page - from);
	EXPECT_EQ(TABLES - 1, child_shares(self->page));
	EXPECT_SEARCHED(1, 1);
	EXPECT_PINNED('t');
}

/*
 * A searched table is deposited for a huge page. When the huge page is split, the table gets
 * its pages and their pin.
 */
TEST_SLOW(fork_pins, huge_page_is_split)
{
	char *table = self->area + TABLE;

	if (madvise(table, TABLE, MADV_COLLAPSE))
		SKIP(return, "no huge page");
	ASSERT_TRUE(start(self->fd, self->page, PIN_FLAG_FAST | PIN_FLAG_WRITE));
	ASSERT_EQ(0, mprotect(table, PAGE, PROT_READ));
	ASSERT_EQ(0, mprotect(table, PAGE, PROT_READ | PROT_WRITE));
	EXPECT_EQ(TABLES - 1, child_shares(self->page));
	EXPECT_SEARCHED(1, 1);
	EXPECT_PINNED('h');
}

struct forker {
	bool stop;
	int forks, failed;
};

/* Each child shares what it can, and lives until the next one has been forked. */
static void *keep_forking(void *arg)
{
	struct forker *forker = arg;
	pid_t last = 0, pid;

	while (!__atomic_load_n(&forker->stop, __ATOMIC_RELAXED)) {
		pid = fork();
		if (!pid) {
			/* If the test ends early, the pin's file must be closed. */
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			pause();
			_exit(0);
		}
		forker->failed |= pid < 0;
		__atomic_fetch_add(&forker->forks, 1, __ATOMIC_RELAXED);
		if (last > 0) {
			kill(last, SIGKILL);
			forker->failed |= waitpid(last, NULL, 0) != last;
		}
		last = pid;
	}
	if (last > 0) {
		kill(last, SIGKILL);
		waitpid(last, NULL, 0);
	}
	return NULL;
}

static int forks_of(struct forker *forker)
{
	return __atomic_load_n(&forker->forks, __ATOMIC_RELAXED);
}

/* Another thread forks while pins are taken, by GUP-fast or not. */
TEST_SLOW(fork_pins, forks_meanwhile)
{
	long shared = fork_stat("tables_shared");
	struct forker forker = {};
	pthread_t thread;

	ASSERT_EQ(0, pthread_create(&thread, NULL, keep_forking, &forker));
	for (int i = 0; i < ROUNDS; i++) {
		struct pin_longterm_test args = { .size = PAGE };
		int before;

		self->page = self->area + i % TABLES * TABLE + i * PAGE;
		args.addr = (uintptr_t)self->page;
		args.flags = PIN_FLAG_WRITE | (i % 4 ? PIN_FLAG_FAST : 0);
		*(volatile char *)self->page = 'a';
		ASSERT_EQ(0, ioctl(self->fd, PIN_START, &args));
		before = forks_of(&forker);
		EXPECT_PINNED((char)i);
		/* Wait for the end of a fork that began after the pin was taken. */
		while (forks_of(&forker) < before + 2)
			sched_yield();
		EXPECT_PINNED((char)~i);
		ASSERT_EQ(0, ioctl(self->fd, PIN_STOP));
	}
	__atomic_store_n(&forker.stop, true, __ATOMIC_RELAXED);
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_FALSE(forker.failed);
	EXPECT_LE(shared + ROUNDS, fork_stat("tables_shared"));
	EXPECT_LE(self->refused + ROUNDS, fork_stat("refused_pinned"));
}

TEST_HARNESS_MAIN
