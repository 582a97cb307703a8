// SPDX-License-Identifier: GPL-2.0
/*
 * The memory that the text feature sets aside for blocks that are being read: when it does, and how
 * what was set aside in vain goes back.
 * Needs root, ext4 on a loop device, and quire=text (or on).
 */
#define _GNU_SOURCE

#include <sys/sysmacros.h>

#include "harness.h"
#include "text_huge.h"

#define IMAGE	"/tmp/text_reserve.img"
#define FOLDER	"/tmp/text_reserve"
#define PROGRAM	FOLDER "/program"

#include "text_stream.h"

#define HALF		(2 * BLOCK_PAGES + BLOCK_PAGES / 2)	/* the middle of the third block */
#define NEARLY		(3 * BLOCK_PAGES - 100)	/* so few left go back after ten seconds only */

FIXTURE(reserve) {
	long reserved, unfilled;	/* what was counted before */
};

FIXTURE_SETUP(reserve)
{
	NEED_TEXT_FEATURE();
	ASSERT_EQ(0, begin());
	collapsed = stat_of("collapsed_blocks");
	promoted = stat_of("promoted_blocks");
	self->reserved = stat_of("reserved_blocks");
	self->unfilled = stat_of("reserve_unfilled");
	ASSERT_EQ(0, queue_file(FILE_SIZE));
	/*
	 * What is set aside goes back by itself after a while, and the guest may be slower. Only
	 * with CONFIG_QUIRE_DEBUG can that be held back.
	 */
	write_file(HOLD, "5");
}

FIXTURE_TEARDOWN(reserve)
{
	write_file(HOLD, "0");
	fail_huge_pages("0");
	defaults();
	unlink(PROGRAM);
}

TEST_F_TIMEOUT(reserve, half_read_block_is_given_back, 600)
{
	unsigned char *map;

	ASSERT_EQ(0, read_stream(0, HALF));
	EXPECT_EQ(self->reserved + 3, stat_of("reserved_blocks"));
	write_file(HOLD, "0");
	EXPECT_TRUE(wait_stat("reserve_unfilled", self->unfilled + 1));
	EXPECT_EQ(0, read_stream(HALF, FILE_PAGES));
	EXPECT_TRUE(file_is_right(PROGRAM));
	map = promote(BLOCKS);
	ASSERT_NE(NULL, map);
	EXPECT_TRUE(text_is_right(map + PAGE, 0, three_blocks.pages));
	munmap(map, FILE_SIZE);
}

TEST_F_TIMEOUT(reserve, off_gives_back, 600)
{
	ASSERT_EQ(0, read_stream(0, HALF));
	EXPECT_EQ(self->reserved + 3, stat_of("reserved_blocks"));
	ASSERT_EQ(0, set("enabled", "0"));
	EXPECT_EQ(self->unfilled + 2, stat_of("reserve_unfilled"));
	EXPECT_TRUE(file_is_right(PROGRAM));
}

/* Slab caches are shrunk as when memory is short. The file stays in use, and is not evicted. */
TEST_F_TIMEOUT(reserve, shrinker_gives_back, 600)
{
	int fd = open(PROGRAM, O_RDONLY);

	ASSERT_EQ(0, read_stream(0, HALF));
	EXPECT_EQ(self->reserved + 3, stat_of("reserved_blocks"));
	EXPECT_EQ(0, write_file("/proc/sys/vm/drop_caches", "2"));
	EXPECT_EQ(self->unfilled + 2, stat_of("reserve_unfilled"));
	EXPECT_TRUE(file_is_right(PROGRAM));
	close(fd);
}

/* Asks for the memory that a page of the file lies in. Returns whether it could go offline. */
static bool ask_for_memory_of(unsigned long page)
{
	int fd = open(PROGRAM, O_RDONLY);
	unsigned char *at = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, page * PAGE);
	long nr;

	close(fd);
	if (at == MAP_FAILED)
		return false;
	read_pages(at, PAGE);
	nr = offline(at);
	munmap(at, PAGE);
	return nr >= 0 && !set_memory_block(nr, "online_movable");
}

/*
 * Sets memory aside for three blocks, of which the second is read whole and the third nearly, and
 * asks for memory of the third. Returns how many pieces went back at once, or -1. Does it elsewhere
 * if what was set aside lies beside memory from boot.
 */
static long given_back(void)
{
	double end = seconds() + LIMIT_S;
	long reserved, unfilled;

	do {
		if (begin() || queue_file(FILE_SIZE))
			return -1;
		reserved = stat_of("reserved_blocks");
		unfilled = stat_of("reserve_unfilled");
		if (read_stream(0, NEARLY))
			return -1;
		if (stat_of("reserve_unfilled") != unfilled ||
		    stat_of("reserved_blocks") != reserved + 3)
			continue;
		if (ask_for_memory_of(2 * BLOCK_PAGES))
			return stat_of("reserve_unfilled") - unfilled;
		hold_memory();
	} while (seconds() < end);
	return -1;
}

/* In other zones, pages that cannot be moved may keep memory from going offline, for ever. */
TEST_F_TIMEOUT(reserve, isolation_gives_back, 600)
{
	if (next_movable_block(-1) < 0)
		SKIP(return, "no movable memory");
	EXPECT_GE(given_back(), 1);
	EXPECT_EQ(0, read_stream(NEARLY, FILE_PAGES));
	EXPECT_TRUE(file_is_right(PROGRAM));
}

TEST_F_TIMEOUT(reserve, evict_gives_back, 600)
{
	ASSERT_EQ(0, read_stream(0, HALF));
	EXPECT_EQ(self->reserved + 3, stat_of("reserved_blocks"));
	ASSERT_EQ(0, unlink(PROGRAM));
	EXPECT_EQ(self->unfilled + 2, stat_of("reserve_unfilled"));
}

