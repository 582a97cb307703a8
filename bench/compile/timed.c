// SPDX-License-Identifier: GPL-2.0
/*
 * Runs a command several times, as time(1) does, and prints the fast side of
 * the runs. The first run, which fills caches, does not count.
 *
 *	timed LOAD RUNS COMMAND...
 *
 * LOAD is alone, or what runs beside the command: process (pairs of processes
 * that pass a byte to and fro), io (a file, $LOAD_FILE, written over and over),
 * memory (half the memory touched, again and again). The program also prints how
 * much the load got done, because a kernel that starves the load would look fast.
 *
 * The split into user and sys is by ticks; only their sum, cpu, is exact. Compare
 * cpu under --icount, where the clock jumps ahead when the guest waits for the host.
 * Under load the CPU is never idle, so the time from start to end, loaded, has no
 * such wait. It then counts instructions, too: those of the compile and of the load.
 */
#include "bench.h"
#include <signal.h>
#include <sys/prctl.h>

#define PAIRS 4
#define CHUNK (1UL << 20)
#define MOST_RUNS 64

static volatile long *work;	/* shared with the loads */

static void load_process(long n)
{
	int to[2], fro[2];
	char c = 'x';

	if (pipe(to) || pipe(fro))
		die("pipe");
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (read(to[0], &c, 1) == 1)
			write(fro[1], &c, 1);
		_exit(0);
	}
	for (;;) {
		write(to[1], &c, 1);
		read(fro[0], &c, 1);
		work[n]++;
	}
}

static void load_io(long n)
{
	size_t size = (field_kb("/proc/meminfo", "MemTotal") / 16) << 10;
	const char *name = getenv("LOAD_FILE") ? : "load.data";
	char *chunk = calloc(1, CHUNK);
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);

	if (fd < 0)
		die(name);
	for (size_t at = 0;; at = (at + CHUNK) % size) {
		if (pwrite(fd, chunk, CHUNK, at) != (ssize_t)CHUNK)
			die("write");
		if (at % (16 * CHUNK) == 0)
			fdatasync(fd);
		work[n]++;
	}
}

static void load_memory(long n)
{
	size_t size = (field_kb("/proc/meminfo", "MemTotal") / 2) << 10;

	for (;;) {
		char *mem = mmap(NULL, size, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (mem == MAP_FAILED)
			die("mmap");
		for (size_t at = 0; at + CHUNK <= size; at += CHUNK) {
			touch(mem + at, CHUNK, PAGE);
			work[n]++;
		}
		munmap(mem, size);
	}
}

static const struct {
	const char *name;
	void (*run)(long n);
	int tasks;
} loads[] = {
	{ "alone", NULL, 0 },
	{ "process", load_process, PAIRS },
	{ "io", load_io, 1 },
	{ "memory", load_memory, 1 },
};

static double wall, user, sys;

static void run_command(char **args)
{
	struct rusage before, after;
	uint64_t start = now_ns();
	pid_t pid;

	getrusage(RUSAGE_CHILDREN, &before);
	pid = fork();
	if (pid < 0)
		die("fork");
	if (!pid) {
		execvp(args[0], args);
		_exit(127);
	}
	reap(pid);
	wall = (now_ns() - start) / 1e9;
	getrusage(RUSAGE_CHILDREN, &after);
	user = after.ru_utime.tv_sec - before.ru_utime.tv_sec +
	       (after.ru_utime.tv_usec - before.ru_utime.tv_usec) / 1e6;
	sys = after.ru_stime.tv_sec - before.ru_stime.tv_sec +
	      (after.ru_stime.tv_usec - before.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv)
{
	double real[MOST_RUNS], cpu[MOST_RUNS], users[MOST_RUNS], syss[MOST_RUNS];
	long runs = number(argc, argv, 2, 3), done = 0;
	pid_t pids[PAIRS] = { 0 };
	size_t l = 0;

	if (argc < 4 || runs < 1 || runs > MOST_RUNS)
		return 2;
	while (l < LEN(loads) && strcmp(loads[l].name, argv[1]))
		l++;
	if (l == LEN(loads))
		return 2;
	work = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	run_command(argv + 3);
	for (int i = 0; i < loads[l].tasks; i++) {
		pids[i] = fork();
		if (!pids[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			loads[l].run(i);
		}
	}
	for (long r = 0; r < runs; r++) {
		run_command(argv + 3);
		real[r] = wall;
		cpu[r] = user + sys;
		users[r] = user;
		syss[r] = sys;
	}
	for (int i = 0; i < loads[l].tasks; i++)
		done += work[i];
	for (int i = 0; i < loads[l].tasks; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	wall = 0;
	for (long r = 0; r < runs; r++)
		wall += real[r];
	printf("@load=%s runs=%ld | cpu_s=%.5f user_s=%.3f sys_s=%.3f", loads[l].name, runs,
	       typical(cpu, runs), typical(users, runs), typical(syss, runs));
	if (loads[l].run)
		printf(" loaded_s=%.4f work_per_s=%.1f\n", typical(real, runs), done / wall);
	else
		printf(" real_s=%.4f\n", typical(real, runs));
	return 0;
}
