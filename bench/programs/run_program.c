// SPDX-License-Identifier: GPL-2.0
/*
 * Runs a real program several times and reports on its text.
 *
 *	run_program RUNS NAME FILE COMMAND...
 *
 * The program runs once, a second time right after that, and, when the kernel has had a
 * second, RUNS times more, of which the fast side is printed. Then it runs once more and
 * is stopped where it exits: how much of the text of FILE, the program or a library, is
 * mapped by PMD then, as a share of its whole 2 MiB blocks (pmd_share) and of what is
 * mapped at all (of_mapped). FILE is "-" if the command is many programs.
 *
 * The split into user and sys is by ticks; only their sum, cpu, is exact.
 */
#include "bench.h"
#include <sys/ptrace.h>

#define MOST_RUNS 64

struct cost {
	double real, cpu;
	long faults;
};

static double since(struct timeval from, struct timeval to)
{
	return to.tv_sec - from.tv_sec + (to.tv_usec - from.tv_usec) / 1e6;
}

static void execute(char **args)
{
	int null = open("/dev/null", O_RDWR);

	dup2(null, 0);
	dup2(null, 1);
	execvp(args[0], args);
	_exit(127);
}

static struct cost run(char **args)
{
	struct rusage before, after;
	uint64_t start = now_ns();
	struct cost cost;
	pid_t pid;

	getrusage(RUSAGE_CHILDREN, &before);
	pid = fork();
	if (pid < 0)
		die("fork");
	if (!pid)
		execute(args);
	reap(pid);
	cost.real = (now_ns() - start) / 1e9;
	getrusage(RUSAGE_CHILDREN, &after);
	cost.cpu = since(before.ru_utime, after.ru_utime) + since(before.ru_stime, after.ru_stime);
	cost.faults = after.ru_minflt - before.ru_minflt + after.ru_majflt - before.ru_majflt;
	return cost;
}

static void print_start(const char *name, const char *start, struct cost cost)
{
	row("program=%s start=%s | faults=%ld cpu_s=%.5f real_s=%.4f", name, start, cost.faults,
	    cost.cpu, cost.real);
}

static void run_often(const char *name, char **args, long runs)
{
	double real[MOST_RUNS], cpu[MOST_RUNS], faults[MOST_RUNS];

	for (long i = 0; i < runs; i++) {
		struct cost cost = run(args);

		real[i] = cost.real;
		cpu[i] = cost.cpu;
		faults[i] = cost.faults;
	}
	print_start(name, "after_1s", (struct cost){ typical(real, runs), typical(cpu, runs),
						     typical(faults, runs) });
}

struct text {
	long whole, mapped, huge;	/* kB: in whole blocks, mapped, mapped by PMD */
};

/* Reads how much of a file a process maps as executable. */
static void read_text(pid_t pid, const char *file, struct text *text)
{
	unsigned long from, to, offset;
	char path[64], line[512], rights[8];
	int ours = 0;
	long kb;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
	f = fopen(path, "r");
	if (!f)
		die(path);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx %7s %lx", &from, &to, rights, &offset) == 4) {
			unsigned long end = (offset + to - from) / HUGE_PAGE;
			unsigned long first = (offset + HUGE_PAGE - 1) / HUGE_PAGE;

			ours = rights[2] == 'x' && strstr(line, file);
			if (ours && end > first)
				text->whole += (end - first) * (HUGE_PAGE >> 10);
		} else if (ours && sscanf(line, "FilePmdMapped: %ld", &kb) == 1) {
			text->huge += kb;
		} else if (ours && sscanf(line, "Rss: %ld", &kb) == 1) {
			text->mapped += kb;
		}
	}
	fclose(f);
}

/* Runs the program once more and looks at its text when it exits. */
static void run_to_its_exit(const char *name, const char *file, char **args)
{
	struct text text = { 0 };
	int status, signal;
	pid_t pid = fork();

	if (!pid) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		execute(args);
	}
	if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status) ||
	    ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL))
		die("trace");
	for (signal = 0; !ptrace(PTRACE_CONT, pid, NULL, signal);) {
		if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
			break;
		signal = status >> 16 ? 0 : WSTOPSIG(status);
		if (status >> 16 == PTRACE_EVENT_EXIT)
			read_text(pid, file, &text);
	}
	if (!text.mapped || !text.whole || status) {
		fprintf(stderr, "%s: no text of %s, or status %x\n", name, file, status);
		exit(1);
	}
	row("program=%s start=to_its_exit | pmd_share=%.4f of_mapped=%.4f blocks_kB=%ld", name,
	    (double)text.huge / text.whole, (double)text.huge / text.mapped, text.whole);
}

int main(int argc, char **argv)
{
	long runs = number(argc, argv, 1, 3);

	if (argc < 5 || runs < 1 || runs > MOST_RUNS)
		return 2;
	print_start(argv[2], "first", run(argv + 4));
	print_start(argv[2], "second", run(argv + 4));
	sleep(1);
	run_often(argv[2], argv + 4, runs);
	if (strcmp(argv[3], "-"))
		run_to_its_exit(argv[2], argv[3], argv + 4);
	return 0;
}
