// SPDX-License-Identifier: GPL-2.0
/*
 * The text feature where nothing is copied: blocks that were read into memory set aside for them
 * become huge where they are.
 * Needs root, ext4 on a loop device, and quire=text (or on).
 */
#define _GNU_SOURCE

#include <sys/uio.h>

#include "harness.h"
#include "text_huge.h"

#define IMAGE	"/tmp/text_promote.img"
#define FOLDER	"/tmp/text_promote"
#define PROGRAM	FOLDER "/program"
#define GROUPS	"/sys/fs/cgroup/text_promote"
#define CGROUP	GROUPS "/inner"

#include "text_cgroup.h"
#include "text_stream.h"

/* Bits of /proc/kpageflags */
#define COMPOUND_HEAD	(1UL << 15)
#define COMPOUND_TAIL	(1UL << 16)
#define THP		(1UL << 22)

/* The frames of the file's pages. */
static unsigned long before[FILE_PAGES], after[FILE_PAGES];

static void put_back(void)
{
	fail_huge_pages("0");
	defaults();
	unlink(PROGRAM);
	rmdir(CGROUP);
	rmdir(GROUPS);
}

/* ---- reading ---- */

/* The same in the group, which is charged for the pages. */
static int read_all_in_group(void)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		join_cgroup();
		_exit(read_all() ? 1 : 0);
	}
	return waitpid(pid, &status, 0) == pid && !status ? 0 : -1;
}

/* The frames of all pages of the file, which are resident. It is no use of its text. */
static int note_frames(unsigned long *frame)
{
	int fd = open(PROGRAM, O_RDONLY), ret = -1;
	unsigned char *map = mmap(NULL, FILE_SIZE, PROT_READ, MAP_SHARED, fd, 0);
	ssize_t len = FILE_PAGES * sizeof(*frame);

	close(fd);
	if (map == MAP_FAILED)
		return -1;
	read_pages(map, FILE_SIZE);
	fd = open("/proc/self/pagemap", O_RDONLY);
	if (pread(fd, frame, len, (unsigned long)map / PAGE * sizeof(*frame)) == len)
		ret = 0;
	close(fd);
	munmap(map, FILE_SIZE);
	for (unsigned long i = 0; i < FILE_PAGES && !ret; i++) {
		ret = frame[i] >> 63 ? 0 : -1;
		frame[i] &= (1UL << 55) - 1;
	}
	return ret;
}

/* Are a block's pages in order in one aligned piece of memory? */
static bool in_place(const unsigned long *frame, int block)
{
	frame += block * BLOCK_PAGES;
	for (unsigned long i = 0; i < BLOCK_PAGES; i++)
		if (!frame[0] || frame[0] % BLOCK_PAGES || frame[i] != frame[0] + i)
			return false;
	return true;
}

/* How many blocks will not be copied: the first one may be in order by chance. */
static long blocks_in_place(const unsigned long *frame)
{
	long blocks = 0;

	for (int i = 0; i < BLOCKS; i++)
		blocks += in_place(frame, i);
	return blocks;
}

/*
 * Reads the file as a stream, so that all blocks but the first, which gets its place when a part of
 * it has been read, are in place, and notes its frames as @before. Does it anew if memory went back
 * because the machine had other work for a second. Returns 0, or -1.
 */
static int fill(int (*reader)(void))
{
	double end = seconds() + LIMIT_S;

	do {
		long reserved, unfilled;

		if (begin())
			return -1;
		reserved = stat_of("reserved_blocks");
		unfilled = stat_of("reserve_unfilled");
		if (queue_file(FILE_SIZE) || reader())
			return -1;
		if (stat_of("reserve_unfilled") != unfilled ||
		    stat_of("reserved_blocks") != reserved + BLOCKS)
			continue;
		if (note_frames(before))
			break;
		return in_place(before, 1) && in_place(before, 2) && in_place(before, 3) ? 0 : -1;
	} while (seconds() < end);
	print_counters();
	return -1;
}

