/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Pre-zeroed free pages: the gates in the page allocator and in its users.
 *
 * PG_zeroed on the head of a free block says that every byte of the block is
 * zero. It is valid in three places only: on a buddy list (under zone->lock),
 * on a pcp list (under the pcp lock), and on the way from either list to
 * post_alloc_hook(), which consumes it. All other code that takes a block off a
 * free list loses the mark: a lost mark costs one clear, a stale mark would hand
 * one user's data to another.
 *
 * There are two keys. quire_prezero_key says whether to zero more pages. Marked
 * pages may remain while it is off, so the code that maintains and consumes marks
 * tests quire_prezero_marks_key, which is on from the first start until a drain
 * has shown that no mark is left.
 *
 * "Vanilla:" says what Linux does without the gate.
 */
#ifndef _LINUX_QUIRE_PREZERO_H
#define _LINUX_QUIRE_PREZERO_H

#include <linux/jump_label.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/page-flags.h>

#ifdef CONFIG_QUIRE_PREZERO

/*
 * Only pages in use have this bit, as with PG_reported's; the free path clears
 * all such bits before a page reaches a list, so a stale bit cannot be taken for
 * a mark. It is defined here and not in page-flags.h, which every file includes,
 * because only the allocator may use it.
 */
#define PG_zeroed		PG_owner_2

static inline bool PageZeroed(const struct page *page)
{
	return test_bit(PG_zeroed, &page->flags);
}

static inline void __SetPageZeroed(struct page *page)
{
	__set_bit(PG_zeroed, &page->flags);
}

static inline void __ClearPageZeroed(struct page *page)
{
	__clear_bit(PG_zeroed, &page->flags);
}

DECLARE_STATIC_KEY_FALSE(quire_prezero_key);
DECLARE_STATIC_KEY_FALSE(quire_prezero_marks_key);

/* The flag that may be set on a page that comes from a free list. */
#define QUIRE_PREZERO_FLAG	(1UL << PG_zeroed)

/* The knob scrub_order_min: kscrubd takes free blocks of at least this order. */
extern unsigned int quire_scrub_order_min;

void __quire_prezero_unmark(struct page *page, unsigned int order);
void __quire_prezero_moved(struct page *page, int from, int to);
void __quire_prezero_take_pcp(struct page *page, unsigned int order);
void __quire_prezero_freed(struct page *page, unsigned int order, int mt,
			   unsigned int marked, bool unused);
void __quire_prezero_split(struct page *page, unsigned int low,
			   unsigned int high, int mt);
bool __quire_prezero_take(struct page *page, unsigned int order, bool init);
bool __quire_prezero_has_huge(struct zone *zone);
struct page *__quire_prezero_find(struct zone *zone, unsigned int order, int mt,
				  unsigned int *found);
struct page *__quire_prezero_find_dirty(struct zone *zone, unsigned int order, int mt,
					unsigned int *found);
bool __quire_prezero_isolates(struct zone *zone);
gfp_t __quire_prezero_gfp(int nid, unsigned int order);

static inline bool quire_prezero_marks(void)
{
	return static_branch_unlikely(&quire_prezero_marks_key);
}

/**
 * quire_prezero_unmark - a block leaves its buddy list
 * @page: its head
 * @order: its order
 *
 * Clears the mark.
 *
 * Vanilla: does nothing here.
 *
 * Context: zone->lock is held.
 * Return: whether the block was marked.
 */
static inline bool quire_prezero_unmark(struct page *page, unsigned int order)
{
	if (!quire_prezero_marks() || !PageZeroed(page))
		return false;
	__quire_prezero_unmark(page, order);
	return true;
}

/**
 * quire_prezero_moved - a block goes from one migrate type's list to another's
 * @page: its head
 * @order: its order
 * @from: the migrate type that it has had
 * @to: the migrate type that it gets
 *
 * It keeps its mark.
 *
 * Vanilla: does nothing here.
 *
 * Context: zone->lock is held.
 */
static inline void quire_prezero_moved(struct page *page, unsigned int order, int from, int to)
{
	if (quire_prezero_marks() && order >= pageblock_order && PageZeroed(page))
		__quire_prezero_moved(page, from, to);
}

