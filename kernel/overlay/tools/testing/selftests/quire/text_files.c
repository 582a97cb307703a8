// SPDX-License-Identifier: GPL-2.0
/*
 * The text feature and other uses of programs and their files: upgrades, breakpoints, code that
 * changes itself, direct I/O, many executions, little memory.
 * Needs root, ext4 on a loop device, and quire=text (or on).
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <sys/file.h>
#include <sys/uio.h>

#include "harness.h"
#include "core_file.h"
#include "text_huge.h"

#define IMAGE	"/tmp/text_files.img"
#define FOLDER	"/tmp/text_files"
#define PROGRAM	FOLDER "/program"
#define NEWER	FOLDER "/program.new"
#define CGROUP	"/sys/fs/cgroup/text_files"

#include "text_cgroup.h"

FIXTURE(files) {
	struct program p;
};

FIXTURE_SETUP(files)
{
	NEED_TEXT_FEATURE();
	ASSERT_EQ(0, fresh_program(PROGRAM));
}

FIXTURE_TEARDOWN(files)
{
	defaults();
	unlink(PROGRAM);
	unlink(NEWER);
}

TEST_F_TIMEOUT(files, running_program_is_busy, 600)
{
	long dropped = stat_of("dropped_writer");
	int fd;

	ASSERT_EQ(0, start_huge(&self->p, PROGRAM, &three_blocks, NULL));
	EXPECT_EQ(-1, open(PROGRAM, O_WRONLY));
	EXPECT_EQ(ETXTBSY, errno);
	EXPECT_EQ(-1, open(PROGRAM, O_RDWR | O_TRUNC));
	EXPECT_EQ(ETXTBSY, errno);
	EXPECT_EQ(-1, truncate(PROGRAM, PAGE));
	EXPECT_EQ(ETXTBSY, errno);
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_EQ(3 * BLOCK_KB, pmd_mapped(self->p.pid, PROGRAM));
	EXPECT_EQ(dropped, stat_of("dropped_writer"));
	EXPECT_GE(stop(&self->p), 0);

	fd = open(PROGRAM, O_WRONLY);
	EXPECT_GE(fd, 0);
	EXPECT_EQ(dropped + 1, stat_of("dropped_writer"));
	close(fd);
}

TEST_F_TIMEOUT(files, upgrade_by_rename, 600)
{
	struct layout newer = { .pages = 1540, .offset = PAGE, .fixed = true };
	struct program other;

	ASSERT_EQ(0, start_huge(&self->p, PROGRAM, &three_blocks, NULL));
	ASSERT_EQ(0, make_program(NEWER, &newer));
	ASSERT_EQ(0, rename(NEWER, PROGRAM));
	/*
	 * A running program keeps the old text, still huge; a program that starts gets the new
	 * text.
	 */
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_EQ(3 * BLOCK_KB, pmd_mapped(self->p.pid, PROGRAM));
	EXPECT_EQ(0, start_huge(&other, PROGRAM, &newer, NULL));
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_GE(stop(&other), 0);
}

/* Overwrites the file in place, as cp does with a library that is in use. */
TEST_F_TIMEOUT(files, upgrade_in_place, 600)
{
	static unsigned char page[PAGE];
	unsigned char *map = map_huge(PROGRAM);
	int fd;

	ASSERT_NE(NULL, map);
	fd = open(PROGRAM, O_WRONLY | O_TRUNC);
	ASSERT_GE(fd, 0);
	EXPECT_EQ(0, pmd_mapped(0, PROGRAM));
	for (int i = 0; i < 2050; i++) {
		memset(page, i, PAGE);
		ASSERT_EQ(0, write_all(fd, page, PAGE, i * PAGE));
	}
	for (int i = 0; i < 2050; i++)
		if (map[i * PAGE] != (i & 0xff) || map[i * PAGE + PAGE - 1] != (i & 0xff))
			break;
		else if (i == 2049)
			fd = -close(fd);
	EXPECT_EQ(0, fd);
	munmap(map, FILE_SIZE);

	map = map_huge(PROGRAM);
	ASSERT_NE(NULL, map);
	for (int i = 0; i < 2050; i++)
		ASSERT_EQ(i & 0xff, map[i * PAGE + 7]);
	munmap(map, FILE_SIZE);
}