/* Maps pages of the file, and not as text. */
static unsigned char *map_part(unsigned long first, unsigned long pages)
{
	int fd = open(PROGRAM, O_RDONLY);
	void *map = mmap(NULL, pages * PAGE, PROT_READ, MAP_SHARED, fd, first * PAGE);

	close(fd);
	return map == MAP_FAILED ? NULL : map;
}

static unsigned long flags_of(unsigned long frame)
{
	int fd = open("/proc/kpageflags", O_RDONLY);
	unsigned long flags;

	if (pread(fd, &flags, sizeof(flags), frame * sizeof(flags)) != sizeof(flags))
		flags = 0;
	close(fd);
	return flags;
}

/* ---- promotion ---- */

/* Its cases begin with all blocks of the file but the first in place. */
FIXTURE(promote) {
	unsigned char *map;
};

FIXTURE_SETUP(promote)
{
	NEED_TEXT_FEATURE();
	ASSERT_EQ(0, fill(read_all));
	collapsed = stat_of("collapsed_blocks");
	promoted = stat_of("promoted_blocks");
}

FIXTURE_TEARDOWN(promote)
{
	if (self->map)
		munmap(self->map, FILE_SIZE);
	put_back();
}

/* Do all blocks but the first have the frames that they had before? */
static bool frames_stay(void)
{
	size_t first = BLOCK_PAGES, len = (BLOCKS - 1) * BLOCK_PAGES * sizeof(*before);

	return !note_frames(after) && !memcmp(before + first, after + first, len);
}

TEST_F_TIMEOUT(promote, frames_stay, 600)
{
	EXPECT_EQ(0, flags_of(before[BLOCK_PAGES]) & (COMPOUND_HEAD | THP));
	EXPECT_EQ(0, flags_of(before[BLOCK_PAGES + 1]) & COMPOUND_TAIL);
	self->map = promote(BLOCKS);
	ASSERT_NE(NULL, self->map);
	EXPECT_TRUE(is_huge(self->map, BLOCKS, blocks_in_place(before)));
	EXPECT_EQ(BLOCKS * BLOCK_KB, pmd_mapped(0, PROGRAM));
	EXPECT_TRUE(frames_stay());
	for (int i = 1; i < BLOCKS; i++) {
		unsigned long head = after[i * BLOCK_PAGES];

		EXPECT_EQ(COMPOUND_HEAD | THP, flags_of(head) & (COMPOUND_HEAD | THP));
		EXPECT_EQ(COMPOUND_TAIL, flags_of(head + 1) & COMPOUND_TAIL);
		EXPECT_EQ(COMPOUND_TAIL, flags_of(head + BLOCK_PAGES - 1) & COMPOUND_TAIL);
	}
}

/* Compares a program's text with what was written to its file. */
static bool program_is_right(pid_t pid)
{
	static unsigned char text[FILE_SIZE - PAGE];
	char path[64];
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDONLY);
	len = pread(fd, text, sizeof(text), text_address(pid, PROGRAM));
	close(fd);
	return len == sizeof(text) && text_is_right(text, 0, three_blocks.pages);
}

/* Start so many programs, which map the text by PTEs, and queue nothing. Returns 0, or -1. */
static int start_small(struct program *programs, int nr)
{
	if (set("enabled", "0"))
		return -1;
	for (int i = 0; i < nr; i++)
		if (start(&programs[i], PROGRAM, NULL) || touch(&programs[i]) ||
		    pmd_mapped(programs[i].pid, PROGRAM))
			return -1;
	return 0;
}

/* Do programs whose text has become huge go on? Stops them. */
static bool changed_over(struct program *programs, int nr)
{
	bool right = true;

	for (int i = 0; i < nr; i++)
		right &= !touch(&programs[i]) &&
			pmd_mapped(programs[i].pid, PROGRAM) == 3 * BLOCK_KB &&
			program_is_right(programs[i].pid) && stop(&programs[i]) >= 0;
	return right;
}

/* So many page tables are locked at once; what more of them map is copied. */
#define MOST_TABLES	8

