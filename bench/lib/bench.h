/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Shared by all benchmark programs: the clock, memory of a known shape,
 * and the one line format that the runner reads:
 *
 *	@KEY=VALUE ... | METRIC=NUMBER ...
 *
 * Under --icount CLOCK_MONOTONIC counts instructions, so a "nanosecond" that is
 * printed here is an instruction.
 */
#ifndef BENCH_H
#define BENCH_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define LINE 64UL
#define HUGE_PAGE (2UL << 20)
#define LEN(a) (sizeof(a) / sizeof((a)[0]))

static inline void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static inline int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/*
 * Sorts n numbers and returns their lower quartile. Disturbances of a guest only add time, so
 * the fast side of the samples says more than the middle.
 */
static inline double typical(double *v, int n)
{
	qsort(v, n, sizeof(*v), by_value);
	return v[n / 4];
}

/* Private memory that starts on a 2 MiB boundary, of base or of huge pages. */
static inline char *map_aligned(size_t size, int advice)
{
	char *raw, *p;

	raw = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (raw == MAP_FAILED)
		die("mmap");
	p = (char *)(((uintptr_t)raw + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
	if (p > raw)
		munmap(raw, p - raw);
	if (raw + HUGE_PAGE > p)
		munmap(p + size, raw + HUGE_PAGE - p);
	/* A kernel without huge pages refuses the advice; then there is nothing to avoid. */
	if (madvise(p, size, advice) && errno != EINVAL)
		die("madvise");
	return p;
}

static inline char *map_small(size_t size)
{
	return map_aligned(size, MADV_NOHUGEPAGE);
}

/* Writes a byte into each of n steps: the first access must be a write. */
static inline void touch(volatile char *p, size_t size, size_t step)
{
	for (size_t i = 0; i < size; i += step)
		p[i] = 1;
}

/*
 * Stays on one CPU and ahead of the children, which run as ordinary tasks: then no child
 * interrupts the parent's fork(). This also switches off the server that gives ordinary tasks
 * some of each second: touching much memory takes a second, and then the children would run
 * during the next forks.
 */
static inline void pin_and_lead(void)
{
	struct sched_param prio = { .sched_priority = 1 };
	FILE *server = fopen("/sys/kernel/debug/sched/fair_server/cpu0/runtime", "w");
	cpu_set_t set;

	if (server) {
		fputs("0", server);
		fclose(server);
	}
	CPU_ZERO(&set);
	CPU_SET(0, &set);
	sched_setaffinity(0, sizeof(set), &set);
	sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &prio);
}

static inline void reap(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid || status) {
		fprintf(stderr, "child %d: status %x\n", pid, status);
		exit(1);
	}
}

/* Adds up all lines "NAME: N kB" of a file such as /proc/meminfo. */
static inline long field_kb(const char *file, const char *name)
{
	size_t len = strlen(name);
	char line[512];
	long sum = 0;
	FILE *f = fopen(file, "r");

	if (!f)
		die(file);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, name, len) && line[len] == ':')
			sum += atol(line + len + 1);
	fclose(f);
	return sum;
}

/*
 * Memory of page tables. The kernel counts it per CPU, and adds the counts up only now and
 * then; stat_refresh makes it do so now.
 */
static inline long pagetables_kb(void)
{
	char buf[16];
	int fd = open("/proc/sys/vm/stat_refresh", O_RDONLY);

	if (fd >= 0) {
		while (read(fd, buf, sizeof(buf)) > 0)
			;
		close(fd);
	}
	return field_kb("/proc/meminfo", "PageTables");
}

/*
 * One number about a slab cache. From sysfs, because a cache that is merged with others has no
 * line of its own in /proc/slabinfo.
 */
static inline long slab_number(const char *cache, const char *what)
{
	char path[256];
	long value = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/kernel/slab/%s/%s", cache, what);
	f = fopen(path, "r");
	if (!f || fscanf(f, "%ld", &value) != 1)
		die(path);
	fclose(f);
	return value;
}

/* The next argument as a number, or the default. */
static inline long number(int argc, char **argv, int i, long otherwise)
{
	return i < argc ? atol(argv[i]) : otherwise;
}

static inline void row(const char *fmt, ...)
{
	va_list ap;

	putchar('@');
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

#endif
