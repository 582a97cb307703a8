// SPDX-License-Identifier: GPL-2.0
/*
 * Shared memory with huge pages, with large folios, and with both beside small pages. A block
 * that has a huge page is mapped by it, a block that has none by shared tables, and either may
 * become the other while processes use it. Hugetlbfs goes on sharing tables of its own.
 */
#define _GNU_SOURCE
#include <sys/mount.h>
#include <sys/stat.h>

#include "harness.h"
#include "compat.h"
#include "shm_test.h"

#define TABLES 4
#define PAGES (TABLES * SLOTS)
#define LEN (TABLES * TABLE)
#define TABLE_KB ((long)(TABLE / 1024))
#define CHILDREN 3
#define HUGE "/sys/kernel/mm/transparent_hugepage/"
#define MOUNT "/tmp/quire_shm_huge"

static char *area;
static int fd;

/* Pages of a range that are not zero. */
static long nonzero(unsigned long first, unsigned long count)
{
	long n = 0;

	for (unsigned long i = first; i < first + count; i++)
		n += *(const uint64_t *)(area + i * PAGE) != 0;
	return n;
}

/*
 * r, R: pages that are wrong; W: rewrite; s: tables; h: kB on huge pages; z: pages of
 * the first half of block 0 that are not 0
 */
static long serve(char command, void *arg)
{
	switch (command) {
	case 'r':
		return wrong(area, PAGES, 7);
	case 'R':
		return wrong(area, PAGES, 9);
	case 'W':
		fill(area, PAGES, 9);
		return 0;
	case 's':
		return file_tables(getpid());
	case 'h':
		return smaps_of(getpid(), area, "ShmemPmdMapped");
	case 'z':
		return nonzero(0, SLOTS / 2);
	}
	return -1;
}

FIXTURE(huge) {
	struct helper child[CHILDREN];
	long tables;
};

FIXTURE_SETUP(huge)
{
	NEED_SHM_FEATURE();
	if (write_word(HUGE "shmem_enabled", "never"))
		SKIP(return, "no huge pages");
	self->tables = shm_number("tables");
}

FIXTURE_TEARDOWN(huge)
{
	write_word(HUGE "shmem_enabled", "never");
	write_word(HUGE "hugepages-64kB/shmem_enabled", "never");
	EXPECT_TRUE(tables_consistent());
	for (int i = 0; i < CHILDREN; i++)
		EXPECT_EQ(0, end_helper(&self->child[i]));
	munmap(area, LEN);
	close(fd);
	umount(MOUNT);
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(self->tables, shm_number("tables"));
}

/* Makes an empty file, and maps it. */
static bool make_file(void)
{
	fd = memfd_create("quire", 0);
	if (ftruncate(fd, LEN))
		return false;
	area = map_file(fd, TABLES, PROT_READ | PROT_WRITE);
	return area;
}

static bool start_children(struct helper *child)
{
	for (int i = 0; i < CHILDREN; i++)
		if (start_helper(&child[i], serve, NULL))
			return false;
	return true;
}

/* Do all children give this answer? */
static bool all_say(struct helper *child, char command, long answer)
{
	bool same = true;

	for (int i = 0; i < CHILDREN; i++) {
		long said = ask(&child[i], command);

		if (said != answer)
			printf("# child %d says %ld to '%c'\n", i, said, command);
		same &= said == answer;
	}
	return same;
}

/* Gives two blocks of the file a huge page each, through a mapping that is not used again. */
static bool make_blocks_huge(int first, int second)
{
	char *there = map_file(fd, TABLES, PROT_READ | PROT_WRITE);
	bool done;

	if (!there || write_word(HUGE "shmem_enabled", "advise") ||
	    madvise(there + first * TABLE, TABLE, MADV_HUGEPAGE) ||
	    madvise(there + second * TABLE, TABLE, MADV_HUGEPAGE))
		return false;
	there[first * TABLE] = there[second * TABLE] = 1;
	done = proc_sum(getpid(), "smaps", "ShmemPmdMapped") == 2 * TABLE_KB;
	munmap(there, LEN);
	return done && !write_word(HUGE "shmem_enabled", "never");
}

/*
 * Two blocks have huge pages, the others small ones: each block is mapped in the best way for
 * it.
 */
