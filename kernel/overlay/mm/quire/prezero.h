/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of prezero share: prezero.c keeps the marks, prezero_scrub.c
 * makes them, prezero_check.c proves them, prezero_test.c tests the arithmetic.
 */
#ifndef _MM_QUIRE_PREZERO_H
#define _MM_QUIRE_PREZERO_H

#include <linux/minmax.h>
#include <linux/mmzone.h>
#include <linux/percpu.h>

#include "quire.h"

/* Indices into prezero_counts; the order of prezero_counter_names. */
enum prezero_counter {
	PREZERO_ZEROED_PAGES,
	PREZERO_SCRUBBED_PAGES,
	PREZERO_HIT_ORDER0,
	PREZERO_HIT_LARGE,
	PREZERO_HIT_HUGE,
	PREZERO_MISS_ORDER0,
	PREZERO_MISS_LARGE,
	PREZERO_MISS_HUGE,
	PREZERO_WASTED_PAGES,
	PREZERO_LOST_PAGES,
	PREZERO_SKIPPED_BUSY,
	PREZERO_SKIPPED_LOW,
	PREZERO_NR_COUNTERS,
};

DECLARE_PER_CPU(unsigned long [PREZERO_NR_COUNTERS], prezero_counts);

static inline void prezero_count(enum prezero_counter counter, long delta)
{
	this_cpu_add(prezero_counts[counter], delta);
}

/**
 * struct prezero_zone - what a zone holds
 * @pages: pages in marked blocks of its buddy lists
 * @blocks: marked blocks by order
 * @closed: by how many the zone is being stripped; nothing gets a mark then
 * @isolates: the holder of zone->lock isolates blocks that come back as they are
 *
 * Under zone->lock; read without it where a stale value only costs time.
 */
struct prezero_zone {
	unsigned long pages;
	unsigned long blocks[NR_PAGE_ORDERS];
	unsigned int closed;
	bool isolates;
};

extern struct quire_feature prezero_feature;
extern unsigned int prezero_verify;

/* prezero.c */
struct prezero_zone *prezero_zone(struct zone *zone);
void prezero_mark(struct page *page, unsigned int order);
int prezero_strip(void);
bool prezero_is_zero(const void *start, size_t len);

/* prezero_scrub.c */
extern unsigned int scrub_order_min;
extern unsigned int scrub_rate_mb;
extern unsigned int scrub_sleep_ms;

int prezero_scrub_start(void);
void prezero_scrub_stop(void);
int prezero_scrub_now(void);
void prezero_pm_event(unsigned long event);
int prezero_scrub_init(void);

/**
 * prezero_share - pages that are @permil thousandths of a zone
 * @managed: pages of the zone
 * @permil: 0 to 1000
 */
static inline unsigned long prezero_share(unsigned long managed, unsigned int permil)
{
	return managed / 1000 * permil + managed % 1000 * permil / 1000;
}

/**
 * prezero_active - is a zone to be scrubbed; the hysteresis of scrub_start/stop
 * @active: was it so far
 * @zeroed: its zeroed pages
 * @managed: its pages
 * @start: permil below which scrubbing starts
 * @stop: permil at which it ends; less than @start counts as @start
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

#endif /* _MM_QUIRE_PREZERO_H */
