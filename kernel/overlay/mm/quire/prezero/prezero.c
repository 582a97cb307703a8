// SPDX-License-Identifier: GPL-2.0
/*
 * Pre-zeroed free pages: the marks, their accounting and their removal.
 *
 * The idea of a daemon that zeroes free memory ahead of the faults that need
 * it, and the names scrub_start, scrub_stop and scrub_load, are from the
 * prezeroing work of 2004 and 2005. That work kept two sets of free lists; here
 * there is one set, and a flag: see include/linux/quire/prezero.h for where the
 * flag is valid.
 *
 * Locking: zone->lock protects the marks on buddy lists and struct prezero_zone,
 * the pcp lock protects the marks on a pcp list. PG_zeroed is set and cleared with
 * non-atomic operations, as PG_reported is. A drain holds cpus_read_lock() and,
 * inside it, zone_pcp_disable()'s mutex, as CPU hotplug does.
 *
 * Lifetime: prezero_zones is allocated at boot and never freed. The first start
 * enables quire_prezero_marks_key. A drain disables it, after every list has been
 * stripped and every allocation that took a page before that has finished.
 *
 * Undo: a mark is only a hint, so a drain clears all marks and touches no page's
 * contents. While a zone is stripped it is closed: nothing in it gets a mark.
 * Otherwise an allocation that splits a marked block could put marked halves on
 * lists that have been stripped already.
 *
 * Accounting: a page whose mark is removed counts in lost_taken until it is marked
 * again, handed out, or known to be lost otherwise. So the code that takes marked
 * blocks needs no hooks: what remains in lost_taken was taken by compaction,
 * isolation, memory failure, hotplug and page reporting.
 */
#define pr_fmt(fmt) "quire: prezero: " fmt

#include <linux/cpu.h>
#include <linux/kasan.h>
#include <linux/quire/prezero.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "../../internal.h"
#include "prezero.h"

#define CREATE_TRACE_POINTS
#include <trace/events/quire_prezero.h>

/* Blocks examined in one hold of zone->lock, and tries before the last. */
#define STRIP_BATCH	1024UL
#define STRIP_TRIES	3

DEFINE_STATIC_KEY_FALSE(quire_prezero_key);
DEFINE_STATIC_KEY_FALSE(quire_prezero_marks_key);

DEFINE_PER_CPU(unsigned long [PREZERO_NR_COUNTERS], quire_prezero_counts);

/* Debug kernels check every page that is handed out as zero. */
unsigned int quire_prezero_verify __read_mostly = IS_ENABLED(CONFIG_DEBUG_VM);

unsigned int quire_prezero_lacks __read_mostly = NR_PAGE_ORDERS;

static struct prezero_zone *prezero_zones __ro_after_init;

/**
 * quire_prezero_zone - what a zone holds
 * @zone: the zone
 *
 * Context: any; see struct prezero_zone for its lock.
 * Return: the zone's counts.
 */
struct prezero_zone *quire_prezero_zone(struct zone *zone)
{
	return &prezero_zones[zone_to_nid(zone) * MAX_NR_ZONES + zone_idx(zone)];
}

static void account(struct page *page, unsigned int order, int sign)
{
	struct zone *zone = page_zone(page);
	struct prezero_zone *z = quire_prezero_zone(zone);

	lockdep_assert_held(&zone->lock);
	/* All are read without the lock, too. */
	WRITE_ONCE(z->pages, z->pages + sign * (1L << order));
	WRITE_ONCE(z->blocks[order], z->blocks[order] + sign);
	if (order >= pageblock_order && get_pageblock_migratetype(page) == MIGRATE_MOVABLE)
		WRITE_ONCE(z->huge, z->huge + sign);
	prezero_count(PREZERO_ZEROED_PAGES, sign * (1L << order));
	if (unlikely(z->sated) && sign < 0)
		quire_prezero_scrub_taken(zone);
}

