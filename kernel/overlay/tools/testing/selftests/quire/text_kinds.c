// SPDX-License-Identifier: GPL-2.0
/*
 * The text feature and other kinds and uses of files: scripts whose interpreter is a large
 * program, files whose blocks ext4 exchanges or that the kernel swaps to, tmpfs with and
 * without huge pages, and network filesystems. Also, what the kernel's counters show of text
 * that many programs map.
 * Needs root, ext4 on a loop device, and quire=text (or on).
 */
#define _GNU_SOURCE
#include <linux/ioctl.h>
#include <sys/ioctl.h>
#include <sys/swap.h>
#include <sys/sysmacros.h>

#include "harness.h"
#include "text_huge.h"

#define IMAGE	"/tmp/text_kinds.img"
#define FOLDER	"/tmp/text_kinds"
#define PROGRAM	FOLDER "/program"
#define OTHER	FOLDER "/other"
#define TMPFS	"/tmp/text_kinds_tmpfs"

FIXTURE(kinds) {
	struct program p;
};

FIXTURE_SETUP(kinds)
{
	NEED_TEXT_FEATURE();
	ASSERT_EQ(0, fresh_program(PROGRAM));
}

FIXTURE_TEARDOWN(kinds)
{
	defaults();
	unlink(PROGRAM);
	unlink(OTHER);
}

static int drop_caches(void)
{
	return write_file("/proc/sys/vm/drop_caches", "1");
}

TEST_F_TIMEOUT(kinds, numbers_agree, 600)
{
	long mapped = meminfo("FilePmdMapped:"), huge = meminfo("FileHugePages:");
	long collapsed = stat_of("collapsed_blocks"), sum = 0;
	struct program many[8];

	ASSERT_EQ(0, start_huge(&self->p, PROGRAM, &three_blocks, NULL));
	EXPECT_TRUE(wait_stat("collapsed_blocks", collapsed + 3));
	EXPECT_EQ(collapsed + 3, stat_of("collapsed_blocks"));
	for (int i = 0; i < 8; i++) {
		ASSERT_EQ(0, start(&many[i], PROGRAM, NULL));
		ASSERT_EQ(0, touch(&many[i]));
		sum += pmd_mapped(many[i].pid, PROGRAM);
	}
	/* The processes count it once per mapping, the system's counters count it once. */
	EXPECT_EQ(8 * 3 * BLOCK_KB, sum);
	EXPECT_EQ(mapped + 3 * BLOCK_KB, meminfo("FilePmdMapped:"));
	EXPECT_EQ(huge + 3 * BLOCK_KB, meminfo("FileHugePages:"));
	for (int i = 0; i < 8; i++)
		EXPECT_GE(stop(&many[i]), 0);
	EXPECT_EQ(mapped + 3 * BLOCK_KB, meminfo("FilePmdMapped:"));
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_EQ(mapped, meminfo("FilePmdMapped:"));
	EXPECT_EQ(huge + 3 * BLOCK_KB, meminfo("FileHugePages:"));
	EXPECT_EQ(0, drop_caches());
	EXPECT_EQ(huge, meminfo("FileHugePages:"));
}

/* The interpreter of a script is text like any other. */
TEST_F_TIMEOUT(kinds, script_with_a_large_interpreter, 600)
{
	long collapsed = stat_of("collapsed_blocks"), queued = stat_of("queued");
	int fd = open(OTHER, O_CREAT | O_WRONLY, 0755), starts;

	ASSERT_EQ(0, write_all(fd, "#!" PROGRAM "\n", strlen("#!" PROGRAM "\n"), 0));
	close(fd);
	starts = start_until_huge(&self->p, OTHER, PROGRAM, &three_blocks, NULL);
	ASSERT_LT(0, starts);
	EXPECT_TRUE(wait_stat("collapsed_blocks", collapsed + 3));
	EXPECT_EQ(queued + starts, stat_of("queued"));
	EXPECT_GE(stop(&self->p), 0);
}

#define SWAP_BOOT	_IO('f', 17)

/*
 * The file's blocks go to the boot loader's inode, which has none on a new filesystem, and come
 * back.
 */
TEST_F_TIMEOUT(kinds, blocks_exchanged_with_the_boot_loader, 600)
{
	long dropped = stat_of("dropped_writer");
	unsigned char *map = map_huge(PROGRAM);
	struct stat st;
	int fd;

	ASSERT_NE(NULL, map);
	fd = open(PROGRAM, O_RDWR);
	ASSERT_GE(fd, 0);
	EXPECT_EQ(dropped + 1, stat_of("dropped_writer"));
	read_pages(map, FILE_SIZE);
	ASSERT_EQ(0, ioctl(fd, SWAP_BOOT));
	EXPECT_EQ(0, fstat(fd, &st));
	EXPECT_EQ(0, st.st_size);
	ASSERT_EQ(0, ioctl(fd, SWAP_BOOT));
	EXPECT_EQ(0, fstat(fd, &st));
	EXPECT_EQ((off_t)FILE_SIZE, st.st_size);
	EXPECT_TRUE(text_is_right(map + PAGE, 0, three_blocks.pages));
	close(fd);
	munmap(map, FILE_SIZE);
	map = map_huge(PROGRAM);
	ASSERT_NE(NULL, map);
	EXPECT_TRUE(text_is_right(map + PAGE, 0, three_blocks.pages));
	munmap(map, FILE_SIZE);
}

