// SPDX-License-Identifier: GPL-2.0
/*
 * Zeroed pages in hugetlb's own pool.
 *
 * A folio that is used and freed goes back to a free list of hugetlb, not to the
 * page allocator. kscrubd zeroes it there, so that the next fault need not.
 *
 * The stamp: the upper half of folio->private, beside hugetlb's own flags, which are
 * in the lower half. A folio is zero if its stamp equals hugetlb_generation, and
 * nobody writes to such a folio: whoever takes it off its list either consumes the
 * stamp in place of a clear, or drops it before he writes. A folio without a valid
 * stamp may hold anything. Freeing a folio clears the stamp.
 *
 * Scrubbing: the folio stays on its free list and is counted as free while it is
 * zeroed. So no reservation, fault or change of the pool's size can find a page
 * missing. A task that takes the folio off its list meanwhile calls
 * quire_prezero_hugetlb_settle() before anything else uses the memory: this ends the
 * scrubbing, and waits at most until a step of STEP bytes is done. Zeroed folios
 * are at the head of a free list, from where hugetlb takes, and others at the tail,
 * from where kscrubd takes.
 *
 * A scrub may be left and gone on with at any step; struct hugetlb_node says which
 * folio is half done. So a gigantic page does not hold up the rate limit, a switch,
 * or a task that waits for scrub_gate.
 *
 * Locking: hugetlb_lock protects the free lists, the counts, and hugetlb_generation
 * against changes. The order is scrub_gate, hugetlb_node.scrub, hugetlb_node.lock,
 * hugetlb_lock. hugetlb_node.scrub is held over a part of a folio, and
 * hugetlb_node.lock over a step of it. hugetlb_lock is taken in interrupts, and
 * hugetlb_node.lock is not: an interrupt can only free a folio that was in use, which
 * was settled, so that settling it again ends before the lock. hugetlb_node.folio is
 * set under hugetlb_lock while the folio is on a free list, so whoever takes the folio
 * off the list later sees it; it is cleared under hugetlb_node.lock, or while
 * scrub_gate is held for writing. hugetlb_node.next is under hugetlb_lock. The notifier
 * of memory hotplug takes hugetlb_lock to set it, and the mem_hotplug_lock is held around
 * that, but no lock of the order above.
 *
 * Lifetime: hugetlb_nodes is allocated at boot and never freed. A folio in
 * hugetlb_node.folio may be used, freed to the page allocator, demoted or unplugged once
 * it is settled. So kscrubd touches it only in holds of hugetlb_node.lock in which it has
 * seen that hugetlb_node.folio still is this folio: who settles it waits for the hold.
 * choose() alone has hugetlb_lock instead, under which the folio cannot leave its list.
 *
 * When a scrub is done, a hold of both locks sees that hugetlb_node.folio still is this
 * folio, and that the folio is free. By the first, nobody has used it since it was
 * chosen, and its struct page still is hugetlb's, so that the second can be believed.
 * A folio that was taken, and is not settled yet, is not free.
 *
 * Undo: a new generation makes all stamps void at once, and 0 lets no stamp be
 * valid. While quire_prezero_hugetlb_key is off, stamps are only cleared, when a folio is
 * freed. The counts are set to 0 with each change of the generation, and the key is on
 * whenever the generation is not 0. A stamp would be mistaken for a new one after 2^32
 * changes.
 *
 * Unused memory: with scrub_unused at 0, only a folio that was used since the switch-on is
 * zeroed (used.c). Mostly it is at the tail of its list, where it was put when it was freed. It
 * is not if it was freed while the feature was off, or was zero before that, or if the pool grew
 * since. So once after each switch-on, and whenever kscrubd is to look at all memory again, the
 * folios that the record says were used are also looked up by their addresses, after those at
 * the tail. The lists are not moved for this, because the zeroed folios are at their heads.
 *
 * Hibernation saves the pool's pages as memory in use, so their contents survive it.
 * The stamps are made void nevertheless, as all other marks are.
 */
#define pr_fmt(fmt) "quire: prezero: " fmt

