// SPDX-License-Identifier: GPL-2.0
/*
 * The text feature: collapse of program text, and everything that undoes it.
 * Needs root, ext4 on a loop device, and quire=text (or on).
 */
#define _GNU_SOURCE
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>

#include "harness.h"
#include "text_huge.h"
#include "text_trace.h"

#define IMAGE	"/tmp/text_collapse.img"
#define FOLDER	"/tmp/text_collapse"
#define PROGRAM	FOLDER "/program"
#define LATE	FOLDER "/late"
#define CGROUP	"/sys/fs/cgroup/text_collapse"

#include "text_cgroup.h"

FIXTURE(text) {
	struct program p;
};

FIXTURE_SETUP(text)
{
	NEED_TEXT_FEATURE();
	ASSERT_EQ(0, fresh_program(PROGRAM));
}

FIXTURE_TEARDOWN(text)
{
	write_file(HOLD, "0");
	trace_no_worker();
	defaults();
	unlink(PROGRAM);
	unlink(LATE);
}

TEST_F_TIMEOUT(text, second_exec_finds_it_huge, 600)
{
	long collapsed = stat_of("collapsed_blocks"), skipped, small, huge;

	ASSERT_EQ(0, set("enabled", "0"));
	ASSERT_EQ(0, start(&self->p, PROGRAM, NULL));
	ASSERT_EQ(0, touch(&self->p));
	EXPECT_EQ(0, pmd_mapped(self->p.pid, PROGRAM));
	small = stop(&self->p);
	ASSERT_GT(small, 0);

	ASSERT_EQ(0, set("enabled", "1"));
	ASSERT_EQ(0, start_huge(&self->p, PROGRAM, &three_blocks, NULL));
	/* The worker counts a block after the block has become visible. */
	EXPECT_TRUE(wait_stat("collapsed_blocks", collapsed + 3));
	ASSERT_GE(stop(&self->p), 0);

	skipped = stat_of("skipped_huge");
	ASSERT_EQ(0, start(&self->p, PROGRAM, NULL));
	ASSERT_EQ(0, touch(&self->p));
	EXPECT_EQ(3 * BLOCK_KB, pmd_mapped(self->p.pid, PROGRAM));
	huge = stop(&self->p);
	ASSERT_GT(huge, 0);
	/* A fault maps 16 small pages at most; each of the three blocks has 512. */
	EXPECT_GE(small - huge, 3 * (long)(BLOCK_PAGES / 16 - 1));
	EXPECT_GE(stat_of("skipped_huge"), skipped + 1);
}

TEST_F_TIMEOUT(text, running_programs_change_over, 600)
{
	struct program other;

	/* Both programs map it by PTEs before anything is queued. */
	ASSERT_EQ(0, set("enabled", "0"));
	ASSERT_EQ(0, start(&other, PROGRAM, NULL));
	ASSERT_EQ(0, touch(&other));
	ASSERT_EQ(0, set("enabled", "1"));
	ASSERT_EQ(0, start_huge(&self->p, PROGRAM, &three_blocks, NULL));
	ASSERT_EQ(0, touch(&other));
	EXPECT_EQ(3 * BLOCK_KB, pmd_mapped(other.pid, PROGRAM));
	EXPECT_GE(stop(&other), 0);
	EXPECT_GE(stop(&self->p), 0);
}

TEST_F_TIMEOUT(text, contents_are_the_files, 600)
{
	unsigned char *map = map_huge(PROGRAM);

	ASSERT_NE(NULL, map);
	EXPECT_TRUE(text_is_right(map + PAGE, 0, three_blocks.pages));
	munmap(map, FILE_SIZE);
}

