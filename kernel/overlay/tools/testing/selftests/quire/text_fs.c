// SPDX-License-Identifier: GPL-2.0
/*
 * The text feature on other filesystems than ext4: erofs, whose large folios let the first
 * fault read a whole block, squashfs, which has none, and xfs, whose large folios are
 * written to. Also, how much of what is resident one fault maps.
 * Needs root, loop devices, mkfs.erofs, mksquashfs and mkfs.xfs, and quire=text (or on).
 */
#define _GNU_SOURCE

#include "harness.h"
#include "text_huge.h"

#define HERE	"/tmp/text_fs"
#define TREE	HERE "/tree"
#define FOLDER	HERE "/mnt"
#define PROGRAM	FOLDER "/program"
#define ROUNDS	20	/* only a machine without huge pages needs more than one */

static const char * const make_image[] = {
	"mkfs.erofs " HERE "/erofs " TREE,
	"mksquashfs " TREE " " HERE "/squashfs -noappend -noI -noD -noF -noX -no-progress",
};

static bool have_image(const char *type)
{
	char path[64];

	snprintf(path, sizeof(path), HERE "/%s", type);
	return !access(path, R_OK);
}

/* Mounts an image anew, so that nothing of it is resident. */
static int mount_image(const char *type)
{
	char command[256];

	umount2(FOLDER, 0);
	snprintf(command, sizeof(command), "mount -t %s -o loop,ro " HERE "/%s " FOLDER, type, type);
	return system(command) ? -1 : 0;
}

/* Runs the program once; returns its minor faults, and in @kb what it mapped by PMD. */
static long run_program(const char *path, long *kb)
{
	struct program p;

	if (start(&p, path, NULL) || touch(&p))
		return -1;
	*kb = pmd_mapped(p.pid, path);
	return stop(&p);
}

FIXTURE(erofs) {
	struct program p;
};

FIXTURE_SETUP(erofs)
{
	NEED_TEXT_FEATURE();
	if (!have_image("erofs"))
		SKIP(return, "no mkfs.erofs");
	ASSERT_EQ(0, set("enabled", "0"));
	ASSERT_EQ(0, defaults());
	/* Most of these tests are of the reading; the worker comes too late for them. */
	ASSERT_EQ(0, set("delay_ms", "60000"));
	ASSERT_EQ(0, set("readahead", "1"));
	if (mount_image("erofs"))
		SKIP(return, "the kernel has no erofs");
}

FIXTURE_TEARDOWN(erofs)
{
	defaults();
	umount2(FOLDER, 0);
}

TEST_F_TIMEOUT(erofs, first_exec_reads_it_huge, 600)
{
	long collapsed = stat_of("collapsed_blocks"), before, kb = 0;

	for (int i = 0; i < ROUNDS && kb != 3 * BLOCK_KB; i++) {
		ASSERT_EQ(0, mount_image("erofs"));
		before = stat_of("readahead_blocks");
		ASSERT_GT(run_program(PROGRAM, &kb), 0);
	}
	EXPECT_EQ(3 * BLOCK_KB, kb);
	EXPECT_EQ(before + 3, stat_of("readahead_blocks"));
	EXPECT_EQ(collapsed, stat_of("collapsed_blocks"));
	EXPECT_TRUE(file_is_right(PROGRAM));
}

/* In whichever order its pages are called, reading for one block does not spoil its neighbours. */
TEST_F_TIMEOUT(erofs, backwards, 600)
{
	long kb = 0, before;
	unsigned char *map;

	for (int i = 0; i < ROUNDS && kb != 4 * BLOCK_KB; i++) {
		ASSERT_EQ(0, mount_image("erofs"));
		before = stat_of("readahead_partial");
		map = map_file(PROGRAM, FILE_SIZE);
		ASSERT_NE(NULL, map);
		for (size_t at = FILE_SIZE; at; at -= PAGE)
			(void)*(volatile unsigned char *)(map + at - PAGE);
		kb = pmd_mapped(0, PROGRAM);
		EXPECT_TRUE(text_is_right(map + PAGE, 0, three_blocks.pages));
		munmap(map, FILE_SIZE);
	}
	EXPECT_EQ(4 * BLOCK_KB, kb);
	EXPECT_EQ(before, stat_of("readahead_partial"));
}

