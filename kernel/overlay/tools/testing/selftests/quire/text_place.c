// SPDX-License-Identifier: GPL-2.0
/*
 * The text feature: where programs and file mappings are placed.
 * Needs root, ext4 on a loop device, overlayfs, and quire=text (or on).
 */
#define _GNU_SOURCE
#include <sys/prctl.h>

#include "harness.h"
#include "text_program.h"

#define IMAGE	"/tmp/text_place.img"
#define FOLDER	"/tmp/text_place"
#define PROGRAM	FOLDER "/program"
#define INTERP	FOLDER "/interp"
#define MERGED	FOLDER "/merged"

FIXTURE(place) {
	struct program p;
};

FIXTURE_SETUP(place)
{
	NEED_TEXT_FEATURE();
	ASSERT_EQ(0, set("enabled", "0"));
	ASSERT_EQ(0, defaults());
	ASSERT_EQ(0, make_interp(INTERP));
}

FIXTURE_TEARDOWN(place)
{
	defaults();
	unlink(PROGRAM);
}

static void not_random(void)
{
	if (personality(ADDR_NO_RANDOMIZE) < 0)
		_exit(1);
}

/* Runs a program once; returns the address of its text, or 0 if it did not run. */
static unsigned long run(const char *path, void (*before)(void))
{
	unsigned long address = 0;
	struct program p;

	if (start(&p, path, before))
		return 0;
	if (!touch(&p))
		address = text_address(p.pid, path);
	return stop(&p) < 0 ? 0 : address;
}

static bool congruent(unsigned long address, unsigned long offset)
{
	return address && !((address - offset) % BLOCK);
}

#define PIE_OF(_name, ...)						\
	struct layout _name = { .pages = 2049, __VA_ARGS__ };		\
	long placed = stat_of("placed_program");			\
									\
	ASSERT_EQ(0, make_program(PROGRAM, &_name));			\
	for (int i = 0; i < 3; i++)					\
		EXPECT_TRUE(congruent(run(PROGRAM, NULL), _name.offset));	\
	EXPECT_TRUE(congruent(run(PROGRAM, not_random), _name.offset));	\
	EXPECT_EQ(placed + 4, stat_of("placed_program"))

TEST_F_TIMEOUT(place, program, 300)
{
	PIE_OF(pie, .offset = PAGE, .interp = INTERP);
}

TEST_F_TIMEOUT(place, program_whose_text_is_linked_elsewhere, 300)
{
	PIE_OF(pie, .offset = PAGE, .address = 3 * PAGE, .interp = INTERP);
}

TEST_F_TIMEOUT(place, program_with_a_file_offset, 300)
{
	PIE_OF(pie, .offset = 300 * PAGE, .address = 1000 * PAGE, .interp = INTERP);
}

TEST_F_TIMEOUT(place, static_program, 300)
{
	PIE_OF(pie, .offset = PAGE);
}

TEST_F_TIMEOUT(place, static_program_linked_elsewhere, 300)
{
	PIE_OF(pie, .offset = PAGE, .address = 5 * PAGE);
}

TEST_F_TIMEOUT(place, aligned_program, 300)
{
	PIE_OF(pie, .offset = BLOCK, .align = BLOCK, .interp = INTERP);
}

TEST_F_TIMEOUT(place, placed_program_is_mapped_huge, 300)
{
	struct layout pie = { .pages = 2049, .offset = PAGE, .address = 3 * PAGE, .interp = INTERP };

	ASSERT_EQ(3, text_blocks(&pie));
	ASSERT_EQ(0, make_program(PROGRAM, &pie));
	ASSERT_EQ(0, start_huge(&self->p, PROGRAM, &pie, NULL));
	EXPECT_GE(stop(&self->p), 0);
}

TEST_F_TIMEOUT(place, addresses_stay_random, 300)
{
	struct layout pie = { .pages = 1100, .offset = PAGE, .interp = INTERP };
	unsigned long first, differ = 0;

	ASSERT_EQ(0, make_program(PROGRAM, &pie));
	first = run(PROGRAM, NULL);
	for (int i = 0; i < 8; i++)
		differ += run(PROGRAM, NULL) != first;
	EXPECT_GT(differ, 0);
}

/* Without randomness, does the feature put a program at the same address as when it is off? */
static bool left_alone(const struct layout *l)
{
	unsigned long off, on;

	if (make_program(PROGRAM, l) || set("enabled", "0"))
		return false;
	off = run(PROGRAM, not_random);
	if (set("enabled", "1"))
		return false;
	on = run(PROGRAM, not_random);
	return off && off == on;
}