TEST_F_TIMEOUT(text, writers_open_drops_it, 600)
{
	long dropped = stat_of("dropped_writer");
	unsigned char *map = map_huge(PROGRAM);
	int fd;

	ASSERT_NE(NULL, map);
	fd = open(PROGRAM, O_RDWR);
	ASSERT_GE(fd, 0);
	EXPECT_EQ(0, pmd_mapped(0, PROGRAM));
	EXPECT_EQ(dropped + 1, stat_of("dropped_writer"));
	EXPECT_TRUE(text_is_right(map + PAGE, 0, three_blocks.pages));
	ASSERT_EQ(7, pwrite(fd, "written", 7, PAGE + 700 * PAGE));
	EXPECT_EQ(0, memcmp(map + PAGE + 700 * PAGE, "written", 7));
	EXPECT_TRUE(text_is_right(map + PAGE, 701, three_blocks.pages));
	EXPECT_TRUE(text_is_right(map + PAGE, 0, 700));
	ASSERT_EQ(0, fsync(fd));
	close(fd);
	munmap(map, FILE_SIZE);

	/* And it is collapsed again, with the new contents. */
	map = map_huge(PROGRAM);
	ASSERT_NE(NULL, map);
	EXPECT_EQ(0, memcmp(map + PAGE + 700 * PAGE, "written", 7));
	munmap(map, FILE_SIZE);
}

TEST_F_TIMEOUT(text, files_with_a_writer_are_left_alone, 600)
{
	long refused = stat_of("fallback_writer");
	unsigned char *map;
	int fd = open(PROGRAM, O_RDWR);

	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, set("delay_ms", "0"));
	map = map_resident(PROGRAM);
	ASSERT_NE(NULL, map);
	EXPECT_TRUE(wait_stat("fallback_writer", refused + 1));
	read_pages(map, FILE_SIZE);
	EXPECT_EQ(0, pmd_mapped(0, PROGRAM));
	close(fd);
	munmap(map, FILE_SIZE);
}

TEST_F_TIMEOUT(text, truncate_drops_it, 600)
{
	long dropped = stat_of("dropped_writer");
	size_t keep = PAGE + 700 * PAGE + 100;
	unsigned char *map = map_huge(PROGRAM), zero[PAGE] = { 0 };

	ASSERT_NE(NULL, map);
	ASSERT_EQ(0, truncate(PROGRAM, keep));
	EXPECT_EQ(0, pmd_mapped(0, PROGRAM));
	EXPECT_EQ(dropped + 1, stat_of("dropped_writer"));
	EXPECT_TRUE(text_is_right(map + PAGE, 0, 700));
	EXPECT_EQ(0xc3, map[PAGE + 700 * PAGE]);
	ASSERT_EQ(0, truncate(PROGRAM, FILE_SIZE));
	EXPECT_EQ(0, memcmp(map + keep, zero, PAGE - 100));
	EXPECT_EQ(0, memcmp(map + PAGE + 800 * PAGE, zero, PAGE));
	EXPECT_TRUE(text_is_right(map + PAGE, 0, 700));
	munmap(map, FILE_SIZE);
}

TEST_F_TIMEOUT(text, hole_punch_is_seen, 600)
{
	unsigned char *map = map_huge(PROGRAM), zero[PAGE] = { 0 };
	int fd;

	ASSERT_NE(NULL, map);
	fd = open(PROGRAM, O_RDWR);
	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			       PAGE + 600 * PAGE, 2 * PAGE));
	close(fd);
	EXPECT_TRUE(text_is_right(map + PAGE, 0, 600));
	EXPECT_EQ(0, memcmp(map + PAGE + 600 * PAGE, zero, PAGE));
	EXPECT_EQ(0, memcmp(map + PAGE + 601 * PAGE, zero, PAGE));
	EXPECT_TRUE(text_is_right(map + PAGE, 602, three_blocks.pages));
	munmap(map, FILE_SIZE);
}

TEST_F_TIMEOUT(text, blocks_are_copied_while_they_are_mapped, 600)
{
	long ahead = stat_of("copied_ahead");
	unsigned char *map;

	ASSERT_EQ(0, set("in_place", "0"));
	map = map_huge(PROGRAM);
	ASSERT_NE(NULL, map);
	/*
	 * At least one of four blocks: if a page is in use just then, its block is copied while
	 * unmapped.
	 */
	EXPECT_GE(stat_of("copied_ahead"), ahead + 1);
	EXPECT_TRUE(text_is_right(map + PAGE, 0, three_blocks.pages));
	munmap(map, FILE_SIZE);
}

