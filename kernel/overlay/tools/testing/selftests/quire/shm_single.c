// SPDX-License-Identifier: GPL-2.0
/*
 * A process that shares its tables of shared memory with no other process: system calls act on
 * them as on private tables, and code that only reads leaves them as they are.
 */
#define _GNU_SOURCE
#include "cpus.h"
#include "harness.h"
#include "shm_test.h"

#define TABLES 4
#define PAGES (TABLES * SLOTS)
#define LEN (TABLES * TABLE)
#define LEN_KB (LEN / 1024)

static char *area;

/* r: pages that are wrong; W: write them; s: tables */
static long serve(char command, void *arg)
{
	switch (command) {
	case 'r':
		return wrong(area, PAGES, 7);
	case 'W':
		fill(area, PAGES, 9);
		return 0;
	case 's':
		return file_tables(getpid());
	}
	return -1;
}

/* Touches all of it; returns the number of faults, or -1 if a page is wrong. */
static long faults_of_all(uint64_t seed)
{
	long before = faults() + major_faults();

	return wrong(area, PAGES, seed) ? -1 : faults() + major_faults() - before;
}

/* Do a call and a touch of everything cost less than leaving the tables would? */
static bool costs_no_faults(int (*call)(void))
{
	long before = faults() + major_faults();

	if (call() || faults_of_all(7))
		return false;
	/* The program, its stack and its heap may have faults of their own. */
	return faults() + major_faults() - before < (long)PAGES / 64;
}

static long adopted(const char *unused)
{
	return shm_number("stats/tables_adopted");
}

static long rss_kb(void)
{
	return proc_sum(getpid(), "status", "RssShmem");
}

/* Each CPU holds back a part of its count. */
static bool rss_grew(long before, long kb)
{
	return labs(rss_kb() - before - kb) < (long)TABLE / 1024 / 2;
}

FIXTURE(single) {
	long tables, adopted, mapped, rss;
	int fd;
};

FIXTURE_SETUP(single)
{
	cpu_set_t cpus;

	NEED_SHM_FEATURE();
	self->tables = shm_number("tables");
	self->mapped = shm_number("mapped_kb");
	self->rss = rss_kb();
	self->fd = memfd_create("quire", 0);
	ASSERT_EQ(0, ftruncate(self->fd, LEN));
	area = map_file(self->fd, TABLES, PROT_READ | PROT_WRITE);
	ASSERT_NE(NULL, area);
	/* New pages wait in batches of this CPU; see pageout. */
	ASSERT_EQ(0, sched_getaffinity(0, sizeof(cpus), &cpus));
	ASSERT_EQ(0, run_on(0, 0));
	fill(area, PAGES, 7);
	ASSERT_EQ(0, sched_setaffinity(0, sizeof(cpus), &cpus));
	ASSERT_EQ(0, faults_of_all(7));
	ASSERT_EQ(TABLES, file_tables(getpid()));
	ASSERT_EQ(self->tables + TABLES, shm_number("tables"));
	ASSERT_EQ(self->mapped + (long)LEN_KB, shm_number("mapped_kb"));
	self->adopted = shm_number("stats/tables_adopted");
}

FIXTURE_TEARDOWN(single)
{
	EXPECT_TRUE(tables_consistent());
	if (area)
		munmap(area, LEN);
	close(self->fd);
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(self->tables, shm_number("tables"));
	EXPECT_EQ(self->mapped, shm_number("mapped_kb"));
	EXPECT_TRUE(rss_grew(self->rss, 0));
}

/* All tables are the process's own now, and the process is charged for what they map. */
#define EXPECT_ADOPTED(self) do {						\
	EXPECT_EQ(0, file_tables(getpid()));					\
	EXPECT_EQ((self)->adopted + TABLES, shm_number("stats/tables_adopted"));	\
	EXPECT_EQ((self)->tables, shm_number("tables"));			\
	EXPECT_EQ((self)->mapped, shm_number("mapped_kb"));			\
	EXPECT_TRUE(rss_grew((self)->rss, LEN_KB));				\
	EXPECT_TRUE(tables_consistent());					\
} while (0)

static int to_read_only_and_back(void)
{
	return mprotect(area, LEN, PROT_READ) || mprotect(area, LEN, PROT_READ | PROT_WRITE);
}

