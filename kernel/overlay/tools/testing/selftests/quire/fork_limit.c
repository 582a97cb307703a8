// SPDX-License-Identifier: GPL-2.0
/*
 * A memory cgroup that is close to its limit, and two of its processes that share tables by
 * fork. Fork charges for the copies in advance, so no process is killed because another one
 * inspects it or because a process gives memory back. Inspection changes nothing.
 */
#define _GNU_SOURCE
#include <sys/syscall.h>

#include "harness.h"
#include "pagemap.h"
#define TOP "/sys/fs/cgroup/quire_fork_limit"
#include "cgroup.h"

#define TABLES 512
#define LEN (TABLES * TABLE)
/* There is no room for copies of all tables, but there is room for all else that the tests do. */
#define ROOM (TABLES * PAGE / 2)

static int to_child[2], from_child[2];

static char *page_of(char *area, int table)
{
	return area + table * TABLE + 64 * PAGE;
}

/*
 * Pages of kernel memory that the group is charged for, including tables and the charges for
 * tables' further users.
 */
static long kernel_pages(void)
{
	/* This read adds up what the CPUs have counted. */
	number_of("", "cpu.stat", "usage_usec");
	return number_of("", "memory.stat", "kernel") / (long)PAGE;
}

static bool near(long pages, long want)
{
	return pages > want - TABLES / 16 && pages < want + TABLES / 16;
}

/* The memory of a process that has ended is freed a moment later. */
static bool comes_near(long want)
{
	for (int i = 0; i < 20000 && !near(kernel_pages(), want); i++)
		usleep(10000);
	return near(kernel_pages(), want);
}

static long serve(char command, void *area);

static long start_child(char *area)
{
	pid_t pid = fork();

	if (!pid) {
		for (int fd = 3; fd < 64; fd++)
			if (fd != to_child[0] && fd != from_child[1])
				close(fd);
		serve_commands(to_child[0], from_child[1], serve, area);
	}
	close(to_child[0]);
	close(to_child[1]);
	close(from_child[0]);
	close(from_child[1]);
	return pid;
}

/* Drops or unmaps a page in each table; returns 0 if all went well. */
static long in_each(char command, char *area)
{
	for (int i = 0; i < TABLES; i++) {
		char *page = page_of(area, i);

		if (command == 'd' ? madvise(page, PAGE, MADV_DONTNEED) : munmap(page, PAGE))
			return -errno;
	}
	return 0;
}

/*
 * j: join the group; f: fill; k: fork the child; d, m: discard or unmap a page in each table;
 * u: unmap half of the tables; w: write to a quarter of the tables; p: protect; t: touch more
 */
static long serve(char command, void *area)
{
	char *more;

	switch (command) {
	case 'j':
		return write_word(TOP "/cgroup.procs", "0");
	case 'f':
		for (int i = 0; i < TABLES; i++)
			*((char *)area + i * TABLE) = 1;
		return 0;
	case 'k':
		return start_child(area);
	case 'd':
	case 'm':
		return in_each(command, area);
	case 'u':
		return munmap((char *)area + LEN / 2, LEN / 2);
	case 'w':
		for (int i = 0; i < TABLES / 4; i++)
			*((char *)area + i * TABLE) = 2;
		return 0;
	case 'p':
		return mprotect(page_of(area, 1) + PAGE, 32 * TABLE, PROT_READ);
	case 't':
		more = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		return more == MAP_FAILED ? -errno : (memset(more, 1, 16 * PAGE), 0);
	}
	return -1;
}

FIXTURE(fork_limit) {
	struct helper parent, child;
	long copied;
	char *area;
	bool killed;
};