/* What a defragmenter tells ext4. */
struct move_extent {
	uint32_t reserved, donor_fd;
	uint64_t orig_start, donor_start, len, moved_len;
};

#define MOVE_EXT	_IOWR('f', 15, struct move_extent)

TEST_F_TIMEOUT(kinds, defragmented, 600)
{
	struct move_extent move = { .len = FILE_SIZE / PAGE };
	unsigned char *map;
	int fd, donor;

	ASSERT_EQ(0, make_program(OTHER, &three_blocks));
	map = map_huge(PROGRAM);
	ASSERT_NE(NULL, map);
	fd = open(PROGRAM, O_RDWR);
	donor = open(OTHER, O_RDWR);
	ASSERT_GE(fd, 0);
	ASSERT_GE(donor, 0);
	move.donor_fd = donor;
	read_pages(map, FILE_SIZE);
	ASSERT_EQ(0, ioctl(fd, MOVE_EXT, &move));
	EXPECT_EQ(FILE_SIZE / PAGE, move.moved_len);
	EXPECT_TRUE(text_is_right(map + PAGE, 0, three_blocks.pages));
	close(fd);
	close(donor);
	munmap(map, FILE_SIZE);
	/* Read it from the blocks where it is now. */
	ASSERT_EQ(0, drop_caches());
	map = map_huge(PROGRAM);
	ASSERT_NE(NULL, map);
	EXPECT_TRUE(text_is_right(map + PAGE, 0, three_blocks.pages));
	munmap(map, FILE_SIZE);
}

/* A file that is swapped to does not count as text while it is used for swap. */
TEST_F_TIMEOUT(kinds, swap_file, 600)
{
	struct {
		uint32_t version, last_page, bad_pages;
	} head = { 1, FILE_SIZE / PAGE - 1, 0 };
	long queued, skipped, dropped;
	unsigned char *map;
	int fd = open(PROGRAM, O_RDWR);

	ASSERT_EQ(0, write_all(fd, &head, sizeof(head), 1024));
	ASSERT_EQ(0, write_all(fd, "SWAPSPACE2", 10, PAGE - 10));
	ASSERT_EQ(0, fsync(fd));
	close(fd);
	ASSERT_EQ(0, chmod(PROGRAM, 0700));
	map = map_huge(PROGRAM);
	ASSERT_NE(NULL, map);
	dropped = stat_of("dropped_writer");
	ASSERT_EQ(0, swapon(PROGRAM, 0));
	EXPECT_EQ(0, pmd_mapped(0, PROGRAM));
	EXPECT_EQ(dropped + 1, stat_of("dropped_writer"));
	munmap(map, FILE_SIZE);
	queued = stat_of("queued");
	skipped = stat_of("skipped_file");
	map = map_resident(PROGRAM);
	EXPECT_NE(NULL, map);
	EXPECT_EQ(skipped + 1, stat_of("skipped_file"));
	EXPECT_EQ(queued, stat_of("queued"));
	munmap(map, FILE_SIZE);
	ASSERT_EQ(0, swapoff(PROGRAM));
	map = map_huge(PROGRAM);
	EXPECT_NE(NULL, map);
	munmap(map, FILE_SIZE);
}

/* kB of shared memory that a process maps by PMD. */
static long shmem_pmd_mapped(pid_t pid)
{
	char name[64], line[256];
	long sum = 0, kb;
	FILE *f;

	snprintf(name, sizeof(name), "/proc/%d/smaps", pid);
	f = fopen(name, "r");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "ShmemPmdMapped: %ld", &kb) == 1)
			sum += kb;
	if (f)
		fclose(f);
	return sum;
}

/* tmpfs makes huge pages by itself when its files are written. */
TEST_F_TIMEOUT(kinds, tmpfs_with_huge_pages, 600)
{
	const char *path = TMPFS "/program";
	struct layout pie = { .pages = 2049, .offset = PAGE };
	long queued = stat_of("queued"), skipped = stat_of("skipped_file");
	long placed = stat_of("placed_program");

	mkdir(TMPFS, 0755);
	ASSERT_EQ(0, mount("none", TMPFS, "tmpfs", 0, "huge=always"));
	EXPECT_EQ(0, make_program(path, &pie));
	EXPECT_EQ(0, start(&self->p, path, NULL));
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_EQ(placed + 1, stat_of("placed_program"));
	EXPECT_EQ(3 * BLOCK_KB, shmem_pmd_mapped(self->p.pid));
	EXPECT_EQ(queued, stat_of("queued"));
	EXPECT_EQ(skipped + 1, stat_of("skipped_file"));
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_EQ(0, umount2(TMPFS, 0));
	rmdir(TMPFS);
}

#define OVERLAY	"/tmp/text_kinds_overlay"

/*
 * Maps a file as a dynamic linker does: all of it, to reserve its place, and its text over
 * that.
 */
