// SPDX-License-Identifier: GPL-2.0
/*
 * kscrubd/N: zeroes free memory of node N while the CPU has nothing better to do.
 *
 * A batch of blocks is isolated under zone->lock, as free page reporting does,
 * zeroed with no lock held and with stores that bypass the caches, and put back
 * and marked under zone->lock. A block that merged meanwhile is not marked.
 *
 * Locking: scrub_gate is held for reading over a batch, by kscrubd or by a
 * writer of scrub_now, and for writing to change scrub_running or
 * scrub_suspended, or after a change of the knobs that say which blocks a scan takes; so no
 * batch is under way when either flag has been changed, or goes by the old value of a knob.
 * scrub_gate is taken before zone->lock and never inside an allocation.
 *
 * Memory: a batch is up to 4 MB that nothing else can allocate for a moment. It
 * is only taken while the zone stays above its low watermark without it, and
 * without the free pages that are reserved for CMA. What is not zeroed yet goes
 * back when the zone falls below the watermark, or when a task waits for scrub_gate.
 *
 * Sleep: kscrubd looks at its zones every sleep_milliseconds while a zone has less
 * than its share and memory or time is short. When all zones have their share, or no
 * block to zero, it sleeps until it is woken: by a task that takes from a zone's
 * share (prezero_zone.sated), by free pages that merge to a large block that it would
 * take (quire_prezero_lacks), by memory that goes online, by a knob, or by a timeout. The
 * first two conditions are set under the zone->lock that decided them, and are tested
 * under it. The wakeup is an irq_work, because zone->lock must not be held around the
 * scheduler's locks. quire_prezero_scrub_wake() resets quire_prezero_lacks, which all zones
 * share, and then increments kscrubd_wakes. kscrubd reads kscrubd_wakes before it looks
 * at its zones, so it misses no wakeup that comes meanwhile.
 *
 * hugetlb: after its zones, kscrubd zeroes the node's free hugetlb pages (hugetlb.c), in
 * parts that take as long as a batch, under the same lock, rate and load limit. A wakeup
 * ends this after the part under way, so that a zone below its share does not wait.
 *
 * Progress: a pass over a zone ends after as many pages as the zone has, however
 * fast others use up the pool, so that other zones have their turn.
 *
 * Unused memory: with scrub_unused at 1, blocks are found on the free lists. With 0, most
 * blocks of a list may be unused. A walk over them would take long again and again, and
 * moving them out of its way would hide the zeroed blocks, which allocations look for at the
 * lists' ends only. So blocks are then found by address, from the record in used.c of where
 * memory was freed since the last look, and lists are left as they are.
 *
 * Hibernation: after a resume the struct pages are those of the image, but free
 * memory holds what the boot kernel left there. So marks are stripped, and no new
 * ones are made, from before the image is made until hibernation or resume is over.
 */
#define pr_fmt(fmt) "quire: prezero: " fmt

#include <linux/cpumask.h>
#include <linux/freezer.h>
#include <linux/irq_work.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/memory.h>
#include <linux/memory_hotplug.h>
#include <linux/quire/prezero.h>
#include <linux/rwsem.h>
#include <linux/sched/isolation.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/suspend.h>
#include <linux/sysctl.h>
#include <linux/wait.h>
#include <uapi/linux/sched/types.h>

#include "../../internal.h"
#include "prezero.h"

#define BATCH_BLOCKS	64
#define BATCH_PAGES	(1UL << MAX_PAGE_ORDER)
#define SCAN_LIMIT	256
/* Pages of hugetlb, at most, that are zeroed before the zones have their turn again. */
#define HUGETLB_PASS	(SZ_1G >> PAGE_SHIFT)
/* For changes that wake nobody: blocks that change their list, or a zone its size. */
#define LOOK_ANYWAY	(15 * 60 * HZ)

enum scrub_fate { SCRUB_ZEROED, SCRUB_LEFT, SCRUB_LOST };

