/* SPDX-License-Identifier: GPL-2.0 */
/*
 * prezero's arithmetic. It needs only max() and PAGE_SHIFT of the kernel, so that
 * selftests/quire/prezero_math.c can build it, too.
 */
#ifndef _MM_QUIRE_PREZERO_MATH_H
#define _MM_QUIRE_PREZERO_MATH_H

#ifdef __KERNEL__
#include <linux/minmax.h>
#include <linux/mm.h>
#endif

/**
 * prezero_share - pages that are @permil thousandths of a zone
 * @managed: pages of the zone
 * @permil: 0 to 1000
 *
 * Context: any.
 * Return: the number of pages.
 */
static inline unsigned long prezero_share(unsigned long managed, unsigned int permil)
{
	return managed / 1000 * permil + managed % 1000 * permil / 1000;
}

/**
 * prezero_active - whether to scrub a zone; the hysteresis of scrub_start/stop
 * @active: whether it was scrubbed so far
 * @zeroed: its zeroed pages
 * @managed: its pages
 * @start: permil below which scrubbing starts
 * @stop: permil at which it ends; less than @start counts as @start
 *
 * Context: any.
 * Return: whether to scrub the zone.
 */
static inline bool prezero_active(bool active, unsigned long zeroed,
				  unsigned long managed, unsigned int start,
				  unsigned int stop)
{
	if (active)
		return zeroed < prezero_share(managed, max(start, stop));
	return zeroed < prezero_share(managed, start);
}

/**
 * prezero_pause_ms - how long to rest after a batch to keep to a rate
 * @pages: pages of the batch
 * @rate: MB per second; 0 is no limit
 * @spent: milliseconds that the batch took
 *
 * Context: any.
 * Return: milliseconds.
 */
static inline unsigned int prezero_pause_ms(unsigned long pages, unsigned int rate,
					    unsigned int spent)
{
	unsigned long due;

	if (!rate)
		return 0;
	due = (pages << PAGE_SHIFT) / 1024 * 1000 / 1024 / rate;
	return due > spent ? due - spent : 0;
}

/**
 * prezero_may_split - may a zeroed huge block be split though smaller dirty blocks are free
 * @small: free pages of the zone in dirty blocks that are smaller than a huge page
 * @free: all its free pages
 *
 * Small blocks that are passed over again and again grow in number, at the price of huge
 * ones. A few do not matter.
 *
 * Context: any.
 * Return: whether small blocks make up at most a 32nd of free memory.
 */
static inline bool prezero_may_split(unsigned long small, unsigned long free)
{
	return small <= free / 32;
}

#endif /* _MM_QUIRE_PREZERO_MATH_H */
