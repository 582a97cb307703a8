/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory blocks, which go offline and online again; each has a number. See
 * Documentation/admin-guide/mm/memory-hotplug.rst. Include after harness.h.
 */
#ifndef MEMORY_BLOCK_H
#define MEMORY_BLOCK_H

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define MEMORY_BLOCKS	"/sys/devices/system/memory/"
#define MOST_MEMORY_BLOCKS	1024

/* Memory that cannot be moved may keep a movable block from going offline for ever. */
#define OFFLINE_LIMIT_S	60

/* The size of each block, in bytes; 0 on errors. */
static inline unsigned long memory_block_size(void)
{
	FILE *f = fopen(MEMORY_BLOCKS "block_size_bytes", "r");
	unsigned long size;

	if (!f || fscanf(f, "%lx", &size) != 1)
		size = 0;
	if (f)
		fclose(f);
	return size;
}

/* Does a file of a block hold just this word? */
static inline bool memory_block_reads(long nr, const char *file, const char *word)
{
	char path[96], line[64];
	bool same;
	FILE *f;

	snprintf(path, sizeof(path), MEMORY_BLOCKS "memory%ld/%s", nr, file);
	f = fopen(path, "r");
	if (!f)
		return false;
	same = fgets(line, sizeof(line), f) && !strcmp(strtok(line, "\n"), word);
	fclose(f);
	return same;
}

/* The first block after @nr that is online and movable; -1 if there is none. */
static inline long next_movable_block(long nr)
{
	while (++nr < MOST_MEMORY_BLOCKS)
		if (memory_block_reads(nr, "valid_zones", "Movable"))
			return nr;
	return -1;
}

/* Changes the state of a block: online, online_movable. Returns 0, or -1. */
static inline int set_memory_block(long nr, const char *state)
{
	char path[96];
	FILE *f;

	snprintf(path, sizeof(path), MEMORY_BLOCKS "memory%ld/state", nr);
	f = fopen(path, "w");
	if (!f)
		return -1;
	fputs(state, f);
	return fclose(f) ? -1 : 0;
}

static inline void memory_block_alarm(int sig)
{
}

/* Takes a block offline, or gives up after OFFLINE_LIMIT_S. Returns 0, or -1. */
static inline int take_block_offline(long nr)
{
	const struct sigaction interrupt = { .sa_handler = memory_block_alarm };
	/* Once more each second, in case a system call that begins anew has used up the signal. */
	const struct itimerval limit = { { 1, 0 }, { OFFLINE_LIMIT_S, 0 } }, none = {};
	struct sigaction before;
	int ret;

	sigaction(SIGALRM, &interrupt, &before);
	setitimer(ITIMER_REAL, &limit, NULL);
	ret = set_memory_block(nr, "offline");
	setitimer(ITIMER_REAL, &none, NULL);
	sigaction(SIGALRM, &before, NULL);
	return ret;
}

#endif /* MEMORY_BLOCK_H */
