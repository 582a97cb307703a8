// SPDX-License-Identifier: GPL-2.0
/*
 * References to pages of shared page tables: no process may see, through a pipe or a pin, what
 * another process writes later. The pages are in the middle of an area of whole tables, so fork
 * shares their table.
 */
#define _GNU_SOURCE
#include <linux/io_uring.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "harness.h"
#include "fork_test.h"

#define TABLES 4
#define PAGES (TABLES * SLOTS)

FIXTURE(fork_gup) {
	char *area;
	char *page;	/* the page that is referenced */
	int pipe[2];
};

FIXTURE_SETUP(fork_gup)
{
	NEED_FORK_FEATURE();
	self->area = map_tables(TABLES);
	ASSERT_NE(NULL, self->area);
	fill(self->area, PAGES, 7);
	self->page = self->area + TABLE + 100 * PAGE;
	memset(self->page, 'a', PAGE);
	ASSERT_EQ(0, pipe(self->pipe));
}

FIXTURE_TEARDOWN(fork_gup)
{
	EXPECT_TRUE(tables_consistent());
}

/* Forks; returns -1 if fork does not share the whole area. */
static pid_t share_fork(void)
{
	long shared = fork_stat("tables_shared");
	pid_t pid = fork();

	return pid > 0 && fork_stat("tables_shared") - shared < TABLES ? -1 : pid;
}

static int splice_page(int fd, char *page)
{
	struct iovec iov = { .iov_base = page, .iov_len = PAGE };

	return vmsplice(fd, &iov, 1, 0) == (ssize_t)PAGE ? 0 : -1;
}

static int pipe_byte(int fd)
{
	char bytes[PAGE];

	return read(fd, bytes, PAGE) == (ssize_t)PAGE ? bytes[0] : -1;
}

/*
 * The child takes a reference to a page through the table and leaves the table; then the parent
 * writes.
 */
TEST_SLOW(fork_gup, child_splices_and_leaves)
{
	int wrote[2], left[2], status;
	char byte = 0;
	pid_t pid;

	ASSERT_EQ(0, pipe(wrote));
	ASSERT_EQ(0, pipe(left));
	pid = share_fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		close(wrote[1]);
		if (splice_page(self->pipe[1], self->page) || munmap(self->area, TABLES * TABLE))
			_exit(1);
		close(left[1]);
		if (read(wrote[0], &byte, 1))
			_exit(2);
		_exit(pipe_byte(self->pipe[0]) == 'a' ? 0 : 3);
	}
	close(left[1]);
	ASSERT_EQ(0, read(left[0], &byte, 1));
	memset(self->page, 'b', PAGE);
	close(wrote[1]);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ('b', self->page[5]);
}

/* To populate what is there for reading takes no reference, and no table of its own. */
TEST_SLOW(fork_gup, child_populates)
{
	long unshared = fork_stat("unshared_gup");
	int status;
	pid_t pid = share_fork();

	ASSERT_LE(0, pid);
	if (!pid) {
		if (madvise(self->area, TABLES * TABLE, MADV_POPULATE_READ))
			_exit(1);
		_exit(shared_tables(getpid()) < TABLES ? 2 : wrong(self->area, 50, 7) ? 3 : 0);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(unshared, fork_stat("unshared_gup"));
}

/*
 * The child takes a reference to a page and exits; the parent writes; the pipe still has the
 * old byte.
 */
TEST_SLOW(fork_gup, child_splices_and_exits)
{
	int status;
	pid_t pid = share_fork();

	ASSERT_LE(0, pid);
	if (!pid)
		_exit(splice_page(self->pipe[1], self->page) ? 1 : 0);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_EQ(0, status);
	memset(self->page, 'b', PAGE);
	EXPECT_EQ('a', pipe_byte(self->pipe[0]));
}

/* The parent takes the reference before the fork; the child inherits only the table. */
TEST_SLOW(fork_gup, parent_spliced_and_left)
{
	int left[2], status;
	char byte;
	pid_t pid;

	ASSERT_EQ(0, splice_page(self->pipe[1], self->page));
	ASSERT_EQ(0, pipe(left));
	pid = share_fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		close(left[1]);
		if (read(left[0], &byte, 1))
			_exit(1);
		memset(self->page, 's', PAGE);
		_exit(self->page[9] == 's' ? 0 : 2);
	}
	ASSERT_EQ(0, munmap(self->area, TABLES * TABLE));
	close(left[1]);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ('a', pipe_byte(self->pipe[0]));
}