static sigjmp_buf back;

static void jump_back(int signal)
{
	siglongjmp(back, signal);
}

/* Calls the function on a page of text; returns the signal that it raised, or 0. */
static int call_page(const unsigned char *text, unsigned long i)
{
	int signal = sigsetjmp(back, 1);

	if (!signal)
		((void (*)(void))(text + i * PAGE))();
	return signal;
}

TEST_F_TIMEOUT(files, truncation_under_execution, 600)
{
	unsigned char *map = map_huge(PROGRAM);

	ASSERT_NE(NULL, map);
	signal(SIGBUS, jump_back);
	EXPECT_EQ(0, call_page(map + PAGE, 700));
	ASSERT_EQ(0, truncate(PROGRAM, PAGE + 600 * PAGE));
	EXPECT_EQ(SIGBUS, call_page(map + PAGE, 700));
	EXPECT_EQ(SIGBUS, call_page(map + PAGE, 2000));
	EXPECT_EQ(0, call_page(map + PAGE, 599));
	EXPECT_EQ(0, call_page(map + PAGE, 100));
	munmap(map, FILE_SIZE);
}

TEST_F_TIMEOUT(files, code_that_changes_itself, 600)
{
	static const unsigned char code[] = { 0xb8, 42, 0, 0, 0, 0xc3 };	/* return 42 */
	unsigned char *map = map_huge(PROGRAM), *other, *at;

	ASSERT_NE(NULL, map);
	other = map_file(PROGRAM, FILE_SIZE);
	ASSERT_NE(NULL, other);
	read_pages(other, FILE_SIZE);
	at = map + PAGE + 700 * PAGE;
	ASSERT_EQ(0, mprotect(map, FILE_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC));
	memcpy(at, code, sizeof(code));
	EXPECT_EQ(42, ((int (*)(void))at)());
	/* One block of this mapping is split, and none of the other. */
	EXPECT_EQ(3 * BLOCK_KB + 4 * BLOCK_KB, pmd_mapped(0, PROGRAM));
	EXPECT_TRUE(text_is_right(map + PAGE, 0, 700));
	EXPECT_TRUE(text_is_right(map + PAGE, 701, three_blocks.pages));
	EXPECT_TRUE(text_is_right(other + PAGE, 0, three_blocks.pages));
	munmap(map, FILE_SIZE);
	munmap(other, FILE_SIZE);
}

#define TRACING "/sys/kernel/tracing/"

/* Is the word in the trace? */
static bool traced(const char *word)
{
	FILE *f = fopen(TRACING "trace", "r");
	bool found = false;
	char line[512];

	while (f && !found && fgets(line, sizeof(line), f))
		found = line[0] != '#' && strstr(line, word);
	if (f)
		fclose(f);
	return found;
}

static int empty_trace(void)
{
	int fd = open(TRACING "trace", O_WRONLY | O_TRUNC);

	return fd < 0 ? -1 : close(fd);
}