TEST_SLOW(huge, beside_small)
{
	long refused = shm_number("stats/refused_huge");

	ASSERT_TRUE(make_file());
	ASSERT_TRUE(make_blocks_huge(0, 2));
	fill(area, PAGES, 7);
	ASSERT_TRUE(start_children(self->child));
	EXPECT_TRUE(all_say(self->child, 'r', 0));
	EXPECT_EQ(2, file_tables(getpid()));
	EXPECT_EQ(2 * TABLE_KB, serve('h', NULL));
	EXPECT_TRUE(all_say(self->child, 's', 2));
	EXPECT_TRUE(all_say(self->child, 'h', 2 * TABLE_KB));
	EXPECT_EQ(self->tables + 2, shm_number("tables"));
	EXPECT_LE(refused + 2 * (CHILDREN + 1), shm_number("stats/refused_huge"));
	EXPECT_EQ(0, ask(&self->child[0], 'W'));
	EXPECT_TRUE(all_say(self->child, 'R', 0));
	EXPECT_EQ(0, wrong(area, PAGES, 9));
	/* Half of a huge page goes: the rest is small pages, which one table maps for all. */
	ASSERT_EQ(0, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, TABLE / 2));
	EXPECT_TRUE(all_say(self->child, 'z', 0));
	EXPECT_EQ(0, serve('z', NULL));
	fill(area, PAGES, 7);
	EXPECT_TRUE(all_say(self->child, 'r', 0));
	EXPECT_EQ(3, file_tables(getpid()));
	EXPECT_TRUE(all_say(self->child, 's', 3));
	EXPECT_EQ(self->tables + 3, shm_number("tables"));
}

/* A filesystem that always has huge pages has no shared tables. */
TEST_SLOW(huge, always)
{
	long refused = shm_number("stats/refused_huge");

	mkdir(MOUNT, 0755);
	ASSERT_EQ(0, mount("tmpfs", MOUNT, "tmpfs", 0, "huge=always"));
	fd = open(MOUNT "/file", O_RDWR | O_CREAT, 0600);
	ASSERT_EQ(0, ftruncate(fd, LEN));
	area = map_file(fd, TABLES, PROT_READ | PROT_WRITE);
	ASSERT_NE(NULL, area);
	fill(area, PAGES, 7);
	ASSERT_TRUE(start_children(self->child));
	EXPECT_TRUE(all_say(self->child, 'r', 0));
	EXPECT_TRUE(all_say(self->child, 's', 0));
	EXPECT_TRUE(all_say(self->child, 'h', LEN / 1024));
	EXPECT_EQ(self->tables, shm_number("tables"));
	EXPECT_LE(refused + TABLES, shm_number("stats/refused_huge"));
	/* A hole splits the huge page into small pages. */
	ASSERT_EQ(0, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE));
	EXPECT_EQ(0, ask(&self->child[0], 'W'));
	EXPECT_TRUE(all_say(self->child, 'R', 0));
	EXPECT_EQ(0, wrong(area, PAGES, 9));
}

static bool collapse(char *block)
{
	int ret = -1;

	/* Pages may be on their way to an LRU list, or in use for a moment. */
	for (int i = 0; ret && i < 1000; i++) {
		ret = madvise(block, TABLE, MADV_COLLAPSE);
		if (ret)
			usleep(10000);
	}
	return !ret;
}

/*
 * All processes see the same, however they map it; then the huge page is split while they use
 * it.
 */
static bool split_under_all(struct helper *child)
{
	bool good = !ask(&child[0], 'W') && all_say(child, 'R', 0) && !wrong(area, PAGES, 9);

	good &= tables_consistent();
	good &= !fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, TABLE / 2);
	good &= all_say(child, 'z', 0) && !nonzero(0, SLOTS / 2);
	good &= nonzero(SLOTS / 2, PAGES - SLOTS / 2) == PAGES - SLOTS / 2;
	fill(area, PAGES, 7);
	return good && all_say(child, 'r', 0);
}

/*
 * One process collapses a block: all of them map the huge page, and the table that they had is
 * gone.
 */
