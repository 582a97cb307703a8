// SPDX-License-Identifier: GPL-2.0
/*
 * The text feature while some processes open, write, truncate and punch files that
 * others collapse and run. A program that runs cannot be opened for writing; a library
 * can. A file that is opened loses its huge pages, and no process may see anything that
 * the file never held: each byte is as it was made, or zero while it is away.
 * Needs root, ext4 on a loop device, and quire=text (or on).
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <sys/prctl.h>

#include "harness.h"
#include "text_huge.h"

#define IMAGE	"/tmp/text_writers.img"
#define FOLDER	"/tmp/text_writers"
#define PROGRAM	FOLDER "/program"
#define LIBRARY	FOLDER "/library"

/* In hundredths of a second: the worker waits for a file that was written. */
#define EXPIRE		"/proc/sys/vm/dirty_expire_centisecs"
#define WRITEBACK	"/proc/sys/vm/dirty_writeback_centisecs"

#define ROLES	3
#define ROUNDS	5	/* of the library's writer */
#define OPENED	4	/* how often the program was not running, at least */

/* What the processes tell each other. */
struct score {
	volatile bool over;
	volatile int ran, busy, opened, refused, read;
};

static struct score *score;
static unsigned int seed;

static unsigned int draw(unsigned int below)
{
	return rand_r(&seed) % below;
}

static int write_pages(int fd, unsigned long first, unsigned long last)
{
	static unsigned char page[PAGE];

	for (; first < last; first++) {
		text_page(page, first, three_blocks.pages);
		if (write_all(fd, page, PAGE, PAGE + first * PAGE))
			return -1;
	}
	return 0;
}

/* Changes a file and restores it. Returns 0, or -1. */
static int change_and_restore(int fd, unsigned int how)
{
	unsigned long first = draw(three_blocks.pages - 64), last = first + 1 + draw(32);
	int ret = 0;

	switch (how % 4) {
	case 0:
		break;
	case 1:
		ret = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				PAGE + first * PAGE, (last - first) * PAGE);
		break;
	case 2:
		ret = fallocate(fd, FALLOC_FL_ZERO_RANGE, PAGE + first * PAGE,
				(last - first) * PAGE);
		break;
	default:
		/* Truncate within the last block; what comes after that is written anew. */
		first = three_blocks.pages - 1 - draw(400);
		last = three_blocks.pages;
		ret = ftruncate(fd, PAGE + first * PAGE + 100);
	}
	if (ret || write_pages(fd, first, last))
		return -1;
	return draw(2) ? fsync(fd) : 0;
}

/* Runs the program over and over, whenever no writer has it open. */
static int runner(void)
{
	while (!score->over) {
		int ret = run_rounds(PROGRAM, 1 + draw(4));

		if (ret && ret != EXEC_BUSY)
			return 1;
		if (ret)
			score->busy++;
		else
			score->ran++;
		usleep(draw(20000));
	}
	return 0;
}

/* Opens the program for writing, over and over, and changes it whenever no process runs it. */
static int program_writer(void)
{
	unsigned int how = 0;

	while (!score->over) {
		int fd = open(PROGRAM, O_RDWR);

		if (fd < 0 && errno != ETXTBSY)
			return 1;
		if (fd < 0)
			score->refused++;
		else if (change_and_restore(fd, how++) || close(fd))
			return 1;
		else
			score->opened++;
		usleep(draw(50000));
	}
	return 0;
}

static sigjmp_buf back;

static void jump_back(int signal)
{
	siglongjmp(back, signal);
}

/* Is each byte of a page what was written, or zero as long as it is away? */
static bool page_is_possible(const unsigned char *map, unsigned long i)
{
	unsigned char right[PAGE], seen[PAGE];

	/* The page is beyond the end of the file for now. */
	if (sigsetjmp(back, 1))
		return true;
	memcpy(seen, map + PAGE + i * PAGE, PAGE);
	text_page(right, i, three_blocks.pages);
	for (unsigned long at = 0; memcmp(seen, right, PAGE) && at < PAGE; at++)
		if (seen[at] && seen[at] != right[at])
			return false;
	return true;
}

/* Map the files as text, over and over, and look at pages of them. */
static int reader(void)
{
	signal(SIGBUS, jump_back);
	while (!score->over) {
		unsigned char *map = map_file(draw(2) ? LIBRARY : PROGRAM, FILE_SIZE);

		if (!map)
			return 1;
		for (int i = 0; i < 30; i++)
			if (!page_is_possible(map, draw(three_blocks.pages)))
				return 1;
		munmap(map, FILE_SIZE);
		score->read++;
		usleep(draw(50000));
	}
	return 0;
}

