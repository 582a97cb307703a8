// SPDX-License-Identifier: GPL-2.0
/*
 * Faults of a process that other tasks run: io_uring's workers, a debugger, a reader of its
 * memory. They give the process the same tables as its own faults would: as the process's user,
 * at the expense of the process's memory cgroup.
 */
#define _GNU_SOURCE
#include <linux/io_uring.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "harness.h"
#include "shm_test.h"
#define TOP "/sys/fs/cgroup/quire_shm_foreign"
#include "cgroup.h"

#define TABLES 4
#define PAGES (TABLES * SLOTS)
#define LEN (TABLES * TABLE)
#define USER 1001

/* A ring of one submission at a time. */
struct ring {
	char *rings;
	struct io_uring_sqe *entry;
	struct io_uring_params params;
	int fd;
};

static int open_ring(struct ring *r)
{
	memset(r, 0, sizeof(*r));
	r->fd = syscall(SYS_io_uring_setup, 4, &r->params);
	if (r->fd < 0)
		return -errno;
	r->rings = mmap(NULL, r->params.sq_off.array + r->params.sq_entries * 4,
			PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQ_RING);
	r->entry = mmap(NULL, r->params.sq_entries * sizeof(*r->entry),
			PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQES);
	return r->rings == MAP_FAILED || (void *)r->entry == MAP_FAILED ? -ENOMEM : 0;
}

/* Has a worker read a page of a file into memory; returns 0 if the request was submitted. */
static int read_by_worker(struct ring *r, int file, char *to)
{
	unsigned int *tail = (unsigned int *)(r->rings + r->params.sq_off.tail);
	unsigned int mask = *(unsigned int *)(r->rings + r->params.sq_off.ring_mask);

	*r->entry = (struct io_uring_sqe){
		.opcode = IORING_OP_READ, .flags = IOSQE_ASYNC, .fd = file,
		.addr = (uintptr_t)to, .len = PAGE,
	};
	((unsigned int *)(r->rings + r->params.sq_off.array))[*tail & mask] = 0;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	/* None of the earlier completions has been taken out. */
	return syscall(SYS_io_uring_enter, r->fd, 1, *tail, IORING_ENTER_GETEVENTS, NULL, 0) != 1;
}

static char *page_of(char *area, int table)
{
	return area + table * TABLE + 5 * PAGE;
}

static long touch_by_worker(char *area)
{
	int file = open("/proc/self/exe", O_RDONLY);
	struct ring ring;
	long ret = open_ring(&ring);

	for (int i = 0; !ret && i < TABLES; i++)
		ret = read_by_worker(&ring, file, page_of(area, i));
	close(file);
	close(ring.fd);
	return ret;
}

/* g: join the group; u: be another user; w: have a worker touch; s: tables; r: wrong pages */
static long serve(char command, void *area)
{
	switch (command) {
	case 'g':
		return write_word(TOP "/cgroup.procs", "0");
	case 'u':
		return setresuid(USER, USER, USER);
	case 'w':
		return touch_by_worker(area);
	case 's':
		return file_tables(getpid());
	case 'r':
		return wrong(area, PAGES, 7);
	}
	return -1;
}

/* The test itself uses all tables; the child has touched none of them. */
FIXTURE(shm_foreign) {
	struct helper child;
	long tables;
	char *area;
	int fd;
};

FIXTURE_SETUP(shm_foreign)
{
	NEED_SHM_FEATURE();
	self->tables = shm_number("tables");
	self->fd = memfd_create("quire", 0);
	ASSERT_EQ(0, ftruncate(self->fd, LEN));
	self->area = map_file(self->fd, TABLES, PROT_READ | PROT_WRITE);
	ASSERT_NE(NULL, self->area);
	fill(self->area, PAGES, 7);
	ASSERT_EQ(TABLES, file_tables(getpid()));
	ASSERT_EQ(0, start_helper(&self->child, serve, self->area));
	ASSERT_EQ(0, ask(&self->child, 's'));
}

FIXTURE_TEARDOWN(shm_foreign)
{
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, end_helper(&self->child));
	munmap(self->area, LEN);
	close(self->fd);
	EXPECT_EQ(self->tables, shm_number("tables"));
}

/* Reads a word of each table of the child; returns how many words are right. */
static long read_each(struct helper *child, char *area)
{
	uint64_t word;
	struct iovec to = { &word, sizeof(word) }, from = { NULL, sizeof(word) };
	long right = 0;

	for (int i = 0; i < TABLES; i++) {
		from.iov_base = page_of(area, i);
		word = 0;
		right += process_vm_readv(child->pid, &to, 1, &from, 1, 0) == sizeof(word) &&
			 word == word_for(i * SLOTS + 5, 7);
	}
	return right;
}

TEST_SLOW(shm_foreign, worker)
{
	long ret = ask(&self->child, 'w');

	if (ret == -ENOSYS || ret == -EPERM)
		SKIP(return, "no io_uring");
	EXPECT_EQ(0, ret);
	EXPECT_EQ(TABLES, ask(&self->child, 's'));
	EXPECT_EQ(self->tables + TABLES, shm_number("tables"));
}

TEST_SLOW(shm_foreign, reader)
{
	EXPECT_EQ(TABLES, read_each(&self->child, self->area));
	EXPECT_EQ(TABLES, file_tables(self->child.pid));
	EXPECT_EQ(self->tables + TABLES, shm_number("tables"));
	EXPECT_EQ(0, ask(&self->child, 'r'));
}

TEST_SLOW(shm_foreign, debugger)
{
	long word;
	int status;

	ASSERT_EQ(0, ptrace(PTRACE_ATTACH, self->child.pid, 0, 0));
	ASSERT_EQ(self->child.pid, waitpid(self->child.pid, &status, 0));
	for (int i = 0; i < TABLES; i++) {
		word = ptrace(PTRACE_PEEKDATA, self->child.pid, page_of(self->area, i), 0);
		EXPECT_EQ((long)word_for(i * SLOTS + 5, 7), word);
	}
	EXPECT_EQ(TABLES, file_tables(self->child.pid));
	EXPECT_EQ(self->tables + TABLES, shm_number("tables"));
	ASSERT_EQ(0, ptrace(PTRACE_DETACH, self->child.pid, 0, 0));
}

/*
 * The child is another user than the reader, so it does not get the reader's tables but its
 * own.
 */
TEST_SLOW(shm_foreign, reader_of_another_user)
{
	ASSERT_EQ(0, ask(&self->child, 'u'));
	EXPECT_EQ(TABLES, read_each(&self->child, self->area));
	EXPECT_EQ(TABLES, file_tables(self->child.pid));
	EXPECT_EQ(self->tables + 2 * TABLES, shm_number("tables"));
	EXPECT_EQ(0, ask(&self->child, 'r'));
}

/* The child's group pays for its tables. */
TEST_SLOW(shm_foreign, reader_does_not_pay)
{
	write_word("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	mkdir(TOP, 0755);
	if (access(TOP "/memory.max", W_OK))
		SKIP(return, "no memory controller");
	munmap(self->area, LEN);
	ASSERT_EQ(self->tables, shm_number("tables"));
	ASSERT_EQ(0, ask(&self->child, 'g'));
	EXPECT_EQ(TABLES, read_each(&self->child, self->area));
	EXPECT_EQ(TABLES, file_tables(self->child.pid));
	EXPECT_LE(TABLES, tables_of(""));
	EXPECT_EQ(0, end_helper(&self->child));
	EXPECT_TRUE(remove_group(""));
}

TEST_HARNESS_MAIN
