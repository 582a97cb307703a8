// SPDX-License-Identifier: GPL-2.0
/*
 * The table of 2002: what fork costs a process that has touched N pages
 * more than it needs. Three steps: fork() alone; fork and exit; and fork,
 * exec of a minimal program, exit.
 *
 *	fork_table [PAGES [TASKS [PROGRAM]]]
 *	fork_table pin PAGES CHILDREN
 *
 * The second form writes to each 2 MiB before each fork(), so that each table that the
 * last child shared is the process's own again. It does so before and after the process
 * has once pinned a page for a moment. Each fork of a process that has ever pinned memory
 * looks for pins.
 */
#include "bench.h"

#include <stdbool.h>
#include <sys/uio.h>

enum step { FORK, FORK_EXIT, FORK_EXEC_EXIT };
static const char * const step_name[] = { "fork", "fork+exit", "fork+exec+exit" };

static double one_child(enum step step, const char *program)
{
	char *args[] = { (char *)program, NULL }, *none[] = { NULL };
	uint64_t start = now_ns(), forked, done;
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	if (!pid) {
		if (step == FORK_EXEC_EXIT)
			execve(program, args, none);
		_exit(step == FORK_EXEC_EXIT);
	}
	forked = now_ns();
	reap(pid);
	done = now_ns();
	return (step == FORK ? forked : done) - start;
}

/* Pins the page, as a debugger or a profiler does. */
static void look_at(char *page)
{
	char byte;
	struct iovec to = { &byte, 1 }, from = { page, 1 };

	if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != 1)
		die("process_vm_readv");
}

/*
 * As in the tables of 2002: the overhead of creating so many tasks is what they cost more than
 * tasks without extra pages, in all and for each page.
 */
static void report(enum step step, long pages, long tasks, double total, double mid, double base)
{
	char overhead[128] = "";

	if (pages)
		snprintf(overhead, sizeof(overhead),
			 " overhead_seconds=%.6f us_per_process_per_page=%.5f",
			 (mid - base) * tasks / 1e9, (mid - base) / pages / 1e3);
	row("step=%s pages=%ld tasks=%ld | seconds=%.4f us_per_process=%.3f%s", step_name[step],
	    pages, tasks, total / 1e9, mid / 1e3, overhead);
}

static void forks_with_own_tables(const char *step, char *mem, long pages, long children)
{
	double *t = calloc(children, sizeof(*t));

	for (long i = -1; i < children; i++) {
		double took;

		touch(mem, pages * PAGE, 2 << 20);
		took = one_child(FORK, NULL);
		if (i >= 0)
			t[i] = took;
	}
	row("step=%s pages=%ld tasks=%ld | us_per_process=%.3f", step, pages, children,
	    typical(t, children) / 1e3);
	free(t);
}

static int with_and_without_pin(long pages, long children)
{
	char *mem = map_small(pages * PAGE);

	touch(mem, pages * PAGE, PAGE);
	forks_with_own_tables("fork-own", mem, pages, children);
	look_at(mem);
	forks_with_own_tables("fork-own-pinned", mem, pages, children);
	return 0;
}

int main(int argc, char **argv)
{
	bool pin = argc > 3 && !strcmp(argv[1], "pin");
	long max_pages = number(argc, argv, 1 + pin, 16384);
	long budget = number(argc, argv, 2 + pin, 100);
	const char *program = argc > 3 ? argv[3] : "./tiny";
	static const long sizes[] = { 0, 16, 64, 256, 1024, 16384, 262144 };
	double base[3] = { 0 };

	pin_and_lead();
	if (pin)
		return with_and_without_pin(max_pages, budget);
	for (size_t s = 0; s < LEN(sizes) && sizes[s] <= max_pages; s++) {
		long pages = sizes[s];
		long children = pages >= 16384 ? budget / 10 : budget;
		char *mem = pages ? map_small(pages * PAGE) : NULL;

		if (pages >= 262144)
			children = budget / 30;
		if (children < 3)
			children = 3;
		if (pages)
			touch(mem, pages * PAGE, PAGE);
		for (enum step step = FORK; step <= FORK_EXEC_EXIT; step++) {
			double *t = calloc(children, sizeof(*t)), total = 0, mid;

			one_child(step, program);
			for (long i = 0; i < children; i++)
				total += t[i] = one_child(step, program);
			mid = typical(t, children);
			if (!pages)
				base[step] = mid;
			report(step, pages, children, total, mid, base[step]);
			free(t);
		}
		if (pages)
			munmap(mem, pages * PAGE);
	}
	return 0;
}
