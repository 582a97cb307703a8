// SPDX-License-Identifier: GPL-2.0
/*
 * Page-fault test: threads fault in their parts of one anonymous region and
 * write a number of lines of every page. Each page's first access is a
 * write: a read would map the huge zero page, which the write then splits.
 *
 *	pft MB REPS THREADS small|huge LINES burst|sustained|busy
 *
 * burst waits before each repetition until the kernel has zeroed what it can
 * (if it has a scrub daemon); sustained repeats without a pause. busy also repeats
 * without a pause, with a task on every CPU that never sleeps, and after all free
 * memory was used once, so that nothing zeroed is left and no CPU is idle to zero more.
 */
#include "bench.h"
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#define SCRUB_NOW "/sys/kernel/mm/quire/prezero/scrub_now"

struct part {
	pthread_t thread;
	volatile char *start;
	size_t size, page, lines;
	uint64_t begin, end;
	double user, sys, cpu;
};

static pthread_barrier_t barrier;

static double seconds(struct timeval t)
{
	return t.tv_sec + t.tv_usec / 1e6;
}

/* getrusage() splits the time by ticks; only the sum from the scheduler is exact. */
static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* The lines are spread evenly, from the first line of the page on. */
static void fault_in(struct part *p)
{
	size_t stride = p->page / p->lines;

	for (size_t at = 0; at < p->size; at += p->page)
		for (size_t line = 0; line < p->lines; line++)
			p->start[at + line * stride] = 1;
}

static void *worker(void *arg)
{
	struct part *p = arg;
	struct rusage before, after;

	pthread_barrier_wait(&barrier);
	getrusage(RUSAGE_THREAD, &before);
	p->begin = now_ns();
	p->cpu -= cpu_seconds();
	fault_in(p);
	p->cpu += cpu_seconds();
	p->end = now_ns();
	getrusage(RUSAGE_THREAD, &after);
	p->user += seconds(after.ru_utime) - seconds(before.ru_utime);
	p->sys += seconds(after.ru_stime) - seconds(before.ru_stime);
	return NULL;
}

/* A short write or an error means that there is nothing to wait for. */
static void fill_pool(void)
{
	int fd = open(SCRUB_NOW, O_WRONLY);

	if (fd < 0)
		return;
	write(fd, "1", 1);
	close(fd);
}

/* Starts a task that never sleeps on each CPU; the tasks end with their parent. */
static void keep_cpus_busy(pid_t *spinners, long cpus)
{
	for (long i = 0; i < cpus; i++) {
		cpu_set_t set;

		spinners[i] = fork();
		if (spinners[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		CPU_ZERO(&set);
		CPU_SET(i, &set);
		sched_setaffinity(0, sizeof(set), &set);
		for (;;)
			;
	}
}

static void use_free_memory(void)
{
	size_t size = (size_t)(field_kb("/proc/meminfo", "MemFree") * 0.9) << 10;
	char *mem;

	size &= ~(HUGE_PAGE - 1);
	mem = map_aligned(size, MADV_HUGEPAGE);
	touch(mem, size, PAGE);
	munmap(mem, size);
}

/*
 * Measures from the start of the first thread to the end of the last one: on one CPU, a thread
 * may be done before others run.
 */
static double one_rep(struct part *parts, long threads, size_t size, int huge)
{
	char *mem = map_aligned(size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	uint64_t begin = UINT64_MAX, end = 0;

	for (long i = 0; i < threads; i++) {
		parts[i].start = mem + i * parts[i].size;
		if (pthread_create(&parts[i].thread, NULL, worker, &parts[i]))
			die("pthread_create");
	}
	for (long i = 0; i < threads; i++) {
		pthread_join(parts[i].thread, NULL);
		begin = parts[i].begin < begin ? parts[i].begin : begin;
		end = parts[i].end > end ? parts[i].end : end;
	}
	munmap(mem, size);
	return (end - begin) / 1e9;
}

int main(int argc, char **argv)
{
	long mb = number(argc, argv, 1, 128), reps = number(argc, argv, 2, 3);
	long threads = number(argc, argv, 3, 1);
	int huge = argc > 4 && !strcmp(argv[4], "huge");
	size_t page = huge ? HUGE_PAGE : PAGE, size = mb << 20;
	size_t lines = number(argc, argv, 5, 1);
	const char *mode = argc > 6 ? argv[6] : "sustained";
	struct part *parts = calloc(threads, sizeof(*parts));
	long cpus = strcmp(mode, "busy") ? 0 : sysconf(_SC_NPROCESSORS_ONLN);
	pid_t *spinners = calloc(cpus + 1, sizeof(*spinners));
	double user = 0, sys = 0, cpu = 0, wall = 0, faults;

	if (!lines || lines > page / LINE)
		lines = page / LINE;
	pthread_barrier_init(&barrier, NULL, threads);
	for (long i = 0; i < threads; i++) {
		parts[i].page = page;
		parts[i].lines = lines;
		parts[i].size = size / threads & ~(page - 1);
	}
	keep_cpus_busy(spinners, cpus);
	if (cpus)
		use_free_memory();
	for (long r = 0; r < reps; r++) {
		if (!strcmp(mode, "burst"))
			fill_pool();
		wall += one_rep(parts, threads, size, huge);
	}
	for (long i = 0; i < cpus; i++) {
		kill(spinners[i], SIGKILL);
		waitpid(spinners[i], NULL, 0);
	}
	for (long i = 0; i < threads; i++) {
		user += parts[i].user;
		sys += parts[i].sys;
		cpu += parts[i].cpu;
	}
	faults = (double)(parts[0].size * threads / page) * reps;
	row("mode=%s page=%s Gb=%.3f Rep=%ld Threads=%ld lines=%zu | User=%.4f System=%.4f Wall=%.4f flt/cpu/s=%.1f fault/wsec=%.1f cpu_ns_per_fault=%.0f",
	    mode, huge ? "2M" : "4K", mb / 1024.0, reps, threads, lines, user, sys, wall,
	    faults / cpu, faults / wall, cpu * 1e9 / faults);
	return 0;
}
