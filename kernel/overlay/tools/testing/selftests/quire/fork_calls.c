// SPDX-License-Identifier: GPL-2.0
/*
 * System calls on shared page tables. A call does in its process what it does without sharing,
 * and does nothing in the other process. A child shares an area of whole tables, one of the two
 * processes makes the call, and then both check their memory.
 */
#define _GNU_SOURCE
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "harness.h"
#include "compat.h"
#include "fork_test.h"

#define TABLES 6
#define PAGES (TABLES * SLOTS)
#define LEN (TABLES * TABLE)

static long serve(char command, void *arg)
{
	char *area = arg;

	switch (command) {
	case 'r':
		return wrong(area, PAGES, 7);
	case 'W':
		fill(area, PAGES, 3);
		return wrong(area, PAGES, 3);
	case 's':
		return shared_tables(getpid());
	case 'p':
		return mprotect(area + TABLE + 5 * PAGE, 2 * TABLE, PROT_READ);
	case 'd':
		return madvise(area + TABLE / 2, TABLE, MADV_DONTNEED);
	case 'x':
		return munmap(area + PAGE, LEN - 2 * PAGE);
	}
	return -1;
}

FIXTURE(fork_calls) {
	char *area;
	struct helper child;
};

FIXTURE_SETUP(fork_calls)
{
	NEED_FORK_FEATURE();
	self->area = map_tables(TABLES);
	ASSERT_NE(NULL, self->area);
	fill(self->area, PAGES, 7);
	ASSERT_EQ(0, start_helper(&self->child, serve, self->area));
	ASSERT_LE(TABLES, shared_tables(getpid()));
}

FIXTURE_TEARDOWN(fork_calls)
{
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, stop_helper(&self->child));
	EXPECT_TRUE(tables_consistent());
}

static bool faults(char *address, bool write)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		if (write)
			*(volatile char *)address = 1;
		else
			(void)*(volatile char *)address;
		_exit(0);
	}
	waitpid(pid, &status, 0);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

TEST_SLOW(fork_calls, mprotect_part)
{
	char *a = self->area;

	ASSERT_EQ(0, mprotect(a + TABLE + 5 * PAGE, 3 * PAGE, PROT_READ));
	EXPECT_TRUE(faults(a + TABLE + 6 * PAGE, true));
	EXPECT_FALSE(faults(a + TABLE + 4 * PAGE, true));
	EXPECT_FALSE(faults(a + TABLE + 8 * PAGE, true));
	EXPECT_EQ(0, wrong(a, PAGES, 7));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(a, PAGES, 7));
}

TEST_SLOW(fork_calls, mprotect_whole)
{
	char *a = self->area;

	ASSERT_EQ(0, mprotect(a, LEN, PROT_NONE));
	EXPECT_TRUE(faults(a + 2 * TABLE, false));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	ASSERT_EQ(0, mprotect(a, LEN, PROT_READ | PROT_WRITE));
	EXPECT_EQ(0, wrong(a, PAGES, 7));
	fill(a, PAGES, 9);
	EXPECT_EQ(0, wrong(a, PAGES, 9));
}

TEST_SLOW(fork_calls, mprotect_in_child)
{
	EXPECT_EQ(0, ask(&self->child, 'p'));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	fill(self->area, PAGES, 2);
	EXPECT_EQ(0, wrong(self->area, PAGES, 2));
	EXPECT_EQ(0, ask(&self->child, 'r'));
}

TEST_SLOW(fork_calls, mremap_moves)
{
	char *to = map_tables(TABLES);
	char *a = self->area;

	ASSERT_NE(NULL, to);
	ASSERT_EQ(to, mremap(a, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, to));
	EXPECT_EQ(0, wrong(to, PAGES, 7));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	fill(to, PAGES, 5);
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(to, PAGES, 5));
}

