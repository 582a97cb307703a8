// SPDX-License-Identifier: GPL-2.0
/*
 * Large folios whose pages shared page tables map one by one: huge pages whose PMD was split
 * before the fork, and folios of 64 kB. Also khugepaged, which collapses a process's private
 * tables and never a shared one.
 */
#define _GNU_SOURCE
#include "harness.h"
#include "compat.h"
#define TOP "/sys/fs/cgroup/quire_fork_huge"
#include "cgroup.h"

#define TABLES 3
#define PAGES (TABLES * SLOTS)
#define LEN (TABLES * TABLE)
#define THP "/sys/kernel/mm/transparent_hugepage/"
#define SIZE_64K THP "hugepages-64kB/enabled"
#define SPLIT "/sys/kernel/debug/split_huge_pages"

/* Counts those of an area's first @pages pages that belong to a large folio. */
static unsigned long in_large_folios(const char *area, unsigned long pages)
{
	int map = open("/proc/self/pagemap", O_RDONLY), all = open("/proc/kpageflags", O_RDONLY);
	static uint64_t entries[PAGES];
	unsigned long n = 0;

	if (pread(map, entries, pages * 8, (uintptr_t)area / PAGE * 8) != (ssize_t)(pages * 8))
		pages = 0;
	for (unsigned long i = 0; i < pages; i++) {
		uint64_t flags = 0, pfn = entries[i] & ((1ull << 55) - 1);

		/* KPF_COMPOUND_HEAD and KPF_COMPOUND_TAIL */
		if (entries[i] >> 63 && pread(all, &flags, 8, pfn * 8) == 8)
			n += !!(flags & (1 << 15 | 1 << 16));
	}
	close(map);
	close(all);
	return n;
}

/* Replaces one page of each huge page, so that no huge page is mapped as a whole. */
static bool fill_huge(char *area)
{
	if (madvise(area, LEN, MADV_HUGEPAGE))
		return false;
	fill(area, PAGES, 1);
	if (smaps_of(getpid(), area, "AnonHugePages") != LEN / 1024)
		return false;
	for (unsigned long i = 3; i < PAGES; i += SLOTS)
		if (madvise(area + i * PAGE, PAGE, MADV_DONTNEED))
			return false;
	fill(area, PAGES, 7);
	return !smaps_of(getpid(), area, "AnonHugePages");
}

static bool fill_64k(char *area)
{
	if (madvise(area, LEN, MADV_NOHUGEPAGE) || madvise(area, LEN, MADV_HUGEPAGE) ||
	    write_word(THP "enabled", "never") || write_word(SIZE_64K, "always"))
		return false;
	fill(area, PAGES, 7);
	return !write_word(SIZE_64K, "never") && !write_word(THP "enabled", "madvise");
}

/* Drops half of a table's pages. The range begins and ends in the middle of a 64 kB folio. */
static bool drop_half(char *area)
{
	char *from = area + TABLE + 8 * PAGE;

	if (madvise(from, TABLE / 2, MADV_DONTNEED))
		return false;
	for (unsigned long i = 0; i < SLOTS / 2; i++)
		if (*(uint64_t *)(from + i * PAGE))
			return false;
	return !wrong(area, SLOTS + 8, 7) &&
	       *(uint64_t *)(from + TABLE / 2) == word_for(SLOTS + 8 + SLOTS / 2, 7);
}

/*
 * Pins a page. pin_holds() then checks that the pin shows what this process writes, and nothing
 * else.
 */
static int pinned_fd = -1;

static long pin_page(char *page)
{
	struct pin_longterm_test pin = { (uintptr_t)page, PAGE, PIN_FLAG_WRITE | PIN_FLAG_FAST };

	pinned_fd = open(GUP_TEST, O_RDWR);
	return pinned_fd < 0 ? -1 : ioctl(pinned_fd, PIN_START, &pin);
}

static long pin_holds(char *page, uint64_t word)
{
	uint64_t seen[PAGE / 8], to = (uintptr_t)seen;

	if (ioctl(pinned_fd, PIN_READ, &to) || seen[0] != word)
		return 1;
	*(uint64_t *)page = ~word;
	if (ioctl(pinned_fd, PIN_READ, &to) || seen[0] != ~word)
		return 2;
	*(uint64_t *)page = word;
	return ioctl(pinned_fd, PIN_STOP);
}

static long serve(char command, void *arg)
{
	char *area = arg, *page = area + TABLE + 100 * PAGE;

	switch (command) {
	case 'r':
		return wrong(area, PAGES, 7);
	case 'W':
		fill(area, PAGES, 3);
		return wrong(area, PAGES, 3);
	case 's':
		return shared_tables(getpid());
	case 'd':
		return !drop_half(area);
	case 'p':
		return pin_page(page);
	case 'P':
		return pin_holds(page, word_for(SLOTS + 100, 7));
	case 't':
		for (unsigned long i = 0; i < PAGES; i += SLOTS)
			*(volatile uint64_t *)(area + i * PAGE) = word_for(i, 7);
		return 0;
	case 'c':
		return madvise(area, LEN, MADV_COLLAPSE) ? -errno : 0;
	case 'h':
		return smaps_of(getpid(), area, "AnonHugePages");
	}
	return -1;
}