#include <linux/hugetlb.h>
#include <linux/memory_hotplug.h>
#include <linux/mutex.h>
#include <linux/quire/prezero.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "prezero.h"

#include <trace/events/quire_prezero.h>

#define STEP		SZ_64K
/* What is zeroed in one hold of scrub_gate, at most. */
#define PART		SZ_4M
/* Folios at a tail, and places by address, that are looked at in one hold of hugetlb_lock. */
#define SCAN_LIMIT	256

/**
 * struct hugetlb_node - the scrubbing of the free hugetlb pages of a node
 * @scrub: held by who scrubs
 * @lock: held over a step, and to end the scrubbing of a folio
 * @folio: (see the head of this file) the folio that is being zeroed, or NULL
 * @size: (S) its size when it was chosen; it may be gone by now
 * @done: (S) how many of its bytes are zero
 * @zeroed: (H) folios with a valid stamp on the free list, by the size's index
 * @next: (H) where the search by address goes on; at the node's end, it is over
 * @lacks: (H) there was nothing to zero; the next folio that is freed wakes kscrubd
 *
 * Key: S @scrub; H hugetlb_lock.
 */
struct hugetlb_node {
	struct mutex scrub;
	spinlock_t lock;
	struct folio *folio;
	unsigned long size;
	unsigned long done;
	unsigned long zeroed[HUGE_MAX_HSTATE];
	unsigned long next;
	bool lacks;
};

DEFINE_STATIC_KEY_FALSE(quire_prezero_hugetlb_key);

static struct hugetlb_node *hugetlb_nodes __ro_after_init;

/* Key: H hugetlb_lock, but read without it where the stamp is only compared. */
static u32 hugetlb_generation;		/* (H) 0: no stamp is valid */
static u32 hugetlb_last_generation;	/* (H) never 0 once there was one */

static u32 *stamp_of(struct folio *folio)
{
	BUILD_BUG_ON(sizeof(folio->private) != 2 * sizeof(u32));
	BUILD_BUG_ON(__NR_HPAGEFLAGS > 32);
	BUILD_BUG_ON(IS_ENABLED(CONFIG_CPU_BIG_ENDIAN));
	return (u32 *)&folio->private + 1;
}

static bool is_valid(u32 stamp)
{
	return stamp && stamp == READ_ONCE(hugetlb_generation);
}

/* hugetlb_lock is held if the folio is on a free list. */
static bool is_zeroed(struct folio *folio)
{
	return is_valid(READ_ONCE(*stamp_of(folio)));
}

static void account(struct hstate *h, struct folio *folio, int sign)
{
	lockdep_assert_held(&hugetlb_lock);
	hugetlb_nodes[folio_nid(folio)].zeroed[hstate_index(h)] += sign;
	prezero_count(PREZERO_HUGETLB_ZEROED, sign * folio_nr_pages(folio));
}

/* Of a folio that was split off, the struct page may be a copy of another one with a stamp. */
void __quire_prezero_hugetlb_new(struct folio *folio, bool zeroed)
{
	WRITE_ONCE(*stamp_of(folio), zeroed ? READ_ONCE(hugetlb_generation) : 0);
}

void __quire_prezero_hugetlb_listed(struct hstate *h, struct folio *folio)
{
	int nid = folio_nid(folio);

	if (is_zeroed(folio)) {
		account(h, folio, 1);
		return;
	}
	WRITE_ONCE(*stamp_of(folio), 0);
	list_move_tail(&folio->lru, &h->hugepage_freelists[nid]);
	if (hugetlb_nodes[nid].lacks) {
		hugetlb_nodes[nid].lacks = false;
		quire_prezero_scrub_wake();
	}
}

void __quire_prezero_hugetlb_unlisted(struct hstate *h, struct folio *folio)
{
	if (is_zeroed(folio))
		account(h, folio, -1);
}