TEST_SLOW(single, mprotect)
{
	EXPECT_TRUE(costs_no_faults(to_read_only_and_back));
	EXPECT_ADOPTED(self);
	ASSERT_EQ(0, mprotect(area, LEN, PROT_READ));
	EXPECT_EQ(SIGSEGV, touch_signal(area + TABLE, true));
	ASSERT_EQ(0, mprotect(area, LEN, PROT_READ | PROT_WRITE));
}

static int lock_and_unlock(void)
{
	return mlock(area, LEN) || proc_sum(getpid(), "status", "VmLck") != LEN_KB ||
	       munlock(area, LEN);
}

TEST_SLOW(single, mlock)
{
	EXPECT_TRUE(costs_no_faults(lock_and_unlock));
	EXPECT_ADOPTED(self);
}

/* One page of each table goes, and no more. */
TEST_SLOW(single, dontneed)
{
	for (char *at = area; at < area + LEN; at += TABLE)
		ASSERT_EQ(0, madvise(at + 64 * PAGE, PAGE, MADV_DONTNEED));
	EXPECT_EQ(TABLES, faults_of_all(7));
	EXPECT_ADOPTED(self);
}

static int forget_references(void)
{
	return write_word("/proc/self/clear_refs", "1") ||
	       smaps_of(getpid(), area, "Referenced");
}

TEST_SLOW(single, clear_refs)
{
	EXPECT_TRUE(costs_no_faults(forget_references));
	EXPECT_EQ(TABLES, file_tables(getpid()));
	EXPECT_EQ(self->adopted, shm_number("stats/tables_adopted"));
}

/* NUMA hinting runs by itself. It gives hints if no other process maps the file. */
TEST_SLOW(single, numa_hints)
{
	struct helper child;

	/* Start the child first, because a scan may begin at once. */
	ASSERT_EQ(0, start_helper(&child, serve, NULL));
	if (!numa_start())
		SKIP(goto end, "no NUMA balancing");
	EXPECT_TRUE(spin_until(numa_scans_of, NULL, numa_scans() + 3, area, PAGES));
	EXPECT_EQ(TABLES, file_tables(getpid()));
	EXPECT_EQ(self->adopted, shm_number("stats/tables_adopted"));
	ASSERT_EQ(0, ask(&child, 'r'));
	ASSERT_EQ(TABLES, ask(&child, 's'));
	ASSERT_EQ(0, end_helper(&child));
	EXPECT_TRUE(spin_until(adopted, NULL, self->adopted + TABLES, area, PAGES));
	write_word(NUMA, "0");
	EXPECT_EQ(0, wrong(area, PAGES, 7));
	EXPECT_EQ(0, file_tables(getpid()));
end:
	end_helper(&child);
}

TEST_SLOW(single, split)
{
	ASSERT_EQ(0, mprotect(area + TABLE / 2, TABLE, PROT_READ));
	EXPECT_EQ(SIGSEGV, touch_signal(area + TABLE, true));
	EXPECT_EQ(0, touch_signal(area, true));
	EXPECT_EQ(self->adopted + 2, shm_number("stats/tables_adopted"));
	EXPECT_EQ(TABLES - 2, file_tables(getpid()));
	EXPECT_EQ(0, faults_of_all(7));
}