TEST_F_TIMEOUT(files, uprobe_in_huge_text, 600)
{
	struct program other;
	char probe[128];

	if (access(TRACING "uprobe_events", W_OK))
		SKIP(return, "no uprobe events");
	ASSERT_EQ(0, start_huge(&self->p, PROGRAM, &three_blocks, NULL));
	snprintf(probe, sizeof(probe), "p:quire/text_hit %s:%#lx", PROGRAM, PAGE + 700 * PAGE);
	ASSERT_EQ(0, write_file(TRACING "uprobe_events", probe));
	ASSERT_EQ(0, empty_trace());
	EXPECT_EQ(0, write_file(TRACING "events/quire/text_hit/enable", "1"));
	EXPECT_FALSE(traced("text_hit"));
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_TRUE(traced("text_hit"));
	EXPECT_EQ(2 * BLOCK_KB, pmd_mapped(self->p.pid, PROGRAM));
	/* A program that starts while the breakpoint is in place. */
	ASSERT_EQ(0, start(&other, PROGRAM, NULL));
	EXPECT_EQ(0, touch(&other));
	EXPECT_EQ(2 * BLOCK_KB, pmd_mapped(other.pid, PROGRAM));

	EXPECT_EQ(0, write_file(TRACING "events/quire/text_hit/enable", "0"));
	EXPECT_EQ(0, empty_trace());
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_EQ(0, touch(&other));
	EXPECT_FALSE(traced("text_hit"));
	EXPECT_EQ(0, write_file(TRACING "uprobe_events", "-:quire/text_hit"));
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_GE(stop(&other), 0);
}

TEST_F_TIMEOUT(files, tracepoints, 600)
{
	long refused = stat_of("fallback_writer");
	int fd;

	if (access(TRACING "events/quire", F_OK))
		SKIP(return, "no tracepoints");
	ASSERT_EQ(0, empty_trace());
	ASSERT_EQ(0, write_file(TRACING "events/quire/enable", "1"));
	fd = open(PROGRAM, O_RDWR);
	munmap(map_file(PROGRAM, FILE_SIZE), FILE_SIZE);
	EXPECT_TRUE(wait_stat("fallback_writer", refused + 1));
	close(fd);
	EXPECT_TRUE(traced("text_fallback: ") && traced("fallback_writer"));
	EXPECT_FALSE(traced("text_map: "));
	ASSERT_EQ(0, start_huge(&self->p, PROGRAM, &three_blocks, NULL));
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_TRUE(traced("text_queue: "));
	EXPECT_TRUE(traced("text_collapse: "));
	ASSERT_EQ(0, start(&self->p, PROGRAM, NULL));
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_TRUE(traced("text_map: "));
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_EQ(0, write_file(TRACING "events/quire/enable", "0"));
}

TEST_F_TIMEOUT(files, direct_io, 600)
{
	unsigned char *map = map_huge(PROGRAM), *buf;
	const char *copy = FOLDER "/copy";
	int fd;

	ASSERT_NE(NULL, map);
	buf = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)buf);
	fd = open(PROGRAM, O_RDONLY | O_DIRECT);
	ASSERT_GE(fd, 0);
	ASSERT_EQ((ssize_t)BLOCK, pread(fd, buf, BLOCK, BLOCK));
	EXPECT_EQ(0, memcmp(buf, map + BLOCK, BLOCK));
	EXPECT_TRUE(text_is_right(buf - (BLOCK - PAGE), BLOCK_PAGES - 1, 2 * BLOCK_PAGES - 1));
	EXPECT_EQ(4 * BLOCK_KB, pmd_mapped(0, PROGRAM));
	close(fd);

	/* Huge text is the source of a direct write. */
	fd = open(copy, O_CREAT | O_RDWR | O_DIRECT, 0600);
	ASSERT_GE(fd, 0);
	ASSERT_EQ((ssize_t)BLOCK, pwrite(fd, map + BLOCK, BLOCK, 0));
	memset(buf, 0, BLOCK);
	ASSERT_EQ((ssize_t)BLOCK, pread(fd, buf, BLOCK, 0));
	EXPECT_EQ(0, memcmp(buf, map + BLOCK, BLOCK));
	EXPECT_EQ(4 * BLOCK_KB, pmd_mapped(0, PROGRAM));
	close(fd);
	unlink(copy);

	fd = open(PROGRAM, O_RDWR | O_DIRECT);
	ASSERT_GE(fd, 0);
	memset(buf, 0x77, PAGE);
	ASSERT_EQ((ssize_t)PAGE, pwrite(fd, buf, PAGE, PAGE + 700 * PAGE));
	close(fd);
	EXPECT_EQ(0, memcmp(map + PAGE + 700 * PAGE, buf, PAGE));
	EXPECT_TRUE(text_is_right(map + PAGE, 0, 700));
	EXPECT_TRUE(text_is_right(map + PAGE, 701, three_blocks.pages));
	munmap(buf, BLOCK);
	munmap(map, FILE_SIZE);
}

