// SPDX-License-Identifier: GPL-2.0
/*
 * What the worker must not do to others: keep deleted files, write files back, unmap
 * locked or real-time text, read what is hardly used, take the CPU of a program that reads.
 * Needs root, ext4 on a loop device, and quire=text (or on).
 */
#define _GNU_SOURCE

#include <sys/prctl.h>

#include "cpus.h"
#include "harness.h"
#include "text_huge.h"
#include "text_trace.h"

#define FOLDER	"/tmp/text_bystander"
#define IMAGE	"/tmp/text_bystander.img"
#define PROGRAM	FOLDER "/program"
#define COPY	FOLDER "/copy"
#define BLOCKS	4		/* of the file, mapped whole */

#define WRITEBACK "/proc/sys/vm/dirty_writeback_centisecs"
#define KSM	"/sys/kernel/mm/ksm/"
#define FAIR_SERVER "/sys/kernel/debug/sched/fair_server/cpu1"
#define SECOND_CPU "/sys/devices/system/cpu/cpu1/online"
#define KEEP_S	20		/* so long a real-time task keeps its CPU */

/* Let real-time tasks have all of CPU 1, or no more than by default. 0, or -1. */
static int realtime_may_keep_cpu(bool all)
{
	static const char limit[] = "/proc/sys/kernel/sched_rt_runtime_us";
	static const char server[] = FAIR_SERVER "/runtime";

	/* The server must fit into the limit at each moment. */
	if (all)
		return write_file(limit, "-1") || write_file(server, "0") ? -1 : 0;
	return write_file(server, "50000000") || write_file(limit, "950000") ? -1 : 0;
}

FIXTURE(bystander) {
	struct program p;
	char writeback[32];
	pid_t pinned;		/* the worker, if it was, and real-time tasks have no limit */
	bool ksm;		/* its knobs were changed */
};

FIXTURE_SETUP(bystander)
{
	FILE *f = fopen(WRITEBACK, "r");

	NEED_TEXT_FEATURE();
	ASSERT_NE(NULL, f);
	ASSERT_EQ(1, fscanf(f, "%31s", self->writeback));
	fclose(f);
	/* A new inode, which the worker does not know. */
	unlink(PROGRAM);
	unlink(COPY);
	ASSERT_EQ(0, fresh_program(PROGRAM));
}

FIXTURE_TEARDOWN(bystander)
{
	trace_no_worker();
	write_file(SECOND_CPU, "1");
	write_file(WRITEBACK, self->writeback);
	if (self->ksm) {
		write_file(KSM "run", "2");
		write_file(KSM "run", "0");
		write_file(KSM "use_zero_pages", "0");
		write_file(KSM "pages_to_scan", "100");
	}
	if (self->pinned) {
		EXPECT_EQ(0, run_on(self->pinned, -1));
		EXPECT_EQ(0, realtime_may_keep_cpu(false));
	}
	defaults();
}

/* Map the program's file and unmap it again. Returns the seconds between, or -1. */
static double map_for_a_moment(void)
{
	double start = seconds();
	unsigned char *map = map_file(PROGRAM, FILE_SIZE);

	if (!map)
		return -1;
	munmap(map, FILE_SIZE);
	return seconds() - start;
}

/* Have the first pages of so many blocks resident, and no others. 0, or -1. */
static int read_blocks(unsigned long blocks, unsigned long pages)
{
	int fd = open(PROGRAM, O_RDONLY), ret;
	static char buf[PAGE];

	ret = posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	for (unsigned long i = 0; i < blocks * pages && !ret; i++)
		if (pread(fd, buf, PAGE, i / pages * BLOCK + i % pages * PAGE) != PAGE)
			ret = -1;
	close(fd);
	return ret;
}