TEST_SLOW(fork_calls, mremap_part_unaligned)
{
	char *to = map_tables(TABLES);
	char *a = self->area;

	ASSERT_NE(NULL, to);
	ASSERT_EQ(to + PAGE, mremap(a + TABLE + PAGE, TABLE + 7 * PAGE, TABLE + 7 * PAGE,
				    MREMAP_MAYMOVE | MREMAP_FIXED, to + PAGE));
	EXPECT_EQ(word_for(SLOTS + 1, 7), *(uint64_t *)(to + PAGE));
	EXPECT_EQ(word_for(2 * SLOTS + 7, 7), *(uint64_t *)(to + TABLE + 7 * PAGE));
	EXPECT_EQ(0, ask(&self->child, 'r'));
}

/*
 * If both addresses have the same offset in a table, Linux moves from the start of the first
 * table, which is before the VMA.
 */
TEST_SLOW(fork_calls, mremap_to_same_offset)
{
	char *to = map_tables(TABLES);
	char *a = self->area;
	size_t off = 3 * PAGE, len = LEN - off;

	ASSERT_NE(NULL, to);
	ASSERT_EQ(0, munmap(a - TABLE, TABLE + off));
	ASSERT_EQ(0, munmap(to - TABLE, LEN + 2 * TABLE));
	ASSERT_LE(TABLES - 1, shared_tables(getpid()));
	ASSERT_EQ(to + off, mremap(a + off, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to + off));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(word_for(3, 7), *(uint64_t *)(to + off));
	memset(to + off, 1, len);
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(1, to[TABLE]);
}

TEST_SLOW(fork_calls, mremap_shrinks_and_grows)
{
	char *a = self->area;

	ASSERT_EQ(a, mremap(a, LEN, 2 * TABLE + 3 * PAGE, 0));
	EXPECT_EQ(0, wrong(a, 2 * SLOTS + 3, 7));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	ASSERT_EQ(a, mremap(a, 2 * TABLE + 3 * PAGE, 4 * TABLE, 0));
	EXPECT_EQ(0, wrong(a, 2 * SLOTS + 3, 7));
	EXPECT_EQ(0, *(uint64_t *)(a + 3 * TABLE));
}

TEST_SLOW(fork_calls, dontneed_part_and_whole)
{
	char *a = self->area;

	ASSERT_EQ(0, madvise(a + TABLE + 8 * PAGE, 4 * PAGE, MADV_DONTNEED));
	EXPECT_EQ(0, *(uint64_t *)(a + TABLE + 9 * PAGE));
	EXPECT_EQ(word_for(SLOTS + 12, 7), *(uint64_t *)(a + TABLE + 12 * PAGE));
	ASSERT_EQ(0, madvise(a + 2 * TABLE, 2 * TABLE, MADV_DONTNEED));
	EXPECT_EQ(0, *(uint64_t *)(a + 2 * TABLE));
	EXPECT_EQ(0, *(uint64_t *)(a + 4 * TABLE - PAGE));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, wrong(a, SLOTS, 7));
}

