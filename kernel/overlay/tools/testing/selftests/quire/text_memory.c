// SPDX-License-Identifier: GPL-2.0
/*
 * The text feature when memory is short, fragmented, or goes away: no free huge page because of
 * real fragments, cgroups at their limit, reclaim, a memory block that goes offline, and which
 * of the free blocks a collapse takes.
 * Needs root, ext4 on a loop device, and quire=text (or on).
 */
#define _GNU_SOURCE

#include "harness.h"
#include "text_huge.h"

#define IMAGE	"/tmp/text_memory.img"
#define FOLDER	"/tmp/text_memory"
#define PROGRAM	FOLDER "/program"
#define CGROUP	"/sys/fs/cgroup/text_memory"

#include "text_cgroup.h"

FIXTURE(memory) {
	struct program p;
};

FIXTURE_SETUP(memory)
{
	NEED_TEXT_FEATURE();
	ASSERT_EQ(0, fresh_program(PROGRAM));
}

FIXTURE_TEARDOWN(memory)
{
	defaults();
	unlink(PROGRAM);
}

/* ---- fragments ---- */

#define HUGEPAGES	"/proc/sys/vm/nr_hugepages"
#define DEFRAG		"/sys/kernel/mm/transparent_hugepage/defrag"
#define KHUGEPAGED_DEFRAG "/sys/kernel/mm/transparent_hugepage/khugepaged/defrag"
#define SPLIT		"/sys/kernel/debug/split_huge_pages"
#define LEFT		160	/* blocks that are broken up; all others are taken */
#define MOST		4096	/* blocks that may turn up meanwhile */
#define KEEP		64	/* one page in so many stays */

/* Free blocks of 2 MiB. */
static long free_blocks(void)
{
	long sum = 0, nine, ten;
	char line[512];
	FILE *f = fopen("/proc/buddyinfo", "r");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Node %*d, zone %*s %*d %*d %*d %*d %*d %*d %*d %*d %*d %ld %ld",
			   &nine, &ten) == 2)
			sum += nine + 2 * ten;
	if (f)
		fclose(f);
	return sum;
}

static int set_number(const char *path, long value)
{
	char number[32];

	snprintf(number, sizeof(number), "%ld", value);
	return write_file(path, number);
}

/* Frees most of a huge page and splits it: a few of its pages stay. Returns 0, or -1. */
static int break_up(char *block)
{
	char range[64];
	int len, fd = open(SPLIT, O_WRONLY), ret = 0;

	for (unsigned long at = 0; at < BLOCK && !ret; at += KEEP * PAGE)
		ret = madvise(block + at + PAGE, (KEEP - 1) * PAGE, MADV_DONTNEED);
	len = snprintf(range, sizeof(range), "%d,%#lx,%#lx", getpid(), (unsigned long)block,
		       (unsigned long)block + BLOCK);
	if (fd < 0 || write(fd, range, len) != len)
		ret = -1;
	close(fd);
	return ret;
}

/*
 * Takes huge pages on a CPU and breaks them up until there are none left; returns how many, or
 * -1.
 */
static int break_all(char **next, const char *end, int cpu)
{
	cpu_set_t set;
	int broken;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		return -1;
	for (broken = 0; *next < end; broken++) {
		char *block = *next;

		*block = 1;
		*next += BLOCK;
		if (!frame_of(block + PAGE))
			return broken;
		if (break_up(block))
			return -1;
	}
	return -1;
}

/* The same on all CPUs, because each CPU has free ones of its own. */
static int break_everywhere(char **next, const char *end)
{
	int broken = 0, here = 0;
	cpu_set_t all;

	sched_getaffinity(0, sizeof(all), &all);
	for (int cpu = 0; cpu < CPU_COUNT(&all) && here >= 0; cpu++) {
		here = break_all(next, end, cpu);
		broken += here;
	}
	sched_setaffinity(0, sizeof(all), &all);
	return here < 0 ? -1 : broken;
}

/* The area with the fragments, and the part of it that is still free for more. */
static char *area, *next;

