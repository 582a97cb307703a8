/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Shared by the tests that use several memory cgroups. A group is named by its path below TOP,
 * which a test defines before it includes this header.
 */
#ifndef CGROUP_H
#define CGROUP_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fork_test.h"

/*
 * Returns the number after "name " in a group's file, or, if @name is NULL, the first number in
 * the file; -1 if there is none.
 */
static inline long number_of(const char *group, const char *file, const char *name)
{
	char path[128], word[64] = "";
	long value, found = -1;
	FILE *f;

	snprintf(path, sizeof(path), TOP "%s/%s", group, file);
	f = fopen(path, "r");
	if (!f)
		return -1;
	if (!name && fscanf(f, "%ld", &value) == 1)
		found = value;
	while (name && fscanf(f, "%63s %ld", word, &value) == 2)
		if (!strcmp(word, name))
			found = value;
	fclose(f);
	return found;
}

/* Returns how many page tables a group and its descendants are charged for. */
static inline long tables_of(const char *group)
{
	/* This read adds up what the CPUs have counted; memory.stat alone may be stale. */
	number_of(group, "cpu.stat", "usage_usec");
	return number_of(group, "memory.stat", "pagetables") / (long)PAGE;
}

static inline bool counts(const char *group, const char *event)
{
	for (int i = 0; i < 20000 && number_of(group, "memory.events", event) < 1; i++)
		usleep(10000);
	return number_of(group, "memory.events", event) >= 1;
}

static inline bool remove_group(const char *group)
{
	char path[128];

	snprintf(path, sizeof(path), TOP "%s", group);
	for (int i = 0; i < 20000 && rmdir(path) && errno == EBUSY; i++)
		usleep(10000);
	return access(path, F_OK);
}

/* Uses more private memory than any group here may have. */
static inline long eat(void)
{
	size_t len = 256UL << 20;
	char *area = mmap(NULL, len, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	memset(area, 1, len);
	return 0;
}

/*
 * Reclaims until most of an area is swapped out of this process, which is in the group. Reclaim
 * may find nothing until the group's statistics are updated, which happens every other second.
 */
static inline bool swap_out(char *area, size_t len)
{
	for (int i = 0; i < 2000; i++) {
		if (smaps_of(getpid(), area, "Swap") >= (long)(len / 1024 * 3 / 4))
			return true;
		write_word(TOP "/memory.reclaim", "16M");
		usleep(10000);
	}
	return false;
}

#endif /* CGROUP_H */