/* Copy the program, and leave the copy in the page cache, not written back. 0, or -1. */
static int copy_program(void)
{
	int from = open(PROGRAM, O_RDONLY), to = open(COPY, O_CREAT | O_EXCL | O_WRONLY, 0755);
	static char buf[64 * PAGE];
	ssize_t n;

	while ((n = read(from, buf, sizeof(buf))) > 0)
		if (write(to, buf, n) != n)
			n = -1;
	close(from);
	close(to);
	return n;
}

TEST_F_TIMEOUT(bystander, deleted_file_is_let_go_at_once, 600)
{
	long queued = stat_of("queued"), forgotten = stat_of("forgotten");

	ASSERT_EQ(0, set("delay_ms", "60000"));
	ASSERT_EQ(0, start(&self->p, PROGRAM, NULL));
	ASSERT_EQ(0, touch(&self->p));
	ASSERT_GE(stop(&self->p), 0);
	ASSERT_EQ(queued + 1, stat_of("queued"));
	ASSERT_EQ(0, unlink(PROGRAM));
	EXPECT_EQ(forgotten + 1, stat_of("forgotten"));
	/* This is busy while a deleted file has users. */
	EXPECT_EQ(0, mount(NULL, FOLDER, NULL, MS_REMOUNT | MS_RDONLY, NULL));
	EXPECT_EQ(0, mount(NULL, FOLDER, NULL, MS_REMOUNT, NULL));
}

/* Its last user goes after its name. */
TEST_F_TIMEOUT(bystander, deleted_program_ends, 600)
{
	long forgotten = stat_of("forgotten");

	ASSERT_EQ(0, set("delay_ms", "60000"));
	ASSERT_EQ(0, start(&self->p, PROGRAM, NULL));
	ASSERT_EQ(0, touch(&self->p));
	ASSERT_EQ(0, unlink(PROGRAM));
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_EQ(forgotten, stat_of("forgotten"));
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_EQ(forgotten + 1, stat_of("forgotten"));
	EXPECT_EQ(0, mount(NULL, FOLDER, NULL, MS_REMOUNT | MS_RDONLY, NULL));
	EXPECT_EQ(0, mount(NULL, FOLDER, NULL, MS_REMOUNT, NULL));
}

