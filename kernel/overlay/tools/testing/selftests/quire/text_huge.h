/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The program that most tests of the text feature run, its file as a library, and what the
 * tests begin with. Include after harness.h.
 */
#ifndef TEXT_HUGE_H
#define TEXT_HUGE_H

#include "memory_block.h"
#include "text_program.h"

/* Three whole blocks of text; a mapping of the whole file has four. */
static const struct layout three_blocks = { .pages = 2049, .offset = PAGE, .fixed = true };
#define FILE_SIZE	(2050 * PAGE)
#define BLOCK_KB	((long)(BLOCK / 1024))

/* Compare memory of the text with what was written to the file. */
static inline bool text_is_right(const unsigned char *text, unsigned long first,
				 unsigned long last)
{
	static unsigned char page[PAGE];

	for (; first < last; first++) {
		text_page(page, first, three_blocks.pages);
		if (memcmp(page, text + first * PAGE, PAGE))
			return false;
	}
	return true;
}

static inline unsigned char *map_file(const char *path, size_t len)
{
	int fd = open(path, O_RDONLY);
	void *map = mmap(NULL, len, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);

	close(fd);
	return map == MAP_FAILED ? NULL : map;
}

static inline void read_pages(const volatile unsigned char *map, size_t len)
{
	for (size_t at = 0; at < len; at += PAGE)
		(void)map[at];
}

/* How many pages of the program's file are resident; -1 on errors. It is no use of its text. */
static inline long resident(const char *path)
{
	static unsigned char vec[FILE_SIZE / PAGE];
	int fd = open(path, O_RDONLY);
	void *map = mmap(NULL, FILE_SIZE, PROT_READ, MAP_SHARED, fd, 0);
	long pages = 0;

	close(fd);
	if (map == MAP_FAILED)
		return -1;
	if (mincore(map, FILE_SIZE, vec))
		pages = -1;
	for (unsigned long i = 0; i < FILE_SIZE / PAGE && pages >= 0; i++)
		pages += vec[i] & 1;
	munmap(map, FILE_SIZE);
	return pages;
}

/* Maps the program's file; then all of it is resident. */
static inline unsigned char *map_resident(const char *path)
{
	unsigned char *map = map_file(path, FILE_SIZE);

	if (map)
		read_pages(map, FILE_SIZE);
	return map;
}

/* Does a new mapping of the program's text show what was written to the file? */
static inline bool file_is_right(const char *path)
{
	unsigned char *map = map_file(path, FILE_SIZE);
	bool right = map && text_is_right(map + PAGE, 0, three_blocks.pages);

	if (map)
		munmap(map, FILE_SIZE);
	return right;
}

/* Maps the program's file as a library is mapped. */
static inline unsigned char *map_whole(const char *path)
{
	return map_file(path, FILE_SIZE);
}

/*
 * Maps a file until so many kB of it are mapped by PMD, and returns that mapping, or NULL. The
 * worker gives a file up if nothing more of it is read for a while, as may happen on a machine
 * with other work, until it is mapped again; @maps is increased by how often that was done.
 */
static inline unsigned char *map_until_huge(unsigned char *(*map)(const char *), const char *path,
					    long kb, int *maps)
{
	double end = seconds() + LIMIT_S;

	do {
		double round = seconds() + LIMIT_S / 8;
		unsigned char *found = map(path);

		if (!found)
			return NULL;
		++*maps;
		do {
			read_pages(found, FILE_SIZE);
			if (pmd_mapped(0, path) == kb)
				return found;
			usleep(20000);
		} while (seconds() < round);
		munmap(found, FILE_SIZE);
	} while (seconds() < end);
	print_counters();
	return NULL;
}

/* Maps the program's file as a library is mapped, and waits until its blocks are huge. */
static inline unsigned char *map_huge(const char *path)
{
	int maps = 0;

	return map_until_huge(map_whole, path, 4 * BLOCK_KB, &maps);
}

static inline int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY), ret;

	if (fd < 0)
		return -1;
	ret = write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
	close(fd);
	return ret;
}

/* Each case begins with this: nothing of an earlier case is queued. */
static inline int fresh_program(const char *path)
{
	return set("enabled", "0") || defaults() || make_program(path, &three_blocks);
}

/* The first line of a file of the kernel. Returns 0, or -1. */
static inline int read_word(const char *path, char *word, size_t len)
{
	FILE *f = fopen(path, "r");
	bool good = f && fgets(word, len, f);

	if (f)
		fclose(f);
	if (good)
		word[strcspn(word, "\n")] = 0;
	return good ? 0 : -1;
}

/* The frame of a page that we map; 0 if there is none. */
static inline unsigned long frame_of(const void *at)
{
	int fd = open("/proc/self/pagemap", O_RDONLY);
	uint64_t entry = 0;

	if (pread(fd, &entry, sizeof(entry), (unsigned long)at / PAGE * sizeof(entry)) !=
	    sizeof(entry) || !(entry >> 63))
		entry = 0;
	close(fd);
	return entry & ((1UL << 55) - 1);
}

/* Takes the movable memory block that holds a page offline; returns its number, or -1. */
static inline long offline(const void *at)
{
	unsigned long size = memory_block_size();
	long nr;

	if (!size)
		return -1;
	nr = frame_of(at) * PAGE / size;
	if (!memory_block_reads(nr, "valid_zones", "Movable") || take_block_offline(nr))
		return -1;
	return nr;
}

/* Takes the huge pages that would be allocated next, and keeps them until the program ends. */
static inline void hold_memory(void)
{
	const size_t size = 32 * BLOCK;
	char *map = mmap(NULL, size + BLOCK, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	madvise(map, size + BLOCK, MADV_HUGEPAGE);
	for (size_t at = 0; at < size; at += BLOCK / 2)
		map[at] = 1;
}

/* A number from /proc/meminfo, in kB. */
static inline long meminfo(const char *name)
{
	FILE *f = fopen("/proc/meminfo", "r");
	long value = -1, found;
	char line[128];

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, strlen(name)) && sscanf(strchr(line, ':'), ": %ld", &found) == 1)
			value = found;
	if (f)
		fclose(f);
	return value;
}

/* How many results about a block the worker has come to. */
static inline long worker_results(void)
{
	return stat_of("collapsed_blocks") + stat_of("fallback_limit") + stat_of("fallback_cold") +
		stat_of("fallback_busy") + stat_of("fallback_nomem");
}

#define INJECT "/sys/kernel/debug/fail_page_alloc/"

/* Makes allocations of a block's order fail, as with fragmented memory; "0" ends that. */
static inline int fail_huge_pages(const char *probability)
{
	return write_file(INJECT "ignore-gfp-wait", "N") |
		write_file(INJECT "ignore-gfp-highmem", "N") |
		write_file(INJECT "min-order", "9") | write_file(INJECT "times", "-1") |
		write_file(INJECT "verbose", "0") | write_file(INJECT "probability", probability);
}

/* Runs the cases on an ext4 of their own. Returns the program's exit status. */
static inline int test_on_ext4(int argc, char **argv, const char *image, const char *folder)
{
	int ret;

	if (!access(FEATURE "enabled", W_OK) && make_fs(image, folder, 64)) {
		printf("1..0 # SKIP cannot mount ext4 on a loop device\n");
		return KSFT_SKIP;
	}
	ret = test_harness_run(argc, argv);
	remove_fs(image, folder);
	return ret;
}

#endif /* TEXT_HUGE_H */
