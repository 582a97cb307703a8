// SPDX-License-Identifier: GPL-2.0
/*
 * Single writes by a parent while its child lives: the first write to each 2 MiB, which finds
 * the page table shared, and the slowest of all. Then the same after the child's tables were
 * unshared in the background, if the kernel has such a policy.
 */
#include <stdbool.h>

#include "bench.h"

#define KNOB "/sys/kernel/mm/quire/fork/background_tables_per_s"

/* Does nothing if the kernel has no such policy. */
static void set_background(const char *rate)
{
	int fd = open(KNOB, O_WRONLY);

	if (fd < 0)
		return;
	if (write(fd, rate, strlen(rate)) < 0)
		die(KNOB);
	close(fd);
}

static bool shares_tables(pid_t pid)
{
	char path[64], line[128];
	long tables = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/quire", pid);
	f = fopen(path, "r");
	if (!f)
		return false;
	while (fgets(line, sizeof(line), f))
		sscanf(line, "fork_shared_tables: %ld", &tables);
	fclose(f);
	return tables > 0;
}

static void write_all(char *mem, size_t size, const char *name)
{
	double *first = calloc(size / HUGE_PAGE + 1, sizeof(*first)), worst = 0;
	int n = 0;

	for (size_t i = 0; i < size; i += PAGE) {
		uint64_t start = now_ns();
		double t;

		((volatile char *)mem)[i] = 3;
		t = now_ns() - start;
		if (t > worst)
			worst = t;
		if (!(i % HUGE_PAGE))
			first[n++] = t;
	}
	row("case=%s pages=%zu | first_ns=%.0f worst_ns=%.0f", name, size / PAGE,
	    typical(first, n), worst);
	free(first);
}

static void run(char *mem, size_t size, bool background)
{
	int leave[2];
	pid_t pid;
	char c;

	touch(mem, size, PAGE);
	if (pipe(leave))
		die("pipe");
	if (background)
		set_background("1048576");
	pid = fork();
	if (pid < 0)
		die("fork");
	if (!pid) {
		close(leave[1]);
		_exit(read(leave[0], &c, 1) != 0);
	}
	while (background && shares_tables(pid))
		usleep(10000);
	write_all(mem, size, background ? "single_writes_background" : "single_writes");
	if (background)
		set_background("0");
	close(leave[1]);
	close(leave[0]);
	reap(pid);
}

int main(int argc, char **argv)
{
	size_t size = number(argc, argv, 1, 4096) * PAGE;
	char *mem = map_small(size);

	run(mem, size, false);
	run(mem, size, true);
	return 0;
}
