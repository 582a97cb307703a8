// SPDX-License-Identifier: GPL-2.0
/*
 * What is counted while processes share the page tables of shared memory: tables, faults, swap.
 * Also, that the events in a table's life can be traced.
 */
#define _GNU_SOURCE
#include <sys/stat.h>

#include "harness.h"
#include "shm_test.h"

#define TABLES 4
#define PAGES (TABLES * SLOTS)
#define LEN (TABLES * TABLE)
#define CHILDREN 3
#define GROUP "/sys/fs/cgroup/quire_shm_numbers"
#define TRACING "/sys/kernel/tracing/"

static char *area;

/* r: pages that are wrong; f: faults of that, or -1; l: the same, again and again; s: tables */
static long serve(char command, void *arg)
{
	long before, bad = 0;

	switch (command) {
	case 'r':
		return wrong(area, PAGES, 7);
	case 'f':
		before = faults() + major_faults();
		return wrong(area, PAGES, 7) ? -1 : faults() + major_faults() - before;
	case 'l':
		for (int i = 0; i < 20; i++)
			bad += wrong(area, PAGES, 7);
		return bad;
	case 's':
		return file_tables(getpid());
	}
	return -1;
}

FIXTURE(swap) {
	struct helper child[CHILDREN];
	long tables;
};