/* Writes a page of the first block, syncs it to disk, and closes the file. */
static int rewrite_page(const char *path, unsigned long nr, const unsigned char *page)
{
	int fd = open(path, O_RDWR), ret;

	if (fd < 0)
		return -1;
	ret = pwrite(fd, page, PAGE, nr * PAGE) == PAGE && !fdatasync(fd) ? 0 : -1;
	close(fd);
	return ret;
}

/* Waits until somebody waits where @place of text_hold is. */
static bool held_at(char place)
{
	char state = place;
	int i, fd;

	for (i = 0; i < 3000 && state == place; i++) {
		usleep(20000);
		fd = open(HOLD, O_RDONLY);
		if (fd < 0 || read(fd, &state, 1) != 1)
			state = 0;
		close(fd);
	}
	return state == place + 1;
}

/* Waits until the worker has copied the block, and has not yet used its copies. */
static bool worker_holds(void)
{
	return held_at('1');
}

/* Changes a page of the first block: rounds 0 to 4 write, round 5 truncates. */
static int change_page(int round, unsigned char *page)
{
	memset(page, round < 5 ? ~round : 0, PAGE);
	if (round < 5)
		return rewrite_page(PROGRAM, 100 * round, page);
	return truncate(PROGRAM, 400 * PAGE) || truncate(PROGRAM, FILE_SIZE);
}

TEST_F_TIMEOUT(text, writer_during_the_copy_is_seen, 600)
{
	long voided = stat_of("copies_void"), collapsed;
	unsigned char page[PAGE], *map;
	int round;

	if (access(HOLD, W_OK))
		SKIP(return, "needs CONFIG_QUIRE_DEBUG");
	ASSERT_EQ(0, set("in_place", "0"));
	ASSERT_EQ(0, set("delay_ms", "0"));
	for (round = 0; round <= 5; round++) {
		/* This empties the page cache, which the round before has collapsed. */
		memset(page, 0x55, PAGE);
		ASSERT_EQ(0, rewrite_page(PROGRAM, 1, page));
		collapsed = stat_of("collapsed_blocks");
		ASSERT_EQ(0, write_file(HOLD, "1"));
		map = map_file(PROGRAM, BLOCK);
		ASSERT_NE(NULL, map);
		read_pages(map, BLOCK);
		ASSERT_TRUE(worker_holds());
		ASSERT_EQ(0, change_page(round, page));
		/* Read again what was truncated, so that the collapse goes on. */
		read_pages(map, BLOCK);
		EXPECT_GT(stat_of("copies_void"), voided);
		voided = stat_of("copies_void");
		ASSERT_EQ(0, write_file(HOLD, "0"));
		ASSERT_TRUE(wait_stat("collapsed_blocks", collapsed + 1));
		ASSERT_EQ(0, memcmp(map + (round < 5 ? 100 * round : 450) * PAGE, page, PAGE));
		munmap(map, BLOCK);
	}
}

/* Starts a process that opens the program for writing, and writes page @nr if there is a @page. */
static pid_t start_writer(const unsigned char *page, unsigned long nr)
{
	pid_t pid = fork();

	if (!pid) {
		int fd = open(PROGRAM, O_RDWR);

		_exit(fd < 0 || (page && pwrite(fd, page, PAGE, nr * PAGE) != PAGE));
	}
	return pid;
}

/* The state of a process that is our child: 'Z' once it has ended; or 0. */
static char state_of(pid_t pid)
{
	char path[64], state = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "r");
	if (!file)
		return 0;
	if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	fclose(file);
	return state;
}

/*
 * Waits until a child has ended, or has been waiting in the kernel for half a second: that may be
 * for a lock, or, seldom so long, for a disk.
 */
