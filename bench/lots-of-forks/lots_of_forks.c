// SPDX-License-Identifier: GPL-2.0
/*
 * Ten shells in parallel, each of which runs a short pipeline many times:
 * fork, exec and exit of small programs. Prints the line of time(1).
 */
#include "bench.h"

static double seconds(struct timeval t)
{
	return t.tv_sec + t.tv_usec / 1e6;
}

int main(int argc, char **argv)
{
	long shells = number(argc, argv, 1, 10);
	long times = number(argc, argv, 2, 20);
	const char *busybox = argc > 3 ? argv[3] : "./busybox";
	char script[512];
	struct rusage use;
	uint64_t start;
	double wall;
	int status;

	/* Linked names, called by path, make the shell fork and exec. */
	snprintf(script, sizeof(script),
		 "i=0; while [ $i -lt %ld ]; do ./cat /proc/version | ./wc >/dev/null; i=$((i+1)); done",
		 times);
	start = now_ns();
	for (long i = 0; i < shells; i++) {
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (!pid) {
			execl(busybox, "sh", "-c", script, (char *)NULL);
			_exit(127);
		}
	}
	while (wait(&status) > 0)
		if (status) {
			fprintf(stderr, "a shell ended with status %x\n", status);
			return 1;
		}
	wall = (now_ns() - start) / 1e9;
	getrusage(RUSAGE_CHILDREN, &use);
	row("shells=%ld pipelines=%ld | real_s=%.3f user_s=%.3f sys_s=%.3f us_per_pipeline=%.1f",
	    shells, times, wall, seconds(use.ru_utime), seconds(use.ru_stime),
	    wall * 1e6 / (shells * times));
	return 0;
}