FIXTURE_SETUP(swap)
{
	int fd;

	NEED_SHM_FEATURE();
	self->tables = shm_number("tables");
	ASSERT_EQ(0, make_swap());
	write_word("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	mkdir(GROUP, 0755);
	ASSERT_EQ(0, write_word(GROUP "/cgroup.procs", "0"));
	fd = memfd_create("quire", 0);
	ASSERT_EQ(0, ftruncate(fd, LEN));
	area = map_file(fd, TABLES, PROT_READ | PROT_WRITE);
	ASSERT_NE(NULL, area);
	close(fd);
	fill(area, PAGES, 7);
	for (int i = 0; i < CHILDREN; i++) {
		ASSERT_EQ(0, start_helper(&self->child[i], serve, NULL));
		ASSERT_EQ(0, ask(&self->child[i], 'r'));
		ASSERT_EQ(TABLES, ask(&self->child[i], 's'));
	}
	ASSERT_EQ(self->tables + TABLES, shm_number("tables"));
	ASSERT_TRUE(push_out(GROUP "/memory.reclaim", area, PAGES, 0));
	ASSERT_EQ(LEN / 1024, smaps_of(getpid(), area, "Swap"));
}

FIXTURE_TEARDOWN(swap)
{
	EXPECT_TRUE(tables_consistent());
	for (int i = 0; i < CHILDREN; i++)
		EXPECT_EQ(0, end_helper(&self->child[i]));
	munmap(area, LEN);
	swapoff(SWAP);
	write_word("/sys/fs/cgroup/cgroup.procs", "0");
	rmdir(GROUP);
	write_word("/sys/block/zram0/reset", "1");
	EXPECT_EQ(self->tables, shm_number("tables"));
}

/*
 * One process faults it all in: then the swap slots are free, and the others have nothing left
 * to do.
 */
TEST_SLOW(swap, in_once_for_all)
{
	EXPECT_LE((long)TABLES, ask(&self->child[0], 'f'));
	EXPECT_EQ(0, smaps_of(getpid(), area, "Swap"));
	for (int i = 1; i < CHILDREN; i++) {
		long took = ask(&self->child[i], 'f');

		EXPECT_LE(0, took);
		EXPECT_GE(TABLES + 2, took);
		EXPECT_EQ(TABLES, ask(&self->child[i], 's'));
	}
	EXPECT_EQ(0, wrong(area, PAGES, 7));
	EXPECT_EQ(TABLES, file_tables(getpid()));
}

/* All processes read while the swap device that holds the pages is switched off. */
TEST_SLOW(swap, swapoff_beside_readers)
{
	char loop = 'l';
	long answer;

	for (int i = 0; i < CHILDREN; i++)
		ASSERT_EQ(1, write(self->child[i].to, &loop, 1));
	EXPECT_EQ(0, swapoff(SWAP));
	for (int i = 0; i < CHILDREN; i++) {
		answer = -1;
		ASSERT_EQ(sizeof(answer), read(self->child[i].from, &answer, sizeof(answer)));
		EXPECT_EQ(0, answer);
		EXPECT_EQ(TABLES, ask(&self->child[i], 's'));
	}
	EXPECT_EQ(0, wrong(area, PAGES, 7));
	EXPECT_EQ(0, smaps_of(getpid(), area, "Swap"));
}

/* m: map it for reading only; p: the process's share of it, in kB */
static long serve_share(char command, void *arg)
{
	switch (command) {
	case 'm':
		return munmap(area, LEN) || !(area = map_file(*(int *)arg, TABLES, PROT_READ));
	case 'n':
		return write_word("/proc/self/quire", "0");
	case 'r':
		return wrong(area, PAGES, 7);
	case 's':
		return file_tables(getpid());
	case 'p':
		return smaps_of(getpid(), area, "Pss");
	}
	return -1;
}

/*
 * Two processes write through one table, two read through another, one has its own: the shares
 * add up.
 */
TEST(shares_add_up)
{
	int fd = memfd_create("quire", 0);
	struct helper child[4];
	long sum;

	NEED_SHM_FEATURE();
	ASSERT_EQ(0, ftruncate(fd, LEN));
	area = map_file(fd, TABLES, PROT_READ | PROT_WRITE);
	ASSERT_NE(NULL, area);
	fill(area, PAGES, 7);
	for (int i = 0; i < 4; i++)
		ASSERT_EQ(0, start_helper(&child[i], serve_share, &fd));
	for (int i = 1; i < 3; i++)
		ASSERT_EQ(0, ask(&child[i], 'm'));
	ASSERT_EQ(0, ask(&child[3], 'n'));
	for (int i = 0; i < 4; i++) {
		ASSERT_EQ(0, ask(&child[i], 'r'));
		ASSERT_EQ(i < 3 ? TABLES : 0, ask(&child[i], 's'));
	}
	sum = smaps_of(getpid(), area, "Pss");
	EXPECT_EQ(sum, ask(&child[0], 'p'));
	for (int i = 0; i < 4; i++)
		sum += ask(&child[i], 'p');
	/* Each is rounded down. */
	EXPECT_GE((long)LEN / 1024, sum);
	EXPECT_LE((long)LEN / 1024 - 8, sum);
	for (int i = 0; i < 4; i++)
		EXPECT_EQ(0, end_helper(&child[i]));
	munmap(area, LEN);
	close(fd);
}

#define SHARERS 16
#define MANY 32
#define MANY_KB (MANY * 4L)

/* b: have the tables above made; t: touch a page of each table; p: kB of tables, from VmPTE */
static long serve_many(char command, void *arg)
{
	switch (command) {
	case 'b':
		*(volatile char *)(area - PAGE) = 1;
		return 0;
	case 't':
		for (unsigned long i = 0; i < MANY; i++)
			*(volatile uint64_t *)(area + i * TABLE + i * PAGE) += 1;
		return file_tables(getpid());
	case 'p':
		return proc_sum(getpid(), "status", "VmPTE");
	}
	return -1;
}

/* Shared memory, with private memory below it that the same table of PMDs maps. */
static char *map_beside_private(void)
{
	size_t gigabyte = 1UL << 30;
	char *space = mmap(NULL, 3 * gigabyte, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), *at;

	if (space == MAP_FAILED)
		return NULL;
	at = (char *)(((unsigned long)space + gigabyte - 1) & ~(gigabyte - 1)) + TABLE;
	at = mmap(at, MANY * TABLE, PROT_READ | PROT_WRITE,
		  MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	return at == MAP_FAILED ? NULL : at;
}

/*
 * Tables that sixteen processes have in common count once; a process's account has all that it
 * reaches.
 */
TEST(page_tables)
{
	struct helper child[SHARERS];
	long before, tables, own[SHARERS];

	NEED_SHM_FEATURE();
	tables = shm_number("tables");
	area = map_beside_private();
	ASSERT_NE(NULL, area);
	for (int i = 0; i < SHARERS; i++) {
		ASSERT_EQ(0, start_helper(&child[i], serve_many, NULL));
		ASSERT_EQ(0, ask(&child[i], 'b'));
		own[i] = ask(&child[i], 'p');
	}
	before = page_tables_kb();
	for (int i = 0; i < SHARERS; i++) {
		EXPECT_EQ(MANY, ask(&child[i], 't'));
		EXPECT_EQ(own[i] + MANY_KB, ask(&child[i], 'p'));
	}
	EXPECT_EQ(tables + MANY, shm_number("tables"));
	EXPECT_LE(before + MANY_KB, page_tables_kb());
	EXPECT_GT(before + 2 * MANY_KB, page_tables_kb());
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(SHARERS, *(uint64_t *)(area + 5 * TABLE + 5 * PAGE));
	for (int i = 0; i < SHARERS; i++)
		EXPECT_EQ(0, end_helper(&child[i]));
	munmap(area, MANY * TABLE);
	EXPECT_EQ(tables, shm_number("tables"));
	/* The children's tables are gone, too; RCU takes its time. */
	for (int i = 0; i < 20000 && page_tables_kb() > before; i++)
		usleep(10000);
	EXPECT_GE(before, page_tables_kb());
}

static const char * const events[] = { "join", "leave", "fallback" };

static void trace(const char *word)
{
	char path[128];

	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
		snprintf(path, sizeof(path), TRACING "events/quire/shm_%s/enable", events[i]);
		write_word(path, word);
	}
}

/* Lines of the trace that have all three words. */
static long traced(const char *event, const char *first, const char *second)
{
	char line[512];
	long n = 0;
	FILE *f = fopen(TRACING "trace", "r");

	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, event) && strstr(line, first) && strstr(line, second);
	if (f)
		fclose(f);
	return n;
}

