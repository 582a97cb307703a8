/* SPDX-License-Identifier: GPL-2.0 */
/* Shared by the tests of the fork feature. Include after kselftest_harness.h. */
#ifndef FORK_TEST_H
#define FORK_TEST_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/swap.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core_file.h"

#define TABLE	(2UL << 20)		/* what one last-level table maps */
#define PAGE	4096UL
#define SLOTS	(TABLE / PAGE)
#define FOLDER	"/sys/kernel/mm/quire/fork/"
#define CHECK	"/sys/kernel/debug/quire/pt_check"
#define GUP_TEST "/sys/kernel/debug/gup_test"

/* As in mm/gup_test.h. */
struct pin_longterm_test {
	uint64_t addr;
	uint64_t size;
	uint32_t flags;
};
#define PIN_FLAG_WRITE	1
#define PIN_FLAG_FAST	2
#define PIN_START	_IOW('g', 7, struct pin_longterm_test)
#define PIN_STOP	_IO('g', 8)
#define PIN_READ	_IOW('g', 9, uint64_t)

static inline long fork_stat(const char *name)
{
	char path[128];
	long value = -1;
	FILE *f;

	snprintf(path, sizeof(path), FOLDER "stats/%s", name);
	f = fopen(path, "r");
	if (!f || fscanf(f, "%ld", &value) != 1)
		value = -1;
	if (f)
		fclose(f);
	return value;
}

/* Returns the number after "name:" in a file of /proc/PID, summed over all its lines. */
static inline long proc_sum(pid_t pid, const char *file, const char *name)
{
	char path[64], line[512];
	size_t len = strlen(name);
	long sum = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	f = fopen(path, "r");
	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, name, len) && line[len] == ':')
			sum += strtol(line + len + 1, NULL, 10);
	fclose(f);
	return sum;
}

/* One field of the smaps entry of the VMA that starts at an address, in kB. */
static inline long smaps_of(pid_t pid, void *start, const char *name)
{
	char path[64], line[512], want[32];
	size_t len = strlen(name);
	bool inside = false;
	long value = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
	snprintf(want, sizeof(want), "%lx-", (unsigned long)start);
	f = fopen(path, "r");
	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f)) {
		if (strchr(line, '-') && strchr(line, '-') < line + 17 && line[0] >= '0' &&
		    (line[0] <= '9' || (line[0] >= 'a' && line[0] <= 'f')))
			inside = !strncmp(line, want, strlen(want));
		else if (inside && !strncmp(line, name, len) && line[len] == ':')
			value = strtol(line + len + 1, NULL, 10);
	}
	fclose(f);
	return value;
}

static inline int write_word(const char *path, const char *word)
{
	int fd = open(path, O_WRONLY), ret;

	if (fd < 0)
		return -errno;
	ret = write(fd, word, strlen(word)) < 0 ? -errno : 0;
	close(fd);
	return ret;
}

static inline long shared_tables(pid_t pid)
{
	return proc_sum(pid, "quire", "fork_shared_tables");
}

#define NUMA	"/proc/sys/kernel/numa_balancing"
#define DAMON	"/sys/kernel/mm/damon/admin/kdamonds/"

/* How often NUMA balancing has scanned this process's memory. */
static inline long numa_scans(void)
{
	long scans = -1;
	char line[256];
	FILE *f = fopen("/proc/self/sched", "r");

	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, "mm->numa_scan_seq", 17) && strchr(line, ':'))
			scans = strtol(strchr(line, ':') + 1, NULL, 10);
	fclose(f);
	return scans;
}

static inline long vm_event(const char *name)
{
	size_t len = strlen(name);
	long value = -1;
	char line[256];
	FILE *f = fopen("/proc/vmstat", "r");

	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, name, len) && line[len] == ' ')
			value = strtol(line + len, NULL, 10);
	fclose(f);
	return value;
}

/* Uses the CPU, and reads @pages pages, until a number is reached; returns false after minutes. */
static inline bool spin_until(long (*number)(const char *), const char *name, long want,
			      const char *area, unsigned long pages)
{
	for (int i = 0; i < 100000; i++) {
		for (unsigned long p = 0; p < pages; p++)
			(void)*(volatile const char *)(area + p * PAGE);
		for (volatile int busy = 0; busy < 100000; busy++)
			;
		if (number(name) >= want)
			return true;
	}
	return false;
}

static inline long numa_scans_of(const char *unused)
{
	return numa_scans();
}

/* Makes NUMA balancing scan as often as possible; returns false if this kernel has none. */
static inline bool numa_start(void)
{
	write_word("/sys/kernel/debug/sched/numa_balancing/scan_delay_ms", "1");
	write_word("/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms", "1");
	/*
	 * The period doubles while there are no hints, and some tests wait while there are
	 * none.
	 */
	write_word("/sys/kernel/debug/sched/numa_balancing/scan_period_max_ms", "10");
	return !write_word(NUMA, "1") && numa_scans() >= 0;
}