/**
 * quire_prezero_freed - a block was put on a buddy list, maybe merged
 * @page: its head
 * @order: its order
 * @mt: the migrate type of its list
 * @marked: how many of its pages are known to be zero
 * @unused: whether what was put on the list was not in use before (FPI_UNUSED)
 *
 * Marks the block if all its pages are. Tells kscrubd of a block that it would take, and notes
 * where memory was freed. Moves what was not in use to the list's head if there are zeroed
 * blocks, which are looked for at the tail.
 *
 * Vanilla: does nothing here.
 *
 * Context: zone->lock is held.
 */
static inline void quire_prezero_freed(struct page *page, unsigned int order,
				       int mt, unsigned int marked, bool unused)
{
	if (quire_prezero_marks() && (marked || order >= READ_ONCE(quire_scrub_order_min)))
		__quire_prezero_freed(page, order, mt, marked, unused);
}

/**
 * quire_prezero_split - a block was taken for an allocation and expanded
 * @page: its head, which is the part that is allocated
 * @low: order of that part
 * @high: order that the block had
 * @mt: the migrate type of the remainders' lists
 * @zeroed: whether the block was marked
 *
 * Marks the remainders, and the allocated part for quire_prezero_take() to consume.
 *
 * Vanilla: does nothing here.
 *
 * Context: zone->lock is held.
 */
static inline void quire_prezero_split(struct page *page, unsigned int low,
				       unsigned int high, int mt, bool zeroed)
{
	if (quire_prezero_marks() && zeroed)
		__quire_prezero_split(page, low, high, mt);
}

/**
 * quire_prezero_take_pcp - a page leaves its pcp list for the buddy lists
 * @page: the page
 * @order: its order
 *
 * Clears the mark.
 *
 * Vanilla: does nothing here.
 *
 * Context: the pcp lock and zone->lock are held.
 * Return: whether the page was marked.
 */
static inline bool quire_prezero_take_pcp(struct page *page, unsigned int order)
{
	if (!quire_prezero_marks() || !PageZeroed(page))
		return false;
	__quire_prezero_take_pcp(page, order);
	return true;
}

/**
 * quire_prezero_pcp_pick - choose a page of a pcp list
 * @list: the list, not empty
 * @want: whether the request wants zeroed memory
 *
 * Freed pages, which are cache-hot, are added at the head, and zeroed pages at the
 * tail, so looking at both ends mostly finds the right kind.
 *
 * Vanilla: takes the first page.
 *
 * Context: the pcp lock is held.
 * Return: the first or the last page of the list.
 */
static inline struct page *quire_prezero_pcp_pick(struct list_head *list, bool want)
{
	struct page *page = list_first_entry(list, struct page, pcp_list);

	if (quire_prezero_marks() && !!PageZeroed(page) != want) {
		struct page *last = list_last_entry(list, struct page, pcp_list);

		if (!!PageZeroed(last) == want)
			return last;
	}
	return page;
}

/**
 * quire_prezero_wanted - should a request look for zeroed memory
 * @gfp: its flags
 *
 * With init_on_alloc every request should: a saved clear is worth the same no
 * matter who asked for it.
 *
 * Vanilla: does not ask; a free page has to be cleared in any case.
 *
 * Context: any; takes no lock.
 * Return: whether the allocator is to look for marked blocks.
 */
static inline bool quire_prezero_wanted(gfp_t gfp)
{
	return quire_prezero_marks() && want_init_on_alloc(gfp);
}

/**
 * quire_prezero_pass_pcp - is the zone's pool better than the pcp list
 * @zone: the zone
 * @order: of the request
 * @want: whether the request wants zeroed memory
 *
 * Clearing a hot page of the pcp list is cheap; clearing 2 MB is not, and a
 * freed huge page would be reused forever while the pool is idle.
 *
 * Vanilla: tries the pcp list first for every order that has one.
 *
 * Context: any; takes no lock, the pcp lock is not held yet.
 * Return: true if the pcp list is to be skipped.
 */
static inline bool quire_prezero_pass_pcp(struct zone *zone, unsigned int order, bool want)
{
	return quire_prezero_marks() && want && order >= pageblock_order &&
	       __quire_prezero_has_huge(zone);
}