/* Each event in the life of a table of this process, with the number of users. */
TEST(tracepoints)
{
	char where[32], *small;
	int fd;

	NEED_SHM_FEATURE();
	if (access(TRACING "events/quire/shm_join", F_OK))
		SKIP(return, "no tracing");
	fd = open(TRACING "trace", O_WRONLY | O_TRUNC);
	close(fd);
	trace("1");
	area = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	fill(area, PAGES, 7);
	if (!fork())
		_exit(wrong(area, PAGES, 7) != 0);
	wait(NULL);
	snprintf(where, sizeof(where), "addr=%lx ", (unsigned long)area);
	munmap(area, LEN);
	ASSERT_EQ(0, write_word(SHM_FOLDER "min_tables", "5"));
	small = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	fill(small, PAGES, 7);
	write_word(SHM_FOLDER "min_tables", "1");
	trace("0");
	EXPECT_EQ(1, traced(" shm_join: ", where, "users=1\n"));
	EXPECT_EQ(1, traced(" shm_join: ", where, "users=2\n"));
	EXPECT_EQ(1, traced(" shm_leave: ", where, "users=1\n"));
	EXPECT_EQ(1, traced(" shm_leave: ", where, "users=0\n"));
	/* The kernel put the mapping wherever there was room. */
	snprintf(where, sizeof(where), "addr=%lx ",
		 ((unsigned long)small + TABLE - 1) & ~(TABLE - 1));
	EXPECT_EQ(1, traced(" shm_fallback: ", where, "reason=refused_few_tables"));
	munmap(small, LEN);
}

TEST_HARNESS_MAIN
