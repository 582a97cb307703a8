/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Pre-zeroed free pages: the hooks of the page allocator and of its users.
 *
 * PG_zeroed on the head of a free block says that every byte of the block is
 * zero. It is valid in three places only: on a buddy list (under zone->lock),
 * on a pcp list (under the pcp lock), and on the way from either to
 * post_alloc_hook(), which consumes it. Whatever else takes a block off a free
 * list loses the mark: losing it costs one clear, keeping it would hand one
 * user's data to another.
 *
 * Two keys. quire_prezero_key says whether to zero more pages; when it is off
 * marked pages may still be about, so all that maintains and consumes the mark
 * tests quire_prezero_marks_key, which is on from the first start until a drain
 * has shown that no mark is left.
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
 * The bit is one that only pages in use have, as PG_reported's is; the free path
 * clears all such bits before a page reaches a list, so that a stale one cannot
 * be taken for a mark. It is named here and not in page-flags.h, which every
 * file includes, because only the allocator may use it.
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

/* What may be set on a page that comes from a free list. */
#define QUIRE_PREZERO_FLAG	(1UL << PG_zeroed)

/* From this order on kscrubd waits for a block; NR_PAGE_ORDERS while it does not. */
extern unsigned int quire_prezero_lacks;

void __quire_prezero_unmark(struct page *page, unsigned int order);
void __quire_prezero_take_pcp(struct page *page, unsigned int order);
void __quire_prezero_freed(struct page *page, unsigned int order, int mt,
			   unsigned int marked);
void __quire_prezero_split(struct page *page, unsigned int low,
			   unsigned int high, int mt);
bool __quire_prezero_take(struct page *page, unsigned int order, bool init);
bool __quire_prezero_has_huge(struct zone *zone);
bool __quire_prezero_has(struct zone *zone);
bool __quire_prezero_has_order(struct zone *zone, unsigned int order);
bool __quire_prezero_spares(struct zone *zone);
bool __quire_prezero_isolates(struct zone *zone);
gfp_t __quire_prezero_gfp(int nid, unsigned int order);
bool __quire_prezero_hugetlb_take(struct folio *folio);

static inline bool quire_prezero_marks(void)
{
	return static_branch_unlikely(&quire_prezero_marks_key);
}

/**
 * quire_prezero_unmark - a block leaves its buddy list
 * @page: its head
 * @order: its order
 *
 * Under zone->lock. Returns whether it was marked; the mark is gone.
 */
static inline bool quire_prezero_unmark(struct page *page, unsigned int order)
{
	if (!quire_prezero_marks() || !PageZeroed(page))
		return false;
	__quire_prezero_unmark(page, order);
	return true;
}

/**
 * quire_prezero_freed - a block was put on a buddy list, maybe merged
 * @page: its head
 * @order: its order
 * @mt: its list
 * @marked: so many of its pages are known to be zero
 *
 * Under zone->lock. Marks it if all are.
 */
static inline void quire_prezero_freed(struct page *page, unsigned int order,
				       int mt, unsigned int marked)
{
	if (quire_prezero_marks() && (marked || order >= READ_ONCE(quire_prezero_lacks)))
		__quire_prezero_freed(page, order, mt, marked);
}

/**
 * quire_prezero_split - a block was taken for an allocation and expanded
 * @page: its head, which is the part that is allocated
 * @low: order of that part
 * @high: order that the block had
 * @mt: the list of the remainders
 * @zeroed: was it marked
 *
 * Under zone->lock. Marks the remainders, and the allocated part, for
 * quire_prezero_take() to consume.
 */
static inline void quire_prezero_split(struct page *page, unsigned int low,
				       unsigned int high, int mt, bool zeroed)
{
	if (quire_prezero_marks() && zeroed)
		__quire_prezero_split(page, low, high, mt);
}

/**
 * quire_prezero_take_pcp - a page leaves its pcp list for the buddy lists
 * @page: which
 * @order: its order
 *
 * Under the pcp lock. Returns whether it was marked; the mark is gone.
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
 * @want: does the request want zeroed memory
 *
 * Under the pcp lock. Freed pages come to the head, where they are hot, and
 * zeroed ones to the tail: looking at both ends finds the right sort mostly.
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
 * With init_on_alloc each should: a clear that is saved is worth the same whoever
 * asked for it.
 */
static inline bool quire_prezero_wanted(gfp_t gfp)
{
	return quire_prezero_marks() && want_init_on_alloc(gfp);
}

/**
 * quire_prezero_pass_pcp - is the zone's pool better than the pcp list
 * @zone: which
 * @order: of the request
 * @want: does the request want zeroed memory
 *
 * Clearing a hot page of the pcp list is cheap; clearing 2 MB is not, and a
 * freed huge page would be reused for ever while the pool is idle.
 */
static inline bool quire_prezero_pass_pcp(struct zone *zone, unsigned int order, bool want)
{
	return quire_prezero_marks() && want && order >= pageblock_order &&
	       __quire_prezero_has_huge(zone);
}

/**
 * quire_prezero_has - are there zeroed blocks to look for
 * @zone: which
 *
 * Under zone->lock.
 */
static inline bool quire_prezero_has(struct zone *zone)
{
	return quire_prezero_marks() && __quire_prezero_has(zone);
}

/**
 * quire_prezero_candidate - a zeroed block of a buddy list
 * @zone: which
 * @order: of the block
 * @mt: the list
 *
 * Under zone->lock. Zeroed blocks are put at the tail, but compaction turns
 * lists over, so both ends are looked at. NULL if neither is zeroed.
 */
