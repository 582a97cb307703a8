/* SPDX-License-Identifier: GPL-2.0 */
/* Shared by the tests of prezero: its switches, its counters, and memory. */
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
 * One line of the checker's report. A missing line does not count as 0: the program ends. A
 * test that may run without a checker asks have_checker() first.
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

/* Maps memory that is aligned to huge pages; @advice is MADV_HUGEPAGE or MADV_NOHUGEPAGE. */
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

/* Checks that memory that was just mapped is zero, and gives it back dirty. */
static inline bool zero_until_used(char *start, size_t size)
{
	bool good;

	if (!start)
		return false;
	good = all_zero(start, size);
	memset(start, 0xa5, size);
	munmap(start, size);
	return good;
}

/* Checks that fresh memory is zero, and gives it back dirty. */
static inline bool fresh_is_zero(size_t size, int advice)
{
	return zero_until_used(map(size, advice), size);
}

/* The counts, by order, in a line of zeroed_blocks or /proc/buddyinfo. */
static inline char *counts_of(char *line)
{
	int head = 0;

	sscanf(line, "Node %*d, zone %*s%n", &head);
	if (!head) {
		fprintf(stderr, "cannot read %s", line);
		exit(1);
	}
	return line + head;
}

/* The number of marked blocks of an order, in all zones. */
static inline unsigned long zeroed_blocks(unsigned int order)
{
	FILE *file = fopen(FOLDER "zeroed_blocks", "r");
	unsigned long blocks = 0;
	char line[512];

	while (file && fgets(line, sizeof(line), file)) {
		char *at = counts_of(line);
		unsigned long value = 0;

		for (unsigned int i = 0; i <= order; i++)
			value = strtoul(at, &at, 10);
		blocks += value;
	}
	if (file)
		fclose(file);
	return blocks;
}

/*
 * Sets all as after a boot on bare metal, with the feature on and a kscrubd that does not start by
 * itself.
 */
static inline bool fresh_start(void)
{
	return !put(FOLDER "enabled", "2") && !put(SYSCTL "scrub_start", "0") &&
	       !put(SYSCTL "scrub_stop", "50") && !put(SYSCTL "scrub_load", "1") &&
	       !put(FOLDER "scrub_order_min", "9") && !put(FOLDER "rate_mb_per_second", "0") &&
	       !put(FOLDER "sleep_milliseconds", "10") && !put(FOLDER "verify", "1") &&
	       !put(FOLDER "engine", "cpu") && !put(FOLDER "scrub_unused", "1") &&
	       !put(FOLDER "enabled", "1");
}

/* Begins a test case of a fixture; ends it as skipped where it cannot run. */
#define PREZERO_SETUP() do {								\
	if (access(FOLDER "enabled", W_OK))						\
		SKIP(return, "no prezero, or not root");				\
	if (!have_checker())								\
		SKIP(return, "no checker (CONFIG_QUIRE_DEBUG), or no debugfs");		\
	ASSERT_TRUE(fresh_start());							\
	ASSERT_EQ(0UL, stat_of("zeroed_pages"));					\
} while (0)

/* Ends a test case. If a mark were wrong, the checker would have switched the feature off. */
#define PREZERO_TEARDOWN() do {								\
	EXPECT_EQ(0UL, checked("dirty_blocks"));					\
	EXPECT_EQ(0UL, checked("miscounted_pages"));					\
	EXPECT_FALSE(reads(FOLDER "state", "disabled_by_warning"));			\
	put(FOLDER "enabled", "2");							\
} while (0)

#endif
