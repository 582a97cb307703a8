/* SPDX-License-Identifier: GPL-2.0 */
/* Shared by the tests of the rmap feature: its switch, its counters, its checker. */
#ifndef RMAP_COMMON_H
#define RMAP_COMMON_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compat.h"

#define RMAP "/sys/kernel/mm/quire/rmap/"
#define RMAP_CHECK "/sys/kernel/debug/quire/rmap_check"
#define PAGE 4096UL

static inline uint64_t *word(void *base, unsigned int page)
{
	return (uint64_t *)((char *)base + page * PAGE);
}

static inline void *map(size_t pages)
{
	return mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* What the checker found; -1 if it is not built in. */
struct rmap_report {
	long borrowed, pages, ksm_pages, missing, chain_errors, longest_chain, unlinked, stale;
};

static inline int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t len = strlen(text);
	int err = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, len) != len)
		err = -errno;
	close(fd);
	return err;
}

static inline long read_number(const char *path)
{
	FILE *file = fopen(path, "r");
	long value = -1;

	if (!file)
		return -1;
	if (fscanf(file, "%ld", &value) != 1)
		value = -1;
	fclose(file);
	return value;
}

/* The number after a name in a file with lines of "name: number". */
static inline long field(const char *path, const char *name)
{
	FILE *file = fopen(path, "r");
	char line[256];
	long value = -1;

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)))
			value = strtol(line + strlen(name), NULL, 10);
	if (file)
		fclose(file);
	return value;
}

static inline long rmap_counter(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), RMAP "stats/%s", name);
	return read_number(path);
}

static inline void mount_debugfs(void)
{
	if (access("/sys/kernel/debug/quire", F_OK))
		mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
}

/*
 * Has the checker walk all processes; returns 0 if the reverse map is complete and the chains
 * are sound.
 */
static inline int rmap_check(struct rmap_report *report)
{
	static const struct {
		const char *name;
		size_t offset;
	} fields[] = {
		{ "borrowed", offsetof(struct rmap_report, borrowed) },
		{ "pages", offsetof(struct rmap_report, pages) },
		{ "ksm_pages", offsetof(struct rmap_report, ksm_pages) },
		{ "missing", offsetof(struct rmap_report, missing) },
		{ "chain_errors", offsetof(struct rmap_report, chain_errors) },
		{ "longest_chain", offsetof(struct rmap_report, longest_chain) },
		{ "unlinked", offsetof(struct rmap_report, unlinked) },
		{ "stale_migrations", offsetof(struct rmap_report, stale) },
	};
	struct rmap_report unused;
	char name[32];
	long value;
	FILE *file;

	if (!report)
		report = &unused;
	memset(report, -1, sizeof(*report));
	file = fopen(RMAP_CHECK, "r");
	if (!file)
		return errno == ENOENT ? 0 : -errno;
	while (fscanf(file, "%31s %ld", name, &value) == 2)
		for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
			if (!strcmp(name, fields[i].name))
				*(long *)((char *)report + fields[i].offset) = value;
	fclose(file);
	if (report->missing > 0 || report->chain_errors > 0 || report->unlinked > 0 ||
	    report->stale > 0) {
		fprintf(stderr, "# rmap_check: missing %ld, chain_errors %ld, unlinked %ld, stale %ld\n",
			report->missing, report->chain_errors, report->unlinked, report->stale);
		return -EUCLEAN;
	}
	return 0;
}

#define FORK_FEATURE "/sys/kernel/mm/quire/fork/"

/*
 * Makes fork share page tables between this process and its children, whatever their size and
 * however many areas reach into one. Returns how many were shared so far, or -1.
 */
static inline long share_tables(void)
{
	if (read_number(FORK_FEATURE "enabled") != 1 || write_text(FORK_FEATURE "mixed", "1") ||
	    write_text("/proc/self/quire", "1"))
		return -1;
	return read_number(FORK_FEATURE "stats/tables_shared");
}

/* Ends that; returns whether any table has been shared since. */
static inline bool shared_tables_since(long before)
{
	long now = read_number(FORK_FEATURE "stats/tables_shared");

	printf("# %ld tables were shared\n", now - before);
	return !write_text(FORK_FEATURE "mixed", "0") && before >= 0 && now > before;
}

/* Provides some swap, once per boot: 64 MiB of zram. Returns false if there is none. */
static inline bool have_swap(void)
{
	char line[128];
	FILE *file = fopen("/proc/swaps", "r");
	bool swap;

	swap = file && fgets(line, sizeof(line), file) && fgets(line, sizeof(line), file);
	if (file)
		fclose(file);
	if (swap)
		return true;
	/* The device may be from another test, which has switched its swap off. */
	write_text("/sys/block/zram0/reset", "1");
	if (write_text("/sys/block/zram0/disksize", "64M"))
		return false;
	return !system("mkswap /dev/zram0 >/dev/null 2>&1 && swapon /dev/zram0 2>/dev/null");
}

/*
 * Switches the feature on, with nothing deferred, so that the first write shows. Returns
 * whether all is well so far.
 */
static inline bool rmap_begin(void)
{
	mount_debugfs();
	return !write_text(RMAP "enabled", "1") && !write_text(RMAP "defer_faults", "0") &&
	       !rmap_check(NULL);
}

/*
 * @enabled is what it was before, or negative if there is no such feature. Returns whether all
 * is well.
 */
static inline bool rmap_end(long enabled)
{
	return enabled < 0 ||
	       (!rmap_check(NULL) && !write_text(RMAP "defer_faults", "32") &&
		!write_text(RMAP "enabled", enabled ? "1" : "0"));
}

#endif /* RMAP_COMMON_H */