/**
 * quire_prezero_find - find a zeroed block for a request, or one that is not
 * @zone: the zone
 * @order: of the request
 * @mt: the migrate type of the lists
 * @want: does the request want zeroed memory
 * @found: set to the order of the block
 *
 * Vanilla: takes the first block of the smallest order that has one.
 *
 * Context: zone->lock is held.
 * Return: the block, which is still on its list, or NULL if any will do.
 */
static inline struct page *quire_prezero_find(struct zone *zone, unsigned int order, int mt,
					      bool want, unsigned int *found)
{
	if ((!want && order < pageblock_order) || !quire_prezero_marks())
		return NULL;
	return want ? __quire_prezero_find(zone, order, mt, found) :
		      __quire_prezero_find_dirty(zone, order, mt, found);
}

/**
 * quire_prezero_to_pcp - add a block to a pcp list, as entries of the list's order
 * @page: a free block that is on no list, marked or not
 * @part: its order
 * @order: of the entries
 * @list: the list; the entries are appended
 *
 * Vanilla: takes every entry from the buddy lists on its own.
 *
 * Context: the pcp lock and zone->lock are held.
 */
static inline void quire_prezero_to_pcp(struct page *page, unsigned int part,
					unsigned int order, struct list_head *list)
{
	struct page *end = page + (1UL << part);
	bool zeroed = PageZeroed(page);

	for (; page < end; page += 1UL << order) {
		if (zeroed)
			__SetPageZeroed(page);
		list_add_tail(&page->pcp_list, list);
	}
}

/**
 * quire_prezero_isolates - will the isolated block come back unused
 * @zone: the zone
 *
 * Vanilla: __isolate_free_page() makes the pageblocks of a large block movable,
 * which suits compaction but not a block that is only borrowed.
 *
 * Context: zone->lock is held.
 * Return: true if the pageblocks are to keep their types.
 */
static inline bool quire_prezero_isolates(struct zone *zone)
{
	return quire_prezero_marks() && __quire_prezero_isolates(zone);
}

/**
 * quire_prezero_take - an allocation consumes the mark
 * @page: head of the allocated block
 * @order: its order
 * @init: whether it must be cleared
 *
 * Vanilla: clears the block if @init is set.
 *
 * Context: any; takes no lock.
 * Return: true if the block must be cleared but is zero already.
 */
static inline bool quire_prezero_take(struct page *page, unsigned int order, bool init)
{
	return quire_prezero_marks() && __quire_prezero_take(page, order, init);
}

/**
 * quire_prezero_gfp - what a request for a zeroed folio adds to gfp
 * @order: of the folio; that of a huge page if it may be one
 *
 * Without zeroed memory the caller clears the folio itself, once it is sure that
 * the folio will be used. Ask once and keep the answer, which may change at any
 * moment: quire_prezero_cleared() tells from the flags whether to clear the folio.
 *
 * Vanilla: allocates without __GFP_ZERO.
 *
 * Context: any; takes no lock.
 * Return: __GFP_ZERO while the zone that will serve the request has zeroed blocks,
 * and with init_on_alloc, where the allocator clears everything; else 0.
 */
static inline gfp_t quire_prezero_gfp(unsigned int order)
{
	return static_branch_unlikely(&quire_prezero_key) ?
	       __quire_prezero_gfp(numa_mem_id(), order) : 0;
}

/**
 * quire_prezero_cleared - has the allocator cleared the folio
 * @gfp: the flags it was allocated with
 *
 * Vanilla: the caller clears the folio in any case.
 *
 * Context: any; takes no lock.
 * Return: true if the folio is zero.
 */
static inline bool quire_prezero_cleared(gfp_t gfp)
{
	return gfp & __GFP_ZERO;
}

/*
 * hugetlb zeroes a folio when it gets a user, not when it enters the pool. A folio that
 * came zeroed from the page allocator, or that kscrubd zeroed on a free list of hugetlb,
 * has a stamp beside hugetlb's own flags in folio->private: see prezero/hugetlb.c.
 */