/*
 * @skipped: the scan stopped before the end of some list, or of the record of freed memory.
 * @lacks: no block to zero was found; the next large block to appear wakes kscrubd.
 * @listed: the free lists were scanned, not the record.
 * @next: where the scan of the record goes on. Kept from batch to batch.
 * @found: a block was found since that scan began at the zone's start. Kept, too.
 */
struct scrub_batch {
	struct page *page[BATCH_BLOCKS];
	u8 order[BATCH_BLOCKS];
	enum scrub_fate fate[BATCH_BLOCKS];
	unsigned int blocks;
	unsigned long pages;
	bool skipped;
	bool lacks;
	bool listed;
	bool found;
	unsigned long next;
};

unsigned int quire_scrub_order_min __read_mostly = 9;
unsigned int quire_scrub_rate_mb;
unsigned int quire_scrub_sleep_ms = 200;
/* A virtual machine starts with 0: see used.c. */
unsigned int quire_scrub_unused __read_mostly = 1;

/* Permil of a zone; scrub_load is runnable tasks per CPU. */
static unsigned int scrub_start = 100;
static unsigned int scrub_stop = 300;
static unsigned int scrub_load = 1;

/* Key: G scrub_gate; A atomic; S changed by start and stop only, which are serialised. */
static DECLARE_RWSEM(scrub_gate);
static bool scrub_running;		/* (G) */
static bool scrub_suspended;		/* (G) */
static atomic_t scrub_waiters;		/* (A) tasks that wait for scrub_gate */

static struct task_struct **kscrubd __ro_after_init;	/* (S) by node */
static DECLARE_WAIT_QUEUE_HEAD(kscrubd_wait);
static atomic_t kscrubd_wakes;		/* (A) */

/* Movable memory first: faults want it, and it stays in one piece. */
static const u8 scrub_types[] = { MIGRATE_MOVABLE, MIGRATE_RECLAIMABLE, MIGRATE_UNMOVABLE };

static void scan_from_start(struct zone *zone, struct scrub_batch *batch)
{
	batch->next = zone->zone_start_pfn;
	batch->found = false;
}

/* Returns false when the batch is full or the zone has nothing to spare. */
static bool isolate_block(struct page *page, unsigned int order, struct scrub_batch *batch)
{
	if (PageZeroed(page) || PageReported(page))
		return true;
	if (batch->blocks == BATCH_BLOCKS || batch->pages + (1UL << order) > BATCH_PAGES)
		return false;
	if (!__isolate_free_page(page, order))
		return false;
	batch->page[batch->blocks] = page;
	batch->order[batch->blocks++] = order;
	batch->pages += 1UL << order;
	batch->found = true;
	return true;
}

/* Zeroed blocks are at the tail, so dirty blocks are at the head. Returns as isolate_block(). */
static bool isolate_from(struct zone *zone, unsigned int order, int mt,
			 struct scrub_batch *batch)
{
	struct list_head *list = &zone->free_area[order].free_list[mt];
	struct page *page, *next;
	unsigned int scanned = 0;

	list_for_each_entry_safe(page, next, list, buddy_list) {
		if (++scanned > SCAN_LIMIT) {
			/* This moves only the list's head: the next batch continues from here. */
			list_rotate_to_front(&page->buddy_list, list);
			batch->skipped = true;
			return true;
		}
		if (!isolate_block(page, order, batch))
			return false;
	}
	return true;
}

static bool isolate_listed(struct zone *zone, int order_min, struct scrub_batch *batch)
{
	unsigned int i;
	int order;

	for (i = 0; i < ARRAY_SIZE(scrub_types); i++)
		for (order = MAX_PAGE_ORDER; order >= order_min; order--)
			if (!isolate_from(zone, order, scrub_types[i], batch))
				return false;
	return true;
}

/*
 * Isolates what is not zero of the block of the highest order at batch->next, and then removes
 * it from the record: nothing is freed to this zone meanwhile. Adds to @looked the number of
 * places where it looked for a block. Returns as isolate_block().
 */