TEST_F_TIMEOUT(bystander, deleted_text_is_not_queued, 600)
{
	long queued = stat_of("queued"), skipped = stat_of("skipped_file");
	int fd = open(PROGRAM, O_RDONLY);
	void *map;

	ASSERT_EQ(0, unlink(PROGRAM));
	map = mmap(NULL, FILE_SIZE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	ASSERT_NE(MAP_FAILED, map);
	EXPECT_EQ(queued, stat_of("queued"));
	EXPECT_EQ(skipped + 1, stat_of("skipped_file"));
	munmap(map, FILE_SIZE);
	close(fd);
}

TEST_F_TIMEOUT(bystander, new_program_is_not_written_back, 600)
{
	long dirty = stat_of("fallback_dirty"), collapsed = stat_of("collapsed_blocks");

	ASSERT_EQ(0, write_file(WRITEBACK, "0"));
	sync();
	ASSERT_EQ(0, copy_program());
	ASSERT_EQ(0, start(&self->p, COPY, NULL));
	ASSERT_EQ(0, touch(&self->p));
	EXPECT_TRUE(wait_stat("fallback_dirty", dirty + 1));
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_EQ(collapsed, stat_of("collapsed_blocks"));
	EXPECT_GE(meminfo("Dirty:"), (long)(FILE_SIZE / 1024 / 2));
	sync();
	EXPECT_EQ(0, start_huge(&self->p, COPY, &three_blocks, NULL));
	EXPECT_GE(stop(&self->p), 0);
}

/* A file that is dirty at first is collapsed when it has been written back. */
TEST_F_TIMEOUT(bystander, written_program_is_waited_for, 600)
{
	long collapsed = stat_of("collapsed_blocks");

	ASSERT_EQ(0, write_file(WRITEBACK, "100"));
	ASSERT_EQ(0, copy_program());
	ASSERT_EQ(0, start(&self->p, COPY, NULL));
	ASSERT_EQ(0, touch(&self->p));
	sync();
	EXPECT_TRUE(wait_stat("collapsed_blocks", collapsed + 3));
	EXPECT_GE(stop(&self->p), 0);
}

TEST_F_TIMEOUT(bystander, locked_text_stays_mapped, 600)
{
	long locked = stat_of("fallback_locked"), collapsed = stat_of("collapsed_blocks");
	long kb = FILE_SIZE / 1024, before = meminfo("Mlocked:");
	struct rusage usage;
	unsigned char *map;
	long faults;

	map = map_file(PROGRAM, FILE_SIZE);
	ASSERT_NE(NULL, map);
	ASSERT_EQ(0, mlock(map, FILE_SIZE));
	ASSERT_EQ(0, getrusage(RUSAGE_SELF, &usage));
	faults = usage.ru_minflt + usage.ru_majflt;
	EXPECT_TRUE(wait_stat("fallback_locked", locked + BLOCKS));
	EXPECT_EQ(collapsed, stat_of("collapsed_blocks"));
	/* Some pages may still be in per-CPU batches. */
	EXPECT_GE(meminfo("Mlocked:"), before + kb * 9 / 10);
	read_pages(map, FILE_SIZE);
	ASSERT_EQ(0, getrusage(RUSAGE_SELF, &usage));
	/* A few are for what the waiting needs itself. */
	EXPECT_LT(usage.ru_minflt + usage.ru_majflt - faults, (long)BLOCK_PAGES / 4);
	munmap(map, FILE_SIZE);

	map = map_huge(PROGRAM);
	EXPECT_NE(NULL, map);
	munmap(map, FILE_SIZE);
}

/* One that is locked keeps the block for all, also for those that have not. */
TEST_F_TIMEOUT(bystander, text_that_another_has_locked, 600)
{
	long locked = stat_of("fallback_locked"), collapsed = stat_of("collapsed_blocks");
	unsigned char *map, *other;

	ASSERT_EQ(0, set("delay_ms", "100"));
	map = map_file(PROGRAM, FILE_SIZE);
	ASSERT_NE(NULL, map);
	ASSERT_EQ(0, mlock(map + BLOCK, PAGE));
	other = map_resident(PROGRAM);
	ASSERT_NE(NULL, other);
	EXPECT_TRUE(wait_stat("fallback_locked", locked + 1));
	EXPECT_TRUE(wait_stat("collapsed_blocks", collapsed + BLOCKS - 1));
	EXPECT_EQ(collapsed + BLOCKS - 1, stat_of("collapsed_blocks"));
	munmap(other, FILE_SIZE);
	munmap(map, FILE_SIZE);
}

TEST_F_TIMEOUT(bystander, realtime_task_keeps_its_mapping, 600)
{
	long found = stat_of("fallback_realtime"), collapsed = stat_of("collapsed_blocks");
	struct sched_param realtime = { .sched_priority = 1 }, normal = { 0 };
	unsigned char *map;

	ASSERT_EQ(0, sched_setscheduler(0, SCHED_FIFO, &realtime));
	map = map_resident(PROGRAM);
	ASSERT_NE(NULL, map);
	EXPECT_TRUE(wait_stat("fallback_realtime", found + BLOCKS));
	EXPECT_EQ(collapsed, stat_of("collapsed_blocks"));
	ASSERT_EQ(0, sched_setscheduler(0, SCHED_OTHER, &normal));
	munmap(map, FILE_SIZE);

	map = map_huge(PROGRAM);
	EXPECT_NE(NULL, map);
	munmap(map, FILE_SIZE);
}

/* The process ID of the worker's thread, or 0. */
static pid_t find_worker(void)
{
	FILE *f = popen("pgrep -x quire_text", "r");
	int pid = 0;

	if (f && fscanf(f, "%d", &pid) != 1)
		pid = 0;
	if (f)
		pclose(f);
	return pid;
}

/* It has another priority only while others wait for it. */
TEST_F_TIMEOUT(bystander, worker_yields_to_all, 600)
{
	pid_t worker = find_worker();
	unsigned char *map;

	ASSERT_GT(worker, 0);
	map = map_huge(PROGRAM);
	ASSERT_NE(NULL, map);
	for (double end = seconds() + LIMIT_S;
	     getpriority(PRIO_PROCESS, worker) != 19 && seconds() < end;)
		usleep(20000);
	EXPECT_EQ(SCHED_OTHER, sched_getscheduler(worker));
	EXPECT_EQ(19, getpriority(PRIO_PROCESS, worker));
	munmap(map, FILE_SIZE);
}

/* A start is waited for whenever it comes, also long after the first. */
TEST_F_TIMEOUT(bystander, start_during_an_attempt, 600)
{
	unsigned char *map = NULL, *again = NULL;
	long before, collapsed;
	double took;

	/*
	 * An attempt begins a second after the mapping, leaves starts alone as long as delay_ms says
	 * then, and does a block a second. Another map comes while it is at it.
	 */
	do {
		if (again)
			munmap(again, FILE_SIZE);
		if (map)
			munmap(map, FILE_SIZE);
		unlink(PROGRAM);
		ASSERT_EQ(0, fresh_program(PROGRAM));
		ASSERT_EQ(0, set("blocks_per_second", "1"));
		ASSERT_EQ(0, set("delay_ms", "1000"));
		before = stat_of("collapsed_blocks");
		took = seconds();
		map = map_file(PROGRAM, FILE_SIZE);
		ASSERT_NE(NULL, map);
		ASSERT_EQ(0, set("delay_ms", "60000"));
		took = seconds() - took;
		read_pages(map, FILE_SIZE);
		ASSERT_TRUE(wait_stat("collapsed_blocks", before + 2));
		again = map_file(PROGRAM, FILE_SIZE);
		ASSERT_NE(NULL, again);
		collapsed = stat_of("collapsed_blocks");
	} while (took > 0.9 || collapsed == before + BLOCKS);
	sleep(5);
	/* One may have been in the making. */
	EXPECT_LE(stat_of("collapsed_blocks"), collapsed + 1);
	munmap(again, FILE_SIZE);
	munmap(map, FILE_SIZE);
}

/* What is run all the time is collapsed, too: who waits for a page does not keep it from that. */
TEST_F_TIMEOUT(bystander, busy_text, 600)
{
	long done = stat_of("collapsed_blocks") + BLOCKS;
	volatile long *rounds = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	double end = seconds() + LIMIT_S;
	unsigned char *map, *again;
	pid_t child[2];

	if (access(FALLBACK, W_OK))
		SKIP(return, "needs tracefs");
	ASSERT_NE(MAP_FAILED, (void *)rounds);
	/* All is resident and read all the time before the worker knows of the file. */
	ASSERT_EQ(0, set("enabled", "0"));
	map = map_resident(PROGRAM);
	ASSERT_NE(NULL, map);
	for (int i = 0; i < 2; i++) {
		child[i] = fork();
		ASSERT_LE(0, child[i]);
		if (!child[i])
			prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (; !child[i]; rounds[i]++)
			read_pages(map, FILE_SIZE);
	}
	while ((!rounds[0] || !rounds[1]) && seconds() < end)
		usleep(1000);
	ASSERT_TRUE(rounds[0] && rounds[1]);
	ASSERT_EQ(0, trace_worker());
	ASSERT_EQ(0, set("enabled", "1"));
	again = map_file(PROGRAM, FILE_SIZE);
	ASSERT_NE(NULL, again);
	EXPECT_TRUE(wait_stat("collapsed_blocks", done));
	/* No block needed a second attempt. */
	EXPECT_EQ(BLOCKS, traced(PROGRAM, "text_collapse:"));
	EXPECT_EQ(0, traced(PROGRAM, "text_fallback:"));
	munmap(again, FILE_SIZE);
	for (int i = 0; i < 2; i++) {
		kill(child[i], SIGKILL);
		waitpid(child[i], NULL, 0);
	}
	EXPECT_TRUE(text_is_right(map + PAGE, 0, three_blocks.pages));
	munmap(map, FILE_SIZE);
}

/* How many zero pages KSM has put into this process, or -1. */
static long ksm_zero_pages(void)
{
	FILE *f = fopen("/proc/self/ksm_stat", "r");
	long pages = -1;
	char line[128];

	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "ksm_zero_pages %ld", &pages);
	if (f)
		fclose(f);
	return pages;
}

