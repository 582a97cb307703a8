// SPDX-License-Identifier: GPL-2.0
/*
 * Processes that all map and read one shared segment: the memory of the page
 * tables that map it, and the faults and time it takes to fill them. The
 * processes come one after the other and all stay, so that the counts do not
 * depend on who wins.
 */
#include "bench.h"

struct report {
	long faults;
	double ns;
};

static int leave[2];

static char *map_segment(int fd, size_t size)
{
	/* All at one address on a 2 MiB boundary, as after fork of a server. */
	char *p = mmap((void *)0x200000000000UL, size, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static void process(int fd, size_t size, int up)
{
	struct rusage before, after;
	struct report r;
	uint64_t start;
	char *mem, c;

	close(leave[1]);
	getrusage(RUSAGE_SELF, &before);
	start = now_ns();
	mem = map_segment(fd, size);
	touch(mem, size, PAGE);
	r.ns = now_ns() - start;
	getrusage(RUSAGE_SELF, &after);
	r.faults = after.ru_minflt - before.ru_minflt;
	write(up, &r, sizeof(r));
	read(leave[0], &c, 1);
	_exit(0);
}

static void run(int fd, size_t size, long procs)
{
	long before = pagetables_kb(), kb, faults = 0;
	double ns = 0, last = 0;
	int up[2];

	if (pipe(up) || pipe(leave))
		die("pipe");
	for (long i = 0; i < procs; i++) {
		struct report r;
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (!pid)
			process(fd, size, up[1]);
		if (read(up[0], &r, sizeof(r)) != sizeof(r))
			die("read");
		faults += r.faults;
		ns += r.ns;
		last = r.ns;
	}
	kb = pagetables_kb() - before;
	row("processes=%ld segment_MB=%zu | pagetables_kB=%ld faults=%ld ms=%.3f last_process_ms=%.3f",
	    procs, size >> 20, kb, faults, ns / 1e6, last / 1e6);
	close(leave[1]);
	while (wait(NULL) > 0)
		;
	close(leave[0]);
	close(up[0]);
	close(up[1]);
}

int main(int argc, char **argv)
{
	size_t size = number(argc, argv, 1, 64) << 20;
	long max_procs = number(argc, argv, 2, 40);
	int fd = memfd_create("segment", 0);
	static char page[PAGE];

	if (fd < 0)
		die("memfd_create");
	for (size_t i = 0; i < size; i += PAGE)
		if (write(fd, page, PAGE) != (ssize_t)PAGE)
			die("write");
	static const long steps[] = { 1, 10, 40, 200, 1000 };

	for (size_t i = 0; i < LEN(steps) && steps[i] <= max_procs; i++)
		run(fd, size, steps[i]);
	return 0;
}