TEST_F_TIMEOUT(files, hundred_executions_have_one_copy, 600)
{
	struct program many[100];
	long huge, mapped = 0, collapsed = stat_of("collapsed_blocks");
	int i;

	ASSERT_EQ(0, start_huge(&self->p, PROGRAM, &three_blocks, NULL));
	huge = meminfo("FileHugePages:");
	ASSERT_GE(huge, 3 * BLOCK_KB);
	/* The worker counts a block after it has become visible. */
	ASSERT_TRUE(wait_stat("collapsed_blocks", collapsed + 3));
	collapsed = stat_of("collapsed_blocks");
	for (i = 0; i < 100; i++)
		ASSERT_EQ(0, start(&many[i], PROGRAM, NULL));
	for (i = 0; i < 100; i++)
		ASSERT_EQ(0, touch(&many[i]));
	for (i = 0; i < 100; i++)
		mapped += pmd_mapped(many[i].pid, PROGRAM);
	EXPECT_EQ(100 * 3 * BLOCK_KB, mapped);
	EXPECT_EQ(huge, meminfo("FileHugePages:"));
	EXPECT_EQ(collapsed, stat_of("collapsed_blocks"));
	for (i = 0; i < 100; i++)
		EXPECT_GE(stop(&many[i]), 0);
	EXPECT_GE(stop(&self->p), 0);
}

TEST_F_TIMEOUT(files, memcg_at_its_limit, 600)
{
	const long limit = 8 << 20;
	double end = seconds() + LIMIT_S;
	long before = worker_results();
	bool alive = true;

	if (make_cgroup())
		SKIP(return, "no memory controller");
	ASSERT_EQ(0, write_file(CGROUP "/memory.max", "8388608"));
	ASSERT_EQ(0, start(&self->p, PROGRAM, join_cgroup));
	/* Not all of its text fits, whatever becomes huge. */
	do {
		alive = !touch(&self->p);
	} while (alive && worker_results() == before && seconds() < end);
	for (int i = 0; i < 5 && alive; i++)
		alive = !touch(&self->p);
	EXPECT_TRUE(alive);
	EXPECT_GT(worker_results(), before);
	EXPECT_EQ(0, cgroup_value("memory.events", "oom_kill"));
	EXPECT_LE(cgroup_value("memory.peak", ""), limit);
	EXPECT_GE(stop(&self->p), 0);

	/* With room for it all is huge. */
	EXPECT_EQ(0, write_file(CGROUP "/memory.max", "max"));
	EXPECT_EQ(0, start_huge(&self->p, PROGRAM, &three_blocks, join_cgroup));
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_EQ(0, rmdir(CGROUP));
}

#define CHUNK_PAGES	64
#define CHUNKS		32

/* Reads every other chunk of the program: the caller's group is charged for those. */
static int read_chunks(int first)
{
	static char buf[CHUNK_PAGES * PAGE];
	int fd = open(PROGRAM, O_RDONLY), ret = 0;

	/* Nothing must be read ahead into the next chunk. */
	if (fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM))
		return -1;
	for (int i = first; i < CHUNKS && !ret; i += 2)
		ret = pread(fd, buf, sizeof(buf), i * sizeof(buf)) != sizeof(buf);
	close(fd);
	return ret;
}

/* Waits until all of the group's page cache is mapped, or none of it. */
static bool wait_mapped(bool all)
{
	const long least = (CHUNKS / 2 - 1) * CHUNK_PAGES * PAGE;
	double end = seconds() + LIMIT_S;

	while (seconds() < end) {
		long cached = cgroup_value("memory.stat", "file");
		long mapped = cgroup_value("memory.stat", "file_mapped");

		if (all ? cached >= least && mapped == cached : !mapped)
			return true;
		usleep(100000);
	}
	return false;
}