void __quire_prezero_hugetlb_settle(struct folio *folio)
{
	struct hugetlb_node *node = &hugetlb_nodes[folio_nid(folio)];

	/* Pairs with the release in let_go(): what the scrubber did to the folio comes first. */
	if (likely(smp_load_acquire(&node->folio) != folio))
		return;
	spin_lock(&node->lock);
	/* choose() may have chosen another one meanwhile. */
	if (READ_ONCE(node->folio) == folio) {
		WRITE_ONCE(node->folio, NULL);
		prezero_count(PREZERO_HUGETLB_INTERRUPTED, 1);
	}
	spin_unlock(&node->lock);
}

/* Clears the stamp of a folio that is not used as a zeroed one. */
static void waste(struct folio *folio)
{
	if (is_valid(xchg(stamp_of(folio), 0))) {
		prezero_count(PREZERO_HUGETLB_WASTED, folio_nr_pages(folio));
		trace_prezero_wasted(&folio->page, folio_order(folio));
	}
}

void __quire_prezero_hugetlb_drop(struct folio *folio)
{
	__quire_prezero_hugetlb_settle(folio);
	waste(folio);
}

/* A folio that was used has no stamp. */
void __quire_prezero_hugetlb_freed(struct folio *folio)
{
	quire_prezero_note_used(folio_pfn(folio), folio_nr_pages(folio));
	waste(folio);
}

/* With verify, checks memory that is about to be handed out as zero. */
static bool is_as_stamped(struct folio *folio)
{
	unsigned long at;

	if (!READ_ONCE(quire_prezero_verify))
		return true;
	for (at = 0; at < folio_size(folio); at += STEP) {
		if (!quire_prezero_is_zero(folio_address(folio) + at, STEP)) {
			quire_warn(&quire_prezero_feature,
				   "page %#lx of hugetlb is stamped but not zero\n",
				   folio_pfn(folio));
			return false;
		}
		cond_resched();
	}
	return true;
}

bool __quire_prezero_hugetlb_take(struct folio *folio)
{
	u32 stamp = xchg(stamp_of(folio), 0);
	bool zero;

	/* After an inconsistency no stamp is trusted. */
	zero = is_valid(stamp) && !READ_ONCE(quire_prezero_feature.broken) &&
	       is_as_stamped(folio);
	prezero_count(zero ? PREZERO_HUGETLB_HITS : PREZERO_HUGETLB_MISSES, 1);
	if (zero)
		trace_prezero_hit(&folio->page, folio_order(folio));
	else
		trace_prezero_miss(&folio->page, folio_order(folio));
	return zero;
}

/* The folio is no longer touched. hugetlb_node.scrub and hugetlb_node.lock are held. */
static void let_go(struct hugetlb_node *node)
{
	lockdep_assert_held(&node->lock);
	/* Pairs with the acquire in __quire_prezero_hugetlb_settle(). */
	smp_store_release(&node->folio, NULL);
}

/* hugetlb_lock is held and the folio is free. */
static bool may_scrub(struct folio *folio)
{
	return !is_zeroed(folio) && !folio_test_hwpoison(folio) &&
	       (READ_ONCE(quire_scrub_unused) ||
		quire_prezero_all_used(folio_pfn(folio), folio_nr_pages(folio)));
}

static bool all_zeroed(struct hstate *h, int nid)
{
	return h->free_huge_pages_node[nid] == hugetlb_nodes[nid].zeroed[hstate_index(h)];
}

static struct folio *find_at_tail(struct hstate *h, int nid)
{
	unsigned int scanned = 0;
	struct folio *folio;

	if (all_zeroed(h, nid))
		return NULL;
	list_for_each_entry_reverse(folio, &h->hugepage_freelists[nid], lru) {
		if (++scanned > SCAN_LIMIT)
			break;
		if (may_scrub(folio))
			return folio;
	}
	return NULL;
}

/*
 * Under hugetlb_lock a free folio of hugetlb stays what it is, and no memory is unplugged that is
 * online when this looks: see quire_prezero_hugetlb_look_again().
 */
static struct folio *free_folio_at(unsigned long pfn)
{
	struct page *page = pfn_to_online_page(pfn);
	struct folio *folio;