/* Open the library for writing a few times while the worker is about to collapse it. */
static int open_often(void)
{
	unsigned char *map = map_resident(LIBRARY);

	if (!map)
		return -1;
	for (int i = 0; i < 5; i++) {
		int fd = open(LIBRARY, O_RDWR);

		if (fd < 0 || close(fd))
			return -1;
		read_pages(map, BLOCK);
	}
	return munmap(map, FILE_SIZE);
}

/* Changes the library, all of which is huge; the mapping must show what is in the file. */
static int change_library(int round)
{
	unsigned char *map = map_huge(LIBRARY);
	bool right;
	int fd;

	if (!map)
		return -1;
	/* Truncate by path: the next open then finds no huge page to drop. */
	if (round % 5 == 4 && truncate(LIBRARY, PAGE + 1500 * PAGE))
		return -1;
	fd = open(LIBRARY, O_RDWR);
	if (fd < 0 || pmd_mapped(0, LIBRARY) || (round % 5 == 4 && write_pages(fd, 1500, 2049)) ||
	    change_and_restore(fd, round))
		return -1;
	right = text_is_right(map + PAGE, 0, three_blocks.pages);
	if (close(fd) || munmap(map, FILE_SIZE))
		return -1;
	return right ? 0 : -1;
}

FIXTURE(writers) {
	pid_t pids[ROLES];
};

FIXTURE_SETUP(writers)
{
	static int (* const roles[ROLES])(void) = { runner, program_writer, reader };

	NEED_TEXT_FEATURE();
	ASSERT_EQ(0, fresh_program(PROGRAM));
	ASSERT_EQ(0, make_program(LIBRARY, &three_blocks));
	ASSERT_EQ(0, write_file(EXPIRE, "100"));
	ASSERT_EQ(0, write_file(WRITEBACK, "50"));
	score = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)score);
	signal(SIGPIPE, SIG_IGN);
	for (int i = 0; i < ROLES; i++) {
		self->pids[i] = fork();
		ASSERT_GE(self->pids[i], 0);
		if (!self->pids[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			seed = i + 1;
			_exit(roles[i]());
		}
	}
}

FIXTURE_TEARDOWN(writers)
{
	defaults();
	/* What Linux begins with. */
	write_file(EXPIRE, "3000");
	write_file(WRITEBACK, "500");
	unlink(PROGRAM);
	unlink(LIBRARY);
}

TEST_F_TIMEOUT(writers, storm, 600)
{
	long collapsed = stat_of("collapsed_blocks"), dropped = stat_of("dropped_writer");
	double end = seconds() + LIMIT_S;
	struct program p;
	int status;

	seed = 100;
	for (int round = 0; round < ROUNDS; round++) {
		ASSERT_EQ(0, open_often());
		ASSERT_EQ(0, change_library(round)) TH_LOG("round %d", round);
	}
	while ((score->opened < OPENED || !score->refused || !score->ran || !score->read) &&
	       seconds() < end)
		usleep(10000);
	score->over = true;
	for (int i = 0; i < ROLES; i++) {
		EXPECT_EQ(self->pids[i], waitpid(self->pids[i], &status, 0));
		EXPECT_EQ(0, status) TH_LOG("role %d", i);
	}
	TH_LOG("%d ran, %d busy, %d opened, %d refused", score->ran, score->busy, score->opened,
	       score->refused);
	EXPECT_GE(score->opened, OPENED);
	EXPECT_GT(score->refused, 0);
	EXPECT_GT(score->ran, 0);
	EXPECT_GT(score->read, 0);
	EXPECT_GE(stat_of("collapsed_blocks"), collapsed + 4 * ROUNDS);
	EXPECT_GE(stat_of("dropped_writer"), dropped + ROUNDS);

	/* All is over: both files are what they were, and are collapsed. */
	EXPECT_TRUE(file_is_right(PROGRAM));
	EXPECT_TRUE(file_is_right(LIBRARY));
	ASSERT_EQ(0, start_huge(&p, PROGRAM, &three_blocks, NULL));
	EXPECT_GE(stop(&p), 0);
	EXPECT_NE(NULL, map_huge(LIBRARY));
}

int main(int argc, char **argv)
{
	return test_on_ext4(argc, argv, IMAGE, FOLDER);
}