static bool map_area(void)
{
	long taken = free_blocks() - LEFT;

	/* Khugepaged would put our fragments together again. */
	if (write_file(DEFRAG, "never") || write_file(KHUGEPAGED_DEFRAG, "0") ||
	    (taken > 0 && set_number(HUGEPAGES, taken)))
		return false;
	area = mmap(NULL, (MOST + 1) * BLOCK, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (area == MAP_FAILED || madvise(area, (MOST + 1) * BLOCK, MADV_HUGEPAGE))
		return false;
	next = area + (-(unsigned long)area & (BLOCK - 1));
	return true;
}

/*
 * Leaves no huge page that can be had without moving others' pages; returns whether that
 * worked.
 */
static bool fragment(void)
{
	int broken;

	/* Memory that was freed meanwhile may have formed another huge page. */
	do {
		broken = break_everywhere(&next, area + MOST * BLOCK);
	} while (broken > 0);
	return !broken;
}

/*
 * Starts a program whose text has never run; returns whether the worker found no room for any
 * of it.
 */
static bool starts_without_room(struct program *p)
{
	long nomem = stat_of("fallback_nomem"), collapsed = stat_of("collapsed_blocks");
	double end = seconds() + LIMIT_S;

	if (start(p, PROGRAM, NULL) || touch(p))
		return false;
	while (stat_of("fallback_nomem") == nomem && stat_of("collapsed_blocks") == collapsed &&
	       seconds() < end)
		usleep(20000);
	return stat_of("fallback_nomem") > nomem && stat_of("collapsed_blocks") == collapsed;
}

/*
 * The same with all huge pages broken up. Pages that others free late, and pages of hundreds of
 * blocks that CPUs held back, form new huge pages: then try again.
 */
static bool starts_in_fragments(struct program *p)
{
	for (int i = 0; i < 8; i++) {
		if (set("backoff_ms", "600000") || !fragment())
			return false;
		if (starts_without_room(p))
			return true;
		if (stop(p) < 0 || fresh_program(PROGRAM))
			return false;
	}
	return false;
}

TEST_F_TIMEOUT(memory, nothing_but_fragments, 600)
{
	long backoff = stat_of("skipped_backoff"), stalls;

	if (access(SPLIT, W_OK) || access(HUGEPAGES, W_OK))
		SKIP(return, "no debugfs, or no hugetlb");
	/* text_files tests this by fault injection, which takes a fraction of the time. */
	if (!access(INJECT "probability", W_OK))
		SKIP(return, "fault injection stands in for fragments");
	ASSERT_TRUE(map_area());
	stalls = value_of("/proc/vmstat", "compact_stall");
	ASSERT_TRUE(starts_in_fragments(&self->p));
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_EQ(0, pmd_mapped(self->p.pid, PROGRAM));
	EXPECT_TRUE(file_is_right(PROGRAM));
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_EQ(0, start(&self->p, PROGRAM, NULL));
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_GT(stat_of("skipped_backoff"), backoff);
	EXPECT_GE(stop(&self->p), 0);
	/* Neither the program nor the worker has waited for memory compaction. */
	EXPECT_EQ(stalls, value_of("/proc/vmstat", "compact_stall"));
	munmap(area, (MOST + 1) * BLOCK);
	EXPECT_EQ(0, write_file(HUGEPAGES, "0"));
	EXPECT_EQ(0, write_file(DEFRAG, "madvise"));
	EXPECT_EQ(0, write_file(KHUGEPAGED_DEFRAG, "1"));

	/* When memory is not fragmented, all works as before. */
	ASSERT_EQ(0, set("enabled", "0"));
	ASSERT_EQ(0, set("enabled", "1"));
	EXPECT_EQ(0, start_huge(&self->p, PROGRAM, &three_blocks, NULL));
	EXPECT_GE(stop(&self->p), 0);
}

/* ---- control groups ---- */

/* Charges the group for the first pages of the second block. Returns 0, or -1. */
static int read_in_cgroup(unsigned long pages)
{
	static char buf[PAGE];
	int status, fd;
	pid_t pid = fork();

	if (!pid) {
		join_cgroup();
		fd = open(PROGRAM, O_RDONLY);
		if (fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM))
			_exit(1);
		for (unsigned long i = 0; i < pages; i++)
			if (pread(fd, buf, PAGE, BLOCK + i * PAGE) != PAGE)
				_exit(1);
		_exit(0);
	}
	return waitpid(pid, &status, 0) == pid && !status ? 0 : -1;
}

/* Maps only the second block of the program's file. */
static unsigned char *map_second(void)
{
	int fd = open(PROGRAM, O_RDONLY);
	void *map = mmap(NULL, BLOCK, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, BLOCK);

	close(fd);
	return map == MAP_FAILED ? NULL : map;
}

/* Does the second block hold what was written? */
static bool second_is_right(const unsigned char *map)
{
	return text_is_right(map - (BLOCK - PAGE), BLOCK_PAGES - 1, 2 * BLOCK_PAGES - 1);
}