static bool isolate_at_next(struct zone *zone, unsigned int order_min,
			    struct scrub_batch *batch, unsigned int *looked)
{
	unsigned long pfn = batch->next, end = pfn + MAX_ORDER_NR_PAGES;
	bool ours = false;
	unsigned int order;

	for (; pfn < end; pfn += 1UL << order) {
		struct page *page = pfn_to_online_page(pfn);

		++*looked;
		order = order_min;
		/* The memory of other nodes' zones may be in between. */
		if (!page || data_race(page_zone(page)) != zone)
			continue;
		ours = true;
		if (!PageBuddy(page) || buddy_order(page) < order_min)
			continue;
		order = buddy_order(page);
		/* Not what is isolated, reserved or for CMA. */
		if (get_pageblock_migratetype(page) < MIGRATE_PCPTYPES &&
		    !isolate_block(page, order, batch))
			return false;
	}
	if (ours)
		quire_prezero_looked(batch->next);
	return true;
}

/* Is there a free block that is large enough and not zero? */
static bool has_dirty(struct zone *zone, unsigned int order)
{
	for (; order < NR_PAGE_ORDERS; order++)
		if (zone->free_area[order].nr_free > quire_prezero_zone(zone)->blocks[order])
			return true;
	return false;
}

/*
 * Scans the record of freed memory, in the order of addresses. Memory may be freed behind the
 * scan, and wakes nobody before a batch has found nothing. So the scan begins again at its end
 * until nothing is found from the start to the end. Returns as isolate_block().
 */
static bool isolate_used(struct zone *zone, int order_min, struct scrub_batch *batch)
{
	unsigned long end = zone_end_pfn(zone);
	unsigned int looked = 0;

	for (;;) {
		batch->next = quire_prezero_next_freed(batch->next, end);
		if (batch->next >= end)
			break;
		batch->skipped = looked >= SCAN_LIMIT;
		if (batch->skipped)
			return true;
		if (!isolate_at_next(zone, order_min, batch, &looked))
			return false;
		batch->next += MAX_ORDER_NR_PAGES;
	}
	batch->skipped = batch->found;
	if (!batch->skipped)
		prezero_count(PREZERO_SKIPPED_UNUSED, has_dirty(zone, order_min));
	scan_from_start(zone, batch);
	return true;
}

static void isolate_batch(struct zone *zone, struct scrub_batch *batch)
{
	int order_min = READ_ONCE(quire_scrub_order_min);
	struct prezero_zone *z = quire_prezero_zone(zone);
	bool all;

	spin_lock_irq(&zone->lock);
	if (!zone_watermark_ok(zone, 0, low_wmark_pages(zone) + BATCH_PAGES, 0, 0)) {
		prezero_count(PREZERO_SKIPPED_LOW, 1);
		goto unlock;
	}
	z->isolates = true;
	batch->listed = READ_ONCE(quire_scrub_unused);
	all = batch->listed ? isolate_listed(zone, order_min, batch) :
			      isolate_used(zone, order_min, batch);
	z->isolates = false;
	batch->lacks = all && !batch->blocks;
	if (batch->lacks)
		WRITE_ONCE(quire_prezero_lacks, order_min);
unlock:
	spin_unlock_irq(&zone->lock);
}

static void put_part_back(struct page *page, unsigned int order, bool zeroed)
{
	__putback_isolated_page(page, order, get_pageblock_migratetype(page));
	/* A block that merged meanwhile is not marked. */
	if (zeroed && PageBuddy(page) && buddy_order(page) == order)
		quire_prezero_mark(page, order);
}

/*
 * A page that failed while its block was isolated was on no list from which it could
 * have been taken: it stays out, as if in use, and the block's other pages go back.
 */
static bool put_back_without_failed(struct page *page, unsigned int order)
{
	unsigned long i, nr = 1UL << order;

	for (i = 0; i < nr && !PageHWPoison(page + i); i++)
		;
	if (i == nr)
		return false;
	for (i = 0; i < nr; i++)
		if (PageHWPoison(page + i))
			set_page_refcounted(page + i);
		else
			put_part_back(page + i, 0, false);
	return true;
}