static bool ends_or_waits(pid_t pid)
{
	int i, waits = 0;

	for (i = 0; i < 3000 && waits < 25; i++) {
		char state = state_of(pid);

		if (state == 'Z')
			return true;
		waits = state == 'D' ? waits + 1 : 0;
		usleep(20000);
	}
	return waits == 25;
}

TEST_F_TIMEOUT(text, second_writer_waits_for_the_first, 600)
{
	unsigned char *map, page[PAGE], seen[PAGE];
	int fd, status[2];
	pid_t writer[2];

	if (access(HOLD, W_OK))
		SKIP(return, "needs CONFIG_QUIRE_DEBUG");
	map = map_huge(PROGRAM);
	ASSERT_NE(NULL, map);
	munmap(map, FILE_SIZE);
	ASSERT_EQ(0, write_file(HOLD, "3"));
	writer[0] = start_writer(NULL, 0);
	ASSERT_TRUE(held_at('3'));
	/* The huge pages go before the first writer has emptied the page cache. */
	ASSERT_EQ(0, write_file("/proc/sys/vm/drop_caches", "1"));
	ASSERT_EQ(0, resident(PROGRAM));
	memset(page, 0x77, PAGE);
	writer[1] = start_writer(page, 700);
	ASSERT_TRUE(ends_or_waits(writer[1]));
	ASSERT_EQ(0, write_file(HOLD, "0"));
	ASSERT_EQ(writer[0], waitpid(writer[0], &status[0], 0));
	ASSERT_EQ(writer[1], waitpid(writer[1], &status[1], 0));
	EXPECT_EQ(0, status[0]);
	EXPECT_EQ(0, status[1]);
	fd = open(PROGRAM, O_RDONLY);
	ASSERT_EQ(PAGE, pread(fd, seen, PAGE, 700 * PAGE));
	EXPECT_EQ(0, memcmp(page, seen, PAGE));
	close(fd);
}

/* Read pages of a file, and nothing around them. 0, or -1. */
static int read_part(const char *path, unsigned long first, unsigned long last)
{
	int fd = open(path, O_RDONLY), ret = posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	unsigned char page[PAGE];

	for (; first < last && !ret; first++)
		ret = pread(fd, page, PAGE, first * PAGE) != PAGE;
	close(fd);
	return ret ? -1 : 0;
}

/* Pages are in batches, too, if they are read while the worker is at another file. */
TEST_F_TIMEOUT(text, file_that_comes_late, 600)
{
	long collapsed = stat_of("collapsed_blocks");
	unsigned long pages = 4 * BLOCK_PAGES;
	unsigned char *map, *late;

	if (access(HOLD, W_OK) || access(FALLBACK, W_OK))
		SKIP(return, "needs CONFIG_QUIRE_DEBUG and tracefs");
	ASSERT_EQ(0, trace_worker());
	ASSERT_EQ(0, set("in_place", "0"));
	ASSERT_EQ(0, make_program(LATE, &three_blocks));
	ASSERT_EQ(0, read_part(LATE, 0, pages - 8));
	ASSERT_EQ(0, set("delay_ms", "0"));
	ASSERT_EQ(0, write_file(HOLD, "1"));
	map = map_file(PROGRAM, BLOCK);
	ASSERT_NE(NULL, map);
	read_pages(map, BLOCK);
	ASSERT_TRUE(worker_holds());
	ASSERT_EQ(0, read_part(LATE, pages - 8, pages));
	late = map_file(LATE, FILE_SIZE);
	ASSERT_NE(NULL, late);
	ASSERT_TRUE(worker_holds());
	ASSERT_EQ(0, write_file(HOLD, "0"));
	EXPECT_TRUE(wait_stat("collapsed_blocks", collapsed + 1 + 4));
	EXPECT_EQ(4, traced(LATE, "text_collapse:"));
	EXPECT_EQ(0, traced(LATE, "fallback_busy"));
	munmap(late, FILE_SIZE);
	munmap(map, BLOCK);
}

