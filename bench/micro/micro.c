// SPDX-License-Identifier: GPL-2.0
/*
 * Small operations that no feature is meant to speed up: the gate for "off costs nothing". Each
 * result is the lower quartile of batches.
 */
#include "bench.h"
#include <sys/syscall.h>

#define BATCHES 11
#define FILE_PAGES 256

static const char *tiny, *file_name;
static int file_fd, ping[2], pong[2];
static char *anon;

static void null_syscall(long n)
{
	while (n--)
		syscall(SYS_getppid);
}

static void anon_fault(long n)
{
	madvise(anon, n * PAGE, MADV_DONTNEED);
	touch(anon, n * PAGE, PAGE);
}

static void file_fault(long n)
{
	while (n > 0) {
		volatile char *p = mmap(NULL, FILE_PAGES * PAGE, PROT_READ, MAP_SHARED,
					file_fd, 0);

		if (p == MAP_FAILED)
			die("mmap");
		for (long i = 0; i < FILE_PAGES; i++)
			(void)p[i * PAGE];
		munmap((void *)p, FILE_PAGES * PAGE);
		n -= FILE_PAGES;
	}
}

static void map_unmap(long n)
{
	while (n--) {
		void *p = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			die("mmap");
		munmap(p, 16 * PAGE);
	}
}

static void echo_loop(void)
{
	char c;

	close(ping[1]);
	while (read(ping[0], &c, 1) == 1)
		write(pong[1], &c, 1);
	_exit(0);
}

static void pipe_trip(long n)
{
	char c = 'x';

	while (n--)
		if (write(ping[1], &c, 1) != 1 || read(pong[0], &c, 1) != 1)
			die("pipe");
}

static void fork_exit(long n)
{
	while (n--) {
		pid_t pid = fork();

		if (!pid)
			_exit(0);
		reap(pid);
	}
}

static void fork_exec_exit(long n)
{
	char *args[] = { (char *)tiny, NULL }, *none[] = { NULL };

	while (n--) {
		pid_t pid = fork();

		if (!pid) {
			execve(tiny, args, none);
			_exit(1);
		}
		reap(pid);
	}
}

static void grow_shrink(long n)
{
	while (n--)
		if (sbrk(16 * PAGE) == (void *)-1 || sbrk(-16 * (long)PAGE) == (void *)-1)
			die("sbrk");
}

static const struct {
	const char *name;
	void (*run)(long n);
	long n;
} ops[] = {
	{ "null_syscall", null_syscall, 2000 },
	{ "anon_fault_4K", anon_fault, 2048 },
	{ "file_fault_4K", file_fault, 2048 },
	{ "mmap_munmap", map_unmap, 500 },
	{ "pipe_round_trip", pipe_trip, 300 },
	{ "fork_exit", fork_exit, 20 },
	{ "fork_exec_exit", fork_exec_exit, 20 },
	{ "brk", grow_shrink, 500 },
};

int main(int argc, char **argv)
{
	long scale = number(argc, argv, 1, 1);
	pid_t echo;

	tiny = argc > 2 ? argv[2] : "./tiny";
	file_name = argc > 3 ? argv[3] : "./micro.data";
	pin_and_lead();
	anon = map_small(2048 * scale * PAGE);
	file_fd = open(file_name, O_RDWR | O_CREAT, 0600);
	if (file_fd < 0)
		die(file_name);
	for (long i = 0; i < FILE_PAGES; i++)
		if (write(file_fd, anon, PAGE) != (ssize_t)PAGE)
			die("write");
	if (pipe(ping) || pipe(pong))
		die("pipe");
	echo = fork();
	if (!echo)
		echo_loop();
	for (size_t o = 0; o < LEN(ops); o++) {
		long n = ops[o].n * scale;
		double t[BATCHES];

		ops[o].run(n);
		for (int b = 0; b < BATCHES; b++) {
			uint64_t start = now_ns();

			ops[o].run(n);
			t[b] = (double)(now_ns() - start) / n;
		}
		row("op=%s | ns=%.1f", ops[o].name, typical(t, BATCHES));
		/* Unmap it, or the forks that follow would copy it. */
		if (ops[o].run == anon_fault)
			munmap(anon, n * PAGE);
	}
	close(ping[1]);
	unlink(file_name);
	reap(echo);
	return 0;
}
