// SPDX-License-Identifier: GPL-2.0
/*
 * Runs a test of will-it-scale: scale TASKS WARM_MS MEASURE_MS, linked with one of its tests.
 *
 * Each task, a process or with -DTHREADS a thread, is bound to a CPU and counts what it does. Prints
 * the operations of all tasks in the time that was measured, and that time in seconds.
 *
 * The project's own main() warms up for five seconds and needs hwloc.
 */
#define _GNU_SOURCE
#include <err.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define MAX_TASKS	64
#define SPACING		256	/* bytes, so that no two tasks count in one cache line */

/* What a test defines; the second and the third are optional. */
void testcase(unsigned long long *iterations, unsigned long nr);
void __attribute__((weak)) testcase_prepare(unsigned long nr_tasks) { (void)nr_tasks; }
void __attribute__((weak)) testcase_cleanup(void) { }
/* What a test may call. */
void new_task(void *(*func)(void *), void *arg);

static char *counters;
static int gate[2];

static unsigned long long *counter(unsigned long nr)
{
	return (unsigned long long *)(counters + nr * SPACING);
}

void new_task(void *(*func)(void *), void *arg)
{
#ifdef THREADS
	pthread_t thread;

	if (pthread_create(&thread, NULL, func, arg))
		errx(1, "pthread_create");
#else
	pid_t parent = getpid();
	pid_t pid = fork();

	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* No signal comes from a parent that ended before. */
		if (getppid() != parent)
			_exit(1);
		func(arg);
		exit(1);
	}
#endif
}

/* Waits at the gate, which opens when all tasks are there, and never ends. */
static void *run_task(void *arg)
{
	unsigned long nr = (unsigned long)arg;
	cpu_set_t cpu;
	char c;

	CPU_ZERO(&cpu);
	CPU_SET(nr % sysconf(_SC_NPROCESSORS_ONLN), &cpu);
	if (sched_setaffinity(0, sizeof(cpu), &cpu))
		err(1, "sched_setaffinity");
	if (read(gate[0], &c, 1) != 1)
		err(1, "read");
	testcase(counter(nr), nr);
	return NULL;
}

static void sleep_ms(long ms)
{
	struct timespec time = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&time, NULL);
}

/* Returns the time in seconds, and adds up what the tasks have counted. */
static double look(unsigned long tasks, unsigned long long *sum)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	*sum = 0;
	for (unsigned long nr = 0; nr < tasks; nr++)
		*sum += __atomic_load_n(counter(nr), __ATOMIC_RELAXED);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
	unsigned long tasks = argc == 4 ? strtoul(argv[1], NULL, 10) : 0;
	char all[MAX_TASKS] = { 0 };
	unsigned long long before, after;
	double begin, end;

	if (!tasks || tasks > MAX_TASKS)
		errx(2, "usage: %s TASKS WARM_MS MEASURE_MS", argv[0]);
	counters = mmap(NULL, MAX_TASKS * SPACING, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (counters == MAP_FAILED || pipe(gate))
		err(1, "mmap, pipe");
	testcase_prepare(tasks);
	for (unsigned long nr = 0; nr < tasks; nr++)
		new_task(run_task, (void *)nr);
	if (write(gate[1], all, tasks) != (ssize_t)tasks)
		err(1, "write");
	sleep_ms(atol(argv[2]));
	begin = look(tasks, &before);
	sleep_ms(atol(argv[3]));
	end = look(tasks, &after);
	printf("%llu %.6f\n", after - before, end - begin);
	fflush(stdout);
	testcase_cleanup();
	/* The tasks die with this process: threads at once, processes by their signal. */
	_exit(0);
}