TEST_F_TIMEOUT(place, small_programs_are_left_alone, 300)
{
	struct layout pie = { .pages = 16, .offset = PAGE, .interp = INTERP };
	long small = stat_of("place_small");

	EXPECT_TRUE(left_alone(&pie));
	EXPECT_EQ(small + 1, stat_of("place_small"));
	pie.interp = NULL;
	EXPECT_TRUE(left_alone(&pie));
	/* The text is larger than a block, but has no whole block. */
	pie.pages = 1000;
	EXPECT_EQ(0, text_blocks(&pie));
	EXPECT_TRUE(left_alone(&pie));
}

TEST_F_TIMEOUT(place, alignment_of_the_program_has_precedence, 300)
{
	struct layout pie = { .pages = 2049, .offset = PAGE, .align = 2 * BLOCK, .interp = INTERP };
	long refused = stat_of("place_align");

	EXPECT_TRUE(left_alone(&pie));
	EXPECT_EQ(refused + 1, stat_of("place_align"));
	/* Moving it by a page would break its alignment. */
	pie.align = 2 * PAGE;
	pie.address = 2 * PAGE;
	EXPECT_TRUE(left_alone(&pie));
	EXPECT_EQ(refused + 2, stat_of("place_align"));
}

TEST_F_TIMEOUT(place, placement_can_be_off_alone, 300)
{
	struct layout pie = { .pages = 2049, .offset = PAGE, .interp = INTERP };
	long placed = stat_of("placed_program");

	ASSERT_EQ(0, set("placement", "0"));
	EXPECT_TRUE(left_alone(&pie));
	EXPECT_EQ(placed, stat_of("placed_program"));
}

static void become_nobody(void)
{
	if (setgid(65534) || setuid(65534))
		_exit(1);
}

TEST_F_TIMEOUT(place, privileged_programs_keep_all_randomness, 300)
{
	struct layout pie = { .pages = 2049, .offset = PAGE, .interp = INTERP };
	long placed;

	ASSERT_EQ(0, make_program(PROGRAM, &pie));
	ASSERT_EQ(0, chmod(PROGRAM, 04755));
	placed = stat_of("placed_program");
	ASSERT_EQ(0, start(&self->p, PROGRAM, become_nobody));
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_EQ(placed, stat_of("placed_program"));
	EXPECT_NE(0, run(PROGRAM, NULL));
	EXPECT_EQ(placed + 1, stat_of("placed_program"));
}

/* overlayfs does not place mappings itself, as ext4 does. */
static int mount_overlay(void)
{
	return system("cd " FOLDER " && mkdir -p lower upper work merged && "
		      "mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work none " MERGED);
}

static void disable_thp(void)
{
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
}

/* Does a process without huge pages place a mapping of a file as if the feature were off? */
static int map_without_thp(const char *path)
{
	int status, fd = open(path, O_RDONLY);
	pid_t pid = fork();

	if (!pid) {
		disable_thp();
		_exit(fd < 0 || mmap(NULL, 2 * BLOCK + PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE,
				     fd, 0) == MAP_FAILED);
	}
	close(fd);
	return waitpid(pid, &status, 0) == pid ? status : -1;
}

#define THP	"/sys/kernel/mm/transparent_hugepage/enabled"

static int set_thp(const char *word)
{
	int fd = open(THP, O_WRONLY);
	int ret = fd >= 0 && write(fd, word, strlen(word)) > 0 ? 0 : -1;

	close(fd);
	return ret;
}

/* Randomness is given up for huge pages: if there are none, it is kept. */
TEST_F_TIMEOUT(place, no_huge_pages_no_placement, 300)
{
	struct layout pie = { .pages = 2049, .offset = PAGE, .interp = INTERP };
	const char *path = "/dev/shm/text_place", *overlaid = MERGED "/library";
	long placed = stat_of("placed_program"), maps;

	ASSERT_EQ(0, make_program(PROGRAM, &pie));
	EXPECT_NE(0, run(PROGRAM, disable_thp));
	EXPECT_EQ(placed, stat_of("placed_program"));
	ASSERT_EQ(0, set_thp("never"));
	EXPECT_NE(0, run(PROGRAM, NULL));
	ASSERT_EQ(0, set_thp("madvise"));
	EXPECT_EQ(placed, stat_of("placed_program"));

	ASSERT_EQ(0, make_program(path, &pie));
	EXPECT_NE(0, run(path, NULL));
	EXPECT_EQ(placed, stat_of("placed_program"));
	unlink(path);

	ASSERT_EQ(0, mount_overlay());
	EXPECT_EQ(0, make_program(FOLDER "/lower/library", &pie));
	maps = stat_of("placed_map");
	EXPECT_EQ(0, map_without_thp(overlaid));
	EXPECT_EQ(maps, stat_of("placed_map"));
	EXPECT_EQ(0, umount2(MERGED, 0));
	EXPECT_NE(0, run(PROGRAM, NULL));
	EXPECT_EQ(placed + 1, stat_of("placed_program"));
}