TEST_F_TIMEOUT(erofs, switched_off, 600)
{
	long before = stat_of("readahead_blocks"), kb = -1;

	ASSERT_EQ(0, set("readahead", "0"));
	ASSERT_GT(run_program(PROGRAM, &kb), 0);
	EXPECT_EQ(0, kb);
	ASSERT_EQ(0, set("readahead", "1"));
	ASSERT_EQ(0, set("enabled", "0"));
	ASSERT_EQ(0, mount_image("erofs"));
	ASSERT_GT(run_program(PROGRAM, &kb), 0);
	EXPECT_EQ(0, kb);
	EXPECT_EQ(before, stat_of("readahead_blocks"));
}

/* Mounts the image anew, uses one page of each block, and returns how many pages that read. */
static long read_for_sparse_use(void)
{
	unsigned char *map;
	long pages;

	if (mount_image("erofs"))
		return -1;
	map = map_file(PROGRAM, FILE_SIZE);
	if (!map)
		return -1;
	for (size_t at = BLOCK / 2; at < FILE_SIZE; at += BLOCK)
		(void)*(volatile unsigned char *)(map + at);
	/* The worker's attempts, if there are any. */
	usleep(500000);
	pages = resident(PROGRAM);
	munmap(map, FILE_SIZE);
	return pages;
}

/* A program that uses little of each block reads no more than on Linux, and is not collapsed. */
TEST_F_TIMEOUT(erofs, sparse_text_is_read_as_linux, 600)
{
	long collapsed = stat_of("collapsed_blocks"), as_linux, cold = stat_of("fallback_cold");
	unsigned char *map;

	ASSERT_EQ(0, set("enabled", "0"));
	as_linux = read_for_sparse_use();
	ASSERT_EQ(0, defaults());
	EXPECT_EQ(as_linux, read_for_sparse_use());
	EXPECT_TRUE(wait_stat("fallback_cold", cold + 1));
	EXPECT_GT(as_linux, 0);
	EXPECT_LT(as_linux, (long)BLOCK_PAGES);
	EXPECT_EQ(collapsed, stat_of("collapsed_blocks"));
	/* One that uses all of it is collapsed. */
	map = map_huge(PROGRAM);
	ASSERT_NE(NULL, map);
	EXPECT_TRUE(text_is_right(map + PAGE, 0, three_blocks.pages));
	munmap(map, FILE_SIZE);
}

TEST_F_TIMEOUT(erofs, share_of_memory, 600)
{
	long before = stat_of("readahead_blocks"), refused = stat_of("readahead_share"), kb = -1;

	ASSERT_EQ(0, set("max_permil", "0"));
	ASSERT_GT(run_program(PROGRAM, &kb), 0);
	EXPECT_EQ(0, kb);
	EXPECT_EQ(before, stat_of("readahead_blocks"));
	EXPECT_GE(stat_of("readahead_share"), refused + 3);
}

/* Advice about the order of reading is followed. */
TEST_F_TIMEOUT(erofs, random_advice, 600)
{
	long before = stat_of("readahead_blocks");
	unsigned char *map = map_file(PROGRAM, FILE_SIZE);

	ASSERT_NE(NULL, map);
	ASSERT_EQ(0, madvise(map, FILE_SIZE, MADV_RANDOM));
	(void)*(volatile unsigned char *)(map + BLOCK + 5 * PAGE);
	EXPECT_EQ(before, stat_of("readahead_blocks"));
	EXPECT_TRUE(text_is_right(map + PAGE, BLOCK_PAGES, BLOCK_PAGES + 20));
	munmap(map, FILE_SIZE);
}

/* A block with a resident page is read page by page, and collapsed later. */
TEST_F_TIMEOUT(erofs, resident_page, 600)
{
	long partial = stat_of("readahead_partial"), kb = 0;
	char byte[16];
	int fd;

	for (int i = 0; i < ROUNDS && kb != 2 * BLOCK_KB; i++) {
		ASSERT_EQ(0, mount_image("erofs"));
		fd = open(PROGRAM, O_RDONLY);
		ASSERT_GE(fd, 0);
		ASSERT_EQ(0, posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM));
		ASSERT_EQ(16, pread(fd, byte, 16, 2 * BLOCK + 100 * PAGE));
		close(fd);
		ASSERT_GT(run_program(PROGRAM, &kb), 0);
	}
	EXPECT_EQ(2 * BLOCK_KB, kb);
	EXPECT_GE(stat_of("readahead_partial"), partial + 1);
	ASSERT_EQ(0, set("enabled", "0"));
	ASSERT_EQ(0, set("enabled", "1"));
	ASSERT_EQ(0, set("delay_ms", "20"));
	EXPECT_EQ(0, start_huge(&self->p, PROGRAM, &three_blocks, NULL));
	EXPECT_GE(stop(&self->p), 0);
}

