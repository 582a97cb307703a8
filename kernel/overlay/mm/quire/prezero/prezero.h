/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of prezero share: prezero.c keeps the marks, scrub.c makes
 * them, used.c knows what memory has been in use, hugetlb.c does all of this for
 * hugetlb's pool, engine.c and dma.c zero the memory for scrub.c, check.c checks
 * the marks, prezero_test.c tests what needs no guest.
 */
#ifndef _MM_QUIRE_PREZERO_H
#define _MM_QUIRE_PREZERO_H

#include <linux/errno.h>
#include <linux/mmzone.h>
#include <linux/percpu.h>

#include "math.h"
#include "../core/quire.h"

/* Indices into quire_prezero_counts, in the order of prezero_counter_names. */
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
	PREZERO_LOST_MERGED,
	PREZERO_LOST_DRAINED,
	PREZERO_LOST_TAKEN,
	PREZERO_SKIPPED_BUSY,
	PREZERO_SKIPPED_LOW,
	PREZERO_SKIPPED_UNUSED,
	PREZERO_ENGINE_PAGES,
	PREZERO_ENGINE_FAILURES,
	PREZERO_ENGINE_DROPS,
	PREZERO_QUARANTINED_PAGES,
	PREZERO_HUGETLB_ZEROED,
	PREZERO_HUGETLB_SCRUBBED,
	PREZERO_HUGETLB_HITS,
	PREZERO_HUGETLB_MISSES,
	PREZERO_HUGETLB_WASTED,
	PREZERO_HUGETLB_LOST,
	PREZERO_HUGETLB_INTERRUPTED,
	PREZERO_NR_COUNTERS,
};

DECLARE_PER_CPU(unsigned long [PREZERO_NR_COUNTERS], quire_prezero_counts);

static inline void prezero_count(enum prezero_counter counter, long delta)
{
	this_cpu_add(quire_prezero_counts[counter], delta);
}

/**
 * struct prezero_zone - what a zone holds
 * @pages: (z) pages in marked blocks of its buddy lists
 * @blocks: (z) marked blocks by order
 * @huge: (z) those of them that are movable and hold a huge page
 * @closed: (Z) how many strippers the zone has; nothing is marked while it is not 0
 * @isolates: (Z) the holder of zone->lock isolates blocks and will put them back unused
 * @sated: (Z) kscrubd is to be woken when the zone falls below its share
 *
 * Key: Z zone->lock; z zone->lock, but read without it where a stale value only
 * costs time.
 */
struct prezero_zone {
	unsigned long pages;
	unsigned long blocks[NR_PAGE_ORDERS];
	unsigned long huge;
	unsigned int closed;
	bool isolates;
	bool sated;
};

/**
 * struct prezero_report - what a check has found
 * @marked: pages in marked blocks of the buddy lists
 * @dirty: marked blocks, or pieces of 2 MB of hugetlb's folios, that are not zero
 * @miscounted: by how many pages the counts are wrong
 * @hugetlb: pages in free folios of hugetlb that count as zero
 */
struct prezero_report {
	unsigned long marked;
	unsigned long dirty;
	unsigned long miscounted;
	unsigned long hugetlb;
};

extern struct quire_feature quire_prezero_feature;
extern unsigned int quire_prezero_verify;

/* kscrubd waits for a block of at least this order; NR_PAGE_ORDERS: it does not wait. */
extern unsigned int quire_prezero_lacks;

/* prezero.c */
struct prezero_zone *quire_prezero_zone(struct zone *zone);
void quire_prezero_mark(struct page *page, unsigned int order);
int quire_prezero_strip(void);
bool quire_prezero_is_zero(const void *start, size_t len);

/* scrub.c */
bool quire_prezero_zone_has_enough(struct zone *zone);
extern unsigned int quire_scrub_rate_mb;
extern unsigned int quire_scrub_sleep_ms;
extern unsigned int quire_scrub_unused;