/* Pages counted as taken were not: they are marked or in use, or lost for reason @why. */
static void not_taken(unsigned long pages)
{
	prezero_count(PREZERO_LOST_TAKEN, -pages);
}

static void lost(enum prezero_counter why, unsigned long pages)
{
	not_taken(pages);
	prezero_count(why, pages);
}

/* Returns false, and does nothing, in a closed zone. */
static bool mark(struct page *page, unsigned int order, int mt)
{
	struct zone *zone = page_zone(page);

	if (quire_prezero_zone(zone)->closed)
		return false;
	__SetPageZeroed(page);
	list_move_tail(&page->buddy_list, &zone->free_area[order].free_list[mt]);
	account(page, order, 1);
	return true;
}

void __quire_prezero_unmark(struct page *page, unsigned int order)
{
	__ClearPageZeroed(page);
	account(page, order, -1);
	prezero_count(PREZERO_LOST_TAKEN, 1L << order);
}

void __quire_prezero_take_pcp(struct page *page, unsigned int order)
{
	__ClearPageZeroed(page);
	prezero_count(PREZERO_LOST_TAKEN, 1L << order);
}

void __quire_prezero_moved(struct page *page, int from, int to)
{
	struct zone *zone = page_zone(page);
	struct prezero_zone *z = quire_prezero_zone(zone);

	lockdep_assert_held(&zone->lock);
	WRITE_ONCE(z->huge, z->huge + (to == MIGRATE_MOVABLE) - (from == MIGRATE_MOVABLE));
}

void __quire_prezero_freed(struct page *page, unsigned int order, int mt, unsigned int marked,
			   bool unused)
{
	struct zone *zone = page_zone(page);

	lockdep_assert_held(&zone->lock);
	if (marked != 1U << order) {
		/* Before the wakeup: kscrubd might leave the block out. */
		bool used = quire_prezero_note_freed(page_to_pfn(page), unused);

		if (marked)
			lost(PREZERO_LOST_MERGED, marked);
		/* It went to the tail, where zeroed_of() looks for zeroed blocks. */
		if (unused && quire_prezero_zone(zone)->blocks[order])
			list_move(&page->buddy_list, &zone->free_area[order].free_list[mt]);
		if (order >= READ_ONCE(quire_prezero_lacks) &&
		    (used || READ_ONCE(quire_scrub_unused)))
			quire_prezero_scrub_wake();
	} else if (mark(page, order, mt)) {
		not_taken(marked);
	} else {
		lost(PREZERO_LOST_DRAINED, marked);
	}
}

void __quire_prezero_split(struct page *page, unsigned int low,
			   unsigned int high, int mt)
{
	unsigned int order;

	/* With a mark, the allocated part could get on a pcp list. */
	if (quire_prezero_zone(page_zone(page))->closed) {
		lost(PREZERO_LOST_DRAINED, 1UL << high);
		return;
	}
	for (order = low; order < high; order++) {
		struct page *rest = page + (1UL << order);

		if (WARN_ON_ONCE(!PageBuddy(rest)))
			continue;
		mark(rest, order, mt);
		not_taken(1UL << order);
	}
	__SetPageZeroed(page);
	not_taken(1UL << low);
}

/**
 * quire_prezero_mark - a scrubbed block was put back on its list
 * @page: its head, on a buddy list
 * @order: its order
 *
 * Does nothing in a closed zone.
 *
 * Context: zone->lock is held, and has been since the block was put back.
 */
void quire_prezero_mark(struct page *page, unsigned int order)
{
	if (!mark(page, order, get_pageblock_migratetype(page)))
		return;
	prezero_count(PREZERO_SCRUBBED_PAGES, 1L << order);
	trace_prezero_scrubbed(page, order);
}

/*
 * Huge pages are movable, but for those of hugetlb where it cannot migrate them: what is zeroed of
 * other types is not for them.
 */
bool __quire_prezero_has_huge(struct zone *zone)
{
	return READ_ONCE(quire_prezero_zone(zone)->huge);
}