FIXTURE(fork_huge) {
	char *area;
	struct helper child;
};

FIXTURE_VARIANT(fork_huge) {
	bool (*fill)(char *area);
};
FIXTURE_VARIANT_ADD(fork_huge, pte_mapped_2m) { .fill = fill_huge };
FIXTURE_VARIANT_ADD(fork_huge, folios_of_64k) { .fill = fill_64k };

FIXTURE_SETUP(fork_huge)
{
	NEED_FORK_FEATURE();
	if (access(SIZE_64K, W_OK))
		SKIP(return, "no transparent huge pages");
	write_word("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	mkdir(TOP, 0755);
	ASSERT_EQ(0, write_word(TOP "/cgroup.procs", "0"));
	self->area = map_tables(TABLES);
	ASSERT_NE(NULL, self->area);
	ASSERT_TRUE(variant->fill(self->area));
	ASSERT_LE(PAGES - TABLES, in_large_folios(self->area, PAGES));
	ASSERT_EQ(0, start_helper(&self->child, serve, self->area));
	ASSERT_LE(TABLES, ask(&self->child, 's'));
	ASSERT_LE(TABLES, shared_tables(getpid()));
}

FIXTURE_TEARDOWN(fork_huge)
{
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, finish(&self->child));
	EXPECT_TRUE(tables_consistent());
	write_word("/sys/fs/cgroup/cgroup.procs", "0");
	rmdir(TOP);
}

TEST_SLOW(fork_huge, both_write)
{
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	fill(self->area, PAGES, 5);
	EXPECT_EQ(0, wrong(self->area, PAGES, 5));
}

TEST_SLOW(fork_huge, parent_writes_first)
{
	fill(self->area, PAGES, 5);
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 5));
}

TEST_SLOW(fork_huge, child_pins)
{
	if (access(GUP_TEST, F_OK))
		SKIP(return, "no gup_test");
	ASSERT_EQ(0, ask(&self->child, 'p'));
	fill(self->area, PAGES, 5);
	EXPECT_EQ(0, ask(&self->child, 'P'));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 5));
}

/* Only the tables that map pinned folios are copied. */
TEST_SLOW(fork_huge, parent_pins_and_forks)
{
	char *page = self->area + TABLE + 100 * PAGE;
	long refused = fork_stat("refused_pinned");
	struct helper other;

	if (pin_page(page))
		SKIP(return, "no gup_test");
	ASSERT_EQ(0, start_helper(&other, serve, self->area));
	EXPECT_LT(refused, fork_stat("refused_pinned"));
	EXPECT_LE(TABLES - 1, ask(&other, 's'));
	EXPECT_EQ(0, ask(&other, 'W'));
	EXPECT_EQ(0, pin_holds(page, word_for(SLOTS + 100, 7)));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_EQ(0, finish(&other));
	close(pinned_fd);
}