DECLARE_STATIC_KEY_FALSE(quire_prezero_hugetlb_key);

struct hstate;

void __quire_prezero_hugetlb_new(struct folio *folio, bool zeroed);
void __quire_prezero_hugetlb_listed(struct hstate *h, struct folio *folio);
void __quire_prezero_hugetlb_unlisted(struct hstate *h, struct folio *folio);
void __quire_prezero_hugetlb_settle(struct folio *folio);
void __quire_prezero_hugetlb_drop(struct folio *folio);
bool __quire_prezero_hugetlb_take(struct folio *folio);
void __quire_prezero_hugetlb_freed(struct folio *folio);

static inline bool quire_prezero_hugetlb(void)
{
	return static_branch_unlikely(&quire_prezero_hugetlb_key);
}

/**
 * quire_prezero_hugetlb_gfp - quire_prezero_gfp() for a new folio of hugetlb
 * @nid: the node
 * @order: of the folio
 *
 * Vanilla: allocates without __GFP_ZERO.
 *
 * Context: any; takes no lock.
 * Return: __GFP_ZERO or 0.
 */
static inline gfp_t quire_prezero_hugetlb_gfp(int nid, unsigned int order)
{
	return static_branch_unlikely(&quire_prezero_key) ? __quire_prezero_gfp(nid, order) : 0;
}

/**
 * quire_prezero_hugetlb_new - remember whether a new folio is zero
 * @folio: the folio
 * @gfp: the flags it was allocated with; 0 for a folio that was split off
 *
 * Vanilla: does nothing here.
 *
 * Context: the caller is the folio's only user; takes no lock.
 */
static inline void quire_prezero_hugetlb_new(struct folio *folio, gfp_t gfp)
{
	if (quire_prezero_hugetlb())
		__quire_prezero_hugetlb_new(folio, gfp & __GFP_ZERO);
}

/**
 * quire_prezero_hugetlb_spare - where to take a folio that leaves the pool
 * @list: a free list that is not empty
 *
 * The zeroed folios are at the head, and are kept for those who want them zeroed.
 *
 * Vanilla: takes the folio at the head.
 *
 * Context: hugetlb_lock is held.
 * Return: the list_head of the folio.
 */
static inline struct list_head *quire_prezero_hugetlb_spare(struct list_head *list)
{
	return quire_prezero_hugetlb() ? list->prev : list->next;
}

/**
 * quire_prezero_hugetlb_listed - a folio was put on a free list
 * @h: its size
 * @folio: the folio
 *
 * Counts it if it is zero; else moves it to the tail, to be taken last.
 *
 * Vanilla: does nothing here.
 *
 * Context: hugetlb_lock is held.
 */
static inline void quire_prezero_hugetlb_listed(struct hstate *h, struct folio *folio)
{
	if (quire_prezero_hugetlb())
		__quire_prezero_hugetlb_listed(h, folio);
}

/**
 * quire_prezero_hugetlb_unlisted - a folio was taken off a free list
 * @h: its size
 * @folio: the folio
 *
 * kscrubd may still write to it until quire_prezero_hugetlb_settle() or
 * quire_prezero_hugetlb_drop().
 *
 * Vanilla: does nothing here.
 *
 * Context: hugetlb_lock is held.
 */
static inline void quire_prezero_hugetlb_unlisted(struct hstate *h, struct folio *folio)
{
	if (quire_prezero_hugetlb())
		__quire_prezero_hugetlb_unlisted(h, folio);
}

/**
 * quire_prezero_hugetlb_settle - a folio that was taken off a free list is about to be used
 * @folio: the folio, or NULL
 *
 * Vanilla: does nothing here.
 *
 * Context: hugetlb_lock is not held; waits for kscrubd's step in this folio, spinning.
 */
static inline void quire_prezero_hugetlb_settle(struct folio *folio)
{
	if (quire_prezero_hugetlb() && folio)
		__quire_prezero_hugetlb_settle(folio);
}

/**
 * quire_prezero_hugetlb_drop - a folio is about to be written to, freed or split
 * @folio: the folio; nobody else uses it
 *
 * Does what quire_prezero_hugetlb_settle() does, and clears the stamp.
 *
 * Vanilla: does nothing here.
 *
 * Context: as for quire_prezero_hugetlb_settle().
 */