TEST_F_TIMEOUT(text, private_writes_stay_private, 600)
{
	unsigned char *map = map_huge(PROGRAM), byte;
	int fd;

	ASSERT_NE(NULL, map);
	ASSERT_EQ(0, mprotect(map + PAGE + 600 * PAGE, PAGE, PROT_READ | PROT_WRITE));
	memcpy(map + PAGE + 600 * PAGE, "private", 7);
	EXPECT_EQ(3 * BLOCK_KB, pmd_mapped(0, PROGRAM));
	EXPECT_TRUE(text_is_right(map + PAGE, 0, 600));
	EXPECT_TRUE(text_is_right(map + PAGE, 601, three_blocks.pages));
	fd = open(PROGRAM, O_RDONLY);
	ASSERT_EQ(1, pread(fd, &byte, 1, PAGE + 600 * PAGE));
	EXPECT_EQ(0xc3, byte);
	close(fd);
	munmap(map, FILE_SIZE);
}

TEST_F_TIMEOUT(text, breakpoint_splits_one_block, 600)
{
	unsigned long at = 0x400000 + PAGE + 700 * PAGE;
	struct user_regs_struct regs;
	struct program other;
	unsigned char byte = 0;
	int status, fd;
	long word;

	ASSERT_EQ(0, start_huge(&self->p, PROGRAM, &three_blocks, NULL));
	ASSERT_EQ(0, start(&other, PROGRAM, NULL));
	ASSERT_EQ(0, ptrace(PTRACE_ATTACH, self->p.pid, NULL, NULL));
	ASSERT_EQ(self->p.pid, waitpid(self->p.pid, &status, 0));
	word = ptrace(PTRACE_PEEKTEXT, self->p.pid, at, NULL);
	EXPECT_EQ(0xc3, word & 0xff);
	ASSERT_EQ(0, ptrace(PTRACE_POKETEXT, self->p.pid, at, (word & ~0xffL) | 0xcc));
	ASSERT_EQ(0, ptrace(PTRACE_CONT, self->p.pid, NULL, NULL));

	ASSERT_EQ(1, write(self->p.in, &byte, 1));
	ASSERT_EQ(self->p.pid, waitpid(self->p.pid, &status, 0));
	ASSERT_TRUE(WIFSTOPPED(status));
	EXPECT_EQ(SIGTRAP, WSTOPSIG(status));
	ASSERT_EQ(0, ptrace(PTRACE_GETREGS, self->p.pid, NULL, &regs));
	EXPECT_EQ(at + 1, regs.rip);
	EXPECT_EQ(2 * BLOCK_KB, pmd_mapped(self->p.pid, PROGRAM));

	/* No other process sees the change. */
	EXPECT_EQ(0, touch(&other));
	EXPECT_EQ(3 * BLOCK_KB, pmd_mapped(other.pid, PROGRAM));
	fd = open(PROGRAM, O_RDONLY);
	ASSERT_EQ(1, pread(fd, &byte, 1, 701 * PAGE));
	EXPECT_EQ(0xc3, byte);
	close(fd);

	ASSERT_EQ(0, ptrace(PTRACE_POKETEXT, self->p.pid, at, word));
	regs.rip = at;
	ASSERT_EQ(0, ptrace(PTRACE_SETREGS, self->p.pid, NULL, &regs));
	ASSERT_EQ(0, ptrace(PTRACE_DETACH, self->p.pid, NULL, NULL));
	ASSERT_EQ(1, read(self->p.out, &byte, 1));
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_GE(stop(&other), 0);
}