TEST_SLOW(huge, collapsed_by_one)
{
	ASSERT_TRUE(make_file());
	fill(area, PAGES, 7);
	ASSERT_TRUE(start_children(self->child));
	EXPECT_TRUE(all_say(self->child, 'r', 0));
	ASSERT_TRUE(all_say(self->child, 's', TABLES));
	ASSERT_TRUE(collapse(area));
	EXPECT_EQ(0, wrong(area, PAGES, 7));
	EXPECT_EQ(TABLE_KB, serve('h', NULL));
	EXPECT_EQ(TABLES - 1, file_tables(getpid()));
	EXPECT_TRUE(tables_consistent());
	EXPECT_TRUE(all_say(self->child, 'r', 0));
	EXPECT_TRUE(all_say(self->child, 's', TABLES - 1));
	EXPECT_TRUE(all_say(self->child, 'h', TABLE_KB));
	EXPECT_EQ(self->tables + TABLES - 1, shm_number("tables"));
	EXPECT_TRUE(split_under_all(self->child));
	EXPECT_EQ(TABLES, file_tables(getpid()));
	EXPECT_TRUE(all_say(self->child, 's', TABLES));
}

/* A process that comes later also maps the huge page. */
TEST_SLOW(huge, joined_by_newcomers)
{
	ASSERT_TRUE(make_file());
	fill(area, PAGES, 7);
	ASSERT_TRUE(start_children(self->child));
	EXPECT_TRUE(all_say(self->child, 'r', 0));
	ASSERT_TRUE(collapse(area));
	EXPECT_TRUE(all_say(self->child, 'r', 0));
	EXPECT_EQ(self->tables + TABLES - 1, shm_number("tables"));
	for (int i = 0; i < CHILDREN; i++)
		EXPECT_EQ(0, end_helper(&self->child[i]));
	EXPECT_EQ(self->tables + TABLES - 1, shm_number("tables"));
	EXPECT_EQ(0, wrong(area, PAGES, 7));
	ASSERT_TRUE(start_children(self->child));
	EXPECT_TRUE(all_say(self->child, 'r', 0));
	EXPECT_TRUE(all_say(self->child, 's', TABLES - 1));
	EXPECT_TRUE(all_say(self->child, 'h', TABLE_KB));
}

#define GROUP "/sys/fs/cgroup/quire_shm_huge"

/* Reclaim splits a huge page that is mapped in both ways, and finds it in both ways. */
TEST_SLOW(huge, swapped_with_both)
{
	ASSERT_EQ(0, make_swap());
	write_word("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	mkdir(GROUP, 0755);
	ASSERT_EQ(0, write_word(GROUP "/cgroup.procs", "0"));
	ASSERT_TRUE(make_file());
	fill(area, PAGES, 7);
	ASSERT_TRUE(start_children(self->child));
	EXPECT_TRUE(all_say(self->child, 'r', 0));
	ASSERT_TRUE(collapse(area));
	EXPECT_EQ(0, wrong(area, PAGES, 7));
	EXPECT_TRUE(all_say(self->child, 'r', 0));
	ASSERT_EQ(TABLES - 1, file_tables(getpid()));
	EXPECT_TRUE(push_out(GROUP "/memory.reclaim", area, PAGES, 0));
	EXPECT_TRUE(tables_consistent());
	EXPECT_TRUE(all_say(self->child, 'r', 0));
	EXPECT_EQ(0, ask(&self->child[1], 'W'));
	EXPECT_EQ(0, wrong(area, PAGES, 9));
	EXPECT_TRUE(all_say(self->child, 'R', 0));
	for (int i = 0; i < CHILDREN; i++)
		EXPECT_EQ(0, end_helper(&self->child[i]));
	EXPECT_EQ(0, swapoff(SWAP));
	write_word("/sys/fs/cgroup/cgroup.procs", "0");
	rmdir(GROUP);
	write_word("/sys/block/zram0/reset", "1");
}

/* After 'a', the process uses tables of its own; all else is as in serve(). */
static long serve_alone(char command, void *arg)
{
	if (command == 'a')
		return write_word("/proc/self/quire", "0");
	return serve(command, arg);
}

static bool in_shmem_huge(long want_kb)
{
	char line[128];
	long value = -1;
	FILE *f = fopen("/proc/meminfo", "r");

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "ShmemHugePages:", 15))
			value = strtol(line + 15, NULL, 10);
	if (f)
		fclose(f);
	return value >= want_kb;
}