/*
 * Each pageblock goes back to the list of its own type: the type of one half of a
 * large block may have changed.
 */
static void put_back(struct page *page, unsigned int order, bool zeroed)
{
	unsigned int unit = min_t(unsigned int, order, pageblock_order);
	struct page *end = page + (1UL << order), *part;
	int mt = get_pageblock_migratetype(page);
	bool whole = true;

	if (IS_ENABLED(CONFIG_MEMORY_FAILURE) && put_back_without_failed(page, order))
		return;
	for (part = page; part < end; part += 1UL << unit)
		whole &= get_pageblock_migratetype(part) == mt;
	if (whole)
		unit = order;
	for (part = page; part < end; part += 1UL << unit)
		put_part_back(part, unit, zeroed);
}

static void put_batch_back(struct zone *zone, struct scrub_batch *batch)
{
	unsigned int i;

	spin_lock_irq(&zone->lock);
	for (i = 0; i < batch->blocks; i++)
		if (batch->fate[i] != SCRUB_LOST)
			put_back(batch->page[i], batch->order[i],
				 batch->fate[i] == SCRUB_ZEROED);
	spin_unlock_irq(&zone->lock);
}

/* Does anyone need the memory, or wait for the gate? */
static bool in_the_way(struct zone *zone)
{
	return quire_prezero_scrub_halting() ||
	       !zone_watermark_ok(zone, 0, low_wmark_pages(zone), 0, 0);
}

static enum scrub_fate scrub_block(struct zone *zone, struct page *page, unsigned int order)
{
	if (in_the_way(zone))
		return SCRUB_LEFT;
	return quire_prezero_zero(page, order) ? SCRUB_LOST : SCRUB_ZEROED;
}

static void scrub_one_batch(struct zone *zone, struct scrub_batch *batch)
{
	unsigned int i;

	batch->blocks = 0;
	batch->pages = 0;
	batch->skipped = false;
	batch->lacks = false;
	down_read(&scrub_gate);
	if (scrub_running && !scrub_suspended)
		isolate_batch(zone, batch);
	if (batch->blocks) {
		for (i = 0; i < batch->blocks; i++)
			batch->fate[i] = scrub_block(zone, batch->page[i], batch->order[i]);
		put_batch_back(zone, batch);
	}
	up_read(&scrub_gate);
}

/*
 * Has every list, or the whole record, been scanned to its end without a block to zero? Each
 * batch advances by SCAN_LIMIT in each list that is longer, which has no fixed end. @vain:
 * blocks scanned in vain so far in the longest list.
 */
static bool seen_all(struct zone *zone, const struct scrub_batch *batch, unsigned long *vain)
{
	unsigned long blocks = zone_managed_pages(zone) >> READ_ONCE(quire_scrub_order_min);

	*vain = batch->lacks ? *vain + SCAN_LIMIT : 0;
	return batch->lacks && (!batch->skipped || (batch->listed && *vain > blocks));
}

static bool zone_active(struct zone *zone, bool active)
{
	return prezero_active(active, READ_ONCE(quire_prezero_zone(zone)->pages),
			      zone_managed_pages(zone), READ_ONCE(scrub_start),
			      READ_ONCE(scrub_stop));
}

/**
 * quire_prezero_zone_has_enough - is there more in a zone's pool than kscrubd would replace
 * @zone: the zone
 *
 * Context: any.
 * Return: whether there is more than scrub_start.
 */
bool quire_prezero_zone_has_enough(struct zone *zone)
{
	return !zone_active(zone, false);
}

/* Does the zone have its share? If so, the next task to take from it wakes kscrubd. */
static bool zone_sated(struct zone *zone)
{
	struct prezero_zone *z = quire_prezero_zone(zone);
	bool sated;

	spin_lock_irq(&zone->lock);
	sated = z->sated = !zone_active(zone, false);
	spin_unlock_irq(&zone->lock);
	return sated;
}