TEST_F_TIMEOUT(promote, programs_change_over, 600)
{
	struct program programs[MOST_TABLES];
	long mapped = meminfo("Mapped:");

	ASSERT_EQ(0, start_small(programs, MOST_TABLES));
	self->map = promote(BLOCKS);
	ASSERT_NE(NULL, self->map);
	EXPECT_TRUE(is_huge(self->map, BLOCKS, blocks_in_place(before)));
	/* All map the same memory, which counts once. */
	EXPECT_LT(labs(meminfo("Mapped:") - mapped - BLOCKS * BLOCK_KB), BLOCK_KB / 2);
	EXPECT_TRUE(changed_over(programs, MOST_TABLES));
	EXPECT_TRUE(frames_stay());
	munmap(self->map, FILE_SIZE);
	self->map = NULL;
	EXPECT_LT(labs(meminfo("Mapped:") - mapped), BLOCK_KB / 2);
}

TEST_F_TIMEOUT(promote, many_programs_are_copied, 600)
{
	struct program programs[MOST_TABLES + 1];

	ASSERT_EQ(0, start_small(programs, MOST_TABLES + 1));
	self->map = promote(BLOCKS);
	ASSERT_NE(NULL, self->map);
	EXPECT_TRUE(is_huge(self->map, BLOCKS, in_place(before, 0)));
	EXPECT_TRUE(changed_over(programs, MOST_TABLES + 1));
}

/* Its page table is not the block's, so its lock is not held. */
TEST_F_TIMEOUT(promote, mapped_part_is_copied, 600)
{
	unsigned char *part = map_part(2 * BLOCK_PAGES, 16);
	struct program program;

	ASSERT_NE(NULL, part);
	read_pages(part, 16 * PAGE);
	ASSERT_EQ(0, start_small(&program, 1));
	self->map = promote(BLOCKS);
	ASSERT_NE(NULL, self->map);
	EXPECT_TRUE(is_huge(self->map, BLOCKS, blocks_in_place(before) - 1));
	EXPECT_TRUE(text_is_right(part - 2 * BLOCK + PAGE, 2 * BLOCK_PAGES,
				  2 * BLOCK_PAGES + 15));
	EXPECT_TRUE(changed_over(&program, 1));
	munmap(part, 16 * PAGE);
}

/* A process that never stops to read the text, which it has mapped by PTEs. Never returns. */
static void run_in_text(volatile int *state)
{
	unsigned char *map = map_resident(PROGRAM);

	if (!map || pmd_mapped(0, PROGRAM))
		_exit(1);
	*state = 1;
	while (*state == 1)
		if (!text_is_right(map + PAGE, 0, three_blocks.pages))
			_exit(2);
	_exit(pmd_mapped(0, PROGRAM) == BLOCKS * BLOCK_KB ? 0 : 3);
}

/* Its page table is the only one that maps the text, so that is merged under it. */
TEST_F_TIMEOUT(promote, running_program_goes_on, 600)
{
	volatile int *state = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
				   -1, 0);
	int status = 0;
	long mapped;
	pid_t pid;

	ASSERT_NE(MAP_FAILED, (void *)state);
	ASSERT_EQ(0, set("enabled", "0"));
	pid = fork();
	if (!pid)
		run_in_text(state);
	while (!*state && !waitpid(pid, &status, WNOHANG))
		usleep(20000);
	ASSERT_EQ(1, *state);
	mapped = meminfo("Mapped:");
	ASSERT_EQ(0, set("delay_ms", "0"));
	ASSERT_EQ(0, set("enabled", "1"));
	self->map = map_whole(PROGRAM);
	ASSERT_NE(NULL, self->map);
	EXPECT_TRUE(is_huge(self->map, BLOCKS, blocks_in_place(before)));
	EXPECT_LT(labs(meminfo("Mapped:") - mapped), BLOCK_KB / 2);
	*state = 2;
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_TRUE(frames_stay());
}

/* Drops a page of the file, and reads it again while others have its frame. Returns 0, or -1. */
static int lose_frame(unsigned long page)
{
	int fd = open(PROGRAM, O_RDONLY), ret;
	void *taken;

	ret = posix_fadvise(fd, page * PAGE, PAGE, POSIX_FADV_DONTNEED);
	close(fd);
	/* Small pages, one of which has the frame that was freed just now. */
	taken = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ret || taken == MAP_FAILED || madvise(taken, BLOCK, MADV_NOHUGEPAGE))
		return -1;
	memset(taken, 1, BLOCK);
	ret = read_stream(page, page + 1);
	munmap(taken, BLOCK);
	return ret ? ret : note_frames(after);
}

