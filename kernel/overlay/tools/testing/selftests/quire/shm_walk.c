// SPDX-License-Identifier: GPL-2.0
/*
 * Faults of shared memory during a walk over the areas that map it: no process waits for the
 * walk, and a process shares at its next fault after the walk.
 */
#define _GNU_SOURCE
#include "harness.h"
#include "shm_test.h"

#define WALK	"/sys/kernel/debug/quire/shm_walk"
#define TABLES 4
#define PAGES (TABLES * SLOTS)
#define LEN (TABLES * TABLE)

static char *area;

/* Pages of the second half of each table, or of the first, that are wrong. */
static long wrong_halves(int half, uint64_t seed)
{
	long bad = 0;

	for (unsigned long first = half * SLOTS / 2; first < PAGES; first += SLOTS)
		for (unsigned long i = first; i < first + SLOTS / 2; i++)
			bad += *(volatile uint64_t *)(area + i * PAGE) != word_for(i, seed);
	return bad;
}

/*
 * r: pages that are wrong; 1, 2: likewise, of the tables' first or second halves; W: write all;
 * s: tables; p: change the protection and back; u: unmap
 */
static long serve(char command, void *arg)
{
	switch (command) {
	case 'r':
		return wrong(area, PAGES, 7);
	case '1':
	case '2':
		return wrong_halves(command == '2', 7);
	case 'W':
		fill(area, PAGES, 9);
		return 0;
	case 's':
		return file_tables(getpid());
	case 'p':
		return mprotect(area, LEN, PROT_READ) ||
		       mprotect(area, LEN, PROT_READ | PROT_WRITE);
	case 'u':
		return munmap(area, LEN);
	}
	return -1;
}

FIXTURE(walk) {
	struct helper child[2];
	long tables, merged, unlisted;
	int fd, walk;
};

static int begin_walk(int fd)
{
	int walk = open(WALK, O_WRONLY);

	if (walk >= 0 && dprintf(walk, "%d", fd) < 0) {
		close(walk);
		walk = -1;
	}
	return walk;
}

FIXTURE_SETUP(walk)
{
	NEED_SHM_FEATURE();
	if (access(WALK, W_OK))
		SKIP(return, "no walks for tests: CONFIG_QUIRE_DEBUG is not set");
	self->tables = shm_number("tables");
	self->merged = shm_number("stats/tables_merged");
	self->unlisted = shm_number("stats/tables_unlisted");
	self->fd = memfd_create("quire", 0);
	ASSERT_EQ(0, ftruncate(self->fd, LEN));
	area = map_file(self->fd, TABLES, PROT_READ | PROT_WRITE);
	ASSERT_NE(NULL, area);
	fill(area, PAGES, 7);
	ASSERT_EQ(TABLES, file_tables(getpid()));
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, start_helper(&self->child[i], serve, NULL));
	self->walk = begin_walk(self->fd);
	ASSERT_LE(0, self->walk);
	/* The child has tables that no other process can find. */
	ASSERT_EQ(0, ask(&self->child[0], '1'));
	ASSERT_EQ(TABLES, ask(&self->child[0], 's'));
	ASSERT_EQ(self->tables + 2 * TABLES, shm_number("tables"));
	ASSERT_EQ(self->unlisted + TABLES, shm_number("stats/tables_unlisted"));
	EXPECT_TRUE(tables_consistent());
}

FIXTURE_TEARDOWN(walk)
{
	EXPECT_TRUE(tables_consistent());
	if (self->walk >= 0)
		close(self->walk);
	for (int i = 0; i < 2; i++)
		EXPECT_EQ(0, end_helper(&self->child[i]));
	if (area)
		munmap(area, LEN);
	close(self->fd);
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(self->tables, shm_number("tables"));
}

static void end_walk(int *walk)
{
	close(*walk);
	*walk = -1;
}

TEST_SLOW(walk, merged_afterwards)
{
	EXPECT_EQ(0, ask(&self->child[0], '2'));
	EXPECT_EQ(self->merged, shm_number("stats/tables_merged"));
	ASSERT_EQ(0, madvise(area, PAGE, MADV_REMOVE));
	end_walk(&self->walk);
	/* Remove a page of each of the other tables. */
	for (int i = 1; i < TABLES; i++)
		ASSERT_EQ(0, madvise(area + i * TABLE, PAGE, MADV_REMOVE));
	EXPECT_EQ(TABLES, ask(&self->child[0], 'r'));
	EXPECT_EQ(self->merged + TABLES, shm_number("stats/tables_merged"));
	EXPECT_EQ(TABLES, ask(&self->child[0], 's'));
	EXPECT_EQ(self->tables + TABLES, shm_number("tables"));
	EXPECT_EQ(0, ask(&self->child[0], 'W'));
	EXPECT_EQ(0, wrong(area, PAGES, 9));
}

