// SPDX-License-Identifier: GPL-2.0
/*
 * Shared page tables that several areas reach into, including areas of files. One table maps
 * memory, a file that is read, a file that is written, and a hole. What one process does to its
 * areas is not seen by the others; what happens to the file is seen by all.
 */
#define _GNU_SOURCE
#include <linux/userfaultfd.h>
#include <sys/prctl.h>
#include <sys/rseq.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "harness.h"
#include "fork_test.h"

#define KNOB FOLDER "mixed"
#define TRACING "/sys/kernel/tracing/"
#define GROUP "/sys/fs/cgroup/quire_fork_mixed"
#define AREA_PAGES 64UL
#define AREA_LEN (AREA_PAGES * PAGE)
#define PAGES (4 * AREA_PAGES)		/* pages that are mapped */
#define FILE_SEED 11
#define OTHER_SEED 12

/* Where each area begins in the table, in units of AREA_LEN. The rest is a hole. */
enum { MEMORY = 0, TO_READ = 1, TO_WRITE = 2, HOLE = 3, MORE = 5 };

static char *base;
static int fd;
static volatile int *stop;

static char *at(int area)
{
	return base + area * AREA_LEN;
}

static unsigned long all_wrong(void)
{
	return wrong(at(MEMORY), AREA_PAGES, 1) + wrong(at(TO_READ), AREA_PAGES, FILE_SEED) +
	       wrong(at(TO_WRITE), AREA_PAGES, 2) + wrong(at(MORE), AREA_PAGES, 3);
}

static void *map_at(int area, int prot, int file, unsigned long page)
{
	return mmap(at(area), AREA_LEN, prot, MAP_PRIVATE | MAP_FIXED |
		    (file < 0 ? MAP_ANONYMOUS : 0), file, page * PAGE);
}

/* Can a process read the page without a signal? A child tries it. */
static bool readable(char *page)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		signal(SIGBUS, SIG_DFL);
		(void)*(volatile char *)page;
		_exit(0);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status);
}

/* Returns how many pages do not hold what was just written to them. */
static long refill(int area, unsigned long pages, uint64_t seed)
{
	fill(at(area), pages, seed);
	return wrong(at(area), pages, seed);
}

static long fill_hole(int file, unsigned long pages, uint64_t seed)
{
	if (map_at(HOLE, PROT_READ | PROT_WRITE, file, 0) == MAP_FAILED)
		return -1;
	return refill(HOLE, pages, seed);
}

/* What a process does to one of its areas. */
static long change(char command)
{
	switch (command) {
	case 'm':
		return refill(MEMORY, AREA_PAGES, 21);
	case 'w':
		return refill(TO_WRITE, AREA_PAGES, 22);
	case 'u':
		return munmap(at(TO_READ), AREA_LEN);
	case 'h':
		return fill_hole(fd, AREA_PAGES / 2, 23);
	case 'a':
		return fill_hole(-1, AREA_PAGES, 24);
	case 'v':
		return mremap(at(TO_WRITE), AREA_LEN, AREA_LEN, MREMAP_MAYMOVE | MREMAP_FIXED,
			      at(HOLE)) == MAP_FAILED ? -1 : wrong(at(HOLE), AREA_PAGES, 2);
	case 'p':
		return mprotect(at(TO_READ), AREA_LEN, PROT_READ | PROT_WRITE) ?:
		       refill(TO_READ, AREA_PAGES, 25);
	case 'l':
		return mlock(at(TO_READ), AREA_LEN);
	case 'd':
		return madvise(at(TO_WRITE), AREA_LEN, MADV_DONTNEED) ?:
		       wrong(at(TO_WRITE), AREA_PAGES, OTHER_SEED);
	}
	return -1;
}