/* Have KSM merge a page of zeroes. 0, or -1. */
static int merge_zero_page(void *start, size_t len)
{
	double end = seconds() + LIMIT_S;

	if (write_file(KSM "use_zero_pages", "1") || write_file(KSM "sleep_millisecs", "20") ||
	    write_file(KSM "pages_to_scan", "10000") || madvise(start, len, MADV_MERGEABLE) ||
	    write_file(KSM "run", "1"))
		return -1;
	while (ksm_zero_pages() < 1 && seconds() < end)
		usleep(20000);
	return write_file(KSM "run", "0") || ksm_zero_pages() != 1 ? -1 : 0;
}

/* Where a private page of zeroes was merged with the zero page, it is not the file's page. */
TEST_F_TIMEOUT(bystander, merged_zero_page, 600)
{
	long done = stat_of("collapsed_blocks") + BLOCKS, dropped;
	static const unsigned char zero[PAGE];
	unsigned char *private, *map, *page;
	int fd;

	if (access(KSM "use_zero_pages", W_OK))
		SKIP(return, "no KSM");
	fd = open(PROGRAM, O_RDONLY);
	private = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	close(fd);
	ASSERT_NE(MAP_FAILED, private);
	page = private + BLOCK + 10 * PAGE;
	memset(page, 0, PAGE);
	self->ksm = true;
	ASSERT_EQ(0, merge_zero_page(private, FILE_SIZE));
	/* Now it has pages of the file on both sides. */
	read_pages(private, FILE_SIZE);

	map = map_resident(PROGRAM);
	ASSERT_NE(NULL, map);
	EXPECT_TRUE(wait_stat("collapsed_blocks", done));
	EXPECT_EQ(1, ksm_zero_pages());
	EXPECT_EQ(0, memcmp(zero, page, PAGE));
	EXPECT_EQ(0, memcmp(private, map, page - private));
	/* A writer empties the page cache. */
	dropped = stat_of("dropped_writer");
	fd = open(PROGRAM, O_RDWR);
	ASSERT_GE(fd, 0);
	close(fd);
	EXPECT_EQ(dropped + 1, stat_of("dropped_writer"));
	EXPECT_EQ(1, ksm_zero_pages());
	EXPECT_EQ(0, memcmp(zero, page, PAGE));
	EXPECT_TRUE(text_is_right(map + PAGE, 0, three_blocks.pages));
	munmap(map, FILE_SIZE);
	munmap(private, FILE_SIZE);
	EXPECT_EQ(0, ksm_zero_pages());
}