/* The other processes are gone meanwhile: the child's table is offered to others as it is. */
TEST_SLOW(walk, offered_afterwards)
{
	ASSERT_EQ(0, munmap(area, LEN));
	area = NULL;
	ASSERT_EQ(self->tables + TABLES, shm_number("tables"));
	end_walk(&self->walk);
	EXPECT_EQ(0, ask(&self->child[0], 'r'));
	EXPECT_EQ(self->merged, shm_number("stats/tables_merged"));
	EXPECT_EQ(0, ask(&self->child[1], 'r'));
	EXPECT_EQ(TABLES, ask(&self->child[1], 's'));
	EXPECT_EQ(self->tables + TABLES, shm_number("tables"));
}

/* The next walk is under way when the next fault comes. */
TEST_SLOW(walk, another_walk)
{
	int other = begin_walk(self->fd);

	ASSERT_LE(0, other);
	end_walk(&self->walk);
	EXPECT_EQ(0, ask(&self->child[0], 'r'));
	EXPECT_EQ(self->merged, shm_number("stats/tables_merged"));
	EXPECT_EQ(self->tables + 2 * TABLES, shm_number("tables"));
	close(other);
	EXPECT_EQ(0, ask(&self->child[1], 'r'));
	EXPECT_EQ(self->tables + 2 * TABLES, shm_number("tables"));
}

TEST_SLOW(walk, truncated_meanwhile)
{
	ASSERT_EQ(0, ask(&self->child[0], 'W'));
	EXPECT_EQ(0, wrong(area, PAGES, 9));
	ASSERT_EQ(0, ftruncate(self->fd, 0));
	ASSERT_EQ(0, ftruncate(self->fd, LEN));
	EXPECT_EQ((long)PAGES, ask(&self->child[0], 'r'));
	for (unsigned long i = 0; i < PAGES; i++)
		EXPECT_EQ(0, *(uint64_t *)(area + i * PAGE));
	fill(area, PAGES, 7);
	EXPECT_EQ(0, ask(&self->child[0], 'r'));
}

TEST_SLOW(walk, adopted)
{
	EXPECT_EQ(0, ask(&self->child[0], 'p'));
	EXPECT_EQ(0, ask(&self->child[0], 's'));
	EXPECT_EQ(self->tables + TABLES, shm_number("tables"));
	end_walk(&self->walk);
	EXPECT_EQ(0, ask(&self->child[0], 'r'));
}

/* A process that must not share any more offers nothing. */
TEST_SLOW(walk, forbidden_meanwhile)
{
	char path[64];

	ASSERT_EQ(0, munmap(area, LEN));
	area = NULL;
	snprintf(path, sizeof(path), "/proc/%d/quire", self->child[0].pid);
	ASSERT_EQ(0, write_word(path, "0"));
	end_walk(&self->walk);
	EXPECT_EQ(0, ask(&self->child[0], 'r'));
	EXPECT_EQ(0, ask(&self->child[1], 'r'));
	EXPECT_EQ(self->tables + 2 * TABLES, shm_number("tables"));
}

TEST_SLOW(walk, unmapped)
{
	EXPECT_EQ(0, ask(&self->child[0], 'u'));
	EXPECT_EQ(self->tables + TABLES, shm_number("tables"));
}

TEST_SLOW(walk, killed)
{
	kill(self->child[0].pid, SIGKILL);
	waitpid(self->child[0].pid, NULL, 0);
	self->child[0].pid = 0;
	for (int i = 0; i < 1000 && shm_number("tables") != self->tables + TABLES; i++)
		usleep(10000);
	EXPECT_EQ(self->tables + TABLES, shm_number("tables"));
}

TEST_SLOW(walk, switched_off)
{
	ASSERT_EQ(0, write_word(SHM_FOLDER "enabled", "2"));
	EXPECT_EQ(0, shm_number("tables"));
	EXPECT_EQ(0, ask(&self->child[0], 'r'));
	EXPECT_EQ(0, wrong(area, PAGES, 7));
	ASSERT_EQ(0, write_word(SHM_FOLDER "enabled", "1"));
}

TEST_HARNESS_MAIN
