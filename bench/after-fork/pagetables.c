// SPDX-License-Identifier: GPL-2.0
/*
 * Page-table memory of many children of one parent that has touched its pages. All
 * children are alive at once: before they write, and after they wrote to one page in 512.
 *
 * A child has tables for its stack, text and upper levels whatever the parent
 * has touched. These are measured first, with children of a parent that has
 * touched nothing; the rest is the cost of the touched memory.
 */
#include "bench.h"

static int begin[2], ready[2], leave[2];

static void child(char *mem, size_t size)
{
	char c;

	close(begin[1]);
	close(leave[1]);
	write(ready[1], "x", 1);
	read(begin[0], &c, 1);	/* returns when the parent closes its end */
	touch(mem, size, HUGE_PAGE);
	write(ready[1], "x", 1);
	read(leave[0], &c, 1);
	_exit(0);
}

static void wait_all(long children)
{
	char c;

	for (long i = 0; i < children; i++)
		if (read(ready[0], &c, 1) != 1)
			die("read");
}

static void report(const char *state, long children, size_t size, long kb, long bare_kb)
{
	row("children=%ld pages=%zu state=%s | pagetables_kB=%ld kB_per_child=%.1f touched_kB=%ld",
	    children, size / PAGE, state, kb, (double)kb / children, kb - bare_kb);
}

/* Returns the page tables of all children, before and after they write. */
static void measure(char *mem, size_t size, long children, long kb[2])
{
	long before;

	if (pipe(begin) || pipe(ready) || pipe(leave))
		die("pipe");
	before = pagetables_kb();
	for (long i = 0; i < children; i++) {
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (!pid)
			child(mem, size);
	}
	wait_all(children);
	kb[0] = pagetables_kb() - before;
	close(begin[1]);
	wait_all(children);
	kb[1] = pagetables_kb() - before;
	close(leave[1]);
	while (wait(NULL) > 0)
		;
	close(begin[0]);
	close(leave[0]);
	close(ready[0]);
	close(ready[1]);
}

int main(int argc, char **argv)
{
	long children = number(argc, argv, 1, 50);
	size_t size = number(argc, argv, 2, 4096) * PAGE;
	char *mem = map_small(size);
	long bare[2], kb[2];

	measure(mem, 0, children, bare);
	touch(mem, size, PAGE);
	measure(mem, size, children, kb);
	report("untouched", children, size, kb[0], bare[0]);
	report("written_1_in_512", children, size, kb[1], bare[1]);
	return 0;
}