static void kscrubd_wake(struct irq_work *work)
{
	wake_up_all(&kscrubd_wait);
}

static DEFINE_IRQ_WORK(kscrubd_wake_work, kscrubd_wake);

/**
 * quire_prezero_scrub_wake - kscrubd may have something to do
 *
 * Each kscrubd looks at its zones, once it has rested.
 *
 * Context: any.
 */
void quire_prezero_scrub_wake(void)
{
	WRITE_ONCE(quire_prezero_lacks, NR_PAGE_ORDERS);
	/* The reset first: it must not undo what a kscrubd sets that saw the new count. */
	smp_mb__before_atomic();
	atomic_inc(&kscrubd_wakes);
	irq_work_queue(&kscrubd_wake_work);
}

/**
 * quire_prezero_scrub_taken - zeroed memory was taken from a zone that had its share
 * @zone: the zone
 *
 * Context: zone->lock is held.
 */
void quire_prezero_scrub_taken(struct zone *zone)
{
	if (!zone_active(zone, false))
		return;
	quire_prezero_zone(zone)->sated = false;
	quire_prezero_scrub_wake();
}

/* Are there more than scrub_load runnable tasks per CPU, this task included? */
static bool machine_busy(void)
{
	unsigned int load = READ_ONCE(scrub_load);

	return load && nr_running() > load * num_online_cpus();
}

/* Sleeps as the rate demands. Returns true if kscrubd is to stop. */
static bool scrub_pause(unsigned long pages, unsigned long began)
{
	unsigned int pause = prezero_pause_ms(pages, READ_ONCE(quire_scrub_rate_mb),
					      jiffies_to_msecs(jiffies - began));

	if (pause)
		wait_event_freezable_timeout(kscrubd_wait, kthread_should_stop(),
					     msecs_to_jiffies(pause));
	try_to_freeze();
	cond_resched_tasks_rcu_qs();
	return kthread_should_stop();
}

/*
 * Returns whether there may soon be more to do. If not, kscrubd will be woken.
 * @active: whether to go on up to scrub_stop.
 */
static bool scrub_zone(struct zone *zone, bool *active)
{
	unsigned long budget = zone_managed_pages(zone), vain = 0;
	struct scrub_batch batch;

	scan_from_start(zone, &batch);
	for (*active = zone_active(zone, *active); *active; *active = zone_active(zone, true)) {
		unsigned long began = jiffies;

		if (machine_busy()) {
			prezero_count(PREZERO_SKIPPED_BUSY, 1);
			return true;
		}
		scrub_one_batch(zone, &batch);
		if (!batch.blocks && !batch.lacks)
			return true;
		/* All free blocks are zero, or unused, or given to a hypervisor. */
		if (seen_all(zone, &batch, &vain)) {
			*active = false;
			return false;
		}
		if (batch.pages > budget || scrub_pause(batch.pages, began))
			return true;
		budget -= batch.pages;
	}
	return !zone_sated(zone);
}

/* As quire_prezero_hugetlb_scrub(); -EAGAIN while scrubbing is not on. */
static long scrub_hugetlb_part(int nid)
{
	long pages = -EAGAIN;

	down_read(&scrub_gate);
	if (scrub_running && !scrub_suspended)
		pages = quire_prezero_hugetlb_scrub(nid);
	up_read(&scrub_gate);
	return pages;
}

/*
 * Zeroes free pages of hugetlb. They serve nothing else, so all of them are zeroed. A folio
 * that is left half done is gone on with by the next call. Returns whether there may soon be
 * more to do. If not, kscrubd will be woken.
 * @wakes: kscrubd_wakes when the zones were last looked at.
 */
