/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The program's file, read as a stream while it is queued, so that memory is set aside for its
 * blocks. Include after text_huge.h, and define PROGRAM.
 */
#ifndef TEXT_STREAM_H
#define TEXT_STREAM_H

#define FILE_PAGES	(FILE_SIZE / PAGE)
#define BLOCKS		4	/* of the file */

/*
 * Begins with a new inode, which was never queued, and on one CPU, because what is set aside is of
 * one node. Returns 0, or -1.
 */
static inline int begin(void)
{
	cpu_set_t cpu;

	CPU_ZERO(&cpu);
	CPU_SET(sched_getcpu(), &cpu);
	unlink(PROGRAM);
	return sched_setaffinity(0, sizeof(cpu), &cpu) || fresh_program(PROGRAM) ? -1 : 0;
}

/* Queues the file of @len bytes, for longer than it takes to read it. Returns 0, or -1. */
static inline int queue_file(size_t len)
{
	void *map;

	if (set("delay_ms", "60000"))
		return -1;
	map = map_file(PROGRAM, len);
	return map ? munmap(map, len) : -1;
}

/* Reads a part of the file as a stream. Returns 0, or -1. */
static inline int read_stream(unsigned long first, unsigned long last)
{
	static unsigned char buf[16 * PAGE];
	int fd = open(PROGRAM, O_RDONLY), ret = 0;
	unsigned long n;

	for (; first < last && !ret; first += n) {
		n = last - first < 16 ? last - first : 16;
		ret = pread(fd, buf, n * PAGE, first * PAGE) == (ssize_t)(n * PAGE) ? 0 : -1;
	}
	close(fd);
	return ret;
}

static inline int read_all(void)
{
	return read_stream(0, FILE_PAGES);
}

/* What was counted before the case. */
static long collapsed, promoted;

/*
 * Maps the file, and waits until so many blocks have become huge in this case. Nobody may touch the
 * text meanwhile: a block in which somebody faults just then is copied. Only a file that is queued
 * anew is worked on with the new delay; the first block's place goes back, and it is copied.
 * Returns the mapping, or NULL.
 */
static inline unsigned char *promote(int blocks)
{
	unsigned char *map;

	if (set("enabled", "0") || set("delay_ms", "0") || set("enabled", "1"))
		return NULL;
	map = map_whole(PROGRAM);
	if (!map || !wait_stat("collapsed_blocks", collapsed + blocks))
		return NULL;
	read_pages(map, FILE_SIZE);
	return pmd_mapped(0, PROGRAM) == blocks * BLOCK_KB ? map : NULL;
}

/*
 * Have so many blocks become huge, so many of them with no copy, and is the text right? The worker
 * counts a block after it has become visible.
 */
static inline bool is_huge(const unsigned char *map, long blocks, long not_copied)
{
	return wait_stat("collapsed_blocks", collapsed + blocks) &&
		wait_stat("promoted_blocks", promoted + not_copied) &&
		stat_of("collapsed_blocks") == collapsed + blocks &&
		stat_of("promoted_blocks") == promoted + not_copied &&
		text_is_right(map + PAGE, 0, three_blocks.pages);
}

#endif /* TEXT_STREAM_H */