int quire_prezero_scrub_start(void);
void quire_prezero_scrub_stop(void);
void quire_prezero_scrub_wake(void);
void quire_prezero_scrub_taken(struct zone *zone);
int quire_prezero_scrub_now(void);
void quire_prezero_scrub_halt(void);
void quire_prezero_scrub_go_on(void);
bool quire_prezero_scrub_halting(void);
void quire_prezero_scrub_look_again(void);
void quire_prezero_pm_event(unsigned long event);
int quire_prezero_scrub_init(void);

/* used.c */
bool quire_prezero_note_freed(unsigned long pfn, bool unused);
void quire_prezero_note_used(unsigned long pfn, unsigned long pages);
bool quire_prezero_all_used(unsigned long pfn, unsigned long pages);
unsigned long quire_prezero_next_freed(unsigned long pfn, unsigned long end);
unsigned long quire_prezero_next_used(unsigned long pfn, unsigned long end);
void quire_prezero_looked(unsigned long pfn);
void quire_prezero_look_again(void);
void quire_prezero_forget_used(unsigned long pfn, unsigned long pages);
void quire_prezero_forget_all_used(void);
int quire_prezero_used_init(void);

/**
 * struct quire_zero_engine - what zeroes free memory
 * @name: (C) its name in the knob
 * @transfer: (S) most bytes of one transfer, a power of two
 * @start: (C) get ready; may sleep; 0, or -errno and the engine is not used. May be NULL.
 * @stop: (C) the engine is no longer used and has no block under way. May be NULL.
 * @zero: (C) zero a block and return when that is done; may sleep; several tasks may call
 *	it at once. 0: the block is zero. -EINPROGRESS: the engine may write to the
 *	block at any time from now on, forever. Other errors: the block may hold
 *	anything, but the engine has let go of it.
 * @distrust: (C) the engine reported a block as done that was not, so its writes may still
 *	come; it must not be started again. May be NULL.
 *
 * Key: C constant; S set by @start, constant while the engine is in use.
 *
 * An engine is not trusted: see engine.c.
 */
struct quire_zero_engine {
	const char *name;
	size_t transfer;
	int (*start)(struct quire_zero_engine *engine);
	void (*stop)(struct quire_zero_engine *engine);
	int (*zero)(struct quire_zero_engine *engine, struct page *page, unsigned int order);
	void (*distrust)(struct quire_zero_engine *engine);
};

/* engine.c */
extern unsigned int quire_prezero_engine_timeout_ms;
extern struct quire_zero_engine quire_prezero_cpu_engine;

void quire_prezero_clear(void *start, size_t len);
bool quire_prezero_zero(struct page *page, unsigned int order);
int quire_prezero_engine_try(struct quire_zero_engine *engine, struct page *page,
			     unsigned int order);
const char *quire_prezero_engine_name(void);
int quire_prezero_engine_choose(const char *name);

/* hugetlb.c */
#ifdef CONFIG_HUGETLB_PAGE
long quire_prezero_hugetlb_scrub(int nid);
bool quire_prezero_hugetlb_idle(int nid);
void quire_prezero_hugetlb_look_again(void);
void quire_prezero_hugetlb_abandon(void);
void quire_prezero_hugetlb_switch(bool on);
void quire_prezero_hugetlb_reset(bool on);
void quire_prezero_hugetlb_check(struct prezero_report *report);
int quire_prezero_hugetlb_init(void);
#else
static inline long quire_prezero_hugetlb_scrub(int nid)
{
	return -ENOENT;
}

static inline bool quire_prezero_hugetlb_idle(int nid)
{
	return true;
}

static inline void quire_prezero_hugetlb_look_again(void)
{
}

static inline void quire_prezero_hugetlb_abandon(void)
{
}

static inline void quire_prezero_hugetlb_switch(bool on)
{
}

static inline void quire_prezero_hugetlb_reset(bool on)
{
}

static inline void quire_prezero_hugetlb_check(struct prezero_report *report)
{
}

static inline int quire_prezero_hugetlb_init(void)
{
	return 0;
}
#endif

/* dma.c */
extern unsigned int quire_prezero_trust_stop;
extern struct quire_zero_engine quire_prezero_dma_engine;

#endif /* _MM_QUIRE_PREZERO_H */