/* Three users: adoption by one of them must not change a page that another one references. */
TEST_SLOW(fork_gup, three_users)
{
	int go[2], status, i;
	pid_t pid[2];
	char byte;

	ASSERT_EQ(0, pipe(go));
	for (i = 0; i < 2; i++) {
		pid[i] = share_fork();
		ASSERT_LE(0, pid[i]);
		if (pid[i])
			continue;
		close(go[1]);
		if (i == 0)
			_exit(splice_page(self->pipe[1], self->page) ? 1 : 0);
		if (read(go[0], &byte, 1))
			_exit(2);
		memset(self->page, 't', PAGE);
		_exit(self->page[1] == 't' ? 0 : 3);
	}
	ASSERT_EQ(pid[0], waitpid(pid[0], &status, 0));
	ASSERT_EQ(0, status);
	memset(self->page, 'b', PAGE);
	close(go[1]);
	ASSERT_EQ(pid[1], waitpid(pid[1], &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ('a', pipe_byte(self->pipe[0]));
	EXPECT_EQ('b', self->page[1]);
}

static void remote(struct __test_metadata *_metadata, FIXTURE_DATA(fork_gup) *self, bool syscalls)
{
	char buffer[PAGE], path[32];
	struct iovec local = { buffer, PAGE }, remote = { self->page, PAGE };
	int go[2], status, fd;
	pid_t pid;
	char byte;

	ASSERT_EQ(0, pipe(go));
	pid = share_fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		close(go[1]);
		if (read(go[0], &byte, 1))
			_exit(1);
		_exit(self->page[0] == 'w' && self->page[PAGE - 1] == 'w' ? 0 : 2);
	}
	if (syscalls && process_vm_readv(pid, &local, 1, &remote, 1, 0) < 0 && errno == ENOSYS) {
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		SKIP(return, "no process_vm_readv");
	}
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDWR);
	ASSERT_LE(0, fd);
	if (!syscalls) {
		ASSERT_EQ((ssize_t)PAGE, pread(fd, buffer, PAGE, (uintptr_t)self->page));
	}
	EXPECT_EQ('a', buffer[0]);
	memset(buffer, 'w', PAGE);
	if (syscalls) {
		ASSERT_EQ((ssize_t)PAGE, process_vm_writev(pid, &local, 1, &remote, 1, 0));
	} else {
		ASSERT_EQ((ssize_t)PAGE, pwrite(fd, buffer, PAGE, (uintptr_t)self->page));
	}
	close(fd);
	EXPECT_EQ('a', self->page[0]);
	close(go[1]);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ('a', self->page[0]);
}

TEST_SLOW(fork_gup, process_vm)
{
	remote(_metadata, self, true);
}

TEST_SLOW(fork_gup, proc_mem)
{
	remote(_metadata, self, false);
}

/* A debugger that reads unshares no table, and sees the process's data. */
TEST_SLOW(fork_gup, reading_leaves_tables_shared)
{
	long references = fork_stat("references"), shared;
	char buffer[PAGE], path[32];
	int go[2], status, fd;
	pid_t pid;
	char byte;

	ASSERT_EQ(0, pipe(go));
	pid = share_fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		close(go[1]);
		_exit(read(go[0], &byte, 1) ? 1 : 0);
	}
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDONLY);
	ASSERT_LE(0, fd);
	shared = shared_tables(pid);
	ASSERT_LE(TABLES, shared);
	ASSERT_EQ((ssize_t)PAGE, pread(fd, buffer, PAGE, (uintptr_t)self->page));
	EXPECT_EQ('a', buffer[PAGE - 1]);
	EXPECT_EQ(shared, shared_tables(pid));
	EXPECT_LT(references, fork_stat("references"));
	close(fd);
	memset(self->page, 'b', PAGE);
	fd = open(path, O_RDONLY);
	ASSERT_EQ((ssize_t)PAGE, pread(fd, buffer, PAGE, (uintptr_t)self->page));
	EXPECT_EQ('a', buffer[PAGE - 1]);
	close(fd);
	close(go[1]);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
}