/*
 * Zeroed blocks are put at the tail, but compaction rotates the lists, so this looks at both
 * ends.
 */
static struct page *zeroed_of(struct zone *zone, unsigned int order, int mt)
{
	struct list_head *list = &zone->free_area[order].free_list[mt];
	struct page *page;

	if (!quire_prezero_zone(zone)->blocks[order] || list_empty(list))
		return NULL;
	page = list_last_entry(list, struct page, buddy_list);
	if (PageZeroed(page))
		return page;
	page = list_first_entry(list, struct page, buddy_list);
	return PageZeroed(page) ? page : NULL;
}

/* A block that is not zeroed, likewise. */
static struct page *dirty_of(struct zone *zone, unsigned int order, int mt)
{
	struct list_head *list = &zone->free_area[order].free_list[mt];
	struct page *page;

	if (list_empty(list))
		return NULL;
	page = list_first_entry(list, struct page, buddy_list);
	if (!PageZeroed(page))
		return page;
	page = list_last_entry(list, struct page, buddy_list);
	return PageZeroed(page) ? NULL : page;
}

/*
 * Free pages in blocks that are smaller than a huge page and not zeroed. Blocks of all migrate
 * types count: there is no count by type, and whatever is in pieces is missing for huge pages.
 */
static unsigned long small_dirty_pages(struct zone *zone)
{
	struct prezero_zone *z = quire_prezero_zone(zone);
	unsigned long pages = 0;
	unsigned int order;

	lockdep_assert_held(&zone->lock);
	for (order = 0; order < pageblock_order; order++)
		pages += (zone->free_area[order].nr_free - z->blocks[order]) << order;
	return pages;
}

/*
 * May a zeroed huge block be split while there are smaller blocks that are not zero? Only a
 * movable one: with other types an early split makes unmovable memory take over another
 * movable block earlier. And only as long as free memory is in large blocks: otherwise
 * programs that come and go would leave ever more of it in pieces.
 */
static bool spares_huge(struct zone *zone, int mt)
{
	return mt == MIGRATE_MOVABLE && quire_prezero_zone_has_enough(zone) &&
	       prezero_may_split(small_dirty_pages(zone), zone_page_state(zone, NR_FREE_PAGES));
}

/**
 * __quire_prezero_find - find the smallest zeroed block for a request
 * @zone: the zone
 * @order: of the request
 * @mt: the migrate type of the lists
 * @found: set to the order of the block
 *
 * The remainders of the block that was split last come first. While there are smaller blocks
 * that are not zero, a huge one is split only if the pool can spare it: zeroed huge blocks are
 * worth more than the clears of small pages.
 *
 * Context: zone->lock is held.
 * Return: the block, which is still on its list, or NULL.
 */
struct page *__quire_prezero_find(struct zone *zone, unsigned int order, int mt,
				  unsigned int *found)
{
	bool smaller = false;
	struct page *page;

	lockdep_assert_held(&zone->lock);
	if (!quire_prezero_zone(zone)->pages)
		return NULL;
	for (*found = order; *found < NR_PAGE_ORDERS; ++*found) {
		if (smaller && *found >= pageblock_order && !spares_huge(zone, mt))
			return NULL;
		page = zeroed_of(zone, *found, mt);
		if (page)
			return page;
		smaller |= order < pageblock_order &&
			   !list_empty(&zone->free_area[*found].free_list[mt]);
	}
	return NULL;
}

/**
 * __quire_prezero_find_dirty - find the smallest block that is not zeroed for a request
 * @zone: the zone
 * @order: of the request, which does not want zeroed memory
 * @mt: the migrate type of the lists
 * @found: set to the order of the block
 *
 * Context: zone->lock is held.
 * Return: the block, which is still on its list. NULL if the request's order has no zeroed
 * blocks, or there are no others.
 */
