// SPDX-License-Identifier: GPL-2.0
/*
 * fork and exit of a process by its number of mappings, and by the number of
 * forks between it and the process that made them. Neighbouring mappings
 * differ in protection, so that the kernel cannot merge them.
 */
#include "bench.h"

#define ROUNDS 15

static char *map_many(long vmas)
{
	char *mem = map_small(vmas * PAGE);

	for (long i = 0; i < vmas / 2; i++) {
		mem[2 * i * PAGE] = 1;
		if (mprotect(mem + (2 * i + 1) * PAGE, PAGE, PROT_NONE))
			die("mprotect");
	}
	return mem;
}

static double fork_exit(int rounds)
{
	double *t = calloc(rounds, sizeof(*t)), mid;

	for (int i = -1; i < rounds; i++) {
		uint64_t start = now_ns();
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (!pid)
			_exit(0);
		reap(pid);
		if (i >= 0)
			t[i] = now_ns() - start;
	}
	mid = typical(t, rounds);
	free(t);
	return mid;
}

/* Fork depth times, each generation the child of the one before. */
static void at_depth(char *mem, long vmas, long depth, long left, int writes)
{
	pid_t pid;

	if (writes)
		for (long i = 0; i < vmas / 2; i++)
			mem[2 * i * PAGE] = 2;
	if (!left) {
		row("vmas=%ld depth=%ld writes=%s | us=%.2f", vmas, depth,
		    writes ? "each" : "none", fork_exit(ROUNDS) / 1e3);
		return;
	}
	pid = fork();
	if (pid < 0)
		die("fork");
	if (!pid) {
		pin_and_lead();
		at_depth(mem, vmas, depth, left - 1, writes);
		exit(0);
	}
	reap(pid);
}

int main(int argc, char **argv)
{
	long vmas = number(argc, argv, 1, 300);
	long max_depth = number(argc, argv, 2, 32);
	char *mem = map_many(vmas);

	setvbuf(stdout, NULL, _IOLBF, 0);
	pin_and_lead();
	for (long depth = 0; depth <= max_depth; depth = depth ? depth * 2 : 1)
		for (int writes = 0; writes <= (depth > 0); writes++)
			at_depth(mem, vmas, depth, depth, writes);
	return 0;
}