/* Keep CPU 1, with pages in its LRU batches. *@state is 1 meanwhile, and 2 afterwards. */
static void keep_cpu(volatile int *state)
{
	struct sched_param realtime = { .sched_priority = 50 };
	double end = seconds() + KEEP_S;
	char *pages;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (run_on(0, 1))
		_exit(1);
	pages = mmap(NULL, 5 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED || sched_setscheduler(0, SCHED_FIFO, &realtime))
		_exit(1);
	memset(pages, 1, 5 * PAGE);
	*state = 1;
	while (seconds() < end)
		;
	*state = 2;
	_exit(0);
}

/* Start that task; it keeps the CPU for KEEP_S seconds. Returns its process ID, or -1. */
static pid_t start_keeper(volatile int *state)
{
	double end = seconds() + LIMIT_S;
	pid_t keeper;

	*state = 0;
	keeper = fork();
	if (!keeper)
		keep_cpu(state);
	while (keeper > 0 && !*state && !waitpid(keeper, NULL, WNOHANG) && seconds() < end)
		usleep(1000);
	return *state ? keeper : -1;
}

/* Does a task wait for work that it has queued on other CPUs? */
static bool waits_for_cpus(pid_t pid)
{
	char path[64], function[64] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/wchan", pid);
	f = fopen(path, "r");
	if (f && fscanf(f, "%63s", function) != 1)
		function[0] = 0;
	if (f)
		fclose(f);
	return strstr(function, "flush_work");
}