TEST_F_TIMEOUT(text, switching_off_leaves_and_draining_splits, 600)
{
	long drained = stat_of("drained_blocks");
	char state[32];

	ASSERT_EQ(0, start_huge(&self->p, PROGRAM, &three_blocks, NULL));
	ASSERT_EQ(0, set("enabled", "0"));
	EXPECT_EQ(3 * BLOCK_KB, pmd_mapped(self->p.pid, PROGRAM));
	ASSERT_EQ(0, set("enabled", "2"));
	EXPECT_EQ(0, pmd_mapped(self->p.pid, PROGRAM));
	EXPECT_GE(stat_of("drained_blocks"), drained + 3);
	EXPECT_EQ(0, get_string("state", state, sizeof(state)));
	EXPECT_STREQ("off", state);
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_EQ(0, pmd_mapped(self->p.pid, PROGRAM));
	EXPECT_GE(stop(&self->p), 0);
}

/*
 * A page that waits in a pipe has a reference, as has a fault that waits for the folio's
 * lock: the block does not split. Who has locked some of it does not have to read it again.
 */
TEST_F_TIMEOUT(text, draining_drops_what_does_not_split, 600)
{
	long dropped = stat_of("dropped_drain"), drained = stat_of("drained_blocks");
	unsigned char *map = map_huge(PROGRAM), piped[PAGE], page[PAGE];
	loff_t at = 701 * PAGE;
	int fd, ends[2];

	ASSERT_NE(NULL, map);
	ASSERT_EQ(0, pipe(ends));
	fd = open(PROGRAM, O_RDONLY);
	ASSERT_GE(fd, 0);
	ASSERT_EQ((long)PAGE, splice(fd, &at, ends[1], NULL, PAGE, 0));
	close(fd);

	ASSERT_EQ(0, mlock(map + 600 * PAGE, PAGE));
	EXPECT_EQ(EBUSY, set("enabled", "2"));
	EXPECT_EQ(dropped, stat_of("dropped_drain"));
	ASSERT_EQ(0, munlock(map + 600 * PAGE, PAGE));
	EXPECT_EQ(0, set("enabled", "2"));
	EXPECT_EQ(dropped + 1, stat_of("dropped_drain"));
	EXPECT_EQ(drained + 3, stat_of("drained_blocks"));

	EXPECT_EQ(0, pmd_mapped(0, PROGRAM));
	EXPECT_TRUE(text_is_right(map + PAGE, 0, three_blocks.pages));
	EXPECT_EQ((long)PAGE, read(ends[0], piped, PAGE));
	text_page(page, 700, three_blocks.pages);
	EXPECT_EQ(0, memcmp(page, piped, PAGE));
	close(ends[0]);
	close(ends[1]);
	munmap(map, FILE_SIZE);
}

TEST_F_TIMEOUT(text, off_queues_nothing, 600)
{
	long queued;

	ASSERT_EQ(0, set("enabled", "0"));
	queued = stat_of("queued");
	ASSERT_EQ(0, start(&self->p, PROGRAM, NULL));
	ASSERT_EQ(0, touch(&self->p));
	EXPECT_EQ(queued, stat_of("queued"));
	EXPECT_EQ(0, pmd_mapped(self->p.pid, PROGRAM));
	EXPECT_GE(stop(&self->p), 0);
}

static void disable_thp(void)
{
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
}

TEST_F_TIMEOUT(text, processes_may_opt_out, 600)
{
	long queued = stat_of("queued"), skipped = stat_of("skipped_policy");

	ASSERT_EQ(0, start(&self->p, PROGRAM, disable_thp));
	ASSERT_EQ(0, touch(&self->p));
	EXPECT_EQ(skipped + 1, stat_of("skipped_policy"));
	EXPECT_EQ(queued, stat_of("queued"));
	EXPECT_GE(stop(&self->p), 0);

	/* Such a process maps by PTEs what others had collapsed. */
	ASSERT_EQ(0, start_huge(&self->p, PROGRAM, &three_blocks, NULL));
	EXPECT_GE(stop(&self->p), 0);
	ASSERT_EQ(0, start(&self->p, PROGRAM, disable_thp));
	ASSERT_EQ(0, touch(&self->p));
	EXPECT_EQ(0, pmd_mapped(self->p.pid, PROGRAM));
	EXPECT_GE(stop(&self->p), 0);
}

