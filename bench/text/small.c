// SPDX-License-Identifier: GPL-2.0
/*
 * Programs with little text, which must not pay for programs with much: fork,
 * exec and exit of true, cat and a shell, all of them one static busybox.
 *
 *	small FOLDER TIMES
 */
#include "bench.h"

static const char * const programs[][4] = {
	{ "true" },
	{ "cat", "/dev/null" },
	{ "sh", "-c", ":" },
};

static double once(const char *path, char **args)
{
	char *none[] = { NULL };
	uint64_t start = now_ns();
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	if (!pid) {
		execve(path, args, none);
		_exit(127);
	}
	reap(pid);
	return now_ns() - start;
}

int main(int argc, char **argv)
{
	const char *folder = argc > 1 ? argv[1] : ".";
	long times = number(argc, argv, 2, 50);
	double *t = calloc(times, sizeof(*t));

	pin_and_lead();
	for (size_t p = 0; p < LEN(programs); p++) {
		char path[256];

		snprintf(path, sizeof(path), "%s/%s", folder, programs[p][0]);
		for (long i = -3; i < times; i++) {
			double ns = once(path, (char **)programs[p]);

			if (i >= 0)
				t[i] = ns;
		}
		row("program=%s | us_per_exec=%.2f", programs[p][0], typical(t, times) / 1e3);
	}
	return 0;
}
