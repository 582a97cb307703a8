// SPDX-License-Identifier: GPL-2.0
/*
 * What bench/attribute runs: an operation many times between two marks.
 *
 *	exit VMAS ROUNDS		fork and exit of a process with VMAS mappings
 *	exec VMAS ROUNDS PROGRAM	fork, exec of PROGRAM and its exit
 *	run ROUNDS COMMAND...		COMMAND once, which counts as ROUNDS operations
 */
#include "bench.h"
#include <stdbool.h>

/* A no-op with a number in it, which plugin.c recognises. */
#define MARK_START() asm volatile("nopl 0x01697571(%%rax)" ::: "memory")
#define MARK_STOP() asm volatile("nopl 0x00697571(%%rax)" ::: "memory")

/* Neighbours differ in protection, so that they cannot be merged. */
static void map_many(long vmas)
{
	char *mem = map_small(vmas * PAGE);

	for (long i = 0; i < vmas / 2; i++) {
		mem[2 * i * PAGE] = 1;
		if (mprotect(mem + (2 * i + 1) * PAGE, PAGE, PROT_NONE))
			die("mprotect");
	}
}

static void once(char **args)
{
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	if (!pid) {
		if (args) {
			execv(args[0], args);
			_exit(127);
		}
		_exit(0);
	}
	reap(pid);
}

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "exit";
	bool run = !strcmp(kind, "run");
	long vmas = run ? 0 : number(argc, argv, 2, 0);
	long rounds = run ? 1 : number(argc, argv, 3, 100);
	char *tiny[] = { argc > 4 ? argv[4] : "./tiny", NULL };
	char **args = run ? argv + 3 : !strcmp(kind, "exec") ? tiny : NULL;

	if (run && argc < 4)
		return 2;
	if (!run)
		pin_and_lead();
	if (vmas)
		map_many(vmas);
	if (!run)
		for (int i = 0; i < 5; i++)
			once(args);
	MARK_START();
	for (long i = 0; i < rounds; i++)
		once(args);
	MARK_STOP();
	return 0;
}