struct page *__quire_prezero_find_dirty(struct zone *zone, unsigned int order, int mt,
					unsigned int *found)
{
	struct page *page;

	lockdep_assert_held(&zone->lock);
	if (!quire_prezero_zone(zone)->blocks[order])
		return NULL;
	for (*found = order; *found < NR_PAGE_ORDERS; ++*found) {
		page = dirty_of(zone, *found, mt);
		if (page)
			return page;
	}
	return NULL;
}

bool __quire_prezero_isolates(struct zone *zone)
{
	return quire_prezero_zone(zone)->isolates;
}

/**
 * quire_prezero_is_zero - are all bytes zero
 * @start: aligned to a word
 * @len: a multiple of a word
 *
 * Not instrumented, because KASAN does not allow access to free memory.
 *
 * Context: any.
 * Return: true if all bytes are zero.
 */
__no_sanitize_address noinline
bool quire_prezero_is_zero(const void *start, size_t len)
{
	const unsigned long *word = start;
	const unsigned long *end = start + len;

	for (; word < end; word++)
		if (*word)
			return false;
	return true;
}

/* The three classes of requests: base pages, larger ones, and huge pages. */
static unsigned int class_of(unsigned int order)
{
	return !order ? 0 : order < pageblock_order ? 1 : 2;
}

/* A rough guess: would a request that may use zones up to @highest take from this zone? */
static bool zone_is_used(struct zone *zone, enum zone_type highest)
{
	return zone_page_state(zone, NR_FREE_PAGES) >
	       low_wmark_pages(zone) + zone->lowmem_reserve[highest];
}

gfp_t __quire_prezero_gfp(int nid, unsigned int order)
{
	enum zone_type highest = gfp_zone(GFP_HIGHUSER_MOVABLE);
	int i;

	/* With init_on_alloc the allocator clears it in any case, so its caller need not. */
	if (want_init_on_alloc(0))
		return __GFP_ZERO;
	/* A lower zone's pool is not for requests that a higher zone serves. */
	for (i = highest; i >= 0; i--) {
		struct zone *zone = &NODE_DATA(nid)->node_zones[i];

		if (!managed_zone(zone) || !zone_is_used(zone, highest))
			continue;
		if (order < pageblock_order ? READ_ONCE(quire_prezero_zone(zone)->pages) :
					      __quire_prezero_has_huge(zone))
			return __GFP_ZERO;
		break;
	}
	prezero_count(PREZERO_MISS_ORDER0 + class_of(order), 1);
	return 0;
}

/* After an inconsistency no mark is trusted; enabled=2 removes the marks. */
static bool trusted(void)
{
	return !READ_ONCE(quire_prezero_feature.broken);
}

/* With verify, checks memory that is about to be handed out as zero. */
static bool is_as_marked(struct page *page, unsigned int order)
{
	if (!READ_ONCE(quire_prezero_verify) ||
	    quire_prezero_is_zero(page_address(page), PAGE_SIZE << order))
		return true;
	quire_warn(&quire_prezero_feature, "page %#lx of order %u is marked but not zero\n",
		   page_to_pfn(page), order);
	return false;
}

bool __quire_prezero_take(struct page *page, unsigned int order, bool init)
{
	if (!PageZeroed(page)) {
		if (init) {
			prezero_count(PREZERO_MISS_ORDER0 + class_of(order), 1);
			trace_prezero_miss(page, order);
		}
		return false;
	}
	__ClearPageZeroed(page);
	if (!init || !trusted()) {
		prezero_count(PREZERO_WASTED_PAGES, 1L << order);
		trace_prezero_wasted(page, order);
		return false;
	}
	if (!is_as_marked(page, order))
		return false;
	prezero_count(PREZERO_HIT_ORDER0 + class_of(order), 1);
	trace_prezero_hit(page, order);
	return true;
}

static void strip_block(struct page *page, unsigned int order)
{
	if (!PageZeroed(page))
		return;
	__quire_prezero_unmark(page, order);
	lost(PREZERO_LOST_DRAINED, 1UL << order);
}