	lockdep_assert_held(&hugetlb_lock);
	if (!page)
		return NULL;
	folio = page_folio(page);
	return folio_test_hugetlb(folio) && folio_test_hugetlb_freed(folio) ? folio : NULL;
}

/*
 * Each folio begins and ends where a PMD may. The search stays at the folio that it has found, as
 * long as that is to be zeroed.
 */
static struct folio *find_by_address(struct hugetlb_node *node, int nid)
{
	const unsigned long nr = PMD_SIZE >> PAGE_SHIFT;
	unsigned long end = node_end_pfn(nid);
	struct folio *folio;
	unsigned int looked;

	node->next = max(node->next, node_start_pfn(nid));
	for (looked = 0; looked < SCAN_LIMIT; looked++) {
		node->next = ALIGN(quire_prezero_next_used(node->next, end), nr);
		if (node->next >= end)
			break;
		folio = free_folio_at(node->next);
		/* The memory of other nodes may be in between. */
		if (folio && folio_nid(folio) == nid && may_scrub(folio))
			return folio;
		node->next += nr;
	}
	return NULL;
}

/* Is there more to find than what is at the tails? */
static bool may_find_by_address(struct hugetlb_node *node, int nid)
{
	struct hstate *h;

	if (READ_ONCE(quire_scrub_unused) || node->next >= node_end_pfn(nid))
		return false;
	for_each_hstate(h)
		if (!all_zeroed(h, nid))
			return true;
	return false;
}

/*
 * Finds a folio to zero, which is preferably one that is taken late. May return NULL before all
 * of them have been looked at: node->lacks tells. hugetlb_lock is held.
 */
static struct folio *find_dirty(struct hugetlb_node *node, int nid)
{
	struct folio *folio = NULL;
	struct hstate *h;

	for_each_hstate(h) {
		folio = find_at_tail(h, nid);
		if (folio)
			break;
	}
	if (!folio && may_find_by_address(node, nid))
		folio = find_by_address(node, nid);
	node->lacks = !folio && !may_find_by_address(node, nid);
	return folio;
}

/* Chooses a folio to zero. Returns false if there is none. */
static bool choose(struct hugetlb_node *node, int nid)
{
	struct folio *folio;
	bool lacks;

	spin_lock_irq(&hugetlb_lock);
	folio = find_dirty(node, nid);
	lacks = node->lacks;
	node->size = folio ? folio_size(folio) : 0;
	node->done = 0;
	WRITE_ONCE(node->folio, folio);
	spin_unlock_irq(&hugetlb_lock);
	return !lacks;
}

/*
 * Zeroes one step. Returns false if the folio has been taken, and is not touched, or if its
 * memory has failed. A failed folio stays on the free list where the pool cannot spare it.
 */
static bool step(struct hugetlb_node *node, struct folio *folio)
{
	bool ours;

	spin_lock(&node->lock);
	ours = node->folio == folio;
	if (ours && folio_test_hwpoison(folio)) {
		let_go(node);
		ours = false;
	}
	if (ours) {
		quire_prezero_clear(folio_address(folio) + node->done, STEP);
		node->done += STEP;
	}
	spin_unlock(&node->lock);
	return ours;
}

/* hugetlb_lock is held, the folio is free and its memory is zero. */
static void stamp_free_folio(struct folio *folio)
{
	struct hstate *h = folio_hstate(folio);

	WRITE_ONCE(*stamp_of(folio), hugetlb_generation);
	list_move(&folio->lru, &h->hugepage_freelists[folio_nid(folio)]);
	account(h, folio, 1);
	prezero_count(PREZERO_HUGETLB_SCRUBBED, folio_nr_pages(folio));
	trace_prezero_scrubbed(&folio->page, folio_order(folio));
}

/*
 * All of the folio has been zeroed. It counts as zero if it was not taken meanwhile. Who takes
 * it now waits until hugetlb_node.lock is free, and only then may free it to the page
 * allocator, where folio->private has another meaning.
 */