TEST_F_TIMEOUT(files, mapped_pages_are_counted_where_they_are_charged, 600)
{
	unsigned char *map;
	int fd, status;
	pid_t child;

	if (make_cgroup())
		SKIP(return, "no memory controller");
	ASSERT_EQ(0, set("delay_ms", "60000"));
	child = fork();
	ASSERT_GE(child, 0);
	if (!child) {
		join_cgroup();
		/*
		 * The last chunk of each page table is charged to the group, and the one before
		 * it is not.
		 */
		_exit(read_chunks(1) ? 1 : 0);
	}
	ASSERT_EQ(child, waitpid(child, &status, 0));
	ASSERT_EQ(0, status);
	ASSERT_EQ(0, read_chunks(0));

	fd = open(PROGRAM, O_RDONLY);
	ASSERT_GE(fd, 0);
	map = mmap(NULL, FILE_SIZE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	ASSERT_NE(MAP_FAILED, map);
	close(fd);
	for (unsigned long at = 0; at < FILE_SIZE; at += PAGE)
		(void)*(volatile unsigned char *)(map + at);
	EXPECT_TRUE(wait_mapped(true));
	munmap(map, FILE_SIZE);
	EXPECT_TRUE(wait_mapped(false));
	EXPECT_EQ(0, rmdir(CGROUP));
}

TEST_F_TIMEOUT(files, no_huge_page_to_be_had, 600)
{
	long nomem = stat_of("fallback_nomem"), backoff = stat_of("skipped_backoff");
	long collapsed = stat_of("collapsed_blocks");

	if (access(INJECT "probability", W_OK))
		SKIP(return, "no fault injection");
	ASSERT_EQ(0, set("backoff_ms", "600000"));
	ASSERT_EQ(0, fail_huge_pages("100"));
	EXPECT_EQ(0, start(&self->p, PROGRAM, NULL));
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_TRUE(wait_stat("fallback_nomem", nomem + 1));
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_EQ(0, pmd_mapped(self->p.pid, PROGRAM));
	EXPECT_EQ(collapsed, stat_of("collapsed_blocks"));
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_EQ(0, start(&self->p, PROGRAM, NULL));
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_EQ(backoff + 1, stat_of("skipped_backoff"));
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_EQ(0, fail_huge_pages("0"));

	/* Switching the feature on anew ends the wait. */
	ASSERT_EQ(0, set("enabled", "0"));
	ASSERT_EQ(0, set("enabled", "1"));
	EXPECT_EQ(0, start_huge(&self->p, PROGRAM, &three_blocks, NULL));
	EXPECT_GE(stop(&self->p), 0);
}

TEST_F_TIMEOUT(files, tmpfs_is_left_alone, 600)
{
	const char *path = "/dev/shm/text_files";
	long queued = stat_of("queued"), skipped = stat_of("skipped_file");

	ASSERT_EQ(0, make_program(path, &three_blocks));
	ASSERT_EQ(0, start(&self->p, path, NULL));
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_EQ(skipped + 1, stat_of("skipped_file"));
	EXPECT_EQ(queued, stat_of("queued"));
	EXPECT_GE(stop(&self->p), 0);
	unlink(path);
}

/*
 * On a filesystem that nobody has read for it, a huge page may meet code that takes it for a small
 * one. ramfs stands for those.
 */
TEST_F_TIMEOUT(files, unknown_filesystem_is_left_alone, 600)
{
	const char *path = FOLDER "/ramfs/program";
	long queued = stat_of("queued"), skipped = stat_of("skipped_file");

	mkdir(FOLDER "/ramfs", 0755);
	ASSERT_EQ(0, mount("ramfs", FOLDER "/ramfs", "ramfs", 0, NULL));
	EXPECT_EQ(0, make_program(path, &three_blocks));
	EXPECT_EQ(0, start(&self->p, path, NULL));
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_EQ(skipped + 1, stat_of("skipped_file"));
	EXPECT_EQ(queued, stat_of("queued"));
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_EQ(0, umount(FOLDER "/ramfs"));
}

/* A page that somebody holds keeps its own block small, but no other block. */
TEST_F_TIMEOUT(files, one_block_in_use, 600)
{
	unsigned char *map;
	struct iovec held;
	long busy = stat_of("fallback_busy");
	double end = seconds() + LIMIT_S;
	int tube[2];

	ASSERT_EQ(0, set("enabled", "0"));
	map = map_resident(PROGRAM);
	ASSERT_NE(NULL, map);
	held = (struct iovec){ map + 100 * PAGE, 16 };
	ASSERT_EQ(0, pipe(tube));
	ASSERT_EQ(16, vmsplice(tube[1], &held, 1, 0));
	/* One block per run; the first one cannot be collapsed. */
	ASSERT_EQ(0, set("blocks_per_second", "10"));
	ASSERT_EQ(0, set("enabled", "1"));
	munmap(map_file(PROGRAM, FILE_SIZE), FILE_SIZE);
	do {
		read_pages(map, FILE_SIZE);
		usleep(20000);
	} while (pmd_mapped(0, PROGRAM) < 3 * BLOCK_KB && seconds() < end);
	EXPECT_TRUE(wait_stat("fallback_busy", busy + 1));
	read_pages(map, FILE_SIZE);
	EXPECT_EQ(3 * BLOCK_KB, pmd_mapped(0, PROGRAM));
	EXPECT_TRUE(text_is_right(map + PAGE, 0, three_blocks.pages));
	munmap(map, FILE_SIZE);
	close(tube[0]);
	close(tube[1]);
}

/* Queues the program's file, for long; returns 0, or -1. */
static int queue_it(struct program *p, const char *path)
{
	if (set("delay_ms", "60000") || start(p, path, NULL) || touch(p))
		return -1;
	return stop(p) < 0 ? -1 : 0;
}

/* The queue stays as it is when a mount goes, and is empty when its filesystem goes. */
TEST_F_TIMEOUT(files, mounts_come_and_go, 600)
{
	const char *folder = "/tmp/text_files_2", *image = "/tmp/text_files_2.img";
	const char *path = "/tmp/text_files_2/program", *bound = "/tmp/text_files_bound";
	long forgotten = stat_of("forgotten");

	mkdir(bound, 0755);
	ASSERT_EQ(0, make_fs(image, folder, 48));
	EXPECT_EQ(0, make_program(path, &three_blocks));
	EXPECT_EQ(0, queue_it(&self->p, path));
	EXPECT_EQ(0, mount(folder, bound, NULL, MS_BIND, NULL));
	EXPECT_EQ(0, umount2(bound, 0));
	EXPECT_EQ(0, mount(folder, bound, NULL, MS_BIND, NULL));
	EXPECT_EQ(0, umount2(bound, MNT_DETACH));
	EXPECT_EQ(forgotten, stat_of("forgotten"));
	EXPECT_EQ(0, umount2(folder, MNT_DETACH));
	EXPECT_EQ(forgotten + 1, stat_of("forgotten"));
	remove_fs(image, folder);
	rmdir(bound);
}

/* A lock belongs to an open file, which must go when the last process closes it. */
TEST_F_TIMEOUT(files, queued_files_are_closed, 600)
{
	long queued = stat_of("queued");
	int fd, status;
	pid_t pid;

	ASSERT_EQ(0, set("delay_ms", "60000"));
	pid = fork();
	if (!pid) {
		fd = open(PROGRAM, O_RDONLY);
		if (fd < 0 || flock(fd, LOCK_EX))
			_exit(1);
		_exit(mmap(NULL, FILE_SIZE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_EQ(0, status);
	ASSERT_EQ(queued + 1, stat_of("queued"));
	fd = open(PROGRAM, O_RDONLY);
	EXPECT_EQ(0, flock(fd, LOCK_EX | LOCK_NB));
	close(fd);
}

/* A file without a name is of no use to anybody later. */
TEST_F_TIMEOUT(files, deleted_files_are_forgotten, 600)
{
	long forgotten = stat_of("forgotten"), collapsed = stat_of("collapsed_blocks");
	unsigned char *map;

	/* Nothing is resident, so the file's blocks are still to be done. */
	map = map_file(PROGRAM, FILE_SIZE);
	ASSERT_NE(NULL, map);
	ASSERT_EQ(0, unlink(PROGRAM));
	EXPECT_TRUE(wait_stat("forgotten", forgotten + 1));
	EXPECT_EQ(collapsed, stat_of("collapsed_blocks"));
	EXPECT_TRUE(text_is_right(map + PAGE, 0, 700));
	munmap(map, FILE_SIZE);
}

/* Switch the feature on and off until killed. */
static pid_t start_switching(void)
{
	pid_t pid = fork();

	while (!pid) {
		set("enabled", "0");
		usleep(1000);
		set("enabled", "1");
		usleep(5000);
	}
	return pid;
}

/* Files are queued while the feature's key is being switched off, and are dropped after that. */
TEST_F_TIMEOUT(files, switching_does_not_hold_up_umount, 600)
{
	const char *folder = "/tmp/text_files_2", *image = "/tmp/text_files_2.img";
	const char *path = "/tmp/text_files_2/program";
	pid_t switching;
	int i;

	ASSERT_EQ(0, make_fs(image, folder, 48));
	EXPECT_EQ(0, make_program(path, &three_blocks));
	ASSERT_EQ(0, set("delay_ms", "60000"));
	switching = start_switching();
	ASSERT_GT(switching, 0);
	for (i = 0; i < 8; i++) {
		EXPECT_EQ(0, start(&self->p, path, NULL));
		EXPECT_EQ(0, touch(&self->p));
		EXPECT_GE(stop(&self->p), 0);
		ASSERT_EQ(0, umount2(folder, 0)) TH_LOG("round %d: %s", i, strerror(errno));
		ASSERT_EQ(0, system("mount -o loop /tmp/text_files_2.img /tmp/text_files_2"));
	}
	kill(switching, SIGKILL);
	waitpid(switching, NULL, 0);
	remove_fs(image, folder);
}

static void want_text_in_core(void)
{
	if (core_wanted("0x37"))
		_exit(1);
}

/* A core that is to have files' pages has huge text, and leaves it huge for the others. */
TEST_F_TIMEOUT(files, core_dump, 600)
{
	static unsigned char page[PAGE], dumped[PAGE];
	struct program other;
	unsigned long text;
	int core, bad = 0;

	if (core_to_file())
		SKIP(return, "no core dumps");
	ASSERT_EQ(0, start_huge(&other, PROGRAM, &three_blocks, NULL));
	ASSERT_EQ(0, start_huge(&self->p, PROGRAM, &three_blocks, want_text_in_core));
	text = text_address(self->p.pid, PROGRAM);
	ASSERT_EQ(0, kill(self->p.pid, SIGABRT));
	core = core_of(self->p.pid);
	ASSERT_LE(0, core);
	for (unsigned long i = 0; i < three_blocks.pages; i++) {
		text_page(page, i, three_blocks.pages);
		bad += core_read(core, (char *)text + i * PAGE, dumped, PAGE) ||
			memcmp(page, dumped, PAGE);
	}
	EXPECT_EQ(0, bad);
	close(core);
	EXPECT_EQ(3 * BLOCK_KB, pmd_mapped(other.pid, PROGRAM));
	EXPECT_EQ(0, touch(&other));
	EXPECT_GE(stop(&other), 0);
	close(self->p.in);
	close(self->p.out);
}

int main(int argc, char **argv)
{
	return test_on_ext4(argc, argv, IMAGE, FOLDER);
}