TEST_SLOW(fork_calls, dontneed_in_child)
{
	EXPECT_EQ(0, ask(&self->child, 'd'));
	EXPECT_EQ((long)SLOTS, ask(&self->child, 'r'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
}

TEST_SLOW(fork_calls, munmap_in_child)
{
	EXPECT_EQ(0, ask(&self->child, 'x'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	fill(self->area, PAGES, 8);
	EXPECT_EQ(0, wrong(self->area, PAGES, 8));
}

TEST_SLOW(fork_calls, advice_that_frees_or_ages)
{
	char *a = self->area;
	unsigned long i, bad = 0;

	ASSERT_EQ(0, madvise(a, TABLE, MADV_COLD));
	ASSERT_EQ(0, madvise(a + TABLE, TABLE, MADV_PAGEOUT));
	ASSERT_EQ(0, madvise(a + 2 * TABLE, TABLE, MADV_FREE));
	ASSERT_EQ(0, madvise(a + 3 * TABLE, TABLE, MADV_WILLNEED));
	ASSERT_EQ(0, madvise(a + 4 * TABLE, 3 * PAGE, MADV_POPULATE_WRITE));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	for (i = 2 * SLOTS; i < 3 * SLOTS; i++) {
		uint64_t word = *(uint64_t *)(a + i * PAGE);

		bad += word && word != word_for(i, 7);
	}
	EXPECT_EQ(0, bad);
	EXPECT_EQ(0, wrong(a, 2 * SLOTS, 7));
}

TEST_SLOW(fork_calls, advice_about_forks)
{
	char *a = self->area;
	int status;
	pid_t pid;

	ASSERT_EQ(0, madvise(a + TABLE / 2, TABLE, MADV_DONTFORK));
	ASSERT_EQ(0, madvise(a + 3 * TABLE, TABLE + PAGE, MADV_WIPEONFORK));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		_exit(*(uint64_t *)(a + 3 * TABLE) == 0 &&
		      *(uint64_t *)a == word_for(0, 7) &&
		      *(uint64_t *)(a + 5 * TABLE) == word_for(5 * SLOTS, 7) ? 0 : 1);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_TRUE(faults(a + TABLE, false));
	EXPECT_EQ(0, wrong(a, PAGES, 7));
	EXPECT_EQ(0, ask(&self->child, 'r'));
}

TEST_SLOW(fork_calls, collapse)
{
	char *a = self->area;

	/* Linux collapses a table only if at least one of its entries is writable. */
	if (madvise(a + TABLE, TABLE, MADV_COLLAPSE))
		*(uint64_t *)(a + TABLE) = word_for(SLOTS, 7);
	ASSERT_EQ(0, madvise(a + TABLE, TABLE, MADV_COLLAPSE));
	EXPECT_LE(2048, smaps_of(getpid(), a, "AnonHugePages"));
	EXPECT_EQ(0, wrong(a, PAGES, 7));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	fill(a, PAGES, 4);
	EXPECT_EQ(0, ask(&self->child, 'r'));
}

TEST_SLOW(fork_calls, mlock_and_fork)
{
	char *a = self->area;
	int status;
	pid_t pid;

	ASSERT_EQ(0, mlock(a + TABLE + PAGE, TABLE));
	EXPECT_EQ((long)TABLE / 1024, proc_sum(getpid(), "status", "VmLck"));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		_exit(wrong(a, PAGES, 7) ? 1 : 0);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	ASSERT_EQ(0, munlock(a, LEN));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(a, PAGES, 7));
}

TEST_SLOW(fork_calls, pagemap_and_soft_dirty)
{
	char *a = self->area;
	long shared = shared_tables(getpid());

	/* The page is present and not exclusive, and reading pagemap changes nothing. */
	EXPECT_EQ(1ull << 63, pagemap_entry(a + 3 * PAGE) & (1ull << 63 | 1ull << 56));
	EXPECT_EQ(shared, shared_tables(getpid()));
	ASSERT_EQ(0, write_word("/proc/self/clear_refs", "4"));
	EXPECT_EQ(0, pagemap_entry(a + 3 * PAGE) & 1ull << 55);
	*(volatile uint64_t *)(a + 4 * PAGE) = word_for(4, 7);
	EXPECT_EQ(0, pagemap_entry(a + 3 * PAGE) & 1ull << 55);
	EXPECT_NE(0, pagemap_entry(a + 4 * PAGE) & 1ull << 55);
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, wrong(a, PAGES, 7));
}

TEST_SLOW(fork_calls, mincore_sees_pages)
{
	unsigned char vec[SLOTS];
	unsigned int i, in = 0;
	long shared = shared_tables(getpid());

	ASSERT_EQ(0, mincore(self->area, TABLE, vec));
	for (i = 0; i < SLOTS; i++)
		in += vec[i] & 1;
	EXPECT_EQ(SLOTS, in);
	EXPECT_EQ(shared, shared_tables(getpid()));
}

TEST_SLOW(fork_calls, userfaultfd_protects)
{
	struct uffdio_register reg = { .range = { (uintptr_t)self->area, LEN },
				       .mode = UFFDIO_REGISTER_MODE_WP };
	struct uffdio_writeprotect wp = { .range = { (uintptr_t)self->area + TABLE, 4 * PAGE },
					  .mode = UFFDIO_WRITEPROTECT_MODE_WP };
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP };
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api))
		SKIP(return, "no userfaultfd");
	ASSERT_EQ(0, ioctl(fd, UFFDIO_REGISTER, &reg));
	ASSERT_EQ(0, ioctl(fd, UFFDIO_WRITEPROTECT, &wp));
	EXPECT_NE(0, pagemap_entry(self->area + TABLE) & 1ull << 57);
	EXPECT_EQ(0, pagemap_entry(self->area + TABLE + 4 * PAGE) & 1ull << 57);
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_NE(0, pagemap_entry(self->area + TABLE) & 1ull << 57);
	close(fd);
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
}

