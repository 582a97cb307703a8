/* SPDX-License-Identifier: GPL-2.0 */
/* On which CPU a task runs. Needs _GNU_SOURCE. */
#ifndef CPUS_H
#define CPUS_H

#include <sched.h>

/* Keep a task (0: the caller) on one of the CPUs 0 and 1, or let it run on both (-1). 0, or -1. */
static inline int run_on(pid_t pid, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int i = 0; i < 2; i++)
		if (cpu < 0 || cpu == i)
			CPU_SET(i, &set);
	return sched_setaffinity(pid, sizeof(set), &set);
}

#endif /* CPUS_H */
