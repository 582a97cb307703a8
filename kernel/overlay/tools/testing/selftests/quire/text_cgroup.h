/* SPDX-License-Identifier: GPL-2.0 */
/* CGROUP, the memory cgroup of a test program. Include after text_huge.h. */
#ifndef TEXT_CGROUP_H
#define TEXT_CGROUP_H

/* Makes the group; returns 0, or -1 if there is no memory controller. */
static inline int make_cgroup(void)
{
	write_file("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	if (mkdir(CGROUP, 0755) && errno != EEXIST)
		return -1;
	return access(CGROUP "/memory.max", W_OK);
}

static inline void join_cgroup(void)
{
	if (write_file(CGROUP "/cgroup.procs", "0"))
		_exit(1);
}

/* Returns a number from a file with lines of "name number"; -1 if the file has no such line. */
static inline long value_of(const char *path, const char *name)
{
	char format[64], line[256];
	long value = -1, found;
	FILE *f;

	snprintf(format, sizeof(format), "%s%s%%ld", name, *name ? " " : "");
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, format, &found) == 1)
			value = found;
	if (f)
		fclose(f);
	return value;
}

/* The same of a file of the group. */
static inline long cgroup_value(const char *file, const char *name)
{
	char path[128];

	/* This read adds up what the CPUs have counted; memory.stat leaves out small changes. */
	value_of(CGROUP "/cpu.stat", "usage_usec");
	snprintf(path, sizeof(path), CGROUP "/%s", file);
	return value_of(path, name);
}

/* Write a number to a file of the group. */
static inline int set_cgroup(const char *file, long value)
{
	char path[128], number[32];

	snprintf(path, sizeof(path), CGROUP "/%s", file);
	snprintf(number, sizeof(number), "%ld", value);
	return write_file(path, number);
}

#endif /* TEXT_CGROUP_H */