#define SWAP		"/dev/zram0"
#define SWAP_BYTES	(256UL << 20)

/* Swap in compressed memory; swapoff() ends it. */
static inline int make_swap(void)
{
	char page[PAGE] = "";
	uint32_t *info = (uint32_t *)(page + 1024);
	int fd;

	swapoff(SWAP);
	write_word("/sys/block/zram0/reset", "1");
	if (write_word("/sys/block/zram0/disksize", "268435456"))
		return -1;
	info[0] = 1;
	info[1] = SWAP_BYTES / PAGE - 1;
	memcpy(page + PAGE - 10, "SWAPSPACE2", 10);
	fd = open(SWAP, O_WRONLY);
	if (fd < 0 || write(fd, page, PAGE) != (ssize_t)PAGE || fsync(fd) || close(fd))
		return -1;
	return swapon(SWAP, 0);
}

/* DAMON refuses a write while its thread happens to hold the lock of its folder. */
static inline int damon_write(const char *path, const char *word)
{
	int ret;

	for (int i = 0; i < 3000; i++) {
		ret = write_word(path, word);
		if (ret != -EBUSY)
			break;
		usleep(10000);
	}
	return ret;
}

/* Have DAMON watch a process; false if this kernel has none. */
static inline bool damon_start(pid_t pid)
{
	char word[16];

	if (damon_write(DAMON "nr_kdamonds", "1"))
		return false;
	snprintf(word, sizeof(word), "%d", pid);
	return !damon_write(DAMON "0/contexts/nr_contexts", "1") &&
	       !damon_write(DAMON "0/contexts/0/operations", "vaddr") &&
	       !damon_write(DAMON "0/contexts/0/targets/nr_targets", "1") &&
	       !damon_write(DAMON "0/contexts/0/targets/0/pid_target", word) &&
	       !damon_write(DAMON "0/state", "on");
}

static inline int damon_stop(void)
{
	return damon_write(DAMON "0/state", "off") ?: damon_write(DAMON "nr_kdamonds", "0");
}