static inline struct page *quire_prezero_candidate(struct zone *zone, unsigned int order, int mt)
{
	struct list_head *list = &zone->free_area[order].free_list[mt];
	struct page *page;

	if (!__quire_prezero_has_order(zone, order) || list_empty(list))
		return NULL;
	page = list_last_entry(list, struct page, buddy_list);
	if (PageZeroed(page))
		return page;
	page = list_first_entry(list, struct page, buddy_list);
	return PageZeroed(page) ? page : NULL;
}

/**
 * quire_prezero_spares - may a zeroed huge block be split before its time
 * @zone: which
 * @mt: the list
 *
 * Under zone->lock. Only movable memory may: what is split early elsewhere makes
 * unmovable memory take over another movable block earlier.
 */
static inline bool quire_prezero_spares(struct zone *zone, int mt)
{
	return mt == MIGRATE_MOVABLE && __quire_prezero_spares(zone);
}

/**
 * quire_prezero_to_pcp - what was taken for a pcp list, as entries of it
 * @page: a free block that is on no list, marked or not
 * @part: its order
 * @order: of the entries
 * @list: where they are appended
 *
 * Under the pcp lock.
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
 * quire_prezero_isolates - do isolated blocks come back as they are
 * @zone: which
 *
 * Under zone->lock. Other users of __isolate_free_page() are to use the memory,
 * for something movable, so that it changes the type of whole pageblocks.
 */
static inline bool quire_prezero_isolates(struct zone *zone)
{
	return quire_prezero_marks() && __quire_prezero_isolates(zone);
}

/**
 * quire_prezero_take - an allocation consumes the mark
 * @page: head of what was allocated
 * @order: its order
 * @init: must it be cleared
 *
 * Any context, no lock. Returns true if it must be cleared but is zero already.
 */
static inline bool quire_prezero_take(struct page *page, unsigned int order, bool init)
{
	return quire_prezero_marks() && __quire_prezero_take(page, order, init);
}

/**
 * quire_prezero_gfp - what a request that needs a zeroed folio adds to gfp
 * @order: of the folio; of a huge page where it may be one
 *
 * __GFP_ZERO while the zone that is going to serve it has such blocks, or with
 * init_on_alloc, where all that is allocated is cleared; else 0: nobody is to pay
 * for a clear before it is sure that the folio will be used. Ask once and keep the
 * answer: it may be another a moment later, and quire_prezero_cleared() tells from
 * the flags whether to clear the folio.
 */
static inline gfp_t quire_prezero_gfp(unsigned int order)
{
	return static_branch_unlikely(&quire_prezero_key) ?
	       __quire_prezero_gfp(numa_mem_id(), order) : 0;
}

/**
 * quire_prezero_cleared - has the allocator cleared the folio
 * @gfp: flags that it was allocated with
 */
static inline bool quire_prezero_cleared(gfp_t gfp)
{
	return gfp & __GFP_ZERO;
}

/*
 * hugetlb's folios are zeroed for their user and not for the pool, so one that
 * came zeroed from the page allocator carries a flag of its own beside hugetlb's
 * in folio->private: set when the folio is new, and cleared by the first that
 * wants it zeroed, or when it is freed, whatever was done with it.
 */
#define QUIRE_HPG_ZEROED	31

/**
 * quire_prezero_hugetlb_gfp - quire_prezero_gfp() for a new folio of hugetlb
 * @nid: the node
 * @order: of the folio
 */
static inline gfp_t quire_prezero_hugetlb_gfp(int nid, unsigned int order)
{
	return static_branch_unlikely(&quire_prezero_key) ? __quire_prezero_gfp(nid, order) : 0;
}

/**
 * quire_prezero_hugetlb_new - remember that a new folio is zero
 * @folio: which, owned by the caller alone
 * @gfp: flags that it was allocated with
 */
static inline void quire_prezero_hugetlb_new(struct folio *folio, gfp_t gfp)
{
	if (gfp & __GFP_ZERO)
		__set_bit(QUIRE_HPG_ZEROED, (unsigned long *)&folio->private);
}

/**
 * quire_prezero_hugetlb_take - is a folio that was just allocated zero
 * @folio: which; nobody has written to it since it was allocated
 *
 * The answer is true once at most.
 */
static inline bool quire_prezero_hugetlb_take(struct folio *folio)
{
	return test_and_clear_bit(QUIRE_HPG_ZEROED, (unsigned long *)&folio->private) &&
	       __quire_prezero_hugetlb_take(folio);
}

/**
 * quire_prezero_hugetlb_freed - a folio that was used goes back to the pool
 * @folio: which
 *
 * Whether the feature is on or off: the flag must never outlive a use.
 */
static inline void quire_prezero_hugetlb_freed(struct folio *folio)
{
	clear_bit(QUIRE_HPG_ZEROED, (unsigned long *)&folio->private);
}

#else /* !CONFIG_QUIRE_PREZERO */

#define QUIRE_PREZERO_FLAG	0UL

static inline bool quire_prezero_unmark(struct page *page, unsigned int order)
{
	return false;
}

static inline void quire_prezero_freed(struct page *page, unsigned int order,
				       int mt, unsigned int marked)
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

static inline bool quire_prezero_has(struct zone *zone)
{
	return false;
}

static inline struct page *quire_prezero_candidate(struct zone *zone, unsigned int order, int mt)
{
	return NULL;
}

static inline bool quire_prezero_spares(struct zone *zone, int mt)
{
	return false;
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

static inline bool quire_prezero_hugetlb_take(struct folio *folio)
{
	return false;
}

static inline void quire_prezero_hugetlb_freed(struct folio *folio)
{
}

#endif /* CONFIG_QUIRE_PREZERO */

#endif /* _LINUX_QUIRE_PREZERO_H */