/* The child is gone: the page that the parent references for reading is in a table of its own. */
TEST_SLOW(fork_gup, reading_when_nobody_else_is_left)
{
	long references, adopted;
	int status, i;
	pid_t pid = share_fork();

	ASSERT_LE(0, pid);
	if (!pid)
		_exit(0);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	references = fork_stat("references");
	adopted = fork_stat("tables_adopted");
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(0, splice_page(self->pipe[1], self->page));
		EXPECT_EQ('a', pipe_byte(self->pipe[0]));
	}
	EXPECT_LT(adopted, fork_stat("tables_adopted"));
	EXPECT_EQ(references, fork_stat("references"));
}

TEST_SLOW(fork_gup, ptrace_pokes)
{
	int status;
	pid_t pid = share_fork();

	ASSERT_LE(0, pid);
	if (!pid) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		_exit(*(long *)self->page == 12345 ? 0 : 1);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_TRUE(WIFSTOPPED(status));
	errno = 0;
	EXPECT_EQ(0x6161616161616161L, ptrace(PTRACE_PEEKDATA, pid, self->page, 0));
	EXPECT_EQ(0, ptrace(PTRACE_POKEDATA, pid, self->page, 12345L));
	EXPECT_EQ('a', self->page[0]);
	ASSERT_EQ(0, ptrace(PTRACE_CONT, pid, 0, 0));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ('a', self->page[0]);
}

/*
 * Pins the page, waits for the other process's write, and writes. Returns a bit for each thing
 * that is wrong.
 */
static int pin_side(int fd, char *page, unsigned int flags, int pinned[2], int wrote[2])
{
	struct pin_longterm_test args = { (uintptr_t)page, PAGE, flags };
	int bad = !!ioctl(fd, PIN_START, &args);
	char seen[PAGE], byte;
	uint64_t to = (uintptr_t)seen;

	close(pinned[1]);
	close(wrote[1]);
	if (read(wrote[0], &byte, 1))
		bad += 2;
	bad += ioctl(fd, PIN_READ, &to) ? 4 : seen[0] != 'a' ? 8 : 0;
	memset(page, 'p', PAGE);
	bad += ioctl(fd, PIN_READ, &to) ? 16 : seen[0] != 'p' ? 32 : 0;
	ioctl(fd, PIN_STOP);
	return bad;
}

/* Writes after the other process has pinned the page. */
static int write_side(char *page, int pinned[2], int wrote[2])
{
	int bad = 0;
	char byte;

	close(wrote[0]);
	close(pinned[1]);
	if (read(pinned[0], &byte, 1))
		bad = 1;
	memset(page, 'o', PAGE);
	close(wrote[1]);
	return bad + (page[0] == 'o' ? 0 : 2);
}

/*
 * A read-only pin keeps showing what its own process writes, and nothing that another process
 * writes.
 */
static void pin(struct __test_metadata *_metadata, char *page, unsigned int flags, bool in_child)
{
	int fd = open(GUP_TEST, O_RDWR), status, bad;
	int pinned[2], wrote[2];
	pid_t pid;

	if (fd < 0)
		SKIP(return, "no gup_test");
	ASSERT_EQ(0, pipe(pinned));
	ASSERT_EQ(0, pipe(wrote));
	pid = share_fork();
	ASSERT_LE(0, pid);
	bad = !pid == in_child ? pin_side(fd, page, flags, pinned, wrote) :
				 write_side(page, pinned, wrote);
	if (!pid)
		_exit(bad);
	EXPECT_EQ(0, bad);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	close(fd);
}

TEST_SLOW(fork_gup, child_pins_for_reading)
{
	pin(_metadata, self->page, 0, true);
}

TEST_SLOW(fork_gup, child_pins_for_reading_fast)
{
	pin(_metadata, self->page, PIN_FLAG_FAST, true);
}

TEST_SLOW(fork_gup, child_pins_for_writing_fast)
{
	pin(_metadata, self->page, PIN_FLAG_FAST | PIN_FLAG_WRITE, true);
}

TEST_SLOW(fork_gup, parent_pins_for_reading_fast)
{
	pin(_metadata, self->page, PIN_FLAG_FAST, false);
}

TEST_SLOW(fork_gup, parent_pins_for_writing)
{
	pin(_metadata, self->page, PIN_FLAG_WRITE, false);
}