TEST_F_TIMEOUT(promote, evicted_page_is_copied, 600)
{
	unsigned long page = 2 * BLOCK_PAGES + 100;

	ASSERT_EQ(0, lose_frame(page));
	if (before[page] == after[page])
		SKIP(return, "the page has the same frame again");
	self->map = promote(BLOCKS);
	ASSERT_NE(NULL, self->map);
	EXPECT_TRUE(is_huge(self->map, BLOCKS, blocks_in_place(before) - 1));
}

/*
 * A block that has lost a frame is copied, so the others are not moved in vain. The worker comes
 * three seconds after the mapping; does it anew if the machine was slower.
 */
TEST_F_TIMEOUT(promote, nothing_is_gathered_in_vain, 600)
{
	unsigned long page = BLOCK_PAGES - 100;
	double end = seconds() + LIMIT_S, begun;
	long gathered, reserved;

	do {
		if (self->map)
			munmap(self->map, FILE_SIZE);
		ASSERT_EQ(0, begin());
		ASSERT_EQ(0, set("delay_ms", "3000"));
		collapsed = stat_of("collapsed_blocks");
		gathered = stat_of("gathered_pages");
		reserved = stat_of("reserved_blocks");
		begun = seconds();
		self->map = map_whole(PROGRAM);
		ASSERT_NE(NULL, self->map);
		ASSERT_EQ(0, read_stream(0, BLOCK_PAGES));
		EXPECT_GT(stat_of("reserved_blocks"), reserved);
		ASSERT_EQ(0, read_all());
		ASSERT_EQ(0, note_frames(before));
		ASSERT_EQ(0, lose_frame(page));
	} while (seconds() > begun + 2.5 && seconds() < end);
	if (before[page] == after[page])
		SKIP(return, "the page has the same frame again");
	EXPECT_TRUE(wait_stat("collapsed_blocks", collapsed + BLOCKS));
	EXPECT_EQ(gathered, stat_of("gathered_pages"));
	EXPECT_TRUE(text_is_right(self->map + PAGE, 0, three_blocks.pages));
}

/* The first block has a place when a part of it has been read, which is moved there. */
TEST_F_TIMEOUT(promote, first_block_is_gathered, 600)
{
	double end = seconds() + LIMIT_S;
	long gathered, unfilled, dropped;

	do {
		if (self->map)
			munmap(self->map, FILE_SIZE);
		ASSERT_EQ(0, begin());
		gathered = stat_of("gathered_pages");
		promoted = stat_of("promoted_blocks");
		unfilled = stat_of("reserve_unfilled");
		/* The worker comes when all has been read; it does not matter if it comes before. */
		ASSERT_EQ(0, set("delay_ms", "300"));
		self->map = map_whole(PROGRAM);
		ASSERT_NE(NULL, self->map);
		ASSERT_EQ(0, read_all());
		while (stat_of("promoted_blocks") < promoted + BLOCKS && seconds() < end &&
		       stat_of("reserve_unfilled") == unfilled)
			usleep(20000);
	} while (stat_of("reserve_unfilled") != unfilled && seconds() < end);
	EXPECT_EQ(promoted + BLOCKS, stat_of("promoted_blocks"));
	EXPECT_GT(stat_of("gathered_pages"), gathered);
	EXPECT_LT(stat_of("gathered_pages"), gathered + (long)BLOCK_PAGES / 2);
	EXPECT_TRUE(text_is_right(self->map + PAGE, 0, three_blocks.pages));
	ASSERT_EQ(0, note_frames(after));
	EXPECT_EQ(BLOCKS, blocks_in_place(after));

	/* A writer drops a file that has no other huge pages than such, too. */
	EXPECT_EQ(BLOCKS * BLOCK_KB, pmd_mapped(0, PROGRAM));
	dropped = stat_of("dropped_writer");
	close(open(PROGRAM, O_RDWR));
	EXPECT_EQ(dropped + 1, stat_of("dropped_writer"));
	EXPECT_EQ(0, pmd_mapped(0, PROGRAM));
}