TEST_F_TIMEOUT(text, small_text_is_not_queued, 600)
{
	struct layout small = { .pages = 600, .offset = PAGE, .fixed = true };
	long queued = stat_of("queued"), skipped = stat_of("skipped_small");

	ASSERT_EQ(0, text_blocks(&small));
	ASSERT_EQ(0, make_program(PROGRAM, &small));
	ASSERT_EQ(0, start(&self->p, PROGRAM, NULL));
	ASSERT_EQ(0, touch(&self->p));
	EXPECT_EQ(queued, stat_of("queued"));
	EXPECT_GE(stat_of("skipped_small"), skipped + 1);
	EXPECT_GE(stop(&self->p), 0);
}

TEST_F_TIMEOUT(text, incongruent_text_is_not_queued, 600)
{
	struct layout odd = { .pages = 2049, .offset = PAGE, .address = 2 * PAGE, .fixed = true };
	long queued = stat_of("queued"), skipped = stat_of("skipped_unaligned");

	ASSERT_EQ(0, make_program(PROGRAM, &odd));
	ASSERT_EQ(0, start(&self->p, PROGRAM, NULL));
	ASSERT_EQ(0, touch(&self->p));
	EXPECT_EQ(queued, stat_of("queued"));
	EXPECT_EQ(skipped + 1, stat_of("skipped_unaligned"));
	EXPECT_GE(stop(&self->p), 0);
}

TEST_F_TIMEOUT(text, cold_blocks_stay_small, 600)
{
	long cold = stat_of("fallback_cold"), collapsed = stat_of("collapsed_blocks");
	int fd = open(PROGRAM, O_RDONLY);
	volatile unsigned char *map;

	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, set("delay_ms", "0"));
	ASSERT_EQ(0, set("min_resident_pages", "512"));
	map = mmap(NULL, FILE_SIZE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	ASSERT_NE(MAP_FAILED, map);
	ASSERT_EQ(0, madvise((void *)map, FILE_SIZE, MADV_RANDOM));
	(void)map[BLOCK];
	EXPECT_TRUE(wait_stat("fallback_cold", cold + 4));
	EXPECT_EQ(collapsed, stat_of("collapsed_blocks"));
	munmap((void *)map, FILE_SIZE);
	close(fd);
}