TEST_SLOW(fork_calls, ksm_merges)
{
	int i;

	if (access("/sys/kernel/mm/ksm/run", W_OK))
		SKIP(return, "no KSM");
	memset(self->area, 1, TABLE);
	ASSERT_EQ(0, madvise(self->area, TABLE + 9 * PAGE, MADV_MERGEABLE));
	ASSERT_EQ(0, write_word("/sys/kernel/mm/ksm/pages_to_scan", "2000"));
	ASSERT_EQ(0, write_word("/sys/kernel/mm/ksm/run", "1"));
	for (i = 0; i < 1000 && smaps_of(getpid(), self->area, "KSM") < 1024; i++)
		usleep(20000);
	EXPECT_LE(1024, smaps_of(getpid(), self->area, "KSM"));
	ASSERT_EQ(0, write_word("/sys/kernel/mm/ksm/run", "2"));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(1, self->area[100]);
	EXPECT_EQ(word_for(SLOTS + 3, 7), *(uint64_t *)(self->area + TABLE + 3 * PAGE));
	ASSERT_EQ(0, write_word("/sys/kernel/mm/ksm/run", "0"));
}

TEST_SLOW(fork_calls, moves_pages)
{
	void *pages[4] = { self->area, self->area + TABLE, self->area + 2 * TABLE,
			   self->area + 3 * TABLE + PAGE };
	int nodes[4] = { 0 }, status[4] = { -1, -1, -1, -1 };

	if (syscall(SYS_move_pages, 0, 4UL, pages, NULL, status, 0))
		SKIP(return, "no move_pages");
	EXPECT_LE(0, status[0]);
	EXPECT_LE(0, status[3]);
	EXPECT_LE(0, syscall(SYS_move_pages, 0, 4UL, pages, nodes, status, 2));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
}

/* What a process has before it dumps core: a table of its own, a hole in another, four shared. */
static void crash(char *area)
{
	if (core_wanted("0x33"))
		_exit(1);
	fill(area, SLOTS, 5);
	if (munmap(area + TABLE + 8 * PAGE, 8 * PAGE))
		_exit(2);
	abort();
}

/* A core has the memory of its process, and the others keep their tables and what is in them. */
TEST_SLOW(fork_calls, core_dump)
{
	char *a = self->area;
	pid_t pid;
	int core;

	if (core_to_file())
		SKIP(return, "no core dumps");
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		crash(a);
	core = core_of(pid);
	ASSERT_LE(0, core);
	EXPECT_EQ(0, wrong_in_core(core, a, 0, SLOTS, 5));
	EXPECT_EQ(0, wrong_in_core(core, a, SLOTS, 8, 7));
	EXPECT_EQ(8, wrong_in_core(core, a, SLOTS + 8, 8, 7));
	EXPECT_EQ(0, wrong_in_core(core, a, SLOTS + 16, PAGES - SLOTS - 16, 7));
	close(core);
	EXPECT_LE(TABLES, shared_tables(getpid()));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(a, PAGES, 7));
}

TEST_HARNESS_MAIN