/*
 * zone->lock is held. Moves examined blocks to the other end of the list. Returns
 * how many it examined, @limit at most; 0 if no block of this order is marked, or the list is
 * empty.
 */
static unsigned long strip_some(struct zone *zone, unsigned int order, int mt, unsigned long limit)
{
	struct list_head *list = &zone->free_area[order].free_list[mt];
	unsigned long looked = 0;

	while (looked < limit && quire_prezero_zone(zone)->blocks[order] && !list_empty(list)) {
		struct page *page = list_last_entry(list, struct page, buddy_list);

		strip_block(page, order);
		list_move(&page->buddy_list, list);
		looked++;
	}
	return looked;
}

static void strip_lists(struct zone *zone)
{
	unsigned long left, looked;
	unsigned int order, mt;

	for_each_migratetype_order(order, mt) {
		left = READ_ONCE(zone->free_area[order].nr_free);
		do {
			spin_lock_irq(&zone->lock);
			looked = strip_some(zone, order, mt, min(left, STRIP_BATCH));
			spin_unlock_irq(&zone->lock);
			left -= looked;
			cond_resched_tasks_rcu_qs();
		} while (looked);
	}
}

/* Interrupts are off for long, but nothing can move. */
static void strip_lists_at_once(struct zone *zone)
{
	unsigned int order, mt;
	struct page *page;

	spin_lock_irq(&zone->lock);
	for_each_migratetype_order(order, mt)
		list_for_each_entry(page, &zone->free_area[order].free_list[mt], buddy_list)
			strip_block(page, order);
	spin_unlock_irq(&zone->lock);
}

/* Returns how many pages on the zone's buddy lists are marked. */
static unsigned long change_closed(struct zone *zone, int delta)
{
	struct prezero_zone *z = quire_prezero_zone(zone);
	unsigned long pages;

	spin_lock_irq(&zone->lock);
	z->closed += delta;
	pages = z->pages;
	spin_unlock_irq(&zone->lock);
	return pages;
}

/*
 * In a closed zone the number of marks only falls, but blocks move from one migrate
 * type's list to another's, so a walk that drops the lock may miss some. Once the
 * buddy lists have no marks, no marked page can get on a pcp list, and draining the
 * pcp lists clears the marks that were there. Returns how many pages stay marked.
 */
static unsigned long strip_zone(struct zone *zone)
{
	unsigned long left = change_closed(zone, 1);
	unsigned int tries;

	for (tries = 0; left && tries < STRIP_TRIES; tries++) {
		strip_lists(zone);
		left = change_closed(zone, 0);
	}
	if (left)
		strip_lists_at_once(zone);
	zone_pcp_disable(zone);
	zone_pcp_enable(zone);
	return change_closed(zone, -1);
}

/**
 * quire_prezero_strip - remove all marks
 *
 * An allocation that took its page before this call may still have to consume the
 * mark when this returns.
 *
 * Context: may sleep; nothing may scrub meanwhile; takes cpus_read_lock().
 * Return: 0, or -EBUSY after a warning if pages are counted that have no mark.
 */
int quire_prezero_strip(void)
{
	unsigned long left;
	struct zone *zone;
	int ret = 0;

	if (!static_key_enabled(&quire_prezero_marks_key))
		return 0;
	/* Nothing else drains the pcp lists of a CPU that is going offline. */
	cpus_read_lock();
	for_each_populated_zone(zone) {
		left = strip_zone(zone);
		if (!left)
			continue;
		quire_warn(&quire_prezero_feature, "%lu pages of zone %s stay marked\n",
			   left, zone->name);
		ret = -EBUSY;
	}
	cpus_read_unlock();
	quire_prezero_look_again();
	return ret;
}

static int prezero_drain(void)
{
	int ret = quire_prezero_strip();

	if (ret || !static_key_enabled(&quire_prezero_marks_key))
		return ret;
	/*
	 * The path from a free list to post_alloc_hook() does not sleep, but a task
	 * may be preempted or interrupted there.
	 */
	synchronize_rcu_tasks();
	synchronize_rcu();
	static_branch_disable(&quire_prezero_marks_key);
	return 0;
}

