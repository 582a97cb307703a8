/* SPDX-License-Identifier: GPL-2.0 */
/* What the tests of prezero share: its switches, its counters, and memory. */
#ifndef PREZERO_H
#define PREZERO_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FOLDER	"/sys/kernel/mm/quire/prezero/"
#define SYSCTL	"/proc/sys/vm/"
#define CHECK	"/sys/kernel/debug/quire/prezero_check"
#define MB	(1UL << 20)
#define HUGE	(2 * MB)
#define PAGE	4096UL

/* Returns 0 or the errno. */
static inline int put(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY), error = 0;

	if (fd < 0)
		return errno;
	if (write(fd, value, strlen(value)) < 0)
		error = errno;
	close(fd);
	return error;
}

static inline bool get(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY);
	ssize_t len = fd < 0 ? -1 : read(fd, buf, size - 1);

	if (fd >= 0)
		close(fd);
	if (len < 0)
		return false;
	buf[len] = 0;
	buf[strcspn(buf, "\n")] = 0;
	return true;
}

static inline bool reads(const char *path, const char *value)
{
	char buf[64];

	return get(path, buf, sizeof(buf)) && !strcmp(buf, value);
}

static inline unsigned long stat_of(const char *name)
{
	char path[128], buf[32];

	snprintf(path, sizeof(path), FOLDER "stats/%s", name);
	if (!get(path, buf, sizeof(buf))) {
		fprintf(stderr, "cannot read %s\n", path);
		exit(1);
	}
	return strtoul(buf, NULL, 10);
}

static inline bool have_checker(void)
{
	return !access(CHECK, R_OK);
}

/*
 * One line of the checker's report. A line that is not there is no 0: the program
 * ends. Who may run where there is no checker asks have_checker() first.
 */
static inline unsigned long checked(const char *name)
{
	char word[64];
	unsigned long value, found = 0;
	bool there = false;
	FILE *report = fopen(CHECK, "r");

	while (report && fscanf(report, "%63s %lu", word, &value) == 2)
		if (!strcmp(word, name)) {
			found = value;
			there = true;
		}
	if (report)
		fclose(report);
	if (!there) {
		fprintf(stderr, "cannot read %s of %s\n", name, CHECK);
		exit(1);
	}
	return found;
}

/* Memory that is aligned to huge pages; @advice is MADV_HUGEPAGE or MADV_NOHUGEPAGE. */
static inline char *map(size_t size, int advice)
{
	char *start, *aligned;

	start = mmap(NULL, size + HUGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (start == MAP_FAILED)
		return NULL;
	aligned = (char *)(((unsigned long)start + HUGE - 1) & ~(HUGE - 1));
	if (aligned > start)
		munmap(start, aligned - start);
	munmap(aligned + size, start + HUGE - aligned);
	madvise(aligned, size, advice);
	return aligned;
}

/* Touches each page by a write that leaves it zero, then looks at every byte. */
static inline bool all_zero(char *start, size_t size)
{
	unsigned long *word = (unsigned long *)start;
	size_t i, bad = 0;

	for (i = 0; i < size; i += PAGE)
		*(volatile char *)(start + i) = 0;
	for (i = 0; i < size / sizeof(*word); i++)
		bad += !!word[i];
	return !bad;
}

/* Fresh memory is to be zero; it is given back dirty. */
static inline bool fresh_is_zero(size_t size, int advice)
{
	char *start = map(size, advice);
	bool good;

	if (!start)
		return false;
	good = all_zero(start, size);
	memset(start, 0xa5, size);
	munmap(start, size);
	return good;
}

/* Marked blocks of an order, of all zones. */
static inline unsigned long zeroed_blocks(unsigned int order)
{
	FILE *file = fopen(FOLDER "zeroed_blocks", "r");
	unsigned long blocks = 0;
	char line[512];

	while (file && fgets(line, sizeof(line), file)) {
		unsigned long value = 0;
		char *at = line;
		int head = 0;

		sscanf(line, "Node %*d, zone %*s%n", &head);
		at += head;
		for (unsigned int i = 0; i <= order; i++)
			value = strtoul(at, &at, 10);
		blocks += value;
	}
	if (file)
		fclose(file);
	return blocks;
}

/* As if just booted, on, and with a kscrubd that does nothing of its own accord. */
static inline bool fresh_start(void)
{
	return !put(FOLDER "enabled", "2") && !put(SYSCTL "scrub_start", "0") &&
	       !put(SYSCTL "scrub_stop", "50") && !put(SYSCTL "scrub_load", "1") &&
	       !put(FOLDER "scrub_order_min", "9") && !put(FOLDER "rate_mb_per_second", "0") &&
	       !put(FOLDER "sleep_milliseconds", "10") && !put(FOLDER "verify", "1") &&
	       !put(FOLDER "engine", "cpu") &&
	       !put(FOLDER "enabled", "1");
}

#endif