static void finish(struct hugetlb_node *node, struct folio *folio)
{
	spin_lock(&node->lock);
	if (node->folio == folio) {
		spin_lock_irq(&hugetlb_lock);
		if (folio_test_hugetlb_freed(folio) && !folio_test_hwpoison(folio))
			stamp_free_folio(folio);
		spin_unlock_irq(&hugetlb_lock);
		let_go(node);
	}
	spin_unlock(&node->lock);
}

/* Zeroes up to a part of the folio. Returns how many bytes it has zeroed. */
static unsigned long scrub_folio(struct hugetlb_node *node, struct folio *folio)
{
	unsigned long bytes;

	for (bytes = 0; bytes < PART && !quire_prezero_scrub_halting(); bytes += STEP) {
		if (node->done == node->size || !step(node, folio))
			break;
		cond_resched_tasks_rcu_qs();
	}
	if (node->done == node->size)
		finish(node, folio);
	return bytes;
}

/**
 * quire_prezero_hugetlb_scrub - zero a part of a free hugetlb page of a node
 * @nid: the node
 *
 * Goes on with the page that an earlier call has left, unless it has been taken.
 *
 * Context: may sleep; scrub_gate is held for reading, and scrubbing is on.
 * Return: how many base pages it has zeroed, which is 0 if the page was taken or has failed, if
 * scrubbing is to halt, or if it has only searched; -ENOENT if the node's free pages are all zero,
 * or cannot be zeroed.
 */
long quire_prezero_hugetlb_scrub(int nid)
{
	struct hugetlb_node *node = &hugetlb_nodes[nid];
	struct folio *folio;
	long pages = -ENOENT;

	mutex_lock(&node->scrub);
	if (READ_ONCE(node->folio) || choose(node, nid)) {
		folio = READ_ONCE(node->folio);
		pages = folio ? scrub_folio(node, folio) >> PAGE_SHIFT : 0;
	}
	mutex_unlock(&node->scrub);
	return pages;
}

/**
 * quire_prezero_hugetlb_idle - has a node no free hugetlb page to zero
 * @nid: the node
 *
 * If so, the next page that is freed wakes kscrubd.
 *
 * Context: process; takes hugetlb_lock.
 * Return: true if there is none.
 */
bool quire_prezero_hugetlb_idle(int nid)
{
	struct hugetlb_node *node = &hugetlb_nodes[nid];
	bool idle;

	spin_lock_irq(&hugetlb_lock);
	find_dirty(node, nid);
	idle = node->lacks;
	spin_unlock_irq(&hugetlb_lock);
	return idle;
}

/**
 * quire_prezero_hugetlb_look_again - look at all free hugetlb pages that were used
 *
 * When memory has gone offline, this also waits for a search that saw it online. Its struct pages
 * may be freed after that.
 *
 * Context: process; takes hugetlb_lock.
 */
void quire_prezero_hugetlb_look_again(void)
{
	int nid;

	spin_lock_irq(&hugetlb_lock);
	for (nid = 0; nid < nr_node_ids; nid++)
		hugetlb_nodes[nid].next = 0;
	spin_unlock_irq(&hugetlb_lock);
}

/**
 * quire_prezero_hugetlb_abandon - leave the folios that are half done
 *
 * Context: scrub_gate is held for writing.
 */
void quire_prezero_hugetlb_abandon(void)
{
	int nid;

	for (nid = 0; nid < nr_node_ids; nid++)
		WRITE_ONCE(hugetlb_nodes[nid].folio, NULL);
}

static void forget_counts(struct hugetlb_node *node)
{
	struct hstate *h;

	for_each_hstate(h) {
		long pages = node->zeroed[hstate_index(h)] * pages_per_huge_page(h);

		prezero_count(PREZERO_HUGETLB_ZEROED, -pages);
		prezero_count(PREZERO_HUGETLB_LOST, pages);
		node->zeroed[hstate_index(h)] = 0;
	}
	node->next = 0;
	node->lacks = false;
	WRITE_ONCE(node->folio, NULL);
}