/* Returns why free memory cannot be kept zeroed on this machine, or NULL. */
static const char *unsupported(void)
{
	if (want_init_on_free())
		return "init_on_free has zeroed free memory already";
	if (page_poisoning_enabled())
		return "page_poison fills free memory";
	if (debug_pagealloc_enabled())
		return "debug_pagealloc unmaps free memory";
	if (kasan_hw_tags_enabled())
		return "free memory carries tags";
	return NULL;
}

static int prezero_start(void)
{
	const char *why = unsupported();
	int ret;

	if (why) {
		pr_info("stays off: %s\n", why);
		return -EOPNOTSUPP;
	}
	/* While there may be marks, what was freed before this start still counts. */
	if (!static_key_enabled(&quire_prezero_marks_key))
		quire_prezero_forget_all_used();
	static_branch_enable(&quire_prezero_marks_key);
	ret = quire_prezero_scrub_start();
	if (ret)
		prezero_drain();
	return ret;
}

/* The new value may give kscrubd blocks to look for. */
static ssize_t blocks_store(struct kobject *kobj, struct kobj_attribute *attr,
			    const char *buf, size_t len)
{
	ssize_t ret = quire_uint_store(kobj, attr, buf, len);

	if (ret < 0)
		return ret;
	/* A scan with the old value may be about to say that it has looked. */
	quire_prezero_scrub_halt();
	quire_prezero_hugetlb_abandon();
	quire_prezero_scrub_look_again();
	quire_prezero_scrub_go_on();
	quire_prezero_scrub_wake();
	return ret;
}

static ssize_t scrub_now_store(struct kobject *kobj, struct kobj_attribute *attr,
			       const char *buf, size_t len)
{
	int ret;

	if (!sysfs_streq(buf, "1"))
		return -EINVAL;
	ret = quire_prezero_scrub_now();
	return ret ? ret : len;
}

/* Marked blocks by order, from order 0 on, one line a zone, as in /proc/buddyinfo. */
static ssize_t zeroed_blocks_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	struct zone *zone;
	ssize_t len = 0;

	for_each_populated_zone(zone) {
		unsigned int order;

		len += sysfs_emit_at(buf, len, "Node %d, zone %8s ", zone_to_nid(zone), zone->name);
		for (order = 0; order < NR_PAGE_ORDERS; order++)
			len += sysfs_emit_at(buf, len, "%6lu ",
					     READ_ONCE(quire_prezero_zone(zone)->blocks[order]));
		len += sysfs_emit_at(buf, len, "\n");
	}
	return len;
}

static ssize_t engine_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", quire_prezero_engine_name());
}

static ssize_t engine_store(struct kobject *kobj, struct kobj_attribute *attr,
			    const char *buf, size_t len)
{
	int ret = quire_prezero_engine_choose(buf);

	return ret ? ret : len;
}

QUIRE_ATTR_WO(scrub_now);
QUIRE_ATTR_RO(zeroed_blocks);
QUIRE_ATTR_RW(engine);
static struct quire_uint_attr scrub_order_min_knob = {
	.attr = __ATTR(scrub_order_min, 0644, quire_uint_show, blocks_store),
	.value = &quire_scrub_order_min, .min = 0, .max = MAX_PAGE_ORDER,
};
static struct quire_uint_attr scrub_unused_knob = {
	.attr = __ATTR(scrub_unused, 0644, quire_uint_show, blocks_store),
	.value = &quire_scrub_unused, .min = 0, .max = 1,
};
QUIRE_UINT_KNOB(rate_mb_per_second, quire_scrub_rate_mb, 0, 1000000);
QUIRE_UINT_KNOB(sleep_milliseconds, quire_scrub_sleep_ms, 10, 60000);
QUIRE_UINT_KNOB(verify, quire_prezero_verify, 0, 1);
/* Emulated devices take seconds for what others do in microseconds. */
QUIRE_UINT_KNOB(engine_timeout_milliseconds, quire_prezero_engine_timeout_ms, 1, 60000);
QUIRE_UINT_KNOB(trust_engine_stop, quire_prezero_trust_stop, 0, 1);