/* ---- what keeps a block small, and what makes it small again ---- */

TEST_F_TIMEOUT(promote, pinned_page_is_left, 600)
{
	struct iovec held = { map_part(2 * BLOCK_PAGES + 100, 1), PAGE };
	long busy = stat_of("promote_busy");
	int tube[2];

	ASSERT_NE(NULL, held.iov_base);
	ASSERT_EQ(0, pipe(tube));
	ASSERT_EQ((long)PAGE, vmsplice(tube[1], &held, 1, 0));
	munmap(held.iov_base, PAGE);
	self->map = promote(BLOCKS - 1);
	ASSERT_NE(NULL, self->map);
	EXPECT_TRUE(wait_stat("promote_busy", busy + 1));
	EXPECT_TRUE(is_huge(self->map, BLOCKS - 1, blocks_in_place(before) - 1));
	munmap(self->map, FILE_SIZE);

	close(tube[0]);
	close(tube[1]);
	self->map = promote(BLOCKS);
	ASSERT_NE(NULL, self->map);
	EXPECT_TRUE(is_huge(self->map, BLOCKS, blocks_in_place(before)));
	EXPECT_TRUE(frames_stay());
}

TEST_F_TIMEOUT(promote, locked_text_is_left, 600)
{
	long locked = stat_of("fallback_locked"), kb = meminfo("Mlocked:");
	void *part = map_part(2 * BLOCK_PAGES, BLOCK_PAGES);

	ASSERT_NE(NULL, part);
	ASSERT_EQ(0, mlock(part, BLOCK));
	self->map = promote(BLOCKS - 1);
	ASSERT_NE(NULL, self->map);
	EXPECT_TRUE(wait_stat("fallback_locked", locked + 1));
	EXPECT_TRUE(is_huge(self->map, BLOCKS - 1, blocks_in_place(before) - 1));
	/* Some pages may still be in per-CPU batches. */
	EXPECT_GE(meminfo("Mlocked:"), kb + BLOCK_KB * 9 / 10);
	munmap(self->map, FILE_SIZE);

	/* A page that is still in a batch keeps its flag, and then the block is copied. */
	munmap(part, BLOCK);
	self->map = promote(BLOCKS);
	ASSERT_NE(NULL, self->map);
	EXPECT_TRUE(wait_stat("collapsed_blocks", collapsed + BLOCKS));
	EXPECT_TRUE(text_is_right(self->map + PAGE, 0, three_blocks.pages));
}

TEST_F_TIMEOUT(promote, writer_drops_it, 600)
{
	int fd;

	self->map = promote(BLOCKS);
	ASSERT_NE(NULL, self->map);
	fd = open(PROGRAM, O_RDWR);
	ASSERT_GE(fd, 0);
	EXPECT_EQ(0, pmd_mapped(0, PROGRAM));
	EXPECT_TRUE(text_is_right(self->map + PAGE, 0, three_blocks.pages));
	ASSERT_EQ(7, pwrite(fd, "written", 7, 701 * PAGE));
	close(fd);
	EXPECT_EQ(0, memcmp(self->map + 701 * PAGE, "written", 7));
	EXPECT_TRUE(text_is_right(self->map + PAGE, 0, 700));
	EXPECT_TRUE(text_is_right(self->map + PAGE, 701, three_blocks.pages));
}

TEST_F_TIMEOUT(promote, truncate_drops_it, 600)
{
	size_t keep = 701 * PAGE + 100;
	unsigned char zero[PAGE] = { 0 };

	self->map = promote(BLOCKS);
	ASSERT_NE(NULL, self->map);
	ASSERT_EQ(0, truncate(PROGRAM, keep));
	EXPECT_EQ(0, pmd_mapped(0, PROGRAM));
	EXPECT_TRUE(text_is_right(self->map + PAGE, 0, 700));
	ASSERT_EQ(0, truncate(PROGRAM, FILE_SIZE));
	EXPECT_EQ(0, memcmp(self->map + keep, zero, PAGE - 100));
	EXPECT_EQ(0, memcmp(self->map + 801 * PAGE, zero, PAGE));
	EXPECT_TRUE(text_is_right(self->map + PAGE, 0, 700));
}

