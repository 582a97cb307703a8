// SPDX-License-Identifier: GPL-2.0
/*
 * The costs that fork defers: the parent rewrites its pages after the child has exited and
 * while the child lives; the child reads the pages and writes to them.
 */
#include "bench.h"

#define ROUNDS 3

static int down[2], up[2];

static void tell(int fd)
{
	if (write(fd, "x", 1) != 1)
		die("write");
}

static void hear(int fd)
{
	char c;

	if (read(fd, &c, 1) != 1)
		_exit(1);
}

static double timed_touch(char *mem, size_t size)
{
	uint64_t start = now_ns();

	touch(mem, size, PAGE);
	return (double)(now_ns() - start) / (size / PAGE);
}

static double timed_read(char *mem, size_t size)
{
	uint64_t start = now_ns();

	for (size_t i = 0; i < size; i += PAGE)
		(void)((volatile char *)mem)[i];
	return (double)(now_ns() - start) / (size / PAGE);
}

static double child_gone(char *mem, size_t size)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	reap(pid);
	return timed_touch(mem, size);
}

static double child_lives(char *mem, size_t size)
{
	double t;
	pid_t pid = fork();

	if (!pid) {
		hear(down[0]);
		_exit(0);
	}
	t = timed_touch(mem, size);
	tell(down[1]);
	reap(pid);
	return t;
}

/* The slowest of all writes while the child lives: what a latency graph shows. */
static double worst_write(char *mem, size_t size)
{
	double worst = 0;
	pid_t pid = fork();

	if (!pid) {
		hear(down[0]);
		_exit(0);
	}
	for (size_t i = 0; i < size; i += PAGE) {
		uint64_t start = now_ns(), taken;

		((volatile char *)mem)[i] = 1;
		taken = now_ns() - start;
		if (taken > worst)
			worst = taken;
	}
	tell(down[1]);
	reap(pid);
	return worst;
}

static double child_does(char *mem, size_t size, double (*what)(char *, size_t))
{
	double t;
	pid_t pid = fork();

	if (!pid) {
		t = what(mem, size);
		_exit(write(up[1], &t, sizeof(t)) != sizeof(t));
	}
	if (read(up[0], &t, sizeof(t)) != sizeof(t))
		die("read");
	reap(pid);
	return t;
}

static double child_writes(char *mem, size_t size)
{
	return child_does(mem, size, timed_touch);
}

static double child_reads(char *mem, size_t size)
{
	return child_does(mem, size, timed_read);
}

static const struct {
	const char *name;
	double (*run)(char *, size_t);
} cases[] = {
	{ "rewrite_child_gone", child_gone },
	{ "rewrite_child_lives", child_lives },
	{ "child_reads", child_reads },
	{ "child_writes", child_writes },
};

int main(int argc, char **argv)
{
	size_t size = number(argc, argv, 1, 4096) * PAGE;
	char *mem = map_small(size);
	double worst[ROUNDS];

	if (pipe(down) || pipe(up))
		die("pipe");
	pin_and_lead();
	for (size_t c = 0; c < LEN(cases); c++) {
		double t[ROUNDS];

		touch(mem, size, PAGE);
		for (int r = 0; r < ROUNDS; r++)
			t[r] = cases[c].run(mem, size);
		row("case=%s pages=%zu | ns_per_page=%.1f", cases[c].name, size / PAGE,
		    typical(t, ROUNDS));
	}
	for (int r = 0; r < ROUNDS; r++)
		worst[r] = worst_write(mem, size);
	row("case=worst_write_child_lives pages=%zu | worst_ns=%.0f", size / PAGE,
	    typical(worst, ROUNDS));
	return 0;
}