static bool scrub_hugetlb(int nid, int wakes)
{
	unsigned long done = 0;

	if (!READ_ONCE(scrub_start) || quire_prezero_hugetlb_idle(nid))
		return false;
	do {
		unsigned long began = jiffies;
		long pages;

		if (machine_busy()) {
			prezero_count(PREZERO_SKIPPED_BUSY, 1);
			return true;
		}
		pages = scrub_hugetlb_part(nid);
		if (pages < 0)
			return pages == -EAGAIN;
		if (scrub_pause(pages, began))
			return true;
		done += pages;
	} while (done < HUGETLB_PASS && READ_ONCE(scrub_start) &&
		 atomic_read(&kscrubd_wakes) == wakes);
	return true;
}

/* Returns whether there may soon be more to do. @wakes: as for scrub_hugetlb(). */
static bool scrub_node(pg_data_t *pgdat, bool *active, int wakes)
{
	bool more = false;
	int i;

	/* Faults take from the highest zone first. */
	for (i = MAX_NR_ZONES - 1; i >= 0 && !kthread_should_stop(); i--)
		if (managed_zone(&pgdat->node_zones[i]))
			more |= scrub_zone(&pgdat->node_zones[i], &active[i]);
	if (!kthread_should_stop())
		more |= scrub_hugetlb(pgdat->node_id, wakes);
	return more;
}

static int kscrubd_main(void *data)
{
	bool active[MAX_NR_ZONES] = {};
	bool more = true;
	int wakes = 0;

	set_freezable();
	while (!kthread_should_stop()) {
		if (!more && !wait_event_freezable_timeout(kscrubd_wait, kthread_should_stop() ||
							   atomic_read(&kscrubd_wakes) != wakes,
							   LOOK_ANYWAY))
			quire_prezero_scrub_look_again();
		/* Many blocks may come or go at once. */
		wait_event_freezable_timeout(kscrubd_wait, kthread_should_stop(),
					     msecs_to_jiffies(READ_ONCE(quire_scrub_sleep_ms)));
		wakes = atomic_read(&kscrubd_wakes);
		more = scrub_node(data, active, wakes);
	}
	return 0;
}

/* The node's CPUs, without isolated and tickless ones. False if there are none. */
static bool kscrubd_cpus(struct cpumask *mask, int nid)
{
	cpumask_and(mask, cpumask_of_node(nid), housekeeping_cpumask(HK_TYPE_DOMAIN));
	cpumask_and(mask, mask, housekeeping_cpumask(HK_TYPE_KTHREAD));
	return cpumask_intersects(mask, cpu_online_mask);
}

/* Memory of a node without a CPU for kscrubd is not zeroed from another node. */
static int kscrubd_run(int nid)
{
	static const struct sched_param param = { .sched_priority = 0 };
	struct task_struct *task;
	cpumask_var_t mask;
	int ret = 0;

	if (!alloc_cpumask_var(&mask, GFP_KERNEL))
		return -ENOMEM;
	if (!kscrubd_cpus(mask, nid))
		goto free_mask;
	task = kthread_create_on_node(kscrubd_main, NODE_DATA(nid), nid, "kscrubd/%d", nid);
	if (IS_ERR(task)) {
		ret = PTR_ERR(task);
		goto free_mask;
	}
	sched_setscheduler_nocheck(task, SCHED_IDLE, &param);
	set_cpus_allowed_ptr(task, mask);
	kscrubd[nid] = task;
	wake_up_process(task);
free_mask:
	free_cpumask_var(mask);
	return ret;
}

/**
 * quire_prezero_scrub_halt - stop all scrubbing for a moment
 *
 * When it returns no block is isolated. End it with quire_prezero_scrub_go_on().
 *
 * Context: may sleep; takes scrub_gate for writing.
 */
void quire_prezero_scrub_halt(void)
{
	atomic_inc(&scrub_waiters);
	down_write(&scrub_gate);
	atomic_dec(&scrub_waiters);
}

void quire_prezero_scrub_go_on(void)
{
	up_write(&scrub_gate);
}

/**
 * quire_prezero_scrub_halting - does a task wait to halt all scrubbing
 *
 * Context: any.
 * Return: true if who holds scrub_gate for reading is to let go of it soon.
 */