/* Returns what the process sees, or, for other commands, makes a change. */
static long serve(char command, void *arg)
{
	uint64_t *word;

	switch (command) {
	case 'r':
		return all_wrong();
	case 's':
		return shared_tables(getpid());
	case 'z':
		/*
		 * After the file was truncated to nothing and grew back: its pages are zero,
		 * memory is unchanged.
		 */
		word = (uint64_t *)at(TO_READ);
		return word[0] + word[(AREA_PAGES - 1) * SLOTS] + *(uint64_t *)at(TO_WRITE) +
		       wrong(at(MEMORY), AREA_PAGES, 1) + wrong(at(MORE), AREA_PAGES, 3);
	case 'g':
		return !readable(at(TO_READ)) + !readable(at(TO_WRITE));
	case 'P':
		/* After a hole was punched: only pages that were never written to are gone. */
		return *(uint64_t *)at(TO_READ) + wrong(at(TO_WRITE), AREA_PAGES, 2) +
		       wrong(at(MEMORY), AREA_PAGES, 1) + wrong(at(MORE), AREA_PAGES, 3);
	case 'b':
		return (unsigned char)*at(TO_READ);
	}
	return change(command);
}

/* If a page is mapped by one process and is not exclusive, then others use its table, too. */
static bool shared_with_others(char *page)
{
	int pagemap = open("/proc/self/pagemap", O_RDONLY);
	uint64_t entry = 0;
	bool ok = pread(pagemap, &entry, 8, (uintptr_t)page / PAGE * 8) == 8;

	close(pagemap);
	return ok && entry >> 63 && !(entry & 1ull << 56);
}

FIXTURE(fork_mixed) {
	struct helper child, other;
};

FIXTURE_SETUP(fork_mixed)
{
	char *table;

	NEED_FORK_FEATURE();
	if (write_word(KNOB, "1"))
		SKIP(return, "no mixed tables without shm in this kernel");
	fd = memfd_create("mixed", 0);
	ASSERT_LE(0, fd);
	for (unsigned long i = 0; i < 2 * AREA_PAGES; i++) {
		uint64_t word = i < AREA_PAGES ? word_for(i, FILE_SEED) :
				word_for(i - AREA_PAGES, OTHER_SEED);

		ASSERT_EQ(8, pwrite(fd, &word, 8, i * PAGE));
	}
	ASSERT_EQ(0, ftruncate(fd, 2 * AREA_LEN));
	/* Map this before there is a hole that it could be put into. */
	stop = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)stop);
	/* The addresses of another table lie ahead of this one, with nothing mapped. */
	table = map_tables(2);
	ASSERT_NE(NULL, table);
	ASSERT_EQ(0, munmap(table, 2 * TABLE));
	base = table + TABLE;
	ASSERT_NE(MAP_FAILED, map_at(MEMORY, PROT_READ | PROT_WRITE, -1, 0));
	ASSERT_NE(MAP_FAILED, map_at(TO_READ, PROT_READ | PROT_EXEC, fd, 0));
	ASSERT_NE(MAP_FAILED, map_at(TO_WRITE, PROT_READ | PROT_WRITE, fd, AREA_PAGES));
	ASSERT_NE(MAP_FAILED, map_at(MORE, PROT_READ | PROT_WRITE, -1, 0));
	fill(at(MEMORY), AREA_PAGES, 1);
	fill(at(TO_WRITE), AREA_PAGES, 2);
	fill(at(MORE), AREA_PAGES, 3);
	ASSERT_EQ(0, all_wrong());
	ASSERT_EQ(0, start_helper(&self->child, serve, NULL));
	ASSERT_EQ(0, start_helper(&self->other, serve, NULL));
	/* Both have started, and make no further changes. */
	ASSERT_EQ(0, ask(&self->child, 'r'));
	ASSERT_EQ(0, ask(&self->other, 'r'));
	ASSERT_TRUE(shared_with_others(base));
	ASSERT_TRUE(tables_consistent());
}

FIXTURE_TEARDOWN(fork_mixed)
{
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, finish(&self->child));
	EXPECT_EQ(0, finish(&self->other));
	EXPECT_TRUE(tables_consistent());
	write_word(KNOB, "0");
	close(fd);
}

