// SPDX-License-Identifier: GPL-2.0
/*
 * Migration, compaction and reclaim while processes fork, write, split and exit:
 * code that changes page table entries by the reverse map must find them all.
 *
 * Usage: rmap_race [SECONDS [shared]]
 *
 * With "shared" forks share page tables, too.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "kselftest.h"
#include "rmap_common.h"

#define PAGES 256
#define FAMILIES 3
#define DEPTH 4

static char *base;
static atomic_bool stop;

static volatile uint64_t *at(unsigned int page)
{
	return (volatile uint64_t *)(base + page * PAGE);
}

static bool holds(const uint64_t *wanted)
{
	for (unsigned int i = 0; i < PAGES; i++)
		if (*at(i) != wanted[i])
			return false;
	return true;
}

/* A generation writes some pages, splits some areas, forks, and compares all the while. */
static int generation(unsigned int depth, unsigned int seed, uint64_t *wanted)
{
	int status = 0;
	pid_t pid;

	for (unsigned int i = seed % 7; i < PAGES; i += 7 + seed % 5) {
		wanted[i] = ((uint64_t)depth << 32) + seed + i;
		*at(i) = wanted[i];
	}
	if (mprotect(base + seed % 128 * PAGE, 16 * PAGE, PROT_READ) ||
	    !holds(wanted) ||
	    mprotect(base + seed % 128 * PAGE, 16 * PAGE, PROT_READ | PROT_WRITE))
		return 1;
	if (depth < DEPTH) {
		pid = fork();
		if (pid < 0)
			return 2;
		if (!pid)
			_exit(generation(depth + 1, seed * 31 + 7, wanted));
		if (!holds(wanted))
			return 3;
		if (waitpid(pid, &status, 0) != pid || status)
			return 4;
	}
	return holds(wanted) ? 0 : 5;
}

static void *compact(void *unused)
{
	while (!stop) {
		write_text("/proc/sys/vm/compact_memory", "1");
		usleep(1000);
	}
	return NULL;
}

static void *page_out(void *unused)
{
	while (!stop) {
		madvise(base, PAGES * PAGE, MADV_PAGEOUT);
		usleep(500);
	}
	return NULL;
}

static int family(unsigned int seed, time_t end)
{
	static uint64_t wanted[PAGES];
	pthread_t threads[2];
	int ret = 0;

	base = map(PAGES);
	if (base == MAP_FAILED)
		return 6;
	madvise(base, PAGES * PAGE, MADV_NOHUGEPAGE);
	if (pthread_create(&threads[0], NULL, compact, NULL) ||
	    pthread_create(&threads[1], NULL, page_out, NULL))
		return 7;
	while (!ret && time(NULL) < end)
		ret = generation(0, seed = seed * 1103515245 + 12345, wanted);
	stop = true;
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	return ret;
}

int main(int argc, char **argv)
{
	time_t end = time(NULL) + (argc > 1 ? atol(argv[1]) : 20);
	long enabled = read_number(RMAP "enabled"), tables = 0;
	bool shared = argc > 2 && !strcmp(argv[2], "shared");
	long borrowed = rmap_counter("borrowed");
	int status, failed = 0;

	ksft_print_header();
	if (enabled < 0)
		ksft_exit_skip("no rmap feature in this kernel\n");
	ksft_set_plan(1);
	mount_debugfs();
	if (!have_swap())
		ksft_print_msg("no swap: MADV_PAGEOUT does nothing\n");
	if (write_text(RMAP "enabled", "1"))
		ksft_exit_fail_msg("cannot switch the feature on\n");
	if (shared)
		tables = share_tables();
	for (unsigned int i = 0; i < FAMILIES; i++)
		if (!fork())
			_exit(family(i + 1, end));
	while (wait(&status) > 0)
		if (status) {
			ksft_print_msg("a family ended with %x\n", status);
			failed = 1;
		}
	failed |= rmap_check(NULL) != 0;
	if (shared)
		failed |= !shared_tables_since(tables);
	failed |= rmap_counter("borrowed") <= borrowed;
	write_text(RMAP "enabled", enabled ? "1" : "0");
	ksft_test_result(!failed, "race\n");
	ksft_finished();
}
