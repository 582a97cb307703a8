// SPDX-License-Identifier: GPL-2.0
/*
 * Memory set aside for blocks of text that are being read.
 *
 * A block whose pages are in order in one aligned piece of memory can be made huge with
 * no copy (promote.c). So a free huge page is set aside for a block of queued text that is
 * likely to be read whole, and each page that is read after that takes its own frame. That
 * is a block of which a part has been read, or which follows one that has been read, in
 * order. What is read, when, and in which order, is what it would be anyway. The pages
 * that were read before are moved to their frames when the block is made huge. The model is
 * reservations in FreeBSD (vm_reserv.c; Navarro et al., "Practical, transparent operating
 * system support for superpages", OSDI 2002).
 *
 * Memory set aside may be missing elsewhere, and no memory cgroup pays for it. So there are
 * few places, and it goes back: to others when all places are taken and one has not been
 * used for a moment, a second after the last use if much of it is free, ten seconds after
 * the first, to the shrinker, when the inode is evicted, and when the feature is switched
 * off. Nor can it be migrated, so it goes back when somebody wants just that memory: to take
 * it offline, or for a gigantic page. It is taken only while the zone has more than it keeps
 * free anyway, and huge pages for others, with nothing reclaimed or compacted for it, of the
 * node that the task reads into anyway, and if the task's group has room for all of it.
 *
 * Locking: text_places_lock covers the places. It nests inside the invalidate_lock and
 * inside the mutexes and semaphores of whoever isolates a pageblock (mem_hotplug_lock,
 * pcp_batch_high_lock and CMA's mutex, for example). No other lock is taken inside it.
 *
 * Lifetime: a place compares its mapping and does not use it. It is empty before its inode
 * is gone (quire_text_unreserve()). The frames have a reference each, as pages from
 * split_page() have, which passes to whoever takes the frame.
 *
 * Undo: quire_text_unreserve(). A block that was read half from its place is like any
 * other.
 */
#include <linux/bitmap.h>
#include <linux/cpuset.h>
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/hashtable.h>
#include <linux/jiffies.h>
#include <linux/memcontrol.h>
#include <linux/mempolicy.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/quire/text.h>
#include <linux/shrinker.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "text.h"

#define TEXT_PLACES		128
#define TEXT_PLACES_SHARE	64	/* of memory, one in so much */
#define TEXT_REPLACED_AFTER	(HZ / 10)
#define TEXT_IDLE_AFTER		HZ
#define TEXT_EXPIRES_AFTER	(10 * HZ)
#define TEXT_EXPIRY_PERIOD	(HZ / 2)

/* A block has a place if so many of its pages are resident: more than one fault reads. */
#define TEXT_BEGUN		48

/* Or, from its first page on, so many of the block before. */
#define TEXT_STREAM		(HPAGE_PMD_NR - HPAGE_PMD_NR / 4)

/* So many free huge pages are left to others. */
#define TEXT_PIECES_KEPT	16

/* When no huge page was free, none is asked for in so many jiffies. */
#define TEXT_NOMEM_WAIT		(HZ / 10)

/* When all places are taken, one is replaced at most once in so many. */
#define TEXT_FULL_WAIT		(HZ / 50)

/**
 * struct text_place - a huge page set aside for a block
 * @node: in text_places_hash, unless it is empty
 * @mapping: the file's, only compared; NULL if there is none
 * @start: the block's first page
 * @born: when it was set aside, in jiffies
 * @used: when a frame was last taken, in jiffies
 * @piece: its frames
 *
 * All under text_places_lock.
 */
struct text_place {
	struct hlist_node node;
	const struct address_space *mapping;
	pgoff_t start;
	unsigned long born, used;
	struct text_piece piece;
};

static DEFINE_SPINLOCK(text_places_lock);
static struct text_place text_places[TEXT_PLACES];
static DEFINE_HASHTABLE(text_places_hash, 7);
unsigned int quire_text_places_used;		/* readers need no lock for a guess */
static bool text_places_open;			/* under text_places_lock */
static unsigned int text_most_places;		/* 0 until the first start */
static unsigned long text_nomem_end;		/* in jiffies; written and read without a lock */
static unsigned long text_full_end;		/* the same */

static void text_expire(struct work_struct *work);
static DECLARE_DELAYED_WORK(text_expiry, text_expire);

