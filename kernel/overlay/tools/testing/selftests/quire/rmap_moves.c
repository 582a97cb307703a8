// SPDX-License-Identifier: GPL-2.0
/*
 * Fork while another process changes the entries of the parent's pages. An entry that is being
 * replaced is empty for a moment, and the child must have its page all the same. Small areas
 * are most at risk, because fork checks whether they have any page.
 */
#define _GNU_SOURCE
#include <linux/mempolicy.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "harness.h"
#include "rmap_common.h"

#define HUGE_PAGES 512
#define MOST_AREAS 400
#define MOST_PAGES 2000
#define KSM "/sys/kernel/mm/ksm/"
#define GROUP "/sys/fs/cgroup/rmap_moves/"
/* A page that is offline is lost until the next boot. */
#define MOST_OFFLINE 300

/*
 * The kinds of areas, and how many there are of each: those with a single page are most at
 * risk.
 */
static const struct {
	unsigned int pages;
	bool writable, file;
	int nr;
} kinds[] = {
	{ 1, false, false, 200 }, { 1, false, true, 60 }, { 1, true, false, 16 },
	{ 8, false, false, 8 }, { 9, false, false, 8 },
	{ HUGE_PAGES, true, false, 1 }, { HUGE_PAGES, false, false, 1 },
};

static struct area {
	char *at;
	unsigned int pages;
	bool writable;
	uint64_t round;
} areas[MOST_AREAS];
static unsigned int nr_areas, nr_pages;
static void *pages[MOST_PAGES];
/* Use few contents, so that KSM finds pages that are alike. */
static bool alike;

static uint64_t wanted(const struct area *area, unsigned int page)
{
	return alike ? 1 + page % 4 + area->round % 2 : 1000 * area->round + (area - areas) + page;
}

/* How many pages have the wrong contents? */
static int wrong(void)
{
	int n = 0;

	for (struct area *area = areas; area < areas + nr_areas; area++)
		for (unsigned int i = 0; i < area->pages; i++)
			n += *word(area->at, i) != wanted(area, i);
	return n;
}

static void write_all(struct area *area)
{
	for (unsigned int i = 0; i < area->pages; i++)
		*word(area->at, i) = wanted(area, i);
}