/* Returns how many tables a child shares; the child ends. */
static int tables_in_child(char *page)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(page[3] == 'a' ? shared_tables(getpid()) : 100);
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A table with a pinned page is copied; the others are shared. */
static void pin_and_fork(struct __test_metadata *_metadata, char *page, unsigned int flags)
{
	struct pin_longterm_test args = { (uintptr_t)page, PAGE, flags };
	int fd = open(GUP_TEST, O_RDWR);
	char seen[PAGE];
	uint64_t to = (uintptr_t)seen;
	long refused = fork_stat("refused_pinned");

	if (fd < 0)
		SKIP(return, "no gup_test");
	ASSERT_EQ(0, ioctl(fd, PIN_START, &args));
	EXPECT_EQ(TABLES - 1, tables_in_child(page));
	EXPECT_EQ(1, fork_stat("refused_pinned") - refused);
	memset(page, 'z', PAGE);
	ASSERT_EQ(0, ioctl(fd, PIN_READ, &to));
	EXPECT_EQ('z', seen[77]);
	memset(page, 'a', PAGE);
	ASSERT_EQ(0, ioctl(fd, PIN_STOP));
	/* A table that has no pinned page any more is shared. */
	EXPECT_EQ(TABLES, tables_in_child(page));
	close(fd);
}

TEST_SLOW(fork_gup, pinned_table_is_copied)
{
	pin_and_fork(_metadata, self->page, PIN_FLAG_WRITE);
}

TEST_SLOW(fork_gup, table_pinned_fast_for_reading_is_copied)
{
	pin_and_fork(_metadata, self->page, PIN_FLAG_FAST);
}

TEST_SLOW(fork_gup, last_slot_is_pinned)
{
	char *last = self->area + TABLE - PAGE;

	memset(last, 'a', PAGE);
	pin_and_fork(_metadata, last, PIN_FLAG_FAST | PIN_FLAG_WRITE);
}

/* A ring with a page as its fixed buffer, which it pins for writing. */
struct ring {
	struct io_uring_params p;
	struct io_uring_sqe *sqe;
	char *queues;
	int fd, file;
};

static int ring_start(struct ring *r, char *page)
{
	struct iovec buffer = { page, PAGE };

	memset(r, 0, sizeof(*r));
	r->file = memfd_create("fixed", 0);
	r->fd = syscall(SYS_io_uring_setup, 1, &r->p);
	if (r->fd < 0 || r->file < 0)
		return -1;
	/* Both queues are in one mapping, which has the larger of the two sizes. */
	r->queues = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd,
			 IORING_OFF_SQ_RING);
	r->sqe = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQES);
	if (r->queues == MAP_FAILED || (void *)r->sqe == MAP_FAILED)
		return -1;
	return syscall(SYS_io_uring_register, r->fd, IORING_REGISTER_BUFFERS, &buffer, 1);
}

/* Moves a page between the buffer and the file; returns 0 if the whole page was moved. */
static int ring_move(struct ring *r, int opcode, char *page)
{
	uint32_t *tail = (uint32_t *)(r->queues + r->p.sq_off.tail);
	uint32_t *head = (uint32_t *)(r->queues + r->p.cq_off.head);
	uint32_t mask = *(uint32_t *)(r->queues + r->p.cq_off.ring_mask);
	struct io_uring_cqe *done = (void *)(r->queues + r->p.cq_off.cqes);
	int moved;

	*r->sqe = (struct io_uring_sqe) {
		.opcode = opcode, .fd = r->file, .addr = (uintptr_t)page, .len = PAGE,
	};
	/* The ring has one entry, so every index is 0. */
	*(uint32_t *)(r->queues + r->p.sq_off.array) = 0;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, r->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
		return -1;
	moved = done[*head & mask].res;
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	return moved == (int)PAGE ? 0 : -1;
}

/*
 * The file gets what the process writes to the buffer, and the process sees what the ring reads
 * into it.
 */