bool quire_prezero_scrub_halting(void)
{
	return atomic_read(&scrub_waiters);
}

/**
 * quire_prezero_scrub_look_again - kscrubd is to look at all used memory, also of hugetlb's pool
 *
 * Context: process; takes hugetlb_lock. As for quire_prezero_look_again().
 */
void quire_prezero_scrub_look_again(void)
{
	quire_prezero_look_again();
	quire_prezero_hugetlb_look_again();
}

/* What hugetlb's pool has is forgotten at each change. */
static void scrub_set(bool *flag, bool value)
{
	quire_prezero_scrub_halt();
	/* quire_prezero_scrub_now() looks without the gate. */
	WRITE_ONCE(*flag, value);
	quire_prezero_hugetlb_reset(scrub_running && !scrub_suspended);
	quire_prezero_scrub_go_on();
}

/**
 * quire_prezero_scrub_start - start a kscrubd for each node with memory and CPUs
 *
 * A node that gets memory or CPUs later has no kscrubd until the feature is switched
 * off and on.
 *
 * Context: may sleep.
 * Return: 0, or -errno and nothing runs.
 */
int quire_prezero_scrub_start(void)
{
	int nid, ret;

	quire_prezero_hugetlb_switch(true);
	scrub_set(&scrub_running, true);
	for_each_node_state(nid, N_MEMORY) {
		ret = kscrubd_run(nid);
		if (ret) {
			quire_prezero_scrub_stop();
			return ret;
		}
	}
	return 0;
}

/**
 * quire_prezero_scrub_stop - stop scrubbing
 *
 * When it returns no block is isolated and none will be marked.
 *
 * Context: may sleep.
 */
void quire_prezero_scrub_stop(void)
{
	int nid;

	scrub_set(&scrub_running, false);
	for (nid = 0; nid < nr_node_ids; nid++) {
		if (kscrubd[nid])
			kthread_stop(kscrubd[nid]);
		kscrubd[nid] = NULL;
	}
	quire_prezero_hugetlb_switch(false);
}

/* Zeroes the free pages of hugetlb, and at most as much as the node has. */
static int scrub_hugetlb_now(int nid)
{
	unsigned long done = 0;
	long pages;

	while (done < node_present_pages(nid)) {
		pages = scrub_hugetlb_part(nid);
		if (pages < 0)
			break;
		if (signal_pending(current))
			return -EINTR;
		done += pages;
		cond_resched_tasks_rcu_qs();
	}
	return 0;
}

/* Returns 0, or -EINTR on a signal. */
static int scrub_all_now(void)
{
	struct zone *zone;
	int nid, ret = 0;

	for_each_populated_zone(zone) {
		unsigned long budget = zone_managed_pages(zone), vain = 0;
		struct scrub_batch batch;

		scan_from_start(zone, &batch);
		while (zone_active(zone, true)) {
			scrub_one_batch(zone, &batch);
			if ((!batch.blocks && !batch.lacks) || batch.pages > budget ||
			    seen_all(zone, &batch, &vain))
				break;
			budget -= batch.pages;
			if (signal_pending(current))
				return -EINTR;
			cond_resched_tasks_rcu_qs();
		}
	}
	for_each_node_state(nid, N_MEMORY) {
		ret = scrub_hugetlb_now(nid);
		if (ret)
			break;
	}
	return ret;
}

/**
 * quire_prezero_scrub_now - scrub until each zone has its share of scrub_stop
 *
 * Does what kscrubd would do, without its rate and load limits, and at most once for
 * every page of a zone. Then zeroes the free pages of hugetlb, at most as many as each
 * node has pages. Drains the pcp lists first, as would happen in time. Holds
 * a lock only during a batch, so that switching the feature off ends it.
 *
 * Context: may sleep, for long.
 * Return: 0, also if a zone has too few large free blocks; -EAGAIN while the feature
 * is off; -EINTR on a signal.
 */