TEST_SLOW(fork_huge, half_is_discarded)
{
	EXPECT_EQ(0, ask(&self->child, 'd'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_TRUE(tables_consistent());
	EXPECT_TRUE(drop_half(self->area));
	EXPECT_EQ((long)SLOTS / 2, ask(&self->child, 'r'));
}

/*
 * Splitting a process's folios first gives the process private tables; the other process's
 * tables map the same pages.
 */
TEST_SLOW(fork_huge, folios_are_split)
{
	char word[80];

	snprintf(word, sizeof(word), "%d,0x%lx,0x%lx", getpid(), (long)self->area,
		 (long)self->area + LEN);
	if (write_word(SPLIT, word))
		SKIP(return, "no split_huge_pages");
	EXPECT_EQ(0, in_large_folios(self->area, PAGES));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
}

/* The reverse map finds the folios, and splits or unmaps them through the shared table. */
TEST_SLOW(fork_huge, swapped_out)
{
	ASSERT_EQ(0, make_swap());
	EXPECT_TRUE(swap_out(self->area, LEN));
	EXPECT_LE(LEN / 1024 * 3 / 4, smaps_of(self->child.pid, self->area, "Swap"));
	EXPECT_LE(TABLES - 1, shared_tables(getpid()));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_EQ(0, swapoff(SWAP));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
}

/*
 * The folio is split and the page is moved in place, for both processes; the tables stay
 * shared.
 */
TEST_SLOW(fork_huge, page_goes_offline)
{
	char *page = self->area + TABLE + 100 * PAGE;
	uint64_t was = pagemap_entry(page);

	ASSERT_EQ(1, in_large_folios(page, 1));
	if (madvise(page, PAGE, MADV_SOFT_OFFLINE))
		SKIP(return, "no MADV_SOFT_OFFLINE");
	EXPECT_NE(was, pagemap_entry(page));
	EXPECT_EQ(0, in_large_folios(page, 1));
	EXPECT_LE(TABLES, shared_tables(getpid()));
	EXPECT_LE(TABLES, ask(&self->child, 's'));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
}

/* khugepaged's knobs; with these values it scans every process, without delay. */
static const char * const knobs[][2] = {
	{ THP "khugepaged/scan_sleep_millisecs", "1" },
	{ THP "khugepaged/alloc_sleep_millisecs", "1" },
	{ THP "khugepaged/pages_to_scan", "100000" },
	{ THP "khugepaged/max_ptes_shared", "511" },
};
#define KNOBS (sizeof(knobs) / sizeof(knobs[0]))

FIXTURE(khugepaged) {
	char *area;
	struct helper child;
	char was[KNOBS][32];
};

FIXTURE_SETUP(khugepaged)
{
	size_t i;

	NEED_FORK_FEATURE();
	for (i = 0; i < KNOBS; i++) {
		int fd = open(knobs[i][0], O_RDWR);

		if (fd < 0 || read(fd, self->was[i], sizeof(self->was[i]) - 1) <= 0)
			SKIP(return, "no khugepaged");
		close(fd);
	}
	self->area = map_tables(TABLES);
	ASSERT_NE(NULL, self->area);
	fill(self->area, PAGES, 7);
	ASSERT_EQ(0, start_helper(&self->child, serve, self->area));
	ASSERT_LE(TABLES, ask(&self->child, 's'));
}

FIXTURE_TEARDOWN(khugepaged)
{
	for (size_t i = 0; i < KNOBS; i++)
		write_word(knobs[i][0], self->was[i]);
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, finish(&self->child));
	EXPECT_TRUE(tables_consistent());
}

static long number_in(const char *path)
{
	FILE *f = fopen(path, "r");
	long value = -1;

	if (f && fscanf(f, "%ld", &value) != 1)
		value = -1;
	if (f)
		fclose(f);
	return value;
}

/* Waits until khugepaged has scanned all of every process, from now on. */
static bool passes(void)
{
	long end = number_in(THP "khugepaged/full_scans") + 3;

	for (int i = 0; i < 60000; i++) {
		if (number_in(THP "khugepaged/full_scans") >= end)
			return true;
		usleep(1000);
	}
	return false;
}

/* khugepaged skips a shared table, and collapses one that only its process uses. */
TEST_SLOW(khugepaged, scans)
{
	size_t i;

	ASSERT_EQ(0, madvise(self->area, LEN, MADV_HUGEPAGE));
	for (i = 0; i < KNOBS; i++)
		ASSERT_EQ(0, write_word(knobs[i][0], knobs[i][1]));
	ASSERT_TRUE(passes());
	EXPECT_LE(TABLES, shared_tables(getpid()));
	EXPECT_EQ(0, smaps_of(getpid(), self->area, "AnonHugePages"));
	/* At least one entry must be writable. */
	EXPECT_EQ(0, serve('t', self->area));
	ASSERT_TRUE(passes());
	EXPECT_EQ((long)LEN / 1024, smaps_of(getpid(), self->area, "AnonHugePages"));
	EXPECT_EQ(0, smaps_of(self->child.pid, self->area, "AnonHugePages"));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	fill(self->area, PAGES, 5);
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 5));
}

/*
 * Each process makes the call in turn. MADV_COLLAPSE unshares the table in any case, and then
 * needs a writable entry, which a copied table does not have.
 */
static void collapse(struct __test_metadata *_metadata, FIXTURE_DATA(khugepaged) *self,
		     bool child_first)
{
	long unshared = fork_stat("unshared_syscall");

	EXPECT_EQ(-EINVAL, child_first ? ask(&self->child, 'c') : serve('c', self->area));
	EXPECT_LE(unshared + TABLES, fork_stat("unshared_syscall"));
	for (int i = 0; i < 2; i++) {
		bool child = child_first == !i;

		EXPECT_EQ(0, child ? ask(&self->child, 't') : serve('t', self->area));
		EXPECT_EQ(0, child ? ask(&self->child, 'c') : serve('c', self->area));
		EXPECT_EQ((long)LEN / 1024,
			  child ? ask(&self->child, 'h') : serve('h', self->area));
		EXPECT_TRUE(tables_consistent());
		EXPECT_EQ(0, ask(&self->child, 'r'));
		EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	}
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
}

TEST_SLOW(khugepaged, collapse_in_child_first) { collapse(_metadata, self, true); }
TEST_SLOW(khugepaged, collapse_in_parent_first) { collapse(_metadata, self, false); }

/* The owner adopts the tables, whose entries are still writable. */
TEST_SLOW(khugepaged, collapse_after_the_child)
{
	long adopted = fork_stat("tables_adopted");

	EXPECT_EQ(0, finish(&self->child));
	EXPECT_EQ(0, serve('c', self->area));
	EXPECT_LE(adopted + TABLES, fork_stat("tables_adopted"));
	EXPECT_EQ((long)LEN / 1024, serve('h', self->area));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	/* The teardown ends a child. */
	ASSERT_EQ(0, start_helper(&self->child, serve, self->area));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
}

TEST_HARNESS_MAIN