static const struct attribute * const prezero_knobs[] = {
	&scrub_now_knob.attr,
	&zeroed_blocks_knob.attr,
	&scrub_order_min_knob.attr.attr,
	&scrub_unused_knob.attr.attr,
	&rate_mb_per_second_knob.attr.attr,
	&sleep_milliseconds_knob.attr.attr,
	&verify_knob.attr.attr,
	&engine_knob.attr,
	&engine_timeout_milliseconds_knob.attr.attr,
	&trust_engine_stop_knob.attr.attr,
	NULL
};

static const char * const prezero_counter_names[] = {
	[PREZERO_ZEROED_PAGES] = "zeroed_pages",
	[PREZERO_SCRUBBED_PAGES] = "scrubbed_pages",
	[PREZERO_HIT_ORDER0] = "hit_order0",
	[PREZERO_HIT_LARGE] = "hit_large",
	[PREZERO_HIT_HUGE] = "hit_huge",
	[PREZERO_MISS_ORDER0] = "miss_order0",
	[PREZERO_MISS_LARGE] = "miss_large",
	[PREZERO_MISS_HUGE] = "miss_huge",
	[PREZERO_WASTED_PAGES] = "wasted_pages",
	[PREZERO_LOST_MERGED] = "lost_merged",
	[PREZERO_LOST_DRAINED] = "lost_drained",
	[PREZERO_LOST_TAKEN] = "lost_taken",
	[PREZERO_SKIPPED_BUSY] = "skipped_busy",
	[PREZERO_SKIPPED_LOW] = "skipped_low_memory",
	[PREZERO_SKIPPED_UNUSED] = "skipped_unused",
	[PREZERO_ENGINE_PAGES] = "engine_pages",
	[PREZERO_ENGINE_FAILURES] = "engine_failures",
	[PREZERO_ENGINE_DROPS] = "engine_drops",
	[PREZERO_QUARANTINED_PAGES] = "quarantined_pages",
	[PREZERO_HUGETLB_ZEROED] = "hugetlb_zeroed_pages",
	[PREZERO_HUGETLB_SCRUBBED] = "hugetlb_scrubbed_pages",
	[PREZERO_HUGETLB_HITS] = "hugetlb_hits",
	[PREZERO_HUGETLB_MISSES] = "hugetlb_misses",
	[PREZERO_HUGETLB_WASTED] = "hugetlb_wasted_pages",
	[PREZERO_HUGETLB_LOST] = "hugetlb_lost_pages",
	[PREZERO_HUGETLB_INTERRUPTED] = "hugetlb_interrupted",
	[PREZERO_NR_COUNTERS] = NULL,
};

static const struct quire_counters prezero_counters = {
	.names = prezero_counter_names,
	.counts = (unsigned long __percpu *)quire_prezero_counts,
};

struct quire_feature quire_prezero_feature = {
	.name = "prezero",
	.key = &quire_prezero_key,
	.start = prezero_start,
	.stop = quire_prezero_scrub_stop,
	.drain = prezero_drain,
	.knobs = prezero_knobs,
	.counters = { &prezero_counters },
};

static int __init prezero_init(void)
{
	int ret;

	prezero_zones = kcalloc(nr_node_ids * MAX_NR_ZONES, sizeof(*prezero_zones), GFP_KERNEL);
	if (!prezero_zones)
		return -ENOMEM;
	ret = quire_prezero_used_init() ?: quire_prezero_hugetlb_init() ?:
	      quire_prezero_scrub_init();
	if (ret)
		return ret;
	return quire_register(&quire_prezero_feature);
}
late_initcall(prezero_init);