unsigned int quire_text_in_place = 1;

static unsigned long text_place_key(const struct address_space *mapping, pgoff_t start)
{
	return (unsigned long)mapping + start;
}

static struct text_place *text_find_place(const struct address_space *mapping, pgoff_t start)
{
	struct text_place *place;

	lockdep_assert_held(&text_places_lock);
	hash_for_each_possible(text_places_hash, place, node, text_place_key(mapping, start))
		if (place->mapping == mapping && place->start == start)
			return place;
	return NULL;
}

/* Without the lock: may the block have a place? */
static bool text_may_have_place(const struct address_space *mapping, pgoff_t start)
{
	unsigned int bucket = hash_min(text_place_key(mapping, start),
				       HASH_BITS(text_places_hash));

	return !hlist_empty(&text_places_hash[bucket]);
}

static struct text_place *text_empty_place(void)
{
	unsigned int i;

	lockdep_assert_held(&text_places_lock);
	for (i = 0; i < text_most_places; i++)
		if (!text_places[i].mapping)
			return &text_places[i];
	return NULL;
}

static void text_close_place(struct text_place *place)
{
	lockdep_assert_held(&text_places_lock);
	hash_del(&place->node);
	place->mapping = NULL;
	WRITE_ONCE(quire_text_places_used, quire_text_places_used - 1);
}

/* ---- giving back ---- */

static void text_free_frames(const struct text_piece *piece)
{
	unsigned int i;

	for_each_set_bit(i, piece->free, HPAGE_PMD_NR)
		__free_page(piece->head + i);
}

/**
 * quire_text_free_piece - free the frames that were not taken
 * @piece: nobody else knows it
 *
 * Context: any but interrupts.
 */
void quire_text_free_piece(const struct text_piece *piece)
{
	if (!piece->left)
		return;
	text_free_frames(piece);
	text_count(TEXT_RESERVE_UNFILLED, 1);
}

typedef bool text_match_fn(const struct text_place *place, const void *arg);

/*
 * Empty the place that matches and has not been used for the longest time. Returns how many frames
 * it had left.
 */
static unsigned int text_empty_one(text_match_fn *match, const void *arg)
{
	struct text_place *place, *oldest = NULL;
	struct text_piece found = {};

	spin_lock(&text_places_lock);
	for (place = text_places; place < text_places + text_most_places; place++)
		if (place->mapping && match(place, arg) &&
		    (!oldest || time_before(place->used, oldest->used)))
			oldest = place;
	if (oldest) {
		found = oldest->piece;
		text_close_place(oldest);
	}
	spin_unlock(&text_places_lock);
	quire_text_free_piece(&found);
	return found.left;
}

static bool text_is_of(const struct text_place *place, const void *mapping)
{
	return !mapping || place->mapping == mapping;
}

static bool text_is_old(const struct text_place *place, const void *unused)
{
	return time_after_eq(jiffies, place->born + TEXT_EXPIRES_AFTER) ||
		(place->piece.left > TEXT_MUCH_LEFT &&
		 time_after_eq(jiffies, place->used + TEXT_IDLE_AFTER));
}

/* Has it not been used for a moment? */
static bool text_is_replaceable(const struct text_place *place, const void *unused)
{
	return time_after_eq(jiffies, place->used + TEXT_REPLACED_AFTER);
}

/**
 * quire_text_open_places - let memory be set aside
 *
 * Context: does not sleep; takes text_places_lock.
 */
void quire_text_open_places(void)
{
	spin_lock(&text_places_lock);
	text_places_open = true;
	spin_unlock(&text_places_lock);
}

/**
 * quire_text_close_places - give back all that is set aside, and set nothing aside after that
 *
 * Context: does not sleep; takes text_places_lock.
 */
void quire_text_close_places(void)
{
	spin_lock(&text_places_lock);
	text_places_open = false;
	spin_unlock(&text_places_lock);
	quire_text_unreserve(NULL);
}

/**
 * quire_text_unreserve - give back what is set aside
 * @mapping: for this file; NULL: for all
 *
 * Context: does not sleep; takes text_places_lock.
 */
void quire_text_unreserve(const struct address_space *mapping)
{
	while (READ_ONCE(quire_text_places_used) && text_empty_one(text_is_of, mapping))
		;
}