/* Is there a CPU that a real-time task can keep to itself? */
static bool cpu_can_be_kept(void)
{
	return sysconf(_SC_NPROCESSORS_ONLN) == 2 && !access(FAIR_SERVER, F_OK);
}

/*
 * Run on CPU 0, with the worker, and let a real-time task keep CPU 1. Returns where that task is to
 * say that it does, or NULL.
 */
static volatile int *share_cpu(FIXTURE_DATA(bystander) *self)
{
	volatile int *state = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t worker = find_worker();

	if (state == MAP_FAILED || !worker || run_on(0, 0))
		return NULL;
	self->pinned = worker;
	return run_on(worker, 0) || realtime_may_keep_cpu(true) ? NULL : state;
}

/*
 * Wait until the worker waits for the other CPU, has done its work, or the task has ended. Returns
 * whether it waits.
 */
static bool worker_waits(pid_t worker, long done, volatile int *state)
{
	bool waits = false;

	while (!waits && stat_of("collapsed_blocks") < done && *state == 1) {
		usleep(1000);
		waits = waits_for_cpus(worker);
	}
	return waits;
}

/*
 * Read the program's file before it is queued, as the worker would give way to a reader. Its first
 * block comes last, so that pages of it are in this CPU's batches when the worker begins. 0, or -1.
 */
static int read_to_batches(void)
{
	int fd = open(PROGRAM, O_RDONLY), ret;
	static char buf[PAGE];

	ret = posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	for (long i = BLOCKS * BLOCK_PAGES - 1; i >= 0 && !ret; i--)
		ret = pread(fd, buf, PAGE, i * PAGE) == PAGE ? 0 : -1;
	close(fd);
	return ret;
}

/* The worker waits for a CPU that a real-time task keeps, but nobody waits for the worker. */
TEST_F_TIMEOUT(bystander, cpu_that_a_task_keeps, 600)
{
	volatile int *state;
	unsigned char *map;
	double began;
	pid_t keeper;
	bool waits;
	long done;

	if (!cpu_can_be_kept())
		SKIP(return, "needs two CPUs and debugfs");
	state = share_cpu(self);
	ASSERT_NE(NULL, state);
	/* Anew if no page of the text has stayed in a batch, or the task is about to end. */
	do {
		unlink(PROGRAM);
		ASSERT_EQ(0, fresh_program(PROGRAM));
		done = stat_of("collapsed_blocks") + BLOCKS;
		began = seconds();
		keeper = start_keeper(state);
		ASSERT_LT(0, keeper);
		EXPECT_EQ(0, read_to_batches());
		map = map_file(PROGRAM, FILE_SIZE);
		EXPECT_NE(NULL, map);
		waits = worker_waits(self->pinned, done, state) &&
			seconds() - began < KEEP_S * 3 / 4;
		EXPECT_EQ(0, set("enabled", "0"));
		if (waits)
			EXPECT_EQ(1, *state);
		kill(keeper, SIGKILL);
		waitpid(keeper, NULL, 0);
		munmap(map, FILE_SIZE);
	} while (!waits);
}

/* Start a task that spins on CPU 0. Returns its process ID, or -1. */
static pid_t start_spinner(void)
{
	pid_t spinner = fork();

	if (spinner)
		return spinner;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (run_on(0, 0))
		_exit(1);
	for (;;)
		;
}