static unsigned char *map_library(const char *path)
{
	int fd = open(path, O_RDONLY);
	char *map = mmap(NULL, FILE_SIZE, PROT_READ, MAP_PRIVATE, fd, 0), *text = MAP_FAILED;

	if (map != MAP_FAILED)
		text = mmap(map + PAGE, three_blocks.pages * PAGE, PROT_READ | PROT_EXEC,
			    MAP_PRIVATE | MAP_FIXED, fd, PAGE);
	close(fd);
	return text == MAP_FAILED ? NULL : (unsigned char *)map;
}

/* Are all blocks of a library mapped by PMD after a while, and is its text right? */
static bool library_is_huge(const char *path, int *maps)
{
	unsigned char *map = map_until_huge(map_library, path, 3 * BLOCK_KB, maps);
	bool right = map && text_is_right(map + PAGE, 0, three_blocks.pages);

	if (map)
		munmap(map, FILE_SIZE);
	return right;
}

/* On ext4, which places mappings by itself, and on overlayfs, which leaves that to the feature. */
TEST_F_TIMEOUT(kinds, library_as_the_linker_maps_it, 600)
{
	long collapsed = stat_of("collapsed_blocks"), placed = stat_of("placed_map");
	int maps = 0, above = 0;

	EXPECT_TRUE(library_is_huge(PROGRAM, &maps));
	/* A block is counted after it can be mapped. */
	EXPECT_TRUE(wait_stat("collapsed_blocks", collapsed + 3));
	EXPECT_EQ(collapsed + 3, stat_of("collapsed_blocks"));
	EXPECT_EQ(placed, stat_of("placed_map"));
	ASSERT_EQ(0, make_program(OTHER, &three_blocks));
	mkdir(OVERLAY, 0755);
	ASSERT_EQ(0, mount("none", OVERLAY, "overlay", MS_RDONLY, "lowerdir=" FOLDER ":/dev/shm"));
	EXPECT_TRUE(library_is_huge(OVERLAY "/other", &above));
	EXPECT_EQ(placed + above, stat_of("placed_map"));
	/* What is huge on the overlay is huge on the filesystem below. */
	maps = 0;
	EXPECT_TRUE(library_is_huge(OTHER, &maps));
	EXPECT_EQ(1, maps);
	EXPECT_TRUE(wait_stat("collapsed_blocks", collapsed + 6));
	EXPECT_EQ(collapsed + 6, stat_of("collapsed_blocks"));
	EXPECT_EQ(0, umount2(OVERLAY, 0));
	rmdir(OVERLAY);
}

/* Is a file on a filesystem that another machine serves, of either type? */
static bool is_remote(const char *path)
{
	unsigned int major, minor;
	bool remote = false;
	char line[1024];
	struct stat st;
	FILE *f;

	if (stat(path, &st))
		return false;
	f = fopen("/proc/self/mountinfo", "r");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%*d %*d %u:%u ", &major, &minor) == 2 &&
		    makedev(major, minor) == st.st_dev)
			remote = strstr(line, " - 9p ") || strstr(line, " - virtiofs ");
	if (f)
		fclose(f);
	return remote;
}

/* A path in the folder of this program, which is on the host's filesystem. */
static int remote_path(char *path, size_t len)
{
	char self[512];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n <= 0)
		return -1;
	self[n] = 0;
	*strrchr(self, '/') = 0;
	snprintf(path, len, "%s/text_kinds.%d", self, getpid());
	return is_remote(self) ? 0 : -1;
}

/*
 * If a host serves the file, the worker reads nothing: it collapses a block when all of it is
 * there.
 */
TEST_F_TIMEOUT(kinds, served_by_the_host, 600)
{
	struct layout pie = { .pages = 1100, .offset = PAGE };
	long collapsed = stat_of("collapsed_blocks"), placed = stat_of("placed_program");
	long copied = stat_of("copied_ahead"), cold = stat_of("fallback_cold");
	struct program first = { .pid = -1 };
	char path[600];

	if (remote_path(path, sizeof(path)))
		SKIP(return, "not on a filesystem of the host's");
	ASSERT_EQ(0, make_program(path, &pie));
	/* The file's pages go when the last process ends that has it open. */
	ASSERT_EQ(0, set("enabled", "0"));
	ASSERT_EQ(0, start(&first, path, NULL));
	EXPECT_EQ(0, touch(&first));
	ASSERT_EQ(0, set("enabled", "1"));
	EXPECT_EQ(0, start(&self->p, path, NULL));
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_EQ(placed + 1, stat_of("placed_program"));
	EXPECT_EQ(0, (text_address(self->p.pid, path) - pie.offset) % BLOCK);
	EXPECT_TRUE(wait_stat("collapsed_blocks", collapsed + 1));
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_EQ(BLOCK_KB, pmd_mapped(self->p.pid, path));
	EXPECT_EQ(copied, stat_of("copied_ahead"));
	EXPECT_EQ(cold, stat_of("fallback_cold"));
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_GE(stop(&first), 0);
	unlink(path);
}

int main(int argc, char **argv)
{
	return test_on_ext4(argc, argv, IMAGE, FOLDER);
}
