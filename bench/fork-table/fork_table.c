// SPDX-License-Identifier: GPL-2.0
/*
 * The table of 2002: what fork costs a process which has touched N pages
 * more than it needs. Three steps: fork() alone, fork and exit, and fork,
 * exec of a minimal program, exit.
 */
#include "bench.h"

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

/*
 * As the tables of 2002 had it: the overhead of creating so many tasks is what
 * they cost more than tasks without extra pages, in all and for each page.
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

int main(int argc, char **argv)
{
	long max_pages = number(argc, argv, 1, 16384);
	long budget = number(argc, argv, 2, 100);
	const char *program = argc > 3 ? argv[3] : "./tiny";
	static const long sizes[] = { 0, 16, 64, 256, 1024, 16384, 262144 };
	double base[3] = { 0 };

	pin_and_lead();
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