static unsigned long map_at(int fd, size_t len, int prot, unsigned long offset)
{
	void *map = mmap(NULL, len, prot, MAP_PRIVATE, fd, offset);

	if (map == MAP_FAILED)
		return 0;
	munmap(map, len);
	return (unsigned long)map;
}

TEST_F_TIMEOUT(place, mappings_of_other_filesystems, 300)
{
	struct layout pie = { .pages = 2049, .offset = PAGE, .interp = INTERP };
	const char *path = FOLDER "/lower/library";
	long placed, small;
	void *hint;
	int fd;

	ASSERT_EQ(0, mount_overlay());
	ASSERT_EQ(0, make_program(path, &pie));
	fd = open(MERGED "/library", O_RDONLY);
	ASSERT_GE(fd, 0);
	placed = stat_of("placed_map");
	small = stat_of("place_map_small");
	for (int i = 1; i < 4; i++) {
		/* First the reservation of a library, then its text mapped alone. */
		EXPECT_TRUE(congruent(map_at(fd, 3 * BLOCK + i * PAGE, PROT_READ, 0), 0));
		EXPECT_TRUE(congruent(map_at(fd, 2 * BLOCK + i * PAGE, PROT_READ | PROT_EXEC,
					     i * PAGE), i * PAGE));
	}
	EXPECT_EQ(placed + 6, stat_of("placed_map"));
	EXPECT_NE(0, map_at(fd, BLOCK + PAGE, PROT_READ | PROT_EXEC, 5 * PAGE));
	EXPECT_EQ(small + 1, stat_of("place_map_small"));
	EXPECT_NE(0, map_at(fd, 3 * BLOCK + PAGE, PROT_READ | PROT_WRITE, 0));
	EXPECT_NE(0, map_at(fd, 3 * BLOCK + PAGE, PROT_READ, PAGE));
	EXPECT_EQ(placed + 6, stat_of("placed_map"));

	/* A hint is honoured if the address can be had. */
	hint = mmap((void *)0x100000001000, 3 * BLOCK, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	EXPECT_EQ((void *)0x100000001000, hint);
	munmap(hint, 3 * BLOCK);
	close(fd);
	EXPECT_EQ(0, umount2(MERGED, 0));
}

TEST_F_TIMEOUT(place, overlay_program_is_huge_and_lets_go, 300)
{
	struct layout pie = { .pages = 2049, .offset = PAGE, .interp = INTERP };
	long forgotten, queued;

	ASSERT_EQ(0, mount_overlay());
	ASSERT_EQ(0, make_program(FOLDER "/lower/program", &pie));
	ASSERT_EQ(0, start_huge(&self->p, MERGED "/program", &pie, NULL));
	EXPECT_GE(stop(&self->p), 0);

	ASSERT_EQ(0, make_program(FOLDER "/lower/program2", &pie));
	ASSERT_EQ(0, set("enabled", "0"));
	ASSERT_EQ(0, set("enabled", "1"));
	forgotten = stat_of("forgotten");
	queued = stat_of("queued");
	ASSERT_EQ(0, set("delay_ms", "60000"));
	EXPECT_NE(0, run(MERGED "/program2", NULL));
	EXPECT_EQ(queued + 1, stat_of("queued"));
	/* The lower file is queued, so neither mount is in use for it. */
	EXPECT_EQ(0, umount2(MERGED, 0));
	EXPECT_EQ(forgotten, stat_of("forgotten"));
}

int main(int argc, char **argv)
{
	int ret;

	if (!access(FEATURE "enabled", W_OK) && make_fs(IMAGE, FOLDER, 96)) {
		printf("1..0 # SKIP cannot mount ext4 on a loop device\n");
		return KSFT_SKIP;
	}
	chmod(FOLDER, 0755);
	ret = test_harness_run(argc, argv);
	umount2(MERGED, MNT_DETACH);
	remove_fs(IMAGE, FOLDER);
	return ret;
}