/* khugepaged collapses a block that has a private table and shared ones. */
TEST_SLOW(huge, collapsed_by_khugepaged)
{
	ASSERT_TRUE(make_file());
	fill(area, PAGES, 7);
	ASSERT_EQ(0, start_helper(&self->child[0], serve_alone, NULL));
	ASSERT_EQ(0, ask(&self->child[0], 'a'));
	ASSERT_EQ(0, start_helper(&self->child[1], serve, NULL));
	ASSERT_EQ(0, start_helper(&self->child[2], serve, NULL));
	EXPECT_TRUE(all_say(self->child, 'r', 0));
	ASSERT_EQ(0, ask(&self->child[0], 's'));
	ASSERT_EQ(TABLES, ask(&self->child[1], 's'));
	ASSERT_EQ(0, write_word(HUGE "shmem_enabled", "advise"));
	write_word(HUGE "khugepaged/alloc_sleep_millisecs", "10");
	ASSERT_EQ(0, madvise(area, LEN, MADV_HUGEPAGE));
	write_word(HUGE "khugepaged/scan_sleep_millisecs", "10");
	for (int i = 0; i < 20000 && !in_shmem_huge(TABLES * TABLE_KB); i++)
		usleep(10000);
	EXPECT_TRUE(in_shmem_huge(TABLES * TABLE_KB));
	write_word(HUGE "khugepaged/scan_sleep_millisecs", "10000");
	write_word(HUGE "khugepaged/alloc_sleep_millisecs", "60000");
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, wrong(area, PAGES, 7));
	EXPECT_TRUE(all_say(self->child, 'r', 0));
	EXPECT_EQ(0, file_tables(getpid()));
	EXPECT_EQ(0, ask(&self->child[1], 's'));
	EXPECT_TRUE(all_say(self->child, 'h', TABLES * TABLE_KB));
	ASSERT_EQ(0, write_word(HUGE "shmem_enabled", "never"));
	EXPECT_TRUE(split_under_all(self->child));
}

static long large_folios(void)
{
	FILE *f = fopen(HUGE "hugepages-64kB/stats/shmem_alloc", "r");
	long value = -1;

	if (f && fscanf(f, "%ld", &value) != 1)
		value = -1;
	if (f)
		fclose(f);
	return value;
}

/* Folios between the two sizes are mapped whole, by entries of the shared tables. */
TEST_SLOW(huge, large_folios)
{
	long before = large_folios(), took;

	if (before < 0)
		SKIP(return, "no large folios of shared memory");
	ASSERT_EQ(0, write_word(HUGE "hugepages-64kB/shmem_enabled", "always"));
	fd = -1;
	area = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)area);
	took = faults();
	fill(area, PAGES, 7);
	took = faults() - took;
	/* One fault for sixteen pages, or nearly. */
	EXPECT_GT(PAGES / 8, took);
	EXPECT_LE(before + PAGES / 32, large_folios());
	EXPECT_EQ(TABLES, file_tables(getpid()));
	EXPECT_LE(LEN / 1024, shm_number("mapped_kb"));
	ASSERT_TRUE(start_children(self->child));
	took = faults();
	EXPECT_TRUE(all_say(self->child, 'r', 0));
	EXPECT_TRUE(all_say(self->child, 's', TABLES));
	EXPECT_EQ(self->tables + TABLES, shm_number("tables"));
	/* A hole that begins and ends within folios. */
	ASSERT_EQ(0, madvise(area + 5 * PAGE, (SLOTS / 2 - 5) * PAGE, MADV_REMOVE));
	EXPECT_TRUE(all_say(self->child, 'z', 5));
	EXPECT_EQ(0, ask(&self->child[2], 'W'));
	EXPECT_EQ(0, wrong(area, PAGES, 9));
	EXPECT_TRUE(all_say(self->child, 'R', 0));
}

#define GIGABYTE (1UL << 30)
#define SHARERS 16

struct hugetlb {
	char *area;		/* 1 GB, aligned to 1 GB; two pages of it are used */
	char *beside;		/* to make the next higher table */
};

/*
 * b: make the tables that it needs beside; t: touch two huge pages; c: wrong words; h:
 * HugetlbPages
 */