/* What a command does to one process is not seen by the others; the processes do it in turn. */
static void by_turns(struct __test_metadata *_metadata,
		     FIXTURE_DATA(fork_mixed) *self, char command)
{
	EXPECT_EQ(0, ask(&self->child, command));
	EXPECT_EQ(0, all_wrong());
	EXPECT_EQ(0, ask(&self->other, 'r'));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, serve(command, NULL));
	EXPECT_EQ(0, ask(&self->other, 'r'));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, ask(&self->other, command));
}

TEST_SLOW(fork_mixed, memory_is_written) { by_turns(_metadata, self, 'm'); }
TEST_SLOW(fork_mixed, file_is_written) { by_turns(_metadata, self, 'w'); }
TEST_SLOW(fork_mixed, area_is_unmapped) { by_turns(_metadata, self, 'u'); }
TEST_SLOW(fork_mixed, file_is_mapped_into_the_hole) { by_turns(_metadata, self, 'h'); }
TEST_SLOW(fork_mixed, memory_is_mapped_into_the_hole) { by_turns(_metadata, self, 'a'); }
TEST_SLOW(fork_mixed, area_moves_into_the_hole) { by_turns(_metadata, self, 'v'); }
TEST_SLOW(fork_mixed, protection_changes) { by_turns(_metadata, self, 'p'); }
TEST_SLOW(fork_mixed, area_is_locked) { by_turns(_metadata, self, 'l'); }
TEST_SLOW(fork_mixed, copies_are_discarded) { by_turns(_metadata, self, 'd'); }

/* Truncation copies no shared table, and removes the private copies of pages, too. */
TEST_SLOW(fork_mixed, file_is_truncated)
{
	long copied = fork_stat("tables_copied");

	EXPECT_EQ(0, ftruncate(fd, 0));
	EXPECT_EQ(copied, fork_stat("tables_copied"));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(2, ask(&self->child, 'g'));
	EXPECT_EQ(2, serve('g', NULL));
	EXPECT_EQ(0, ftruncate(fd, 2 * AREA_LEN));
	EXPECT_EQ(0, ask(&self->child, 'z'));
	EXPECT_EQ(0, ask(&self->other, 'z'));
	EXPECT_EQ(0, serve('z', NULL));
}

TEST_SLOW(fork_mixed, hole_is_punched)
{
	EXPECT_EQ(0, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2 * AREA_LEN));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, ask(&self->child, 'P'));
	EXPECT_EQ(0, ask(&self->other, 'P'));
	EXPECT_EQ(0, serve('P', NULL));
}

/*
 * Truncation while processes start, unshare, leave and end; the kernel must find each page
 * unmapped.
 */
TEST_SLOW(fork_mixed, truncated_and_forked_at_once)
{
	int i, status, bad = 0;
	pid_t churn = fork();
	uint64_t word;

	ASSERT_LE(0, churn);
	if (!churn) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (i = 0; !*stop; i++) {
			pid_t pid = fork();

			if (!pid) {
				fill(at(i & 1 ? MEMORY : MORE), i % 5, i);
				if (!(i % 3))
					munmap(at(TO_WRITE), AREA_LEN);
				_exit(0);
			}
			if (i % 4 == 3)
				fill(at(MORE), 3, i);
			while (i % 8 == 7 && wait(NULL) > 0)
				;
		}
		while (wait(NULL) > 0)
			;
		_exit(0);
	}
	for (i = 0; i < 300 && !bad; i++) {
		word = i;
		bad = ftruncate(fd, i % 7 * PAGE) || ftruncate(fd, 2 * AREA_LEN) ||
		      pwrite(fd, &word, 8, i % AREA_PAGES * PAGE) != 8 ||
		      *(uint64_t *)(at(TO_READ) + i % AREA_PAGES * PAGE) != word;
	}
	*stop = 1;
	waitpid(churn, &status, 0);
	EXPECT_EQ(0, status);
	EXPECT_EQ(0, bad);
	EXPECT_EQ(0, wrong(at(MEMORY), AREA_PAGES, 1));
	EXPECT_EQ(0, wrong(at(MORE), AREA_PAGES, 3));
}

