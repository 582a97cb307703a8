/* SPDX-License-Identifier: GPL-2.0 */
/* Shared by the tests of the shm feature. Include after harness.h. */
#ifndef SHM_TEST_H
#define SHM_TEST_H

#include <linux/membarrier.h>
#include <setjmp.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "fork_test.h"

#define SHM_FOLDER	"/sys/kernel/mm/quire/shm/"

static inline long shm_number(const char *name)
{
	char path[128];
	long value = -1;
	FILE *f;

	snprintf(path, sizeof(path), SHM_FOLDER "%s", name);
	f = fopen(path, "r");
	if (!f || fscanf(f, "%ld", &value) != 1)
		value = -1;
	if (f)
		fclose(f);
	return value;
}

/* Tables of shared memory that a process uses. */
static inline long file_tables(pid_t pid)
{
	return proc_sum(pid, "quire", "shm_shared_tables");
}

static inline long faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

static inline long major_faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_majflt;
}

/* The memory of all page tables, in kB; each CPU's part of the count is added up first. */
static inline long page_tables_kb(void)
{
	char line[128];
	long value = -1;
	FILE *f;

	write_word("/proc/sys/vm/stat_refresh", "1");
	f = fopen("/proc/meminfo", "r");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "PageTables:", 11))
			value = strtol(line + 11, NULL, 10);
	if (f)
		fclose(f);
	return value;
}

/* Maps shared memory wherever the kernel puts it. */
static inline char *map_file(int fd, unsigned long tables, int prot)
{
	char *area = mmap(NULL, tables * TABLE, prot, MAP_SHARED, fd, 0);

	return area == MAP_FAILED ? NULL : area;
}

/* Pages of a file's mapping that are in memory. */
static inline long resident(char *area, unsigned long pages)
{
	unsigned char vec[SLOTS];
	long n = 0;

	for (unsigned long i = 0; i < pages; i += SLOTS) {
		if (mincore(area + i * PAGE, TABLE, vec))
			return -1;
		for (unsigned int j = 0; j < SLOTS; j++)
			n += vec[j] & 1;
	}
	return n;
}

/*
 * Makes a group give back memory until no more than @left pages of an area are in memory.
 * Reclaim may find nothing until the group's statistics are updated, which happens every other
 * second.
 */
static inline bool push_out(const char *reclaim, char *area, unsigned long pages, long left)
{
	for (int i = 0; i < 10000 && resident(area, pages) > left; i++) {
		write_word(reclaim, "8M");
		usleep(1000);
	}
	return resident(area, pages) <= left;
}

/* Ends a helper whose pipe others may hold; returns its status. */
static inline int end_helper(struct helper *h)
{
	int status;

	if (!h->pid)
		return 0;
	(void)!write(h->to, "q", 1);
	status = stop_helper(h);
	h->pid = 0;
	return status;
}

/*
 * Waits for an RCU grace period: after it, no process that left a table before can be looking
 * at the table, and its last user may adopt it. False with one CPU, where membarrier() waits
 * for nothing.
 */
static inline bool wait_for_leavers(void)
{
	return sysconf(_SC_NPROCESSORS_ONLN) > 1 &&
	       !syscall(__NR_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
}

static sigjmp_buf fault_jump;

static inline void on_fault(int sig)
{
	siglongjmp(fault_jump, sig);
}

/* The signal that an access raises, or 0. */
static __attribute__((noinline, unused)) int touch_signal(char *at, bool write)
{
	struct sigaction old_segv, old_bus, action = { .sa_handler = on_fault };
	int sig;

	sigaction(SIGSEGV, &action, &old_segv);
	sigaction(SIGBUS, &action, &old_bus);
	sig = sigsetjmp(fault_jump, 1);
	if (!sig) {
		if (write)
			*(volatile char *)at = *(volatile char *)at;
		else
			(void)*(volatile char *)at;
	}
	sigaction(SIGSEGV, &old_segv, NULL);
	sigaction(SIGBUS, &old_bus, NULL);
	return sig;
}

#define NEED_SHM_FEATURE() do {							\
	if (shm_number("enabled") != 1)						\
		SKIP(return, "the shm feature is off");				\
	ASSERT_EQ(0, write_word(SHM_FOLDER "min_tables", "1"));			\
} while (0)

#endif