static void text_expire(struct work_struct *work)
{
	while (!quire_text_held_back(TEXT_HOLD_EXPIRY) && text_empty_one(text_is_old, NULL))
		cond_resched();
	if (READ_ONCE(quire_text_places_used))
		schedule_delayed_work(&text_expiry, TEXT_EXPIRY_PERIOD);
}

static unsigned long text_shrink_count(struct shrinker *shrinker, struct shrink_control *sc)
{
	unsigned long frames = 0;
	unsigned int i;

	if (!READ_ONCE(quire_text_places_used))
		return SHRINK_EMPTY;
	spin_lock(&text_places_lock);
	for (i = 0; i < text_most_places; i++)
		if (text_places[i].mapping)
			frames += text_places[i].piece.left;
	spin_unlock(&text_places_lock);
	return frames;
}

static unsigned long text_shrink_scan(struct shrinker *shrinker, struct shrink_control *sc)
{
	unsigned long freed = 0, more;

	do {
		more = text_empty_one(text_is_of, NULL);
		freed += more;
	} while (more && freed < sc->nr_to_scan);
	return freed ? freed : SHRINK_STOP;
}

static bool text_is_in_pageblock(const struct text_place *place, const void *arg)
{
	const struct page *page = arg;
	unsigned long start = pageblock_start_pfn(page_to_pfn(page));
	unsigned long head = page_to_pfn(place->piece.head);

	return head < start + pageblock_nr_pages && head + HPAGE_PMD_NR > start;
}

/**
 * __quire_text_isolating - give back what is set aside in a pageblock
 * @page: in the pageblock
 *
 * Only the pageblock that is isolated next: memory that is free for longer may be set aside again.
 *
 * Context: takes text_places_lock.
 */
void __quire_text_isolating(const struct page *page)
{
	while (READ_ONCE(quire_text_places_used) && text_empty_one(text_is_in_pageblock, page))
		;
}

/* ---- setting aside ---- */

/* Does the task take the page cache's pages from this node, without any policy? */
static bool text_takes_from(int nid)
{
	return nid == numa_mem_id() && !text_has_policy(current) &&
		!cpuset_do_page_mem_spread() && node_isset(nid, cpuset_current_mems_allowed);
}

/* How many huge pages are free in a zone? A guess without its lock. */
static unsigned long text_free_pieces(const struct zone *zone)
{
	unsigned long pieces = 0;
	int order;

	for (order = HPAGE_PMD_ORDER; order < NR_PAGE_ORDERS; order++)
		/* The lock is not held, and the number may change at once. */
		pieces += data_race(zone->free_area[order].nr_free) << (order - HPAGE_PMD_ORDER);
	return pieces;
}

/* Does the zone that comes first have so much free memory that nobody misses a huge page? */
static bool text_memory_is_free(int nid, gfp_t gfp)
{
	enum zone_type highest = gfp_zone(gfp);
	int i;

	for (i = highest; i >= 0; i--) {
		struct zone *zone = &NODE_DATA(nid)->node_zones[i];

		if (managed_zone(zone))
			return text_free_pieces(zone) > TEXT_PIECES_KEPT &&
				zone_watermark_ok(zone, HPAGE_PMD_ORDER, high_wmark_pages(zone),
						  highest, 0);
	}
	return false;
}

/*
 * Has the memory cgroup that pays for what the task reads room for the block, and for as much again,
 * which the worker wants to find before it makes the block huge?
 */
static bool text_group_has_room(void)
{
	struct mem_cgroup *memcg = get_mem_cgroup_from_mm(NULL);
	bool room = quire_text_room(memcg) >= 2 * HPAGE_PMD_NR;

	mem_cgroup_put(memcg);
	return room;
}

/* A free huge page as 512 pages. Returns false if there is none. */
static bool text_alloc_piece(struct text_piece *piece, int nid, gfp_t gfp)
{
	struct page *head;

	gfp &= ~__GFP_RECLAIM;
	gfp |= __GFP_THISNODE | __GFP_NOMEMALLOC | __GFP_NOWARN;
	head = alloc_pages_node(nid, gfp, HPAGE_PMD_ORDER);
	if (!head)
		return false;
	/* What is set aside cannot be migrated, and CMA relies on that. */
	if (is_migrate_cma_page(head)) {
		__free_pages(head, HPAGE_PMD_ORDER);
		return false;
	}
	split_page(head, HPAGE_PMD_ORDER);
	piece->head = head;
	piece->left = HPAGE_PMD_NR;
	bitmap_fill(piece->free, HPAGE_PMD_NR);
	return true;
}

