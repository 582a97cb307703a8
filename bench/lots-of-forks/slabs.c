// SPDX-License-Identifier: GPL-2.0
/*
 * Kernel memory for the anonymous reverse map: the anon_vma and anon_vma_chain objects of the
 * children of a process with many mappings, while all children are alive. before_exec: they
 * have forked and are about to exec, so they write only to their stack (exec frees what they
 * hold, on any kernel). idle: forked servers, which have written to one mapping in ten.
 */
#include "bench.h"

enum state { BEFORE_EXEC, IDLE };
static const char * const state_name[] = { "before_exec", "idle" };

static const char * const caches[] = { "anon_vma", "anon_vma_chain" };

static char *map_many(long vmas)
{
	char *mem = map_small(vmas * PAGE);

	for (long i = 0; i < vmas / 2; i++) {
		mem[2 * i * PAGE] = 1;
		mem[(2 * i + 1) * PAGE] = 1;
		if (mprotect(mem + (2 * i + 1) * PAGE, PAGE, PROT_READ))
			die("mprotect");
	}
	return mem;
}

static void child(enum state state, char *mem, long vmas, int ready, int leave)
{
	char c;

	if (state == IDLE)
		for (long i = 0; i < vmas / 2; i += 5)
			mem[2 * i * PAGE] = 2;
	write(ready, "x", 1);
	read(leave, &c, 1);
	_exit(0);
}

static void run(enum state state, char *mem, long vmas, long children)
{
	long before[2], more[2];
	int ready[2], leave[2];
	long bytes = 0;
	char c;

	if (pipe(ready) || pipe(leave))
		die("pipe");
	for (int i = 0; i < 2; i++)
		before[i] = slab_number(caches[i], "objects");
	for (long i = 0; i < children; i++) {
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (!pid) {
			close(leave[1]);
			child(state, mem, vmas, ready[1], leave[0]);
		}
	}
	for (long i = 0; i < children; i++)
		if (read(ready[0], &c, 1) != 1)
			die("read");
	for (int i = 0; i < 2; i++) {
		more[i] = slab_number(caches[i], "objects") - before[i];
		bytes += more[i] * slab_number(caches[i], "object_size");
	}
	row("children=%ld vmas=%ld state=%s | anon_vma=%ld anon_vma_chain=%ld slab_kB=%ld",
	    children, vmas, state_name[state], more[0], more[1],
	    bytes / 1024);
	close(leave[1]);
	while (wait(NULL) > 0)
		;
	close(leave[0]);
	close(ready[0]);
	close(ready[1]);
}

int main(int argc, char **argv)
{
	long children = number(argc, argv, 1, 100), vmas = number(argc, argv, 2, 1000);
	char *mem = map_many(vmas);

	for (enum state state = BEFORE_EXEC; state <= IDLE; state++)
		run(state, mem, vmas, children);
	return 0;
}