/**
 * quire_prezero_hugetlb_switch - switch on or off what hugetlb does for this file
 * @on: which
 *
 * Context: may sleep; the generation is 0.
 */
void quire_prezero_hugetlb_switch(bool on)
{
	if (on)
		static_branch_enable(&quire_prezero_hugetlb_key);
	else
		static_branch_disable(&quire_prezero_hugetlb_key);
}

/**
 * quire_prezero_hugetlb_reset - make all stamps void
 * @on: may new ones be made
 *
 * Context: scrub_gate is held for writing; quire_prezero_hugetlb_key is on, or @on is false
 * and there are no stamps.
 */
void quire_prezero_hugetlb_reset(bool on)
{
	int nid;

	spin_lock_irq(&hugetlb_lock);
	for (nid = 0; nid < nr_node_ids; nid++)
		forget_counts(&hugetlb_nodes[nid]);
	if (on && !++hugetlb_last_generation)
		hugetlb_last_generation = 1;
	WRITE_ONCE(hugetlb_generation, on ? hugetlb_last_generation : 0);
	spin_unlock_irq(&hugetlb_lock);
}

/* Is a page part of a free folio that counts as zero? A failed one is not to be read. */
static bool counts_as_zero(unsigned long pfn)
{
	struct folio *folio = free_folio_at(pfn);

	return folio && is_zeroed(folio) && !folio_test_hwpoison(folio);
}

/*
 * By address and not along the free lists, which change between two holds of the lock, and of
 * which each hold would look for its place. Each folio begins and ends where a PMD may.
 */
static void check_contents(int nid, struct prezero_report *report)
{
	const unsigned long nr = PMD_SIZE >> PAGE_SHIFT;
	unsigned long pfn, end = node_end_pfn(nid);

	for (pfn = ALIGN(node_start_pfn(nid), nr); pfn + nr <= end; pfn += nr) {
		struct page *page = pfn_to_online_page(pfn);

		/* The flags beside the node's number change while the page is in use. */
		if (!page || data_race(page_to_nid(page)) != nid)
			continue;
		spin_lock_irq(&hugetlb_lock);
		if (counts_as_zero(pfn) && !quire_prezero_is_zero(page_address(page), PMD_SIZE))
			report->dirty++;
		spin_unlock_irq(&hugetlb_lock);
		cond_resched();
	}
}

static void check_count(struct hstate *h, int nid, struct prezero_report *report)
{
	unsigned long zeroed = 0;
	struct folio *folio;

	spin_lock_irq(&hugetlb_lock);
	list_for_each_entry(folio, &h->hugepage_freelists[nid], lru)
		zeroed += is_zeroed(folio);
	report->miscounted += abs_diff(zeroed, hugetlb_nodes[nid].zeroed[hstate_index(h)]) *
			      pages_per_huge_page(h);
	spin_unlock_irq(&hugetlb_lock);
	report->hugetlb += zeroed * pages_per_huge_page(h);
}

/**
 * quire_prezero_hugetlb_check - check hugetlb's free pages that count as zero
 * @report: what was found is added to it
 *
 * Context: may sleep; takes hugetlb_lock; memory must not be unplugged meanwhile.
 */
void quire_prezero_hugetlb_check(struct prezero_report *report)
{
	struct hstate *h;
	int nid;

	for_each_online_node(nid) {
		check_contents(nid, report);
		for_each_hstate(h)
			check_count(h, nid, report);
	}
}

/**
 * quire_prezero_hugetlb_init - make what exists also while the feature is off
 *
 * Context: boot only.
 * Return: 0 or -ENOMEM.
 */
int __init quire_prezero_hugetlb_init(void)
{
	int nid;

	hugetlb_nodes = kcalloc(nr_node_ids, sizeof(*hugetlb_nodes), GFP_KERNEL);
	if (!hugetlb_nodes)
		return -ENOMEM;
	for (nid = 0; nid < nr_node_ids; nid++) {
		mutex_init(&hugetlb_nodes[nid].scrub);
		spin_lock_init(&hugetlb_nodes[nid].lock);
	}
	return 0;
}