/* Makes an area between two inaccessible pages, so that it is not merged with others. */
static bool make_area(unsigned int kind, int file)
{
	struct area *area = &areas[nr_areas];
	size_t len = kinds[kind].pages * PAGE, align = len > 9 * PAGE ? len : PAGE;
	char *at = mmap(NULL, len + 2 * align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return false;
	at = (char *)(((unsigned long)at + align) & ~(align - 1));
	if (mmap(at, len, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_FIXED | (kinds[kind].file ? 0 : MAP_ANONYMOUS),
		 kinds[kind].file ? file : -1, 0) == MAP_FAILED)
		return false;
	madvise(at, len, alike ? MADV_MERGEABLE : align > PAGE ? MADV_HUGEPAGE : MADV_NORMAL);
	*area = (struct area) { at, kinds[kind].pages, kinds[kind].writable, nr_areas };
	write_all(area);
	for (unsigned int i = 0; i < area->pages; i++)
		pages[nr_pages++] = word(at, i);
	nr_areas++;
	return kinds[kind].writable || !mprotect(at, len, PROT_READ);
}

static bool make_areas(void)
{
	int file = open("/proc/self/exe", O_RDONLY);
	bool good = file >= 0;

	nr_areas = nr_pages = 0;
	for (unsigned int kind = 0; kind < ARRAY_SIZE(kinds); kind++)
		for (int i = 0; good && i < kinds[kind].nr; i++)
			good = make_area(kind, file);
	close(file);
	return good;
}

static void unmap_areas(void)
{
	for (struct area *area = areas; area < areas + nr_areas; area++)
		munmap(area->at, area->pages * PAGE);
}

/* These disturb the parent. Each runs in a child of the parent, and is killed at the end. */

static void migrate(pid_t owner)
{
	static int nodes[MOST_PAGES], status[MOST_PAGES];

	for (unsigned int round = 1;; round++) {
		/* Move the large areas, which are last, only now and then. */
		unsigned int nr = round % 8 ? nr_pages - 2 * HUGE_PAGES : nr_pages;

		for (unsigned int i = 0; i < nr; i++)
			nodes[i] = round % 2;
		syscall(SYS_move_pages, owner, nr, pages, nodes, status, MPOL_MF_MOVE_ALL);
	}
}

static void reclaim(pid_t owner)
{
	for (;;)
		write_text(GROUP "memory.reclaim", "16M swappiness=200");
}

static void compact(pid_t owner)
{
	for (;;)
		write_text("/proc/sys/vm/compact_memory", "1");
}

/* The kernel's thread merges pages. */
static void merge(pid_t owner)
{
	pause();
}

static void collapse_and_split(pid_t owner)
{
	int pidfd = syscall(SYS_pidfd_open, owner, 0);
	char range[64];

	for (;;)
		for (struct area *area = areas; area < areas + nr_areas; area++) {
			struct iovec all = { area->at, area->pages * PAGE };

			if (area->pages < HUGE_PAGES)
				continue;
			syscall(440 /* process_madvise */, pidfd, &all, 1, MADV_COLLAPSE, 0);
			snprintf(range, sizeof(range), "%d,0x%lx,0x%lx,0", owner,
				 (unsigned long)area->at, (unsigned long)area->at + all.iov_len);
			write_text("/sys/kernel/debug/split_huge_pages", range);
		}
}

static void soft_offline(pid_t owner)
{
	for (unsigned int i = 0; i < nr_pages && i < MOST_OFFLINE; i++)
		madvise(pages[i], PAGE, MADV_SOFT_OFFLINE);
	pause();
}

FIXTURE(moves) {
	long enabled;
	pid_t disturber;
};

FIXTURE_VARIANT(moves) {
	void (*disturb)(pid_t owner);
	int forks;
	const char *file, *counter;	/* tells that it has done something */
	const char *needs;
};

#define VARIANT(name, ...) FIXTURE_VARIANT_ADD(moves, name) { .disturb = name, __VA_ARGS__ }

VARIANT(migrate, .forks = 240, .file = "/proc/vmstat", .counter = "pgmigrate_success ",
	.needs = "/sys/devices/system/node/node1");
VARIANT(reclaim, .forks = 60, .file = "/proc/vmstat", .counter = "pswpout ",
	.needs = "/sys/fs/cgroup/cgroup.subtree_control");
VARIANT(compact, .forks = 40, .file = "/proc/vmstat", .counter = "pgmigrate_success ",
	.needs = "/proc/sys/vm/compact_memory");
VARIANT(merge, .forks = 40, .file = "/proc/vmstat", .counter = "cow_ksm ", .needs = KSM "run");
VARIANT(collapse_and_split, .forks = 40, .file = "/proc/vmstat", .counter = "thp_split_page ",
	.needs = "/sys/kernel/debug/split_huge_pages");
VARIANT(soft_offline, .forks = 40, .file = "/proc/meminfo", .counter = "HardwareCorrupted:",
	.needs = "/proc/meminfo");

FIXTURE_SETUP(moves)
{
	self->enabled = read_number(RMAP "enabled");
	if (self->enabled < 0)
		SKIP(return, "no rmap feature in this kernel");
	mount_debugfs();
	if (access(variant->needs, F_OK))
		SKIP(return, "no %s", variant->needs);
	ASSERT_TRUE(rmap_begin());
	alike = variant->disturb == merge;
	if (alike) {
		ASSERT_EQ(0, write_text(KSM "pages_to_scan", "2000"));
		ASSERT_EQ(0, write_text(KSM "sleep_millisecs", "1"));
		ASSERT_EQ(0, write_text(KSM "run", "1"));
	} else if (variant->disturb == reclaim) {
		ASSERT_TRUE(have_swap());
		write_text("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
		mkdir(GROUP, 0755);
		ASSERT_EQ(0, write_text(GROUP "cgroup.procs", "0"));
	}
	ASSERT_TRUE(make_areas());
	self->disturber = fork();
	ASSERT_LE(0, self->disturber);
	if (!self->disturber) {
		variant->disturb(getppid());
		_exit(1);
	}
}

FIXTURE_TEARDOWN(moves)
{
	if (self->disturber > 0) {
		kill(self->disturber, SIGKILL);
		waitpid(self->disturber, NULL, 0);
	}
	if (variant->disturb == merge) {
		EXPECT_EQ(0, write_text(KSM "run", "2"));
		EXPECT_EQ(0, write_text(KSM "run", "0"));
	}
	if (variant->disturb == reclaim) {
		write_text("/sys/fs/cgroup/cgroup.procs", "0");
		rmdir(GROUP);
	}
	EXPECT_TRUE(rmap_end(self->enabled));
}

/* Changes some of the contents. For compaction, maps new pages, which it has not moved yet. */
static bool change(int round, bool afresh)
{
	if (afresh) {
		unmap_areas();
		return make_areas();
	}
	for (struct area *area = areas; area < areas + nr_areas; area++) {
		if (!area->writable || (area - areas + round) % 4)
			continue;
		area->round++;
		write_all(area);
	}
	return true;
}

/* A fork takes many times as long on a kernel with checkers. */
static int fewer_if_slow(int forks)
{
	return access("/sys/kernel/debug/kmemleak", F_OK) ? forks : forks / 4;
}

TEST_F(moves, child_has_every_page)
{
	long before = field(variant->file, variant->counter);
	int forks = fewer_if_slow(variant->forks), status, bad = 0;

	/*
	 * Fork as often as it takes until the disturber has done something, and at least @forks
	 * times.
	 */
	for (int i = 0; i < forks || field(variant->file, variant->counter) <= before; i++) {
		pid_t pid = fork();

		ASSERT_LE(0, pid);
		if (!pid)
			_exit(wrong() != 0);
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		bad += status != 0;
		bad += wrong() != 0;
		ASSERT_TRUE(change(i, variant->disturb == compact && i % 16 == 15));
	}
	EXPECT_EQ(0, bad);
}

/* Moves all pages that a process may only read, such as RELRO. Returns how many there were. */
static int move_read_only(pid_t pid, int node)
{
	static void *found[4096];
	static int nodes[4096], status[4096];
	unsigned long from, to;
	char path[32], line[512], may[8];
	FILE *maps;
	int n = 0;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "r");
	while (maps && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx %7s", &from, &to, may) != 3 || strcmp(may, "r--p") ||
		    to - from > 32 * PAGE)
			continue;
		for (; from < to && n < 4096; from += PAGE, n++) {
			found[n] = (void *)from;
			nodes[n] = node;
		}
	}
	if (maps)
		fclose(maps);
	syscall(SYS_move_pages, pid, n, found, nodes, status, MPOL_MF_MOVE_ALL);
	return n;
}

/* The address tables of a program and its libraries are small areas of one or a few pages. */
TEST(relro_of_a_shell)
{
	long enabled = read_number(RMAP "enabled");
	int status = -1, most = 0;
	char forks[16];
	pid_t shell;

	if (enabled < 0)
		SKIP(return, "no rmap feature in this kernel");
	if (access("/sys/devices/system/node/node1", F_OK))
		SKIP(return, "one node only");
	ASSERT_TRUE(rmap_begin());
	snprintf(forks, sizeof(forks), "%d", fewer_if_slow(240));
	shell = fork();
	ASSERT_LE(0, shell);
	if (!shell) {
		execl("/bin/sh", "sh", "-c", "i=0; while [ $i -lt $0 ]; do"
		      " (true) && x=$(echo) || exit 1; i=$((i + 1)); done", forks, NULL);
		_exit(99);
	}
	for (int node = 1; !waitpid(shell, &status, WNOHANG); node = !node) {
		int n = move_read_only(shell, node);

		most = n > most ? n : most;
	}
	EXPECT_EQ(0, status);
	EXPECT_GT(most, 3);
	EXPECT_TRUE(rmap_end(enabled));
}

TEST_HARNESS_MAIN