TEST_F_TIMEOUT(erofs, no_huge_page_to_be_had, 600)
{
	long before = stat_of("readahead_blocks"), nomem = stat_of("readahead_nomem"), kb = -1;

	if (access(INJECT "probability", W_OK))
		SKIP(return, "no fault injection");
	ASSERT_EQ(0, fail_huge_pages("100"));
	EXPECT_GT(run_program(PROGRAM, &kb), 0);
	EXPECT_EQ(0, fail_huge_pages("0"));
	EXPECT_EQ(0, kb);
	EXPECT_EQ(before, stat_of("readahead_blocks"));
	EXPECT_GE(stat_of("readahead_nomem"), nomem + 3);
	EXPECT_TRUE(file_is_right(PROGRAM));
}

/* All pages are small and resident: Linux maps 16 pages per fault, the feature a whole table. */
TEST_F_TIMEOUT(erofs, resident_text_is_mapped_at_once, 600)
{
	long wide, narrow_faults, faults, kb = -1;

	ASSERT_EQ(0, set("readahead", "0"));
	ASSERT_GT(run_program(PROGRAM, &kb), 0);
	ASSERT_EQ(EINVAL, set("fault_around_kb", "32"));
	ASSERT_EQ(EINVAL, set("fault_around_kb", "4096"));
	ASSERT_EQ(0, set("fault_around_kb", "64"));
	wide = stat_of("wide_faults");
	narrow_faults = run_program(PROGRAM, &kb);
	EXPECT_EQ(wide, stat_of("wide_faults"));
	ASSERT_EQ(0, set("fault_around_kb", "2048"));
	faults = run_program(PROGRAM, &kb);
	EXPECT_EQ(0, kb);
	EXPECT_GE(stat_of("wide_faults"), wide + 5);
	ASSERT_GT(faults, 0);
	EXPECT_GE(narrow_faults - faults, 5 * (long)(BLOCK_PAGES / 16) / 2);
}

/* How many pages of our mappings of the program's file are mapped by page tables. */
static long mapped_pages(void)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	bool ours = false;
	char line[512];
	long kb = 0, one;

	while (f && fgets(line, sizeof(line), f)) {
		if (strchr(line, '-') && strchr(line, '-') < strchr(line, ' '))
			ours = strstr(line, PROGRAM);
		else if (ours && sscanf(line, "Rss: %ld", &one) == 1)
			kb += one;
	}
	if (f)
		fclose(f);
	return kb * 1024 / PAGE;
}

/* A page of each block maps no more than Linux does; what is used more is mapped faster. */
TEST_F_TIMEOUT(erofs, scattered_text_maps_as_linux, 600)
{
	volatile unsigned char *map;
	unsigned long i;
	long wide;

	ASSERT_EQ(0, set("readahead", "0"));
	map = map_resident(PROGRAM);
	ASSERT_NE(NULL, map);
	munmap((void *)map, FILE_SIZE);

	/* The first page of each block, backwards, and the last page of each. */
	map = map_file(PROGRAM, FILE_SIZE);
	ASSERT_NE(NULL, map);
	wide = stat_of("wide_faults");
	for (i = 4; i-- > 0;)
		(void)map[i * BLOCK];
	EXPECT_EQ(4 * 16, mapped_pages());
	munmap((void *)map, FILE_SIZE);
	map = map_file(PROGRAM, FILE_SIZE);
	ASSERT_NE(NULL, map);
	for (i = 1; i <= 4; i++)
		(void)map[i * BLOCK - PAGE];
	EXPECT_EQ(4 * 16, mapped_pages());
	EXPECT_EQ(wide, stat_of("wide_faults"));
	munmap((void *)map, FILE_SIZE);

	map = map_file(PROGRAM, FILE_SIZE);
	ASSERT_NE(NULL, map);
	for (i = 0; i < 4; i++)
		if (i != 1)
			(void)map[i * BLOCK + BLOCK / 2];
	EXPECT_EQ(wide, stat_of("wide_faults"));
	EXPECT_EQ(3 * 16, mapped_pages());
	/* The second fault maps 64 pages, the third all of the table. */
	(void)map[BLOCK / 2 + 64 * PAGE];
	EXPECT_EQ(wide + 1, stat_of("wide_faults"));
	EXPECT_EQ(3 * 16 + 64, mapped_pages());
	(void)map[BLOCK / 2 - PAGE];
	EXPECT_EQ(wide + 2, stat_of("wide_faults"));
	EXPECT_EQ(2 * 16 + (long)BLOCK_PAGES, mapped_pages());
	/* What is between tables that are mapped whole is mapped whole at once. */
	(void)map[2 * BLOCK + BLOCK / 2 + 64 * PAGE];
	(void)map[2 * BLOCK];
	EXPECT_EQ(wide + 4, stat_of("wide_faults"));
	EXPECT_EQ(16 + 2 * (long)BLOCK_PAGES, mapped_pages());
	(void)map[BLOCK + BLOCK / 2];
	EXPECT_EQ(wide + 5, stat_of("wide_faults"));
	EXPECT_EQ(16 + 3 * (long)BLOCK_PAGES, mapped_pages());
	munmap((void *)map, FILE_SIZE);
}