int quire_prezero_scrub_now(void)
{
	int ret;

	if (!READ_ONCE(scrub_running))
		return -EAGAIN;
	drain_all_pages(NULL);
	quire_prezero_scrub_look_again();
	ret = scrub_all_now();
	/* kscrubd may wait for pages of hugetlb of which this did not zero the last. */
	quire_prezero_scrub_wake();
	return ret;
}

/**
 * quire_prezero_pm_event - hibernation begins or has ended
 * @event: PM_HIBERNATION_PREPARE and the like
 *
 * In between there is no mark and none is made.
 *
 * Context: may sleep.
 */
void quire_prezero_pm_event(unsigned long event)
{
	switch (event) {
	case PM_HIBERNATION_PREPARE:
	case PM_RESTORE_PREPARE:
		scrub_set(&scrub_suspended, true);
		quire_prezero_strip();
		break;
	case PM_POST_HIBERNATION:
	case PM_POST_RESTORE:
		scrub_set(&scrub_suspended, false);
		quire_prezero_scrub_wake();
		break;
	}
}

static int prezero_pm_notify(struct notifier_block *nb, unsigned long event, void *data)
{
	quire_prezero_pm_event(event);
	return NOTIFY_DONE;
}

static int prezero_memory_notify(struct notifier_block *nb, unsigned long event, void *data)
{
	const struct memory_notify *arg = data;

	/* What was used before it went offline. None of it can be allocated yet. */
	if (event == MEM_GOING_ONLINE)
		quire_prezero_forget_used(arg->start_pfn, arg->nr_pages);
	/* The scan may have passed over blocks that were isolated. */
	if (event == MEM_CANCEL_OFFLINE)
		quire_prezero_scrub_look_again();
	/* A search for used pages may have seen it online: wait until that has ended. */
	if (event == MEM_OFFLINE)
		quire_prezero_hugetlb_look_again();
	if (event == MEM_ONLINE || event == MEM_CANCEL_OFFLINE)
		quire_prezero_scrub_wake();
	return NOTIFY_OK;
}

/* The new value may give a zone less than its share, or kscrubd more time. */
static int scrub_sysctl(const struct ctl_table *table, int write, void *buffer,
			size_t *len, loff_t *pos)
{
	int ret = proc_douintvec_minmax(table, write, buffer, len, pos);

	if (write)
		quire_prezero_scrub_wake();
	return ret;
}

static struct ctl_table scrub_sysctls[] = {
	{
		.procname	= "scrub_start",
		.data		= &scrub_start,
		.maxlen		= sizeof(scrub_start),
		.mode		= 0644,
		.proc_handler	= scrub_sysctl,
		.extra1		= SYSCTL_ZERO,
		.extra2		= SYSCTL_ONE_THOUSAND,
	},
	{
		.procname	= "scrub_stop",
		.data		= &scrub_stop,
		.maxlen		= sizeof(scrub_stop),
		.mode		= 0644,
		.proc_handler	= scrub_sysctl,
		.extra1		= SYSCTL_ZERO,
		.extra2		= SYSCTL_ONE_THOUSAND,
	},
	{
		.procname	= "scrub_load",
		.data		= &scrub_load,
		.maxlen		= sizeof(scrub_load),
		.mode		= 0644,
		.proc_handler	= scrub_sysctl,
		.extra1		= SYSCTL_ZERO,
		.extra2		= SYSCTL_ONE_THOUSAND,
	},
};

/**
 * quire_prezero_scrub_init - make what exists also while the feature is off
 *
 * Context: boot only.
 * Return: 0 or -ENOMEM.
 */
int __init quire_prezero_scrub_init(void)
{
	kscrubd = kcalloc(nr_node_ids, sizeof(*kscrubd), GFP_KERNEL);
	if (!kscrubd || !register_sysctl("vm", scrub_sysctls)) {
		kfree(kscrubd);
		return -ENOMEM;
	}
	pm_notifier(prezero_pm_notify, 0);
	hotplug_memory_notifier(prezero_memory_notify, DEFAULT_CALLBACK_PRI);
	return 0;
}