TEST_F_TIMEOUT(reserve, knob_off_reserves_nothing, 600)
{
	unsigned char *map;

	ASSERT_EQ(0, set("in_place", "0"));
	ASSERT_EQ(0, read_all());
	map = promote(BLOCKS);
	ASSERT_NE(NULL, map);
	EXPECT_TRUE(is_huge(map, BLOCKS, 0));
	EXPECT_EQ(self->reserved, stat_of("reserved_blocks"));
	munmap(map, FILE_SIZE);
}

TEST_F_TIMEOUT(reserve, no_huge_page_free, 600)
{
	long nomem = stat_of("reserve_nomem");

	if (access(INJECT "probability", W_OK))
		SKIP(return, "no fault injection");
	ASSERT_EQ(0, fail_huge_pages("100"));
	EXPECT_EQ(0, read_all());
	EXPECT_EQ(0, fail_huge_pages("0"));
	EXPECT_GT(stat_of("reserve_nomem"), nomem);
	EXPECT_EQ(self->reserved, stat_of("reserved_blocks"));
	EXPECT_TRUE(file_is_right(PROGRAM));
}

/* More blocks than there may be places, each read nearly whole. */
#define MOST_BLOCKS	129
#define MUCH		(BLOCK_PAGES - 100)

/* A place is replaced only if it was not used for a tenth of a second: the first ones grow old. */
#define PAUSE_US	20000

/* Begins with a file that is one hole. Returns 0, or -1. */
static int begin_sparse(void)
{
	int fd, ret = -1;

	if (begin() || unlink(PROGRAM))
		return -1;
	fd = open(PROGRAM, O_RDWR | O_CREAT | O_EXCL, 0755);
	if (fd >= 0)
		ret = ftruncate(fd, MOST_BLOCKS * BLOCK);
	close(fd);
	return ret || queue_file(MOST_BLOCKS * BLOCK) ? -1 : 0;
}

/*
 * Sets memory aside for one block after the other until some goes back. Returns how many blocks
 * that were; 0 if the machine had no memory, or -1.
 */
static long fill_places(void)
{
	long unfilled = stat_of("reserve_unfilled"), nomem = stat_of("reserve_nomem");

	for (long i = 0; i < MOST_BLOCKS; i++) {
		if (read_stream(i * BLOCK_PAGES, i * BLOCK_PAGES + MUCH))
			return -1;
		if (stat_of("reserve_nomem") != nomem)
			return 0;
		if (stat_of("reserve_unfilled") != unfilled)
			return i + 1;
		usleep(PAUSE_US);
	}
	return -1;
}

/*
 * The first block's memory went back for the last one's: when all others are read to their ends,
 * only the last one's is left. Returns whether it is so.
 */
static bool first_was_replaced(long blocks, long reserved, long unfilled)
{
	for (long i = 1; i < blocks - 1; i++)
		if (read_stream(i * BLOCK_PAGES + MUCH, (i + 1) * BLOCK_PAGES))
			return false;
	return !set("enabled", "0") && stat_of("reserved_blocks") == reserved + blocks &&
		stat_of("reserve_unfilled") == unfilled + 2;
}

/* When all places are taken, the next block gets that which was not used for the longest time. */
TEST_F_TIMEOUT(reserve, longest_unused_is_replaced, 600)
{
	double end = seconds() + LIMIT_S;
	long blocks, reserved, unfilled;

	do {
		ASSERT_EQ(0, begin_sparse());
		reserved = stat_of("reserved_blocks");
		unfilled = stat_of("reserve_unfilled");
		blocks = fill_places();
	} while (blocks >= 0 && blocks <= 2 && seconds() < end);
	ASSERT_LT(2, blocks);
	EXPECT_TRUE(first_was_replaced(blocks, reserved, unfilled));
}

/* How much was read from the program's device, in sectors; -1 on errors. */
static long sectors_read(void)
{
	char path[64];
	struct stat st;
	long sectors;
	FILE *f;

	if (stat(PROGRAM, &st))
		return -1;
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/stat", major(st.st_dev),
		 minor(st.st_dev));
	f = fopen(path, "r");
	if (!f || fscanf(f, "%*d %*d %ld", &sectors) != 1)
		sectors = -1;
	if (f)
		fclose(f);
	return sectors;
}

TEST_F_TIMEOUT(reserve, readahead_reads_the_same, 600)
{
	long sectors[2];

	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(0, begin());
		ASSERT_EQ(0, set("in_place", i ? "1" : "0"));
		ASSERT_EQ(0, queue_file(FILE_SIZE));
		sectors[i] = sectors_read();
		ASSERT_GE(sectors[i], 0);
		ASSERT_EQ(0, read_all());
		sectors[i] = sectors_read() - sectors[i];
	}
	EXPECT_EQ(self->reserved + BLOCKS, stat_of("reserved_blocks"));
	EXPECT_GE(sectors[0], (long)FILE_SIZE / 512);
	EXPECT_EQ(sectors[0], sectors[1]);
}

TEST_F_TIMEOUT(reserve, random_order_reserves_nothing, 600)
{
	int fd = open(PROGRAM, O_RDONLY);
	unsigned char page[PAGE];

	ASSERT_EQ(0, posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM));
	for (long i = FILE_PAGES / 16 * 16; i >= 0; i -= 16)
		ASSERT_EQ((long)PAGE, pread(fd, page, PAGE, i * PAGE));
	close(fd);
	EXPECT_EQ(self->reserved, stat_of("reserved_blocks"));
	EXPECT_TRUE(file_is_right(PROGRAM));
}

int main(int argc, char **argv)
{
	return test_on_ext4(argc, argv, IMAGE, FOLDER);
}