/* Has pages of a block read, and no others. 0, or -1. */
static int read_pages_of_block(unsigned long block, unsigned long pages)
{
	int fd = open(PROGRAM, O_RDONLY), ret;
	static char buf[PAGE];

	ret = posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	for (unsigned long i = 0; i < pages && !ret; i++)
		ret = pread(fd, buf, PAGE, block * BLOCK + i * PAGE) == PAGE ? 0 : -1;
	close(fd);
	return ret;
}

/* While a block is being read, faults map as little as Linux's; once half is there, all of it. */
TEST_F_TIMEOUT(erofs, partly_resident_text_maps_as_linux, 600)
{
	const long few = BLOCK_PAGES / 4, half = BLOCK_PAGES / 2;
	volatile unsigned char *map;
	long wide;

	ASSERT_EQ(0, set("readahead", "0"));
	ASSERT_EQ(0, mount_image("erofs"));
	ASSERT_EQ(0, read_pages_of_block(1, few));
	map = map_file(PROGRAM, FILE_SIZE);
	ASSERT_NE(NULL, map);
	wide = stat_of("wide_faults");
	for (int i = 0; i < 3; i++)
		(void)map[BLOCK + i * 32 * PAGE];
	EXPECT_EQ(wide, stat_of("wide_faults"));
	EXPECT_EQ(3 * 16, mapped_pages());
	munmap((void *)map, FILE_SIZE);

	ASSERT_EQ(0, read_pages_of_block(1, half));
	map = map_file(PROGRAM, FILE_SIZE);
	ASSERT_NE(NULL, map);
	for (int i = 0; i < 3; i++)
		(void)map[BLOCK + i * 80 * PAGE];
	EXPECT_EQ(wide + 2, stat_of("wide_faults"));
	EXPECT_EQ(half, mapped_pages());
	munmap((void *)map, FILE_SIZE);
}

TEST_F_TIMEOUT(erofs, random_advice_maps_as_linux, 600)
{
	unsigned char *map, resident = 0;
	long wide;

	ASSERT_EQ(0, set("readahead", "0"));
	map = map_resident(PROGRAM);
	ASSERT_NE(NULL, map);
	munmap(map, FILE_SIZE);
	map = map_file(PROGRAM, FILE_SIZE);
	ASSERT_NE(NULL, map);
	ASSERT_EQ(0, mincore(map + BLOCK, PAGE, &resident));
	ASSERT_EQ(1, resident & 1);
	ASSERT_EQ(0, madvise(map, FILE_SIZE, MADV_RANDOM));
	wide = stat_of("wide_faults");
	read_pages(map, FILE_SIZE);
	EXPECT_EQ(wide, stat_of("wide_faults"));
	EXPECT_TRUE(text_is_right(map + PAGE, 0, three_blocks.pages));
	munmap(map, FILE_SIZE);
}

FIXTURE(squashfs) {
	struct program p;
};

FIXTURE_SETUP(squashfs)
{
	NEED_TEXT_FEATURE();
	if (!have_image("squashfs"))
		SKIP(return, "no mksquashfs");
	ASSERT_EQ(0, set("enabled", "0"));
	ASSERT_EQ(0, defaults());
	if (mount_image("squashfs"))
		SKIP(return, "the kernel has no squashfs");
}