TEST_F_TIMEOUT(text, slow_start_is_waited_for, 600)
{
	long collapsed = stat_of("collapsed_blocks");
	int fd = open(PROGRAM, O_RDONLY);
	unsigned char *map;
	size_t at;

	ASSERT_EQ(0, fsync(fd));
	ASSERT_EQ(0, posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	close(fd);
	/* If no more is read meanwhile, attempts end 0.64 s after the mapping. */
	ASSERT_EQ(0, set("delay_ms", "20"));
	map = map_file(PROGRAM, FILE_SIZE);
	ASSERT_NE(NULL, map);
	for (at = 0; at < FILE_SIZE; at += 64 * PAGE) {
		(void)*(volatile unsigned char *)(map + at);
		usleep(100000);
	}
	read_pages(map, FILE_SIZE);
	EXPECT_TRUE(wait_stat("collapsed_blocks", collapsed + 4));
	munmap(map, FILE_SIZE);
}

TEST_F_TIMEOUT(text, share_of_memory_is_limited, 600)
{
	long share = stat_of("fallback_share"), collapsed = stat_of("collapsed_blocks");

	/* All is resident before the worker knows of the file: its first attempt gets that far. */
	ASSERT_EQ(0, set("enabled", "0"));
	ASSERT_EQ(0, start(&self->p, PROGRAM, NULL));
	ASSERT_EQ(0, touch(&self->p));
	EXPECT_GE(stop(&self->p), 0);
	ASSERT_EQ(0, set("enabled", "1"));
	ASSERT_EQ(0, set("max_permil", "0"));
	ASSERT_EQ(0, start(&self->p, PROGRAM, NULL));
	EXPECT_TRUE(wait_stat("fallback_share", share + 1));
	EXPECT_EQ(collapsed, stat_of("collapsed_blocks"));
	EXPECT_GE(stop(&self->p), 0);
}

TEST_F_TIMEOUT(text, truncated_file_is_left_alone, 600)
{
	long shorter = stat_of("fallback_truncated");
	unsigned char *map;

	map = map_file(PROGRAM, FILE_SIZE);
	ASSERT_NE(NULL, map);
	ASSERT_EQ(0, truncate(PROGRAM, BLOCK + 5 * PAGE));
	(void)*(volatile unsigned char *)(map + BLOCK);
	EXPECT_TRUE(wait_stat("fallback_truncated", shorter + 1));
	munmap(map, FILE_SIZE);
}

TEST_F_TIMEOUT(text, queued_files_do_not_hold_up_umount, 600)
{
	const char *folder = "/tmp/text_collapse_2", *image = "/tmp/text_collapse_2.img";
	const char *path = "/tmp/text_collapse_2/program";
	long forgotten = stat_of("forgotten"), queued;

	ASSERT_EQ(0, make_fs(image, folder, 48));
	EXPECT_EQ(0, make_program(path, &three_blocks));
	EXPECT_EQ(0, set("delay_ms", "60000"));
	queued = stat_of("queued");
	EXPECT_EQ(0, start(&self->p, path, NULL));
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_EQ(-1, umount2(folder, 0));
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_EQ(queued + 1, stat_of("queued"));
	EXPECT_EQ(0, umount2(folder, 0));
	EXPECT_EQ(forgotten + 1, stat_of("forgotten"));
	remove_fs(image, folder);
}

TEST_F_TIMEOUT(text, switching_off_forgets_the_queue, 600)
{
	long forgotten = stat_of("forgotten");

	ASSERT_EQ(0, set("delay_ms", "60000"));
	ASSERT_EQ(0, start(&self->p, PROGRAM, NULL));
	ASSERT_EQ(0, touch(&self->p));
	ASSERT_EQ(0, set("enabled", "0"));
	EXPECT_EQ(forgotten + 1, stat_of("forgotten"));
	EXPECT_GE(stop(&self->p), 0);
}

TEST_F_TIMEOUT(text, memory_is_charged_where_its_pages_were, 600)
{
	if (make_cgroup())
		SKIP(return, "no memory controller");
	EXPECT_EQ(0, start_huge(&self->p, PROGRAM, &three_blocks, join_cgroup));
	EXPECT_EQ(3 * (long)BLOCK, cgroup_value("memory.stat", "file_thp"));
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_EQ(0, rmdir(CGROUP));
}

TEST_F_TIMEOUT(text, wrong_values_change_nothing, 600)
{
	static const struct {
		const char *knob, *too_small, *too_large;
	} knobs[] = {
		{ "enabled", "-1", "3" }, { "placement", "-1", "2" },
		{ "delay_ms", "-1", "60001" }, { "min_resident_pages", "0", "513" },
		{ "max_permil", "-1", "1001" }, { "backoff_ms", "-1", "600001" },
		{ "blocks_per_second", "0", "100001" }, { "in_place", "-1", "2" },
	};
	static const char * const words[] = { "", "x", "1x", "0x10", "99999999999999999999" };
	unsigned int i, j;

	for (i = 0; i < sizeof(knobs) / sizeof(knobs[0]); i++) {
		long before = get(knobs[i].knob);

		EXPECT_EQ(EINVAL, set(knobs[i].knob, knobs[i].too_small));
		EXPECT_EQ(EINVAL, set(knobs[i].knob, knobs[i].too_large));
		for (j = 1; j < sizeof(words) / sizeof(words[0]); j++)
			EXPECT_EQ(EINVAL, set(knobs[i].knob, words[j])) TH_LOG("%s", knobs[i].knob);
		EXPECT_EQ(before, get(knobs[i].knob));
	}
}

int main(int argc, char **argv)
{
	return test_on_ext4(argc, argv, IMAGE, FOLDER);
}