static int ring_is_own(struct ring *r, char *page)
{
	char bytes[PAGE];
	int bad = 0;

	memset(page, 'p', PAGE);
	bad |= ring_move(r, IORING_OP_WRITE_FIXED, page) ? 1 : 0;
	bad |= pread(r->file, bytes, PAGE, 0) != (ssize_t)PAGE || bytes[7] != 'p' ? 2 : 0;
	memset(bytes, 'k', PAGE);
	bad |= pwrite(r->file, bytes, PAGE, 0) != (ssize_t)PAGE ? 4 : 0;
	bad |= ring_move(r, IORING_OP_READ_FIXED, page) ? 8 : 0;
	bad |= page[PAGE - 1] != 'k' ? 16 : 0;
	close(r->fd);
	return bad;
}

static int ring_side(char *page, int pinned[2], int wrote[2])
{
	struct ring r;
	int bad = ring_start(&r, page) ? 32 : 0;
	char byte;

	close(pinned[1]);
	close(wrote[1]);
	if (bad || read(wrote[0], &byte, 1))
		return bad + 64;
	return ring_is_own(&r, page);
}

static void fixed_buffer(struct __test_metadata *_metadata, char *page, bool in_child)
{
	int pinned[2], wrote[2], status, bad;
	pid_t pid;

	ASSERT_EQ(0, pipe(pinned));
	ASSERT_EQ(0, pipe(wrote));
	pid = share_fork();
	ASSERT_LE(0, pid);
	bad = !pid == in_child ? ring_side(page, pinned, wrote) :
				 write_side(page, pinned, wrote);
	if (!pid)
		_exit(bad);
	EXPECT_EQ(0, bad);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(in_child ? 'o' : 'k', page[5]);
}

static bool no_ring(void)
{
	struct io_uring_params p = {};
	int fd = syscall(SYS_io_uring_setup, 1, &p);

	return fd < 0 || close(fd);
}

TEST_SLOW(fork_gup, child_registers_a_buffer)
{
	if (no_ring())
		SKIP(return, "no io_uring");
	fixed_buffer(_metadata, self->page, true);
}

TEST_SLOW(fork_gup, parent_registers_a_buffer)
{
	if (no_ring())
		SKIP(return, "no io_uring");
	fixed_buffer(_metadata, self->page, false);
}

/*
 * Forks after the registration copy the buffer's table; when the buffer is gone, they share it
 * again.
 */
TEST_SLOW(fork_gup, buffer_is_from_before)
{
	long refused = fork_stat("refused_pinned");
	int go[2], status;
	struct ring r;
	pid_t pid;
	char byte;

	if (no_ring())
		SKIP(return, "no io_uring");
	/* Fork a first child, so that the buffer is registered in a table that was shared. */
	EXPECT_EQ(TABLES, tables_in_child(self->page));
	ASSERT_EQ(0, ring_start(&r, self->page));
	ASSERT_EQ(0, pipe(go));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		close(go[1]);
		if (shared_tables(getpid()) != TABLES - 1 || read(go[0], &byte, 1))
			_exit(1);
		_exit(self->page[PAGE - 1] == 'a' ? 0 : 2);
	}
	EXPECT_EQ(1, fork_stat("refused_pinned") - refused);
	EXPECT_EQ(0, ring_is_own(&r, self->page));
	close(go[1]);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ('k', self->page[5]);
}

/*
 * The child pinned a page in its own copy of the table, so the pin does not affect the parent's
 * adoption.
 */
TEST_SLOW(fork_gup, child_pins_and_exits)
{
	struct pin_longterm_test args = { (uintptr_t)self->page, PAGE, PIN_FLAG_FAST };
	int fd = open(GUP_TEST, O_RDWR), status;
	uint64_t to;
	char seen[PAGE];
	long adopted;
	pid_t pid;

	if (fd < 0)
		SKIP(return, "no gup_test");
	pid = share_fork();
	ASSERT_LE(0, pid);
	if (!pid)
		_exit(ioctl(fd, PIN_START, &args) ? 1 : 0);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_EQ(0, status);
	adopted = fork_stat("tables_adopted");
	memset(self->page, 'b', PAGE);
	EXPECT_LT(adopted, fork_stat("tables_adopted"));
	/* The page is still pinned, by the driver alone. */
	to = (uintptr_t)seen;
	ASSERT_EQ(0, ioctl(fd, PIN_READ, &to));
	EXPECT_EQ('a', seen[77]);
	ASSERT_EQ(0, ioctl(fd, PIN_STOP));
	close(fd);
}

TEST_HARNESS_MAIN