FIXTURE_TEARDOWN(squashfs)
{
	defaults();
	umount2(FOLDER, 0);
}

TEST_F_TIMEOUT(squashfs, collapse, 600)
{
	long collapsed = stat_of("collapsed_blocks"), read = stat_of("readahead_blocks"), kb = 0;
	unsigned char *map;

	ASSERT_EQ(0, start_huge(&self->p, PROGRAM, &three_blocks, NULL));
	EXPECT_TRUE(wait_stat("collapsed_blocks", collapsed + 3));
	EXPECT_EQ(read, stat_of("readahead_blocks"));
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_GT(run_program(PROGRAM, &kb), 0);
	EXPECT_EQ(3 * BLOCK_KB, kb);
	/* As a library, at an address that the kernel chooses. */
	map = map_huge(PROGRAM);
	ASSERT_NE(NULL, map);
	EXPECT_TRUE(text_is_right(map + PAGE, 0, three_blocks.pages));
	munmap(map, FILE_SIZE);
}

TEST_F_TIMEOUT(squashfs, drain, 600)
{
	long drained = stat_of("drained_blocks"), kb = -1;

	ASSERT_EQ(0, start_huge(&self->p, PROGRAM, &three_blocks, NULL));
	ASSERT_GE(stop(&self->p), 0);
	ASSERT_EQ(0, set("enabled", "2"));
	EXPECT_GE(stat_of("drained_blocks"), drained + 3);
	EXPECT_GT(run_program(PROGRAM, &kb), 0);
	EXPECT_EQ(0, kb);
}

FIXTURE(xfs) {
	struct program p;
};

/* Mounts the xfs anew, so that nothing of it is resident. */
static int mount_xfs(void)
{
	umount2(FOLDER, 0);
	return system("mount -t xfs -o loop " HERE "/xfs " FOLDER) ? -1 : 0;
}

FIXTURE_SETUP(xfs)
{
	NEED_TEXT_FEATURE();
	on_xfs = true;
	if (make_fs(HERE "/xfs", FOLDER, XFS_LEAST_MB))
		SKIP(return, "no mkfs.xfs, or the kernel has no xfs");
	ASSERT_EQ(0, fresh_program(PROGRAM));
	ASSERT_EQ(0, mount_xfs());
}

FIXTURE_TEARDOWN(xfs)
{
	defaults();
	umount2(FOLDER, 0);
	unlink(HERE "/xfs");
}

/* Its own large folios are not in the way: each block is huge in the end, and stays so. */
TEST_F_TIMEOUT(xfs, collapse, 600)
{
	long collapsed = stat_of("collapsed_blocks"), kb = 0;
	unsigned char *map;

	ASSERT_EQ(0, start_huge(&self->p, PROGRAM, &three_blocks, NULL));
	EXPECT_TRUE(wait_stat("collapsed_blocks", collapsed + 3));
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_GT(run_program(PROGRAM, &kb), 0);
	EXPECT_EQ(3 * BLOCK_KB, kb);
	map = map_huge(PROGRAM);
	ASSERT_NE(NULL, map);
	EXPECT_TRUE(text_is_right(map + PAGE, 0, three_blocks.pages));
	munmap(map, FILE_SIZE);
}

TEST_F_TIMEOUT(xfs, first_exec_reads_it_huge, 600)
{
	long before, kb = 0;

	ASSERT_EQ(0, set("readahead", "1"));
	ASSERT_EQ(0, set("delay_ms", "60000"));
	for (int i = 0; i < ROUNDS && kb != 3 * BLOCK_KB; i++) {
		ASSERT_EQ(0, mount_xfs());
		before = stat_of("readahead_blocks");
		ASSERT_GT(run_program(PROGRAM, &kb), 0);
	}
	EXPECT_EQ(3 * BLOCK_KB, kb);
	EXPECT_EQ(before + 3, stat_of("readahead_blocks"));
	EXPECT_TRUE(file_is_right(PROGRAM));
}