TEST_F_TIMEOUT(promote, drain_splits_it, 600)
{
	long drained = stat_of("drained_blocks");

	self->map = promote(BLOCKS);
	ASSERT_NE(NULL, self->map);
	ASSERT_EQ(0, set("enabled", "2"));
	EXPECT_GE(stat_of("drained_blocks"), drained + BLOCKS);
	EXPECT_EQ(0, meminfo("FileHugePages:"));
	EXPECT_TRUE(text_is_right(self->map + PAGE, 0, three_blocks.pages));
	EXPECT_EQ(0, pmd_mapped(0, PROGRAM));
}

/* ---- numbers ---- */

TEST_F_TIMEOUT(promote, counts_of_the_machine, 600)
{
	long huge = meminfo("FileHugePages:"), cached = meminfo("Cached:");
	double end = seconds() + LIMIT_S;

	self->map = promote(BLOCKS);
	ASSERT_NE(NULL, self->map);
	EXPECT_TRUE(is_huge(self->map, BLOCKS, blocks_in_place(before)));
	EXPECT_EQ(huge + BLOCKS * BLOCK_KB, meminfo("FileHugePages:"));
	EXPECT_LT(labs(meminfo("Cached:") - cached), 2 * BLOCK_KB);
	munmap(self->map, FILE_SIZE);
	self->map = NULL;
	unlink(PROGRAM);
	while (meminfo("FileHugePages:") != huge && seconds() < end)
		usleep(20000);
	EXPECT_EQ(huge, meminfo("FileHugePages:"));
}

/* Drops caches until a number in a file is no more than @most; returns whether it became so. */
static bool wait_less(const char *path, const char *name, long most)
{
	double end = seconds() + LIMIT_S;
	long value;

	do {
		write_file("/proc/sys/vm/drop_caches", "1");
		value = value_of(path, name);
		if (value >= 0 && value <= most)
			return true;
		usleep(100000);
	} while (seconds() < end);
	printf("# %s: %s is %ld\n", path, name, value);
	return false;
}

/* A group in a group, which knows of no others that are gone and not freed. */
static int make_cgroups(void)
{
	write_file("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	if (mkdir(GROUPS, 0755) && errno != EEXIST)
		return -1;
	write_file(GROUPS "/cgroup.subtree_control", "+memory");
	return make_cgroup();
}

TEST_F_TIMEOUT(promote, counts_of_the_group, 600)
{
	long file;

	if (make_cgroups())
		SKIP(return, "no memory controller");
	ASSERT_EQ(0, fill(read_all_in_group));
	file = cgroup_value("memory.stat", "file");
	EXPECT_GE(file, (long)FILE_SIZE);
	self->map = promote(BLOCKS);
	ASSERT_NE(NULL, self->map);
	EXPECT_TRUE(is_huge(self->map, BLOCKS, blocks_in_place(before)));
	EXPECT_EQ(file, cgroup_value("memory.stat", "file"));
	EXPECT_EQ(BLOCKS * (long)BLOCK, cgroup_value("memory.stat", "file_thp"));
	munmap(self->map, FILE_SIZE);
	self->map = NULL;
	unlink(PROGRAM);
	/* CPUs hold back a part of what they have charged. */
	EXPECT_TRUE(wait_less(CGROUP "/memory.current", "", BLOCK / 2));
	EXPECT_EQ(0, cgroup_value("memory.stat", "file_thp"));
	EXPECT_EQ(0, rmdir(CGROUP));
	/* It is freed when no page is charged to it, and all references were counted. */
	EXPECT_TRUE(wait_less(GROUPS "/cgroup.stat", "nr_dying_descendants", 0));
}

int main(int argc, char **argv)
{
	return test_on_ext4(argc, argv, IMAGE, FOLDER);
}