static inline void quire_prezero_hugetlb_drop(struct folio *folio)
{
	if (quire_prezero_hugetlb())
		__quire_prezero_hugetlb_drop(folio);
}

/**
 * quire_prezero_hugetlb_take - is a folio that was just allocated zero
 * @folio: the folio; nobody has written to it since it was allocated
 *
 * Vanilla: folio_zero_user() clears the folio in any case.
 *
 * Context: the caller is the folio's only user; may sleep.
 * Return: true if the folio is zero; at most once.
 */
static inline bool quire_prezero_hugetlb_take(struct folio *folio)
{
	return quire_prezero_hugetlb() && __quire_prezero_hugetlb_take(folio);
}

/**
 * quire_prezero_hugetlb_freed - a folio goes back to the pool after use
 * @folio: the folio
 *
 * Clears the stamp. A valid one is that of a folio that was taken and not used, and counts
 * as wasted. While the feature is off no stamp is valid, but the folio is noted as used as
 * long as there may be marks: after the next start the record still counts.
 *
 * Vanilla: does nothing here.
 *
 * Context: any; hugetlb_lock is not held, and the folio has no reference left.
 */
static inline void quire_prezero_hugetlb_freed(struct folio *folio)
{
	if (quire_prezero_marks())
		__quire_prezero_hugetlb_freed(folio);
}

#else /* !CONFIG_QUIRE_PREZERO */

#define QUIRE_PREZERO_FLAG	0UL

struct hstate;

static inline bool quire_prezero_unmark(struct page *page, unsigned int order)
{
	return false;
}

static inline void quire_prezero_moved(struct page *page, unsigned int order, int from, int to)
{
}

static inline void quire_prezero_freed(struct page *page, unsigned int order,
				       int mt, unsigned int marked, bool unused)
{
}

static inline void quire_prezero_split(struct page *page, unsigned int low,
				       unsigned int high, int mt, bool zeroed)
{
}

static inline bool quire_prezero_take_pcp(struct page *page, unsigned int order)
{
	return false;
}

#define quire_prezero_pcp_pick(list, want) \
	list_first_entry(list, struct page, pcp_list)

static inline bool quire_prezero_wanted(gfp_t gfp)
{
	return false;
}

static inline bool quire_prezero_pass_pcp(struct zone *zone, unsigned int order, bool want)
{
	return false;
}

static inline struct page *quire_prezero_find(struct zone *zone, unsigned int order, int mt,
					      bool want, unsigned int *found)
{
	return NULL;
}

static inline void quire_prezero_to_pcp(struct page *page, unsigned int part,
					unsigned int order, struct list_head *list)
{
}

static inline bool quire_prezero_isolates(struct zone *zone)
{
	return false;
}

static inline bool quire_prezero_take(struct page *page, unsigned int order, bool init)
{
	return false;
}

static inline gfp_t quire_prezero_gfp(unsigned int order)
{
	return 0;
}

static inline bool quire_prezero_cleared(gfp_t gfp)
{
	return false;
}

static inline gfp_t quire_prezero_hugetlb_gfp(int nid, unsigned int order)
{
	return 0;
}

static inline void quire_prezero_hugetlb_new(struct folio *folio, gfp_t gfp)
{
}

static inline struct list_head *quire_prezero_hugetlb_spare(struct list_head *list)
{
	return list->next;
}

static inline void quire_prezero_hugetlb_listed(struct hstate *h, struct folio *folio)
{
}

static inline void quire_prezero_hugetlb_unlisted(struct hstate *h, struct folio *folio)
{
}

static inline void quire_prezero_hugetlb_settle(struct folio *folio)
{
}

static inline void quire_prezero_hugetlb_drop(struct folio *folio)
{
}

static inline bool quire_prezero_hugetlb_take(struct folio *folio)
{
	return false;
}

static inline void quire_prezero_hugetlb_freed(struct folio *folio)
{
}

#endif /* CONFIG_QUIRE_PREZERO */

#endif /* _LINUX_QUIRE_PREZERO_H */