/* Whole tables at an aligned address, with nothing mapped right beside them. */
static inline char *map_tables(unsigned long tables)
{
	size_t len = tables * TABLE;
	char *area = mmap(NULL, len + 2 * TABLE, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *start;

	if (area == MAP_FAILED)
		return NULL;
	start = (char *)(((unsigned long)area + TABLE) & ~(TABLE - 1));
	if (mmap(start, len, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		return NULL;
	return start;
}

static inline uint64_t word_for(unsigned long page, uint64_t seed)
{
	return (page + 1) * 0x9E3779B97F4A7C15ull ^ seed;
}

static inline void fill(char *area, unsigned long pages, uint64_t seed)
{
	for (unsigned long i = 0; i < pages; i++)
		*(uint64_t *)(area + i * PAGE) = word_for(i, seed);
}

/* Returns the number of pages that do not hold what fill() wrote. */
static inline unsigned long wrong(const char *area, unsigned long pages, uint64_t seed)
{
	unsigned long bad = 0;

	for (unsigned long i = 0; i < pages; i++)
		bad += *(const uint64_t *)(area + i * PAGE) != word_for(i, seed);
	return bad;
}

/* Returns the number of pages that a core does not have, or with other contents than fill() wrote. */
static inline unsigned long wrong_in_core(int core, const char *area, unsigned long first,
					  unsigned long count, uint64_t seed)
{
	unsigned long bad = 0;

	for (unsigned long i = first; i < first + count; i++) {
		uint64_t word;

		bad += core_read(core, area + i * PAGE, &word, sizeof(word)) ||
			word != word_for(i, seed);
	}
	return bad;
}

/* The pagemap entry of a page; all ones if there is none. */
static inline uint64_t pagemap_entry(char *address)
{
	int fd = open("/proc/self/pagemap", O_RDONLY);
	uint64_t entry = 0;

	if (fd < 0 || pread(fd, &entry, 8, (uintptr_t)address / PAGE * 8) != 8)
		entry = ~0ull;
	close(fd);
	return entry;
}

#define KPF_IDLE	25
#define PM_FRAME	((1ULL << 55) - 1)

/* Does any page of this process's area count as idle? Pages do after DAMON has looked at them. */
static inline bool any_idle(char *area, unsigned long pages)
{
	int flags = open("/proc/kpageflags", O_RDONLY);
	uint64_t word = 0;

	for (unsigned long i = 0; i < pages && !(word >> KPF_IDLE & 1); i++)
		if (pread(flags, &word, 8, (pagemap_entry(area + i * PAGE) & PM_FRAME) * 8) != 8)
			break;
	close(flags);
	return word >> KPF_IDLE & 1;
}

/* Waits until DAMON has looked at some page of the area. */
static inline bool damon_looks(char *area, unsigned long pages)
{
	for (int i = 0; i < 60000; i++) {
		if (any_idle(area, pages))
			return true;
		usleep(5000);
	}
	return false;
}

/* Has the kernel check all tables. Returns false, and prints its report, if it finds an error. */
static inline bool tables_consistent(void)
{
	char text[4096];
	ssize_t len;
	int fd = open(CHECK, O_RDONLY), tries = 1000;

	if (fd < 0)
		return true;
	/* Where allocations fail on purpose, one of the checker's may, which has one for each table. */
	do {
		len = read(fd, text, sizeof(text) - 1);
	} while (len < 0 && errno == ENOMEM && --tries);
	if (len <= 0) {
		printf("# " CHECK ": %s\n", len ? strerror(errno) : "empty");
		close(fd);
		return false;
	}
	close(fd);
	text[len] = 0;
	if (strstr(text, " 0 complaints"))
		return true;
	printf("# %s", text);
	return false;
}

/* A child that waits for commands, one byte each, and answers with one number. */
struct helper {
	pid_t pid;
	int to, from;
};

static inline bool tell(struct helper *h, char command)
{
	return write(h->to, &command, 1) == 1;
}

static inline long its_answer(struct helper *h)
{
	long answer = -1;

	return read(h->from, &answer, sizeof(answer)) == sizeof(answer) ? answer : -1;
}

static inline long ask(struct helper *h, char command)
{
	return tell(h, command) ? its_answer(h) : -1;
}

/* What a helper does until 'q'; does not return. */
static inline void serve_commands(int to, int from, long (*act)(char command, void *arg), void *arg)
{
	char command;

	while (read(to, &command, 1) == 1 && command != 'q') {
		long answer = act(command, arg);

		if (write(from, &answer, sizeof(answer)) != sizeof(answer))
			_exit(2);
	}
	_exit(0);
}

/* Forks; the child serves act() until 'q' and exits with 0. */
static inline int start_helper(struct helper *h, long (*act)(char command, void *arg), void *arg)
{
	int to[2], from[2];

	if (pipe(to) || pipe(from))
		return -1;
	h->pid = fork();
	if (h->pid < 0)
		return -1;
	if (!h->pid) {
		close(to[1]);
		close(from[0]);
		serve_commands(to[0], from[1], act, arg);
	}
	close(to[0]);
	close(from[1]);
	h->to = to[1];
	h->from = from[0];
	return 0;
}

static inline int stop_helper(struct helper *h)
{
	int status = -1;

	close(h->to);
	waitpid(h->pid, &status, 0);
	close(h->from);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

/* Ends a helper whose pipe other helpers hold, too: closing the pipe is not enough. */
static inline int finish(struct helper *h)
{
	return write(h->to, "q", 1) != 1 ? -1 : stop_helper(h);
}

static inline bool fork_feature_on(void)
{
	char word[4] = "";
	int fd = open(FOLDER "enabled", O_RDONLY);
	bool on = fd >= 0 && read(fd, word, sizeof(word)) > 0 && word[0] == '1';

	if (fd >= 0)
		close(fd);
	return on;
}

#define FAULTS "/sys/kernel/debug/"

/*
 * Makes allocations of this process fail, with a probability in percent. make-it-fail starts
 * it.
 */
static inline int inject(const char *what, const char *probability)
{
	static const char * const words[][2] = {
		{ "task-filter", "Y" }, { "ignore-gfp-wait", "N" }, { "min-order", "0" },
		{ "verbose", "0" }, { "times", "-1" }, { "interval", "1" },
	};
	char path[128];
	size_t i;

	for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		snprintf(path, sizeof(path), FAULTS "%s/%s", what, words[i][0]);
		write_word(path, words[i][1]);
	}
	snprintf(path, sizeof(path), FAULTS "%s/probability", what);
	return write_word(path, probability);
}

/* Opening the file also allocates, so try until it succeeds. */
static inline void inject_nothing(void)
{
	while (write_word("/proc/self/make-it-fail", "0"))
		;
	inject("fail_page_alloc", "0");
	inject("failslab", "0");
}

/* Waits for a child while allocations fail: a status that the kernel cannot write is lost. */
static inline int wait_under_injection(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

/* An emulated guest, with the debug kernel's checkers, takes its time. */
#define TEST_SLOW(fixture, test)	TEST_F_TIMEOUT(fixture, test, 600)

#define NEED_FORK_FEATURE() do {						\
	if (!fork_feature_on())							\
		SKIP(return, "the fork feature is off");			\
	ASSERT_EQ(0, write_word("/proc/self/quire", "1"));			\
} while (0)

#endif