/* A writer finds huge pages that it can write to: mappings show it, and so does the disk. */
TEST_F_TIMEOUT(xfs, written_in_place, 600)
{
	long dropped = stat_of("dropped_writer");
	unsigned char *map = map_huge(PROGRAM);
	char word[8] = "";
	int fd;

	ASSERT_NE(NULL, map);
	fd = open(PROGRAM, O_RDWR);
	ASSERT_GE(fd, 0);
	EXPECT_EQ(4 * BLOCK_KB, pmd_mapped(0, PROGRAM));
	EXPECT_EQ(dropped, stat_of("dropped_writer"));
	ASSERT_EQ(7, pwrite(fd, "written", 7, PAGE + 700 * PAGE));
	EXPECT_EQ(0, memcmp(map + PAGE + 700 * PAGE, "written", 7));
	munmap(map, FILE_SIZE);
	close(fd);

	ASSERT_EQ(0, mount_xfs());
	fd = open(PROGRAM, O_RDONLY);
	ASSERT_GE(fd, 0);
	EXPECT_EQ(7, pread(fd, word, 7, PAGE + 700 * PAGE));
	EXPECT_STREQ("written", word);
	close(fd);
	map = map_huge(PROGRAM);
	ASSERT_NE(NULL, map);
	EXPECT_TRUE(text_is_right(map + PAGE, 0, 700));
	EXPECT_TRUE(text_is_right(map + PAGE, 701, three_blocks.pages));
	EXPECT_EQ(0, memcmp(map + PAGE + 700 * PAGE, "written", 7));
	munmap(map, FILE_SIZE);
}

/* Where a huge page is cut, it is split, and what is left of it stays right. */
TEST_F_TIMEOUT(xfs, cut, 600)
{
	const size_t keep = PAGE + 700 * PAGE + 100;
	unsigned char *map = map_huge(PROGRAM), zero[PAGE] = { 0 };
	int fd;

	ASSERT_NE(NULL, map);
	ASSERT_EQ(0, truncate(PROGRAM, keep));
	EXPECT_TRUE(text_is_right(map + PAGE, 0, 700));
	EXPECT_EQ(0xc3, map[PAGE + 700 * PAGE]);
	ASSERT_EQ(0, truncate(PROGRAM, FILE_SIZE));
	EXPECT_EQ(0, memcmp(map + keep, zero, PAGE - 100));
	EXPECT_EQ(0, memcmp(map + PAGE + 800 * PAGE, zero, PAGE));
	fd = open(PROGRAM, O_RDWR);
	ASSERT_GE(fd, 0);
	EXPECT_EQ(0, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			       100 * PAGE, 10 * PAGE));
	close(fd);
	for (int i = 0; i < 10; i++)
		EXPECT_EQ(0, memcmp(map + (100 + i) * PAGE, zero, PAGE));
	EXPECT_TRUE(text_is_right(map + PAGE, 0, 99));
	EXPECT_TRUE(text_is_right(map + PAGE, 109, 700));
	munmap(map, FILE_SIZE);

	ASSERT_EQ(0, mount_xfs());
	map = map_file(PROGRAM, FILE_SIZE);
	ASSERT_NE(NULL, map);
	EXPECT_TRUE(text_is_right(map + PAGE, 0, 99));
	EXPECT_TRUE(text_is_right(map + PAGE, 109, 700));
	EXPECT_EQ(0, memcmp(map + keep, zero, PAGE - 100));
	munmap(map, FILE_SIZE);
}

/* The filesystem's huge pages and the feature's are alike, so a drain leaves both. */
TEST_F_TIMEOUT(xfs, drain, 600)
{
	ASSERT_EQ(0, start_huge(&self->p, PROGRAM, &three_blocks, NULL));
	EXPECT_EQ(0, set("enabled", "2"));
	EXPECT_EQ(3 * BLOCK_KB, pmd_mapped(self->p.pid, PROGRAM));
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_TRUE(file_is_right(PROGRAM));
}

/* Makes an image of each kind, with one program in it. */
static int make_images(void)
{
	char command[256];

	mkdir(HERE, 0755);
	mkdir(TREE, 0755);
	mkdir(FOLDER, 0755);
	if (make_program(TREE "/program", &three_blocks))
		return -1;
	for (int i = 0; i < 2; i++) {
		snprintf(command, sizeof(command), "%s >/dev/null 2>&1", make_image[i]);
		if (system(command))
			printf("# cannot make an image: %s\n", make_image[i]);
	}
	return 0;
}

int main(int argc, char **argv)
{
	int ret;

	if (make_images()) {
		printf("1..0 # SKIP cannot make the program\n");
		return KSFT_SKIP;
	}
	ret = test_harness_run(argc, argv);
	umount2(FOLDER, 0);
	ret |= system("rm -rf " HERE) ? 1 : 0;
	return ret;
}