static long serve_hugetlb(char command, void *arg)
{
	struct hugetlb *h = arg;

	switch (command) {
	case 'b':
		*(volatile char *)h->beside = 1;
		return file_tables(getpid());
	case 't':
		*(volatile uint64_t *)(h->area + TABLE + 64) += 1;
		return *(volatile uint64_t *)h->area;
	case 'c':
		return *(volatile uint64_t *)(h->area + TABLE + 64);
	case 'h':
		return proc_sum(getpid(), "status", "HugetlbPages");
	}
	return -1;
}

struct seen {
	long grown_kb, sum_kb, hugetlb_kb, published, smaps_kb;
};

/* Sixteen processes use two huge pages of one gigabyte, which one table of PMDs maps. */
static int share_pmds(struct seen *seen)
{
	struct hugetlb h;
	struct helper child[SHARERS];
	int bad = 0, file = memfd_create("quire", 4 /* MFD_HUGETLB */);
	char *space = mmap(NULL, 4 * GIGABYTE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	h.area = (char *)(((unsigned long)space + 2 * GIGABYTE - 1) & ~(GIGABYTE - 1));
	h.beside = h.area - PAGE;
	if (file < 0 || space == MAP_FAILED || ftruncate(file, GIGABYTE) ||
	    mmap(h.area, GIGABYTE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
		 file, 0) == MAP_FAILED)
		return 1;
	memset(seen, 0, sizeof(*seen));
	seen->published = shm_number("stats/tables_published");
	*(uint64_t *)h.area = 7;
	for (int i = 0; i < SHARERS; i++)
		bad |= start_helper(&child[i], serve_hugetlb, &h) || ask(&child[i], 'b');
	seen->grown_kb = page_tables_kb();
	for (int i = 0; i < SHARERS; i++)
		bad |= ask(&child[i], 't') != 7;
	seen->grown_kb = page_tables_kb() - seen->grown_kb;
	for (int i = 0; i < SHARERS; i++)
		bad |= ask(&child[i], 'c') != SHARERS;
	seen->hugetlb_kb = serve_hugetlb('h', &h);
	for (int i = 0; i < SHARERS; i++)
		seen->sum_kb += ask(&child[i], 'h');
	seen->smaps_kb = smaps_of(child[SHARERS - 1].pid, h.area, "Shared_Hugetlb");
	for (int i = 0; i < SHARERS; i++)
		bad |= end_helper(&child[i]);
	bad |= *(uint64_t *)(h.area + TABLE + 64) != SHARERS;
	munmap(space, 4 * GIGABYTE);
	close(file);
	seen->published = shm_number("stats/tables_published") - seen->published;
	return bad;
}

/*
 * Runs in a process of its own: Linux subtracts pages that others faulted in from the account
 * of the process that unmaps them last.
 */
static int see(struct seen *seen)
{
	struct seen *there = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status = -1;
	pid_t pid = fork();

	if (!pid)
		_exit(share_pmds(there));
	waitpid(pid, &status, 0);
	*seen = *there;
	munmap(there, sizeof(*seen));
	return status;
}

/* Hugetlbfs shares and accounts for its tables as it does without quire. */
TEST(hugetlb_shares_by_itself)
{
	struct seen on, off;

	NEED_SHM_FEATURE();
	if (write_word("/proc/sys/vm/nr_hugepages", "4"))
		SKIP(return, "no hugetlbfs");
	EXPECT_EQ(0, see(&on));
	/* If each process had a table, they would take 64 kB. */
	EXPECT_GT(SHARERS * 4 / 2, on.grown_kb);
	EXPECT_EQ(2 * TABLE_KB, on.smaps_kb);
	EXPECT_LT(0, on.hugetlb_kb + on.sum_kb);
	EXPECT_EQ(0, on.published);
	ASSERT_EQ(0, write_word(SHM_FOLDER "enabled", "0"));
	EXPECT_EQ(0, see(&off));
	ASSERT_EQ(0, write_word(SHM_FOLDER "enabled", "1"));
	EXPECT_EQ(off.hugetlb_kb, on.hugetlb_kb);
	EXPECT_EQ(off.sum_kb, on.sum_kb);
	EXPECT_EQ(off.smaps_kb, on.smaps_kb);
	EXPECT_TRUE(tables_consistent());
	write_word("/proc/sys/vm/nr_hugepages", "0");
}

TEST_HARNESS_MAIN