/* Have a file in the page cache, and its pages on the LRU lists. 0, or -1. */
static int read_to_lists(const char *path)
{
	size_t other = 64 * PAGE;
	int fd = open(path, O_RDONLY);
	void *map = mmap(NULL, FILE_SIZE, PROT_READ, MAP_SHARED, fd, 0);
	void *pages = mmap(NULL, other, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	close(fd);
	if (map == MAP_FAILED || pages == MAP_FAILED || madvise(pages, other, MADV_NOHUGEPAGE))
		return -1;
	read_pages(map, FILE_SIZE);
	munmap(map, FILE_SIZE);
	/* More than a batch of other pages: the file's leave it. */
	memset(pages, 1, other);
	munmap(pages, other);
	return 0;
}

/*
 * Map and read a new program's file, or one that was read before, and wait until it is huge.
 * Returns how often the worker gave way, or -1.
 */
static long times_given_way(bool read_before)
{
	long done = stat_of("collapsed_blocks") + BLOCKS, times = stat_of("gave_way");
	unsigned char *map;

	unlink(PROGRAM);
	if (fresh_program(PROGRAM) || (read_before && read_to_lists(PROGRAM)))
		return -1;
	map = map_resident(PROGRAM);
	if (!map || !wait_stat("collapsed_blocks", done))
		return -1;
	munmap(map, FILE_SIZE);
	return stat_of("gave_way") - times;
}

/* The worker lets others read a file first, if they may need its CPU. What was read, rests. */
TEST_F_TIMEOUT(bystander, programs_read_first, 600)
{
	pid_t worker = find_worker(), spinner;

	if (!cpu_can_be_kept())
		SKIP(return, "needs two CPUs and debugfs");
	ASSERT_LT(0, worker);
	self->pinned = worker;
	ASSERT_EQ(0, run_on(worker, 0));
	spinner = start_spinner();
	ASSERT_LT(0, spinner);
	EXPECT_LE(1, times_given_way(false));
	EXPECT_EQ(0, times_given_way(true));
	kill(spinner, SIGKILL);
	waitpid(spinner, NULL, 0);
}

/* Nor does it work beside a program that reads if there is just one CPU. */
TEST_F_TIMEOUT(bystander, programs_read_first_on_one_cpu, 600)
{
	if (sysconf(_SC_NPROCESSORS_ONLN) != 2 || write_file(SECOND_CPU, "0"))
		SKIP(return, "needs two CPUs, one of which goes offline");
	EXPECT_LE(1, times_given_way(false));
	EXPECT_EQ(0, times_given_way(true));
}

/* Nor does the worker wait for that CPU if the text is on the LRU lists, as most text is. */
TEST_F_TIMEOUT(bystander, text_on_the_lists, 600)
{
	volatile int *state;
	unsigned char *map = NULL;
	bool waits, late;
	pid_t keeper;
	long done;

	if (!cpu_can_be_kept())
		SKIP(return, "needs two CPUs and debugfs");
	state = share_cpu(self);
	ASSERT_NE(NULL, state);
	/* Anew if the task has ended before the worker had done its work. */
	do {
		if (map)
			munmap(map, FILE_SIZE);
		unlink(PROGRAM);
		ASSERT_EQ(0, fresh_program(PROGRAM));
		ASSERT_EQ(0, read_to_lists(PROGRAM));
		done = stat_of("collapsed_blocks") + BLOCKS;
		keeper = start_keeper(state);
		ASSERT_LT(0, keeper);
		map = map_file(PROGRAM, FILE_SIZE);
		ASSERT_NE(NULL, map);
		waits = worker_waits(self->pinned, done, state);
		late = !waits && stat_of("collapsed_blocks") < done;
		EXPECT_FALSE(waits);
		kill(keeper, SIGKILL);
		waitpid(keeper, NULL, 0);
	} while (late);
	read_pages(map, FILE_SIZE);
	EXPECT_EQ(BLOCKS * BLOCK_KB, pmd_mapped(0, PROGRAM));
	munmap(map, FILE_SIZE);
}

/* The first start of a program that uses half of each block reads no more than that. */
TEST_F_TIMEOUT(bystander, half_used_blocks, 600)
{
	long cold = stat_of("fallback_cold"), collapsed = stat_of("collapsed_blocks");
	unsigned long part = 300;
	unsigned char *map;
	double mapped;

	/* Attempts are made 0.2, 0.4, 0.8, 1.6, 3.2 and 6.4 s after the mapping. */
	do {
		unlink(PROGRAM);
		ASSERT_EQ(0, fresh_program(PROGRAM));
		ASSERT_EQ(0, set("delay_ms", "200"));
		ASSERT_EQ(0, read_blocks(BLOCKS, part));
		mapped = map_for_a_moment();
		ASSERT_GE(mapped, 0);
	} while (mapped > 2);
	EXPECT_TRUE(wait_stat("fallback_cold", cold + BLOCKS));
	EXPECT_EQ(BLOCKS * part, resident(PROGRAM));
	EXPECT_EQ(collapsed, stat_of("collapsed_blocks"));

	/* A program that starts again will do so more often. */
	map = map_file(PROGRAM, FILE_SIZE);
	ASSERT_NE(NULL, map);
	EXPECT_TRUE(wait_stat("collapsed_blocks", collapsed + BLOCKS));
	munmap(map, FILE_SIZE);
}

/* One that goes on running will use more of them. */
TEST_F_TIMEOUT(bystander, half_used_blocks_of_a_server, 600)
{
	long collapsed = stat_of("collapsed_blocks");
	unsigned char *map;

	ASSERT_EQ(0, read_blocks(BLOCKS, 300));
	map = map_file(PROGRAM, FILE_SIZE);
	ASSERT_NE(NULL, map);
	EXPECT_TRUE(wait_stat("collapsed_blocks", collapsed + BLOCKS));
	EXPECT_TRUE(text_is_right(map + PAGE, 0, three_blocks.pages));
	munmap(map, FILE_SIZE);
}

/* What is nearly whole is completed at the first start, and nothing is read beyond it. */
TEST_F_TIMEOUT(bystander, nearly_whole_blocks, 600)
{
	long collapsed = stat_of("collapsed_blocks"), cold = stat_of("fallback_cold");

	ASSERT_EQ(0, read_blocks(BLOCKS, BLOCK_PAGES - 20));
	ASSERT_GE(map_for_a_moment(), 0);
	EXPECT_TRUE(wait_stat("collapsed_blocks", collapsed + BLOCKS));
	EXPECT_EQ(BLOCKS * (long)BLOCK_PAGES, resident(PROGRAM));

	unlink(PROGRAM);
	ASSERT_EQ(0, fresh_program(PROGRAM));
	ASSERT_EQ(0, read_blocks(1, BLOCK_PAGES - 1));
	ASSERT_GE(map_for_a_moment(), 0);
	EXPECT_TRUE(wait_stat("collapsed_blocks", collapsed + BLOCKS + 1));
	EXPECT_TRUE(wait_stat("fallback_cold", cold + BLOCKS - 1));
	EXPECT_EQ((long)BLOCK_PAGES, resident(PROGRAM));
}

/* The work is bounded by the file, not by the mapping. */
TEST_F_TIMEOUT(bystander, vast_mapping_of_a_small_file, 600)
{
	long queued = stat_of("queued"), skipped = stat_of("skipped_small");
	size_t vast = 1UL << 40;
	int fd;
	void *map;

	ASSERT_EQ(0, truncate(PROGRAM, BLOCK - PAGE));
	fd = open(PROGRAM, O_RDONLY);
	map = mmap(NULL, vast, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
	ASSERT_NE(MAP_FAILED, map);
	EXPECT_EQ(queued, stat_of("queued"));
	EXPECT_EQ(skipped + 1, stat_of("skipped_small"));
	munmap(map, vast);
	close(fd);
}

int main(int argc, char **argv)
{
	return test_on_ext4(argc, argv, IMAGE, FOLDER);
}