TEST_SLOW(fork_mixed, reclaimed_and_moved)
{
	long swapped = 0;

	write_word("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	mkdir(GROUP, 0755);
	if (write_word(GROUP "/cgroup.procs", "0") || make_swap()) {
		write_word("/sys/fs/cgroup/cgroup.procs", "0");
		rmdir(GROUP);
		SKIP(return, "no memory cgroup, or no swap on zram");
	}
	/* A page is charged to the group of the process that touches it first. */
	EXPECT_EQ(0, finish(&self->other));
	EXPECT_EQ(0, finish(&self->child));
	ASSERT_EQ(0, madvise(at(MEMORY), AREA_LEN, MADV_DONTNEED));
	ASSERT_EQ(0, madvise(at(MORE), AREA_LEN, MADV_DONTNEED));
	fill(at(MEMORY), AREA_PAGES, 1);
	fill(at(MORE), AREA_PAGES, 3);
	ASSERT_EQ(0, start_helper(&self->child, serve, NULL));
	ASSERT_EQ(0, start_helper(&self->other, serve, NULL));
	ASSERT_EQ(0, ask(&self->child, 'r') + ask(&self->other, 'r'));
	ASSERT_TRUE(shared_with_others(base));
	for (int i = 0; i < 100 && swapped <= 0; i++) {
		write_word(GROUP "/memory.reclaim", "64M");
		swapped = smaps_of(getpid(), at(MEMORY), "Swap");
	}
	EXPECT_LT(0, swapped);
	EXPECT_TRUE(tables_consistent());
	write_word("/proc/sys/vm/compact_memory", "1");
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, all_wrong());
	EXPECT_EQ(0, swapoff(SWAP));
	EXPECT_EQ(0, ask(&self->other, 'r'));
	EXPECT_TRUE(tables_consistent());
	write_word("/sys/fs/cgroup/cgroup.procs", "0");
	rmdir(GROUP);
}

/*
 * Each process gets its own page for the breakpoint, and gets the old contents back when it is
 * removed.
 */
TEST_SLOW(fork_mixed, uprobe)
{
	char probe[128], path[64];
	int inode, was = serve('b', NULL);
	ssize_t len;

	/* A breakpoint cannot be set in a memfd. */
	snprintf(path, sizeof(path), "/tmp/quire_mixed.%d", getpid());
	inode = open(path, O_RDWR | O_CREAT | O_TRUNC, 0755);
	if (inode < 0 || access(TRACING "uprobe_events", W_OK))
		SKIP(return, "no uprobe events, or no /tmp");
	len = snprintf(probe, sizeof(probe), "p:quire/mixed_hit %s:0", path);
	ASSERT_EQ(AREA_LEN, (memset(at(MORE), 0x90, AREA_LEN), write(inode, at(MORE), AREA_LEN)));
	fill(at(MORE), AREA_PAGES, 3);
	EXPECT_EQ(0, finish(&self->child));
	ASSERT_NE(MAP_FAILED, map_at(TO_READ, PROT_READ | PROT_EXEC, inode, 0));
	was = serve('b', NULL);
	ASSERT_EQ(0, start_helper(&self->child, serve, NULL));
	ASSERT_EQ(was, ask(&self->child, 'b'));
	ASSERT_LT(0, ask(&self->child, 's'));
	ASSERT_LT(0, len);
	ASSERT_EQ(0, write_word(TRACING "uprobe_events", probe));
	EXPECT_EQ(0, write_word(TRACING "events/quire/mixed_hit/enable", "1"));
	EXPECT_EQ(0xcc, ask(&self->child, 'b'));
	EXPECT_EQ(0xcc, serve('b', NULL));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, write_word(TRACING "events/quire/mixed_hit/enable", "0"));
	EXPECT_EQ(was, ask(&self->child, 'b'));
	EXPECT_EQ(was, serve('b', NULL));
	EXPECT_EQ(0, write_word(TRACING "uprobe_events", "-:quire/mixed_hit"));
	unlink(path);
	close(inode);
}