TEST_SLOW(single, mremap)
{
	char *to = mmap(NULL, LEN + TABLE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	to = (char *)(((unsigned long)to + TABLE - 1) & ~(TABLE - 1));
	area = mremap(area, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	ASSERT_EQ(to, area);
	EXPECT_EQ(0, faults_of_all(7));
	EXPECT_ADOPTED(self);
}

TEST_SLOW(single, pageout)
{
	ASSERT_EQ(0, make_swap());
	/* MADV_PAGEOUT empties only the batches of its own CPU, where the pages were filled. */
	ASSERT_EQ(0, run_on(0, 0));
	for (int i = 0; i < 1000 && resident(area, PAGES); i++) {
		ASSERT_EQ(0, madvise(area, LEN, MADV_PAGEOUT));
		usleep(i ? 1000 : 0);
	}
	EXPECT_EQ(0, resident(area, PAGES));
	EXPECT_EQ(0, file_tables(getpid()));
	EXPECT_EQ(0, wrong(area, PAGES, 7));
	EXPECT_EQ(0, swapoff(SWAP));
	write_word("/sys/block/zram0/reset", "1");
}

/* Pages that others map, too, stay, as they do if each process has a table of its own. */
TEST_SLOW(single, pageout_of_others)
{
	struct helper child;

	ASSERT_EQ(0, make_swap());
	ASSERT_EQ(0, start_helper(&child, serve, NULL));
	ASSERT_EQ(0, ask(&child, 'r'));
	ASSERT_EQ(TABLES, ask(&child, 's'));
	for (int i = 0; i < 10; i++)
		ASSERT_EQ(0, madvise(area, LEN, MADV_PAGEOUT));
	EXPECT_EQ((long)PAGES, resident(area, PAGES));
	EXPECT_EQ(TABLES, file_tables(getpid()));
	EXPECT_EQ(0, stop_helper(&child));
	EXPECT_EQ(0, swapoff(SWAP));
	write_word("/sys/block/zram0/reset", "1");
}

static bool read_all(const char *path)
{
	static char buffer[1 << 16];
	FILE *f = fopen(path, "r");
	size_t got = 0, n;

	while (f && (n = fread(buffer, 1, sizeof(buffer), f)))
		got += n;
	if (f)
		fclose(f);
	return got;
}

TEST_SLOW(single, looks)
{
	EXPECT_TRUE(read_all("/proc/self/smaps"));
	EXPECT_TRUE(read_all("/proc/self/smaps_rollup"));
	EXPECT_TRUE(read_all("/proc/self/numa_maps"));
	EXPECT_TRUE(read_all("/proc/self/quire"));
	EXPECT_EQ((long)PAGES, resident(area, PAGES));
	EXPECT_EQ(TABLES, file_tables(getpid()));
	EXPECT_EQ(self->adopted, shm_number("stats/tables_adopted"));
	EXPECT_EQ(0, faults_of_all(7));
}

/* The feature is switched off, and all sharing is undone: nothing faults again. */
TEST_SLOW(single, switched_off)
{
	ASSERT_EQ(0, write_word(SHM_FOLDER "enabled", "2"));
	EXPECT_EQ(0, shm_number("tables"));
	EXPECT_EQ(0, faults_of_all(7));
	EXPECT_EQ(0, file_tables(getpid()));
	ASSERT_EQ(0, write_word(SHM_FOLDER "enabled", "1"));
	EXPECT_TRUE(rss_grew(self->rss, LEN_KB));
}

/* A later process gets a table that others can join, and all see the same data. */
TEST_SLOW(single, followed_by_others)
{
	struct helper child[2];

	ASSERT_EQ(0, to_read_only_and_back());
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(0, start_helper(&child[i], serve, NULL));
		EXPECT_EQ(0, ask(&child[i], 'r'));
		EXPECT_EQ(TABLES, ask(&child[i], 's'));
	}
	EXPECT_EQ(self->tables + TABLES, shm_number("tables"));
	EXPECT_EQ(0, ask(&child[1], 'W'));
	EXPECT_EQ(0, wrong(area, PAGES, 9));
	EXPECT_TRUE(tables_consistent());
	ASSERT_EQ(0, ftruncate(self->fd, TABLE));
	EXPECT_EQ(SIGBUS, touch_signal(area + TABLE, false));
	for (int i = 0; i < 2; i++)
		EXPECT_EQ(0, end_helper(&child[i]));
}

/* Processes that have left no longer count, once none of them can still be using the tables. */
TEST_SLOW(single, left_by_others)
{
	struct helper child;

	if (!wait_for_leavers())
		SKIP(return, "one CPU");
	ASSERT_EQ(0, start_helper(&child, serve, NULL));
	ASSERT_EQ(0, ask(&child, 'r'));
	ASSERT_EQ(TABLES, ask(&child, 's'));
	ASSERT_EQ(0, stop_helper(&child));
	ASSERT_TRUE(wait_for_leavers());
	EXPECT_TRUE(costs_no_faults(to_read_only_and_back));
	EXPECT_ADOPTED(self);
}

TEST_HARNESS_MAIN