/* With room for it, the second block is collapsed in the group, and is right. */
static bool second_collapses(void)
{
	long collapsed = stat_of("collapsed_blocks");
	unsigned char *map;
	bool good;

	if (write_file(CGROUP "/memory.max", "max") || !(map = map_second()))
		return false;
	read_pages(map, BLOCK);
	good = wait_stat("collapsed_blocks", collapsed + 1);
	read_pages(map, BLOCK);
	good &= pmd_mapped(0, PROGRAM) == BLOCK_KB && second_is_right(map);
	munmap(map, BLOCK);
	return good;
}

TEST_F_TIMEOUT(memory, no_room_in_the_group, 600)
{
	long limit = stat_of("fallback_limit"), collapsed = stat_of("collapsed_blocks"), most;
	unsigned char *map;

	if (make_cgroup())
		SKIP(return, "no memory controller");
	ASSERT_EQ(0, read_in_cgroup(BLOCK_PAGES));
	/* All of the block is resident, and there is no room for another one. */
	most = cgroup_value("memory.current", "") + BLOCK / 4;
	ASSERT_GE(most, (long)BLOCK);
	ASSERT_EQ(0, set_cgroup("memory.max", most));
	map = map_second();
	ASSERT_NE(NULL, map);
	EXPECT_TRUE(wait_stat("fallback_limit", limit + 1));
	EXPECT_EQ(collapsed, stat_of("collapsed_blocks"));
	EXPECT_TRUE(second_is_right(map));
	EXPECT_EQ(0, pmd_mapped(0, PROGRAM));
	EXPECT_EQ(0, cgroup_value("memory.events", "oom_kill"));
	munmap(map, BLOCK);
	EXPECT_TRUE(second_collapses());
	EXPECT_EQ((long)BLOCK, cgroup_value("memory.stat", "file_thp"));
	unlink(PROGRAM);
	EXPECT_EQ(0, rmdir(CGROUP));
}

/* Nothing is read for a group that has no room for it: that would evict other pages. */
TEST_F_TIMEOUT(memory, no_room_to_read_in_the_group, 600)
{
	long limit = stat_of("fallback_limit"), collapsed = stat_of("collapsed_blocks"), most;
	unsigned char *map;

	if (make_cgroup())
		SKIP(return, "no memory controller");
	ASSERT_EQ(0, read_in_cgroup(BLOCK_PAGES - 20));
	most = cgroup_value("memory.current", "") + BLOCK / 4;
	ASSERT_EQ(0, set_cgroup("memory.high", most));
	map = map_second();
	ASSERT_NE(NULL, map);
	EXPECT_TRUE(wait_stat("fallback_limit", limit + 1));
	EXPECT_EQ(collapsed, stat_of("collapsed_blocks"));
	EXPECT_EQ(0, cgroup_value("memory.stat", "pgscan"));
	EXPECT_LE((long)((BLOCK_PAGES - 20) * PAGE), cgroup_value("memory.stat", "file"));
	EXPECT_GT((long)BLOCK, cgroup_value("memory.stat", "file"));
	EXPECT_TRUE(second_is_right(map));
	munmap(map, BLOCK);
	EXPECT_EQ(0, write_file(CGROUP "/memory.high", "max"));
	EXPECT_TRUE(second_collapses());
	unlink(PROGRAM);
	EXPECT_EQ(0, rmdir(CGROUP));
}

/* Running text is evicted, read again, and collapsed again when the program starts anew. */
TEST_F_TIMEOUT(memory, reclaim, 600)
{
	double end = seconds() + LIMIT_S;

	if (make_cgroup() || access(CGROUP "/memory.reclaim", W_OK))
		SKIP(return, "no memory controller");
	for (int round = 0; round < 2; round++) {
		ASSERT_EQ(0, start_huge(&self->p, PROGRAM, &three_blocks, join_cgroup));
		EXPECT_LE(3 * (long)BLOCK, cgroup_value("memory.stat", "file_thp"));
		/* The write fails with EAGAIN if less was reclaimed. */
		while (pmd_mapped(self->p.pid, PROGRAM) && seconds() < end)
			set_cgroup("memory.reclaim", 8 << 20);
		EXPECT_EQ(0, pmd_mapped(self->p.pid, PROGRAM));
		EXPECT_EQ(0, touch(&self->p));
		EXPECT_TRUE(file_is_right(PROGRAM));
		EXPECT_GE(stop(&self->p), 0);
	}
	unlink(PROGRAM);
	EXPECT_EQ(0, rmdir(CGROUP));
}

/* ---- memory that goes away ---- */