/* How many pages of a block are in the page cache? Stops at @enough. */
static unsigned int text_count_pages(struct address_space *mapping, pgoff_t start,
				     unsigned int enough)
{
	XA_STATE(xas, &mapping->i_pages, start);
	unsigned int nr = 0;
	void *entry;

	rcu_read_lock();
	xas_for_each(&xas, entry, start + HPAGE_PMD_NR - 1) {
		if (xas_retry(&xas, entry) || xa_is_value(entry))
			continue;
		nr += 1U << xas_get_order(&xas);
		if (nr >= enough)
			break;
	}
	rcu_read_unlock();
	return nr;
}

/*
 * Is a block of queued text likely to be read whole, as it was begun or follows one that was read?
 * @index is the page that is about to be read.
 */
static bool text_worth_reserving(struct address_space *mapping, pgoff_t start, pgoff_t index)
{
	loff_t end = (loff_t)(start + HPAGE_PMD_NR) << PAGE_SHIFT;
	unsigned int begun;

	if (end > i_size_read(mapping->host))
		return false;
	/* More are not moved to their frames. */
	begun = text_count_pages(mapping, start, TEXT_MUCH_LEFT + 1);
	if (begun > TEXT_MUCH_LEFT)
		return false;
	if (begun < TEXT_BEGUN &&
	    (index != start || !start ||
	     text_count_pages(mapping, start - HPAGE_PMD_NR, TEXT_STREAM) < TEXT_STREAM))
		return false;
	return quire_text_queued(mapping->host, start) &&
		quire_text_share_left(1 + READ_ONCE(quire_text_places_used));
}

/* Give the block at @start a place, unless it has one. Returns whether it took @piece. */
static bool text_open_place(const struct address_space *mapping, pgoff_t start,
			    const struct text_piece *piece)
{
	struct text_place *place = NULL;

	spin_lock(&text_places_lock);
	if (text_places_open && !text_find_place(mapping, start))
		place = text_empty_place();
	if (place) {
		place->mapping = mapping;
		place->start = start;
		place->born = place->used = jiffies;
		place->piece = *piece;
		hash_add(text_places_hash, &place->node, text_place_key(mapping, start));
		WRITE_ONCE(quire_text_places_used, quire_text_places_used + 1);
	}
	spin_unlock(&text_places_lock);
	return place;
}

/* Are all places taken? One is replaced now and then; it takes time to see whether it is worth it. */
static bool text_places_full(void)
{
	if (READ_ONCE(quire_text_places_used) < text_most_places)
		return false;
	if (time_before(jiffies, READ_ONCE(text_full_end)))
		return true;
	WRITE_ONCE(text_full_end, jiffies + TEXT_FULL_WAIT);
	return false;
}

/* Set memory aside for a block. Returns whether it may have any now. */
static bool text_reserve(struct address_space *mapping, pgoff_t start, pgoff_t index, gfp_t gfp)
{
	int nid = numa_mem_id();
	struct text_piece piece;

	if (text_allocations_recorded() || time_before(jiffies, READ_ONCE(text_nomem_end)) ||
	    text_places_full() || !text_takes_from(nid) ||
	    !text_worth_reserving(mapping, start, index) || !text_group_has_room())
		return false;
	if (READ_ONCE(quire_text_places_used) >= text_most_places &&
	    !(text_memory_is_free(nid, gfp) && text_empty_one(text_is_replaceable, NULL)))
		return false;
	if (!text_memory_is_free(nid, gfp) || !text_alloc_piece(&piece, nid, gfp)) {
		text_count(TEXT_RESERVE_NOMEM, 1);
		WRITE_ONCE(text_nomem_end, jiffies + TEXT_NOMEM_WAIT);
		return false;
	}
	if (!text_open_place(mapping, start, &piece)) {
		/* Others have mostly set something aside meanwhile. */
		text_free_frames(&piece);
		return true;
	}
	text_count(TEXT_RESERVED_BLOCKS, 1);
	schedule_delayed_work(&text_expiry, TEXT_EXPIRY_PERIOD);
	return true;
}