FIXTURE_SETUP(fork_limit)
{
	char limit[32];

	NEED_FORK_FEATURE();
	signal(SIGPIPE, SIG_IGN);
	write_word("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	mkdir(TOP, 0755);
	if (access(TOP "/memory.max", W_OK))
		SKIP(return, "no memory controller");
	ASSERT_EQ(0, write_word(TOP "/memory.swap.max", "0"));
	self->area = map_tables(TABLES);
	ASSERT_NE(NULL, self->area);
	ASSERT_EQ(0, pipe(to_child));
	ASSERT_EQ(0, pipe(from_child));
	ASSERT_EQ(0, start_helper(&self->parent, serve, self->area));
	close(to_child[0]);
	close(from_child[1]);
	self->child.to = to_child[1];
	self->child.from = from_child[0];
	ASSERT_EQ(0, ask(&self->parent, 'j'));
	ASSERT_EQ(0, ask(&self->parent, 'f'));
	self->child.pid = ask(&self->parent, 'k');
	ASSERT_LT(0, self->child.pid);
	ASSERT_LE(TABLES, shared_tables(self->child.pid));
	snprintf(limit, sizeof(limit), "%ld", number_of("", "memory.current", NULL) + (long)ROOM);
	ASSERT_EQ(0, write_word(TOP "/memory.max", limit));
	self->copied = fork_stat("tables_copied");
}

FIXTURE_TEARDOWN(fork_limit)
{
	if (!self->killed) {
		EXPECT_EQ(0, number_of("", "memory.events", "oom_kill"));
		/* Both processes are alive and answer. */
		EXPECT_EQ(0, ask(&self->child, 't'));
		EXPECT_EQ(0, ask(&self->parent, 't'));
	}
	EXPECT_TRUE(tables_consistent());
	(void)!write(self->child.to, "q", 1);
	(void)!write(self->parent.to, "q", 1);
	while (wait(NULL) > 0)
		;
	EXPECT_TRUE(remove_group(""));
}

/* The highest "mapmax=" in the area's line of numa_maps; 1 if it has none, -1 without a line. */
static long map_max(pid_t pid, char *area)
{
	char path[64], want[32], line[512], *found;
	long max = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/numa_maps", pid);
	snprintf(want, sizeof(want), "%lx ", (unsigned long)area);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		if (strstr(line, want)) {
			found = strstr(line, "mapmax=");
			max = found ? strtol(found + 7, NULL, 10) : 1;
		}
	if (f)
		fclose(f);
	return max;
}

/* Returns how many pages of the area a scan finds present. */
static long scan(pid_t pid, char *area)
{
	static struct page_region regions[TABLES];
	struct pm_scan_arg arg = {
		.size = sizeof(arg), .start = (uintptr_t)area,
		.end = (uintptr_t)area + TABLES * TABLE, .vec = (uintptr_t)regions,
		.vec_len = TABLES, .category_mask = PAGE_IS_PRESENT,
		.return_mask = PAGE_IS_PRESENT,
	};
	char path[64];
	long pages;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", pid);
	fd = open(path, O_RDONLY);
	pages = ioctl(fd, PAGEMAP_SCAN, &arg);
	close(fd);
	return pages;
}

/* Asks for the node of one page in each table; returns how many pages have one. */
static long ask_nodes(pid_t pid, char *area)
{
	long found = 0;

	for (int i = 0; i < TABLES; i++) {
		void *page = area + i * TABLE;
		int status = -1;

		syscall(SYS_move_pages, pid, 1UL, &page, NULL, &status, 0);
		found += status >= 0;
	}
	return found;
}

TEST_SLOW(fork_limit, looking_changes_nothing)
{
	long walks = fork_stat("unshared_walk"), shared = shared_tables(self->child.pid);
	long pages = kernel_pages();

	EXPECT_EQ(2, map_max(self->child.pid, self->area));
	EXPECT_EQ(TABLES, scan(self->child.pid, self->area));
	EXPECT_EQ(TABLES, ask_nodes(self->child.pid, self->area));
	EXPECT_EQ(shared, shared_tables(self->child.pid));
	EXPECT_EQ(self->copied, fork_stat("tables_copied"));
	EXPECT_EQ(walks, fork_stat("unshared_walk"));
	EXPECT_TRUE(near(kernel_pages(), pages));
}

TEST_SLOW(fork_limit, looking_kills_nobody)
{
	long pages = kernel_pages();
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/clear_refs", self->child.pid);
	/* Clearing accessed bits works in place; clearing dirty bits copies the tables. */
	EXPECT_EQ(0, write_word(path, "1"));
	EXPECT_EQ(self->copied, fork_stat("tables_copied"));
	EXPECT_EQ(0, write_word(path, "4"));
	EXPECT_LE(self->copied + TABLES, fork_stat("tables_copied"));
	EXPECT_EQ(0, number_of("", "memory.events", "max"));
	EXPECT_TRUE(near(kernel_pages(), pages));
}

TEST_SLOW(fork_limit, discarding_kills_nobody)
{
	EXPECT_EQ(0, ask(&self->child, 'd'));
	EXPECT_LE(self->copied + TABLES, fork_stat("tables_copied"));
}

TEST_SLOW(fork_limit, unmapping_kills_nobody)
{
	EXPECT_EQ(0, ask(&self->child, 'm'));
	EXPECT_LE(self->copied + TABLES, fork_stat("tables_copied"));
}

TEST_SLOW(fork_limit, protecting_kills_nobody)
{
	EXPECT_EQ(0, ask(&self->child, 'd'));
	EXPECT_EQ(0, ask(&self->parent, 'p'));
}

/*
 * The group is charged for as many tables as if nothing were shared, whatever the tables' users
 * do.
 */
TEST_SLOW(fork_limit, charge_goes_by_users)
{
	long pages = kernel_pages();

	EXPECT_EQ(0, ask(&self->child, 'w'));
	EXPECT_TRUE(near(kernel_pages(), pages));
	EXPECT_EQ(0, ask(&self->child, 'u'));
	EXPECT_TRUE(comes_near(pages - TABLES / 2));
	EXPECT_EQ(1, write(self->child.to, "q", 1));
	EXPECT_TRUE(comes_near(pages - TABLES));
	EXPECT_EQ(0, ask(&self->parent, 'w'));
	EXPECT_TRUE(near(kernel_pages(), pages - TABLES));
	/* The end of the test asks a child. */
	self->child = self->parent;
}

/*
 * Without room for the charge, fork does not share tables. There is no room for the copies
 * either, as in Linux.
 */
TEST_SLOW(fork_limit, fork_without_room)
{
	long refused = fork_stat("refused_limit");

	EXPECT_EQ(0, write_word(TOP "/memory.oom.group", "1"));
	EXPECT_EQ(-1, ask(&self->parent, 'k'));
	EXPECT_LT(refused, fork_stat("refused_limit"));
	EXPECT_TRUE(counts("", "oom_kill"));
	self->killed = true;
}

TEST_HARNESS_MAIN
