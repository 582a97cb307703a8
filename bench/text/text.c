// SPDX-License-Identifier: GPL-2.0
/*
 * A program with much text, called at random: page faults, time per call,
 * and how much of the text is mapped by 2 MiB pages when it ends. Where the CPU
 * counts them, also the misses of the instruction TLB from the first call on.
 *
 *	text START CALLS	run once; START names the row
 *	text START CALLS load	the same, but start by reading the text instead of calling it
 *	text START sparse	call one function of each 2 MiB: how much of the text is read for that
 *	text together N		N executions at once: the memory all take
 */
#include "bench.h"
#include <linux/perf_event.h>
#include <stdbool.h>
#include <sys/syscall.h>

extern char functions[], functions_end[];

#define STEP 256

static long call(long i, long sum)
{
	return ((long (*)(long))(functions + i * STEP))(sum);
}

/*
 * An emulator translates code before running it, and again if its page has moved. A read avoids
 * that.
 */
static long load(long i, long sum)
{
	return sum + !!*(volatile const char *)(functions + i * STEP);
}

/* Touches every function once; neighbours are far apart in time. */
static long touch_all(long (*touch)(long, long))
{
	long count = (functions_end - functions) / STEP, sum = 0;

	for (long i = 0; i < count; i++)
		sum = touch((i * 7919L) % count, sum);
	return sum;
}

/* How much of the text lies in whole 2 MiB blocks of the file. */
static long eligible_kb(void)
{
	unsigned long start, end, offset;
	char line[512], exec;
	long kb = 0;
	FILE *f = fopen("/proc/self/maps", "r");

	if (!f)
		die("/proc/self/maps");
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx %*c%*c%c%*c %lx", &start, &end, &exec, &offset) != 4 ||
		    exec != 'x' || (unsigned long)functions < start ||
		    (unsigned long)functions >= end)
			continue;
		end = (offset + end - start) & ~(HUGE_PAGE - 1);
		offset = (offset + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
		kb = end > offset ? (end - offset) / 1024 : 0;
	}
	fclose(f);
	return kb;
}

/* Opens a counter of this process's misses, or returns -1: an emulated CPU has none. */
static int count_itlb_misses(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_HW_CACHE,
		.size = sizeof(attr),
		.config = PERF_COUNT_HW_CACHE_ITLB | PERF_COUNT_HW_CACHE_OP_READ << 8 |
			  PERF_COUNT_HW_CACHE_RESULT_MISS << 16,
		.exclude_kernel = 1,
		.exclude_hv = 1,
	};

	return syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
}

/* The counter's value as the end of a row; empty if nothing is counted. */
static const char *itlb_misses(int counter)
{
	static char text[40] = "";
	uint64_t misses;

	if (counter >= 0 && read(counter, &misses, sizeof(misses)) == sizeof(misses))
		snprintf(text, sizeof(text), " itlb_misses=%llu", (unsigned long long)misses);
	return text;
}

static double ms(struct timeval time)
{
	return time.tv_sec * 1e3 + time.tv_usec / 1e3;
}

static int run_once(const char *start_name, long calls, bool loads)
{
	long count = (functions_end - functions) / STEP, sum, mapped, eligible;
	const char *misses;
	uint64_t seed = 1, start = now_ns(), touched, end;
	struct rusage use, started;
	int counter = count_itlb_misses();

	sum = touch_all(loads ? load : call);
	touched = now_ns();
	getrusage(RUSAGE_SELF, &started);
	for (long i = 0; i < calls; i++) {
		seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
		sum = call((seed >> 33) % count, sum);
	}
	end = now_ns();
	misses = itlb_misses(counter);
	if (sum != count + calls) {
		fprintf(stderr, "%ld calls counted, %ld made\n", sum, count + calls);
		return 1;
	}
	getrusage(RUSAGE_SELF, &use);
	mapped = field_kb("/proc/self/smaps", "FilePmdMapped");
	eligible = eligible_kb();
	row("start=%s text_MB=%ld | faults=%ld major=%ld touch_ms=%.3f user_ms=%.1f system_ms=%.1f ns_per_call=%.2f FilePmdMapped_kB=%ld pmd_share=%.3f%s",
	    start_name, (long)(functions_end - functions) >> 20, use.ru_minflt + use.ru_majflt,
	    use.ru_majflt, (touched - start) / 1e6, ms(started.ru_utime), ms(started.ru_stime),
	    calls ? (double)(end - touched) / calls : 0,
	    mapped, eligible ? (double)mapped / eligible : 0, misses);
	return 0;
}

/* How much of the text is in the page cache. */
static long resident_kb(void)
{
	static unsigned char vec[2048UL << 20 >> 12];
	unsigned long start = (unsigned long)functions & -4096UL;
	unsigned long pages = ((unsigned long)functions_end - start + 4095) / 4096;
	long resident = 0;

	if (pages > sizeof(vec) || mincore((void *)start, pages * 4096, vec))
		die("mincore");
	for (unsigned long i = 0; i < pages; i++)
		resident += vec[i] & 1;
	return resident * 4;
}

/* In the middle of the blocks, from the last to the first, so that no read reaches another. */
static int run_sparse(const char *start_name)
{
	unsigned long last = ((unsigned long)functions_end & -HUGE_PAGE) - HUGE_PAGE;
	uint64_t start = now_ns();
	long sum = 0;

	for (unsigned long block = last; block > (unsigned long)functions; block -= HUGE_PAGE)
		sum = call((block + HUGE_PAGE / 2 - (unsigned long)functions) / STEP, sum);
	start = now_ns() - start;
	if (!sum) {
		fprintf(stderr, "no whole block of text\n");
		return 1;
	}
	row("start=%s text_MB=%ld | touch_ms=%.3f read_kB=%ld", start_name,
	    (long)(functions_end - functions) >> 20, start / 1e6, resident_kb());
	return 0;
}

/* Cached files (not the image, which is shmem), anonymous memory, page tables. */
static long memory_kb(void)
{
	return field_kb("/proc/meminfo", "Cached") - field_kb("/proc/meminfo", "Shmem") +
	       field_kb("/proc/meminfo", "AnonPages") + pagetables_kb();
}

static void wait_here(void)
{
	char c;

	touch_all(call);
	write(10, "x", 1);
	read(11, &c, 1);
}

static int together(char *self, long n)
{
	char *args[] = { self, "wait", NULL }, c;
	int ready[2], leave[2];
	long before, after;

	if (pipe(ready) || pipe2(leave, O_CLOEXEC))
		die("pipe");
	before = memory_kb();
	for (long i = 0; i < n; i++) {
		pid_t pid = fork();

		if (!pid) {
			dup2(ready[1], 10);
			dup2(leave[0], 11);
			execv(self, args);
			_exit(1);
		}
		if (pid < 0 || read(ready[0], &c, 1) != 1)
			die("fork");
	}
	after = memory_kb();
	row("together=%ld text_MB=%ld | memory_kB=%ld", n,
	    (long)(functions_end - functions) >> 20, after - before);
	close(leave[1]);
	while (wait(NULL) > 0)
		;
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "first";

	if (!strcmp(what, "wait"))
		wait_here();
	else if (!strcmp(what, "together"))
		return together(argv[0], number(argc, argv, 2, 8));
	else if (argc > 2 && !strcmp(argv[2], "sparse"))
		return run_sparse(what);
	else
		return run_once(what, number(argc, argv, 2, 1000000),
				argc > 3 && !strcmp(argv[3], "load"));
	return 0;
}