/*
 * An area that is registered with userfaultfd grows into a shared table; pages that are put
 * there are only this process's.
 */
TEST_SLOW(fork_mixed, userfaultfd_grows_into_the_table)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_zeropage zero;
	int uffd = syscall(SYS_userfaultfd, O_CLOEXEC), i = 0;
	char *ahead = base - AREA_LEN;

	if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api))
		SKIP(return, "no userfaultfd");
	/* Make room for the area at the table's start. */
	ASSERT_EQ(0, munmap(at(MEMORY), AREA_LEN));
	ASSERT_NE(MAP_FAILED, mmap(ahead, AREA_LEN, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	reg.range.start = (uintptr_t)ahead;
	reg.range.len = AREA_LEN;
	ASSERT_EQ(0, ioctl(uffd, UFFDIO_REGISTER, &reg));
	EXPECT_EQ(0, finish(&self->other));
	ASSERT_EQ(0, start_helper(&self->other, serve, NULL));
	ASSERT_LT(0, ask(&self->other, 's'));
	ASSERT_EQ(ahead, mremap(ahead, AREA_LEN, 2 * AREA_LEN, 0));
	zero = (struct uffdio_zeropage) { .range = { (uintptr_t)base, PAGE } };
	while (ioctl(uffd, UFFDIO_ZEROPAGE, &zero) && errno == EAGAIN && i < 100)
		i++;
	close(uffd);
	ASSERT_EQ(PAGE, zero.zeropage);
	EXPECT_EQ(0, *(uint64_t *)base);
	EXPECT_EQ(0, wrong(at(MORE), AREA_PAGES, 3));
	EXPECT_EQ(0, wrong(at(TO_READ), AREA_PAGES, FILE_SEED));
}

/*
 * The kernel kills a process if it cannot write to its rseq area on the way back to user space.
 * That area is in a table that every fork shares, and there may be no page for the table's
 * copy.
 */
static long without_rseq(void)
{
	/* The C library says how much of the area is used; it registers 32 bytes at least. */
	unsigned int size = __rseq_size > 32 ? __rseq_size : 32;

	return syscall(SYS_rseq, (char *)__builtin_thread_pointer() + __rseq_offset, size,
		       RSEQ_FLAG_UNREGISTER, RSEQ_SIG);
}

/* A fork that fails after it has shared the table leaves nothing behind. */
TEST_SLOW(fork_mixed, forks_fail)
{
	long left = fork_stat("tables_left");
	int i, forks = 0;

	ASSERT_EQ(0, without_rseq());
	if (inject("fail_page_alloc", "10") || inject("failslab", "5"))
		SKIP(return, "no fault injection");
	ASSERT_EQ(0, write_word("/proc/self/make-it-fail", "1"));
	for (i = 0; i < 60 || (!forks && i < 4000); i++) {
		pid_t pid = fork();

		if (!pid)
			_exit(all_wrong() != 0);
		if (pid < 0)
			continue;
		forks++;
		EXPECT_EQ(0, wait_under_injection(pid));
	}
	inject_nothing();
	EXPECT_LT(0, forks);
	EXPECT_LT(forks, i) TH_LOG("no fork failed");
	/* Tables were left by children that ended, and by forks that failed. */
	EXPECT_LT(left, fork_stat("tables_left"));
	EXPECT_EQ(0, all_wrong());
}

/* Processes are killed at any time, in any order. */
TEST_SLOW(fork_mixed, ends_in_any_order)
{
	int i;

	for (i = 0; i < 20; i++) {
		struct helper h;

		ASSERT_EQ(0, start_helper(&h, serve, NULL));
		EXPECT_EQ(0, ask(&h, "rmwuhavpl"[i % 9]));
		if (i & 1)
			kill(h.pid, SIGKILL);
		stop_helper(&h);
	}
	EXPECT_EQ(0, all_wrong());
	EXPECT_EQ(0, ask(&self->child, 'r'));
}

TEST_HARNESS_MAIN