/* Huge text is moved as it is, and no process that runs it notices. */
TEST_F_TIMEOUT(memory, offline, 600)
{
	unsigned long before;
	unsigned char *map;
	long nr = -1;

	if (next_movable_block(-1) < 0)
		SKIP(return, "no movable memory");
	/* Some memory blocks cannot go offline, because they hold memory from boot. */
	for (int i = 0; i < 8 && nr < 0; i++) {
		if (i) {
			munmap(map, FILE_SIZE);
			/* Drop the huge text. */
			close(open(PROGRAM, O_RDWR));
			hold_memory();
		}
		map = map_huge(PROGRAM);
		ASSERT_NE(NULL, map);
		before = frame_of(map + BLOCK);
		nr = offline(map + BLOCK);
	}
	ASSERT_GE(nr, 0);
	read_pages(map, FILE_SIZE);
	EXPECT_NE(before, frame_of(map + BLOCK));
	EXPECT_EQ(4 * BLOCK_KB, pmd_mapped(0, PROGRAM));
	EXPECT_TRUE(text_is_right(map + PAGE, 0, three_blocks.pages));
	EXPECT_EQ(0, set_memory_block(nr, "online_movable"));
	munmap(map, FILE_SIZE);
	/* A writer that opens the file still finds the moved text to drop. */
	before = stat_of("dropped_writer");
	close(open(PROGRAM, O_RDWR));
	EXPECT_EQ(before + 1, stat_of("dropped_writer"));
}

/* ---- zeroed blocks ---- */

#define PREZERO	"/sys/kernel/mm/quire/prezero/"

static long prezero_stat(const char *name)
{
	char path[96], word[32];

	snprintf(path, sizeof(path), PREZERO "stats/%s", name);
	return read_word(path, word, sizeof(word)) ? -1 : atol(word);
}

/*
 * Run a new program until it is huge, with copies or without. Returns how many zeroed pages that
 * took, or -1.
 */
static long zeroed_pages_wasted(struct program *p, const char *in_place)
{
	long wasted, collapsed = stat_of("collapsed_blocks");

	if (fresh_program(PROGRAM) || set("in_place", in_place))
		return -1;
	wasted = prezero_stat("wasted_pages");
	if (start_huge(p, PROGRAM, &three_blocks, NULL) ||
	    !wait_stat("collapsed_blocks", collapsed + 3) || stop(p) < 0)
		return -1;
	wasted = prezero_stat("wasted_pages") - wasted;
	printf("# in_place=%s: %ld pages wasted, %ld left\n", in_place, wasted,
	       prezero_stat("zeroed_pages"));
	return wasted;
}

/* A request that does not ask for zeroes gets blocks that are not zeroed, while there are some. */
TEST_F_TIMEOUT(memory, zeroed_blocks_are_spared, 600)
{
	long wasted;
	char was[16], start[16], end[16], unused[16];

	if (read_word(PREZERO "enabled", was, sizeof(was)))
		SKIP(return, "no prezero");
	ASSERT_EQ(0, read_word("/proc/sys/vm/scrub_start", start, sizeof(start)));
	ASSERT_EQ(0, read_word("/proc/sys/vm/scrub_stop", end, sizeof(end)));
	ASSERT_EQ(0, read_word(PREZERO "scrub_unused", unused, sizeof(unused)));
	ASSERT_EQ(0, write_file("/proc/sys/vm/scrub_start", "0"));
	ASSERT_EQ(0, write_file("/proc/sys/vm/scrub_stop", "50"));
	ASSERT_EQ(0, write_file(PREZERO "scrub_unused", "1"));
	ASSERT_EQ(0, write_file(PREZERO "enabled", "1"));
	ASSERT_EQ(0, write_file(PREZERO "scrub_now", "1"));
	EXPECT_GE(prezero_stat("zeroed_pages"), 8 * (long)BLOCK_PAGES);
	for (int i = 0; i < 2; i++) {
		wasted = zeroed_pages_wasted(&self->p, i ? "0" : "1");
		EXPECT_GE(wasted, 0);
		EXPECT_LT(wasted, (long)BLOCK_PAGES);
	}
	EXPECT_EQ(0, write_file(PREZERO "enabled", *was == '1' ? "1" : "2"));
	EXPECT_EQ(0, write_file("/proc/sys/vm/scrub_start", start));
	EXPECT_EQ(0, write_file("/proc/sys/vm/scrub_stop", end));
	EXPECT_EQ(0, write_file(PREZERO "scrub_unused", unused));
}

int main(int argc, char **argv)
{
	return test_on_ext4(argc, argv, IMAGE, FOLDER);
}