/*
 * Take the frame of a page out of its place. Returns false if the block has no place. A poisoned
 * frame stays until it is freed with what is left, and the page allocator discards it.
 */
static bool text_take_frame(const struct address_space *mapping, pgoff_t index, struct page **page)
{
	unsigned int nr = index % HPAGE_PMD_NR;
	struct text_place *place;

	spin_lock(&text_places_lock);
	place = text_find_place(mapping, index - nr);
	if (place && text_takes_from(page_to_nid(place->piece.head)) &&
	    !PageHWPoison(place->piece.head + nr) &&
	    __test_and_clear_bit(nr, place->piece.free)) {
		*page = place->piece.head + nr;
		/* Filesystems look at it, and split_page() leaves it as it was. */
		set_page_private(*page, 0);
		place->used = jiffies;
		if (!--place->piece.left)
			text_close_place(place);
	}
	spin_unlock(&text_places_lock);
	return place;
}

/**
 * quire_text_claim_piece - take what is left of a block's place
 * @mapping: the file's
 * @start: the block's first page
 * @piece: gets it
 *
 * Context: takes text_places_lock.
 * Return: true if the block had a place. The caller owns the frames that are left.
 */
bool quire_text_claim_piece(const struct address_space *mapping, pgoff_t start,
			    struct text_piece *piece)
{
	struct text_place *place;

	if (!text_may_have_place(mapping, start))
		return false;
	spin_lock(&text_places_lock);
	place = text_find_place(mapping, start);
	if (place) {
		*piece = place->piece;
		text_close_place(place);
	}
	spin_unlock(&text_places_lock);
	return place;
}

/*
 * Take a page's frame, if its block may have a place (@placed), or else set memory aside for the
 * block if that is worth it.
 */
static noinline struct folio *text_reserved(struct address_space *mapping, pgoff_t index,
					    gfp_t gfp, bool placed)
{
	pgoff_t start = round_down(index, HPAGE_PMD_NR);
	struct page *page = NULL;

	if (mapping_min_folio_order(mapping))
		return NULL;
	if (!(placed && text_take_frame(mapping, index, &page)) &&
	    IS_ALIGNED(index, QUIRE_TEXT_STEP) && text_reserve(mapping, start, index, gfp))
		text_take_frame(mapping, index, &page);
	return page ? page_folio(page) : NULL;
}

/**
 * __quire_text_reserved - the frame that was set aside for a page of a file
 * @mapping: the file's; it was queued
 * @index: the page's, about to be read
 * @gfp: how Linux would allocate the page; says where the memory may come from
 *
 * Context: the invalidate_lock is held; takes text_lock and text_places_lock, but not both.
 * Return: a folio with one reference, as from filemap_alloc_folio(), or NULL.
 */
struct folio *__quire_text_reserved(struct address_space *mapping, pgoff_t index, gfp_t gfp)
{
	bool placed = text_may_have_place(mapping, round_down(index, HPAGE_PMD_NR));

	lockdep_assert_held(&mapping->invalidate_lock);
	/* Mostly there is none, and all that read would share the lock. */
	if (!placed && !IS_ALIGNED(index, QUIRE_TEXT_STEP))
		return NULL;
	return text_reserved(mapping, index, gfp, placed);
}

/**
 * quire_text_make_places - prepare for setting memory aside, once
 *
 * Until the feature is switched on, reclaim asks for nothing that is set aside.
 *
 * Context: may sleep; the feature is being switched on, which is serialized.
 * Return: 0 or -ENOMEM.
 */
int quire_text_make_places(void)
{
	unsigned long share = totalram_pages() / HPAGE_PMD_NR / TEXT_PLACES_SHARE;
	static struct shrinker *shrinker;

	if (shrinker)
		return 0;
	shrinker = shrinker_alloc(0, "quire-text");
	if (!shrinker)
		return -ENOMEM;
	shrinker->seeks = 0;		/* the rest of a huge page is cheaper than any other */
	shrinker->count_objects = text_shrink_count;
	shrinker->scan_objects = text_shrink_scan;
	shrinker_register(shrinker);
	text_most_places = min(share, TEXT_PLACES);
	text_nomem_end = text_full_end = jiffies;
	return 0;
}
