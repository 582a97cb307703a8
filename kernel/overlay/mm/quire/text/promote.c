// SPDX-License-Identifier: GPL-2.0
/*
 * Making a block of text one huge folio where it is.
 *
 * If readahead has put the 512 pages of a block into one aligned piece of memory
 * (reserve.c), nothing need be copied: the small folios are merged into a large one. Pages
 * that were read before that memory was set aside are migrated to their frames first. This
 * is what __split_huge_page() does, backwards. Contents, frames and index stay; what changes
 * is the bookkeeping of 512 folios:
 *
 * - References. Each folio has one of the page cache, one of the walk, one of the LRU
 *   isolation, and one of each page table that maps it. All are frozen at just these; whoever
 *   came meanwhile (a fault that waits, a pin, truncation, readers of the file) makes a
 *   freeze fail. The large folio has 512 of the page cache and all the others.
 * - Page tables. The locks of those that map the block are held from before the freeze until
 *   after the exchange, so that no mapping comes or goes, and no program that runs in the
 *   block is disturbed: its entries map pages of the large folio then. They are zapped after
 *   that, and the page tables are taken away, so that the next fault maps a PMD. GUP-fast
 *   either took its reference before the freeze, which then fails, or finds a folio without
 *   any. All locks but the first are only tried, as others hold two in another order.
 * - Waiters. Those that wait for a folio's lock hold a reference, except for
 *   folio_put_wait_locked(), which leaves PG_waiters behind: then nothing is merged, too.
 * - The page cache. One multi-index entry replaces the 512, as in collapse_file(), before
 *   they become one folio: a reader under RCU finds the head, locked and frozen. A reader
 *   that has an old entry finds a page that cannot be referenced, and looks again. It may
 *   find a tail, as with any page that is freed and reused.
 * - LRU. The large folio is active if half of the pages were, and inherits what reclaim is
 *   to know: PG_referenced, PG_workingset, PG_young.
 * - memcg. All pages must be charged to one. Its charge stays; of 512 references to it,
 *   511 go.
 * - Writers. As in collapse_file(): nr_thps is raised first, and then there must be no
 *   writer, and nothing dirty, in any part of the file.
 * - Private data, dirty pages, writeback, poisoned and locked pages: nothing is merged.
 *
 * What cannot be merged is copied, as before: many processes map it, or a page table that
 * several processes share, or somebody uses a page just now.
 *
 * Locking: folio locks, i_mmap_rwsem for reading, page table locks and i_pages' lock, in
 * this order, as in mm/rmap.c. The invalidate_lock is only tried, with folios locked, as in
 * collapse_file().
 *
 * Lifetime: the worker holds the inode. A folio has the walk's reference until it is part
 * of the large one, or put back. An area in i_mmap keeps its page tables while i_mmap_rwsem
 * is held: free_pgtables() takes it out first.
 *
 * Undo: until the exchange, all folios can be put back as they were. Then the drain splits
 * the large one as those that were copied (drain.c).
 */
#include <linux/dax.h>
#include <linux/fs.h>
#include <linux/memcontrol.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/mmu_notifier.h>
#include <linux/page_idle.h>
#include <linux/pagemap.h>
#include <linux/quire/pt.h>
#include <linux/quire/text.h>
#include <linux/rmap.h>
#include <linux/shmem_fs.h>
#include <linux/swap.h>

#include "../../internal.h"
#include "text.h"

/* The references of a folio that is about to be frozen, but for a page table's. */
#define TEXT_REFS	3	/* page cache, walk and isolation */

/*
 * So many page tables are locked at once, and so many looked at meanwhile. To look at all entries
 * of one takes microseconds.
 */
#define TEXT_MOST_TABLES	8
#define TEXT_MOST_LOOKS		32

/* Pages are moved in batches of so many, as who runs in one waits for its batch. */
#define TEXT_MOVED_AT_ONCE	16

/**
 * struct text_tables - the page tables that map a block
 * @nr: how many
 * @looked: how many tables were locked to look whether they do
 * @table: first entry of each
 * @ptl: their locks, held
 */
struct text_tables {
	unsigned int nr, looked;
	pte_t *table[TEXT_MOST_TABLES];
	spinlock_t *ptl[TEXT_MOST_TABLES];
};

/* The small folio that is, or was, at a place in the block. */
static struct folio *text_small(struct page *head, unsigned int i)
{
	return (struct folio *)(head + i);
}

/*
 * Are the pages of a block that were read since it had a place in their frames? Those whose frames
 * were evicted, and read again, are not. A guess under RCU.
 */
static bool text_frames_taken(struct address_space *mapping, pgoff_t start,
			      const struct text_piece *piece)
{
	XA_STATE(xas, &mapping->i_pages, start);
	unsigned int strays = 0, taken = 0;
	void *entry;

	rcu_read_lock();
	xas_for_each(&xas, entry, start + HPAGE_PMD_NR - 1) {
		unsigned int nr = xas.xa_index - start;

		if (xas_retry(&xas, entry))
			continue;
		if (test_bit(nr, piece->free))
			strays++;
		else if (entry == piece->head + nr)
			taken++;
	}
	rcu_read_unlock();
	return strays == piece->left && strays + taken == HPAGE_PMD_NR;
}

/*
 * Are a block's pages in order in one aligned piece of memory? A guess under RCU. Returns the first
 * page, only to be compared, or NULL.
 */
static struct page *text_one_piece(struct address_space *mapping, pgoff_t start)
{
	XA_STATE(xas, &mapping->i_pages, start);
	struct page *head = NULL;
	unsigned int found = 0;
	void *entry;

	rcu_read_lock();
	xas_for_each(&xas, entry, start + HPAGE_PMD_NR - 1) {
		if (xas_retry(&xas, entry))
			continue;
		if (!found)
			head = entry;
		if (xa_is_value(entry) || xas_get_order(&xas) || entry != head + found)
			break;
		found++;
	}
	rcu_read_unlock();
	if (found < HPAGE_PMD_NR || !IS_ALIGNED(page_to_pfn(head), HPAGE_PMD_NR))
		return NULL;
	return head;
}

/* The frame of a page that is to be moved, for migrate_pages(). */
static struct folio *text_frame_of(struct folio *folio, unsigned long arg)
{
	struct text_piece *piece = (struct text_piece *)arg;
	unsigned int nr = folio->index % HPAGE_PMD_NR;

	if (PageHWPoison(piece->head + nr) || !__test_and_clear_bit(nr, piece->free))
		return NULL;
	piece->left--;
	return page_folio(piece->head + nr);
}

static void text_give_back(struct folio *frame, unsigned long arg)
{
	struct text_piece *piece = (struct text_piece *)arg;

	__set_bit(&frame->page - piece->head, piece->free);
	piece->left++;
}

/* Isolate a page of the file for migrate_pages(). */
static bool text_isolate_stray(struct address_space *mapping, pgoff_t index,
			       struct list_head *strays)
{
	struct folio *folio = filemap_get_folio(mapping, index);
	bool isolated;

	if (IS_ERR(folio))
		return false;
	isolated = !folio_test_large(folio) && folio_isolate_lru(folio);
	if (isolated) {
		list_add_tail(&folio->lru, strays);
		node_stat_mod_folio(folio, NR_ISOLATED_FILE, 1);
	}
	folio_put(folio);
	return isolated;
}

/* Move some pages whose frames were not taken. Returns false if that failed for one. */
static bool text_move_some(struct address_space *mapping, pgoff_t start, struct text_piece *piece)
{
	unsigned int nr, want = piece->left - min(piece->left, TEXT_MOVED_AT_ONCE);
	LIST_HEAD(strays);

	nr = find_first_bit(piece->free, HPAGE_PMD_NR);
	for (unsigned int i = piece->left; i > want; i--) {
		if (!text_isolate_stray(mapping, start + nr, &strays))
			break;
		nr = find_next_bit(piece->free, HPAGE_PMD_NR, nr + 1);
	}
	/* Those that are moved are in this CPU's batch then, with a reference more. */
	migrate_disable();
	migrate_pages(&strays, text_frame_of, text_give_back, (unsigned long)piece,
		      MIGRATE_ASYNC, MR_COMPACTION, NULL);
	putback_movable_pages(&strays);
	lru_add_drain();
	migrate_enable();
	return piece->left == want;
}

/*
 * Move the pages of a block that were read before it had a place to their frames, if they are few.
 * Returns whether the block had a place, and all are there now.
 */
static bool text_gather(struct address_space *mapping, pgoff_t start)
{
	struct text_piece piece;
	unsigned int strays;

	if (!quire_text_claim_piece(mapping, start, &piece))
		return false;
	strays = piece.left;
	/* Others may have to wait for a page that is moved. */
	quire_text_set_nice(MIN_NICE);
	if (strays <= TEXT_MUCH_LEFT && text_frames_taken(mapping, start, &piece))
		while (piece.left && text_move_some(mapping, start, &piece))
			;
	quire_text_set_nice(0);
	text_count(TEXT_GATHERED_PAGES, strays - piece.left);
	quire_text_free_piece(&piece);
	return !piece.left;
}

/* May a folio become part of a large one? It is locked, and the walk has a reference. */
static bool text_fits(struct address_space *mapping, struct folio *folio,
		      struct mem_cgroup *memcg)
{
	return folio->mapping == mapping && !folio_test_large(folio) &&
		folio_test_uptodate(folio) && !folio_test_dirty(folio) &&
		!folio_test_writeback(folio) && !folio_test_hwpoison(folio) &&
		!folio_test_mlocked(folio) && !folio_test_unevictable(folio) &&
		folio_mapcount(folio) <= TEXT_MOST_TABLES &&
		folio_memcg(folio) == memcg && filemap_release_folio(folio, GFP_KERNEL) &&
		!folio_get_private(folio) && text_unreferenced(folio);
}

/* Lock, reference and isolate the folio at @index, which should be @want. */
static int text_take_folio(struct address_space *mapping, pgoff_t index, struct folio *want,
			   struct mem_cgroup **memcg)
{
	struct folio *folio = filemap_get_folio(mapping, index);

	if (IS_ERR(folio))
		return -EXDEV;
	if (folio != want) {
		folio_put(folio);
		return -EXDEV;
	}
	if (!folio_trylock(folio))
		goto put;
	/* Mostly left over from the read. To unlock it wakes those that wait, or clears the mark. */
	if (folio_test_waiters(folio)) {
		folio_unlock(folio);
		if (!folio_trylock(folio))
			goto put;
	}
	if (!(index % HPAGE_PMD_NR))
		*memcg = folio_memcg(folio);
	if (text_fits(mapping, folio, *memcg) && folio_isolate_lru(folio))
		return 0;
	folio_unlock(folio);
put:
	folio_put(folio);
	return -EAGAIN;
}

/* Nothing is done with the folios. Those in a per-CPU batch would have a reference more. */
static void text_put_back(struct list_head *folios)
{
	struct folio *folio, *next;

	list_for_each_entry(folio, folios, lru)
		folio_unlock(folio);
	migrate_disable();
	list_for_each_entry_safe(folio, next, folios, lru) {
		list_del(&folio->lru);
		folio_putback_lru(folio);
		folio_put(folio);
	}
	lru_add_drain();
	migrate_enable();
}

/*
 * Keep writers away, as collapse_file() does. A writer that comes later finds nr_thps, and drops
 * all pages of the file: so no page may be dirty, not only none of the block.
 */
static bool text_keep_writers_away(struct address_space *mapping)
{
	bool away;

	if (mapping_large_folio_support(mapping))
		return !inode_is_open_for_write(mapping->host);
	if (!filemap_invalidate_trylock_shared(mapping))
		return false;
	filemap_nr_thps_inc(mapping);
	smp_mb();	/* pairs with the barrier of get_write_access() in do_dentry_open() */
	away = !inode_is_open_for_write(mapping->host) &&
		!mapping_tagged(mapping, PAGECACHE_TAG_DIRTY) &&
		!mapping_tagged(mapping, PAGECACHE_TAG_WRITEBACK);
	if (!away)
		filemap_nr_thps_dec(mapping);
	filemap_invalidate_unlock_shared(mapping);
	return away;
}

static void text_let_writers_in(struct address_space *mapping)
{
	if (mapping_large_folio_support(mapping))
		return;
	filemap_nr_thps_dec(mapping);
	smp_mb();	/* as in collapse_file(), for do_dentry_open() */
}

/* How many of the tables map a page? */
static unsigned int text_maps_of(const struct text_tables *tables, struct page *page,
				 unsigned int nr)
{
	unsigned int i, maps = 0;

	for (i = 0; i < tables->nr; i++) {
		pte_t entry = ptep_get(tables->table[i] + nr);

		maps += pte_present(entry) && pte_pfn(entry) == page_to_pfn(page);
	}
	return maps;
}

/*
 * Freeze a folio that should have so many mappings. Nobody may wait for it, or have locked it in
 * memory; the page table locks keep mlock() away.
 */
static bool text_freeze_folio(struct folio *folio, unsigned int maps)
{
	if (folio_mapcount(folio) != maps || !folio_ref_freeze(folio, TEXT_REFS + maps))
		return false;
	if (!folio_test_waiters(folio) && !folio_test_hwpoison(folio) &&
	    !folio_test_mlocked(folio))
		return true;
	folio_ref_unfreeze(folio, TEXT_REFS + maps);
	return false;
}

/* Freeze all folios, and note how often each is mapped. Returns 0 or -EAGAIN. */
static int text_freeze(struct page *head, const struct text_tables *tables, u8 *maps)
{
	unsigned int i;

	for (i = 0; i < HPAGE_PMD_NR; i++) {
		maps[i] = text_maps_of(tables, head + i, i);
		if (!text_freeze_folio(text_small(head, i), maps[i]))
			break;
	}
	if (i == HPAGE_PMD_NR)
		return 0;
	while (i--)
		folio_ref_unfreeze(text_small(head, i), TEXT_REFS + maps[i]);
	return -EAGAIN;
}

/* What the large folio is to inherit from the small ones. */
struct text_flags {
	unsigned int active;
	bool referenced, workingset, young, idle;
};

static struct text_flags text_gather_flags(struct page *head)
{
	struct text_flags flags = { .idle = true };
	unsigned int i;

	for (i = 0; i < HPAGE_PMD_NR; i++) {
		struct folio *folio = text_small(head, i);

		flags.active += folio_test_active(folio);
		flags.referenced |= folio_test_referenced(folio);
		flags.workingset |= folio_test_workingset(folio);
		flags.young |= folio_test_young(folio);
		flags.idle &= folio_test_idle(folio);
	}
	return flags;
}

/* The large folio is locked and up to date, and has no other flag yet. */
static void text_set_flags(struct folio *folio, const struct text_flags *flags)
{
	if (flags->active >= HPAGE_PMD_NR / 2)
		folio_set_active(folio);
	if (flags->referenced)
		folio_set_referenced(folio);
	if (flags->workingset)
		folio_set_workingset(folio);
	if (flags->young)
		folio_set_young(folio);
	if (flags->idle)
		folio_set_idle(folio);
}

/*
 * Leave nothing of a frozen folio but what a page has that is about to become a tail. The bits are
 * cleared atomically, as memory_failure() marks a page whether it can be referenced or not. What
 * makes a compound page of them is Linux's, and can still lose the mark of one of the first two.
 */
static void text_strip(struct page *page, unsigned long keep)
{
	set_mask_bits(&page->flags, PAGE_FLAGS_CHECK_AT_PREP & ~keep, 0);
}

/*
 * Merge frozen folios, which are mapped so often. The large one stays frozen, locked and isolated.
 * Returns how many mappings it has.
 */
static unsigned int text_merge(struct page *head, const u8 *maps)
{
	struct text_flags flags = text_gather_flags(head);
	unsigned int i, mapped = 0, mappings = 0;
	struct folio *folio = text_small(head, 0);
	bool poisoned;

	text_strip(head, BIT(PG_locked) | BIT(PG_uptodate) | BIT(PG_waiters));
	poisoned = PageHWPoison(head);
	for (i = 1; i < HPAGE_PMD_NR; i++) {
		text_strip(head + i, 0);
		text_forget_memcg(text_small(head, i));
		poisoned |= PageHWPoison(head + i);
	}
	for (i = 0; i < HPAGE_PMD_NR; i++) {
		mapped += !!maps[i];
		mappings += maps[i];
	}
	prep_compound_page(head, HPAGE_PMD_ORDER);
	folio_set_large_rmappable(folio);
	atomic_set(&folio->_large_mapcount, mappings - 1);
	atomic_set(&folio->_nr_pages_mapped, mapped);
	if (poisoned)
		folio_set_has_hwpoisoned(folio);
	text_set_flags(folio, &flags);
	return mappings;
}

/*
 * Exchange the entries of the page cache, with the locks of all tables held that map the block.
 * Returns 0, or -EAGAIN if somebody else uses one of the folios.
 */
static int text_exchange(struct address_space *mapping, pgoff_t start, struct page *head,
			 const struct text_tables *tables)
{
	XA_STATE_ORDER(xas, &mapping->i_pages, start, HPAGE_PMD_ORDER);
	struct folio *folio = text_small(head, 0);
	u8 maps[HPAGE_PMD_NR];
	unsigned int mappings;
	int error;

	mapping_set_update(&xas, mapping);
	xas_lock_irq(&xas);
	error = text_freeze(head, tables, maps);
	if (!error) {
		/*
		 * Before the merge: readers under RCU test a folio's flags before they take a
		 * reference, and a tail has none. It replaces entries of the same range, so it
		 * needs no memory.
		 */
		xas_store(&xas, folio);
		WARN_ON_ONCE(xas_error(&xas));
		mappings = text_merge(head, maps);
		__lruvec_stat_mod_folio(folio, NR_FILE_THPS, HPAGE_PMD_NR);
		folio_ref_unfreeze(folio, HPAGE_PMD_NR + TEXT_REFS - 1 + mappings);
	}
	xas_unlock_irq(&xas);
	return error;
}

/* Has somebody locked the block in memory? */
static bool text_is_locked(struct address_space *mapping, pgoff_t start)
{
	struct vm_area_struct *vma;

	vma_interval_tree_foreach(vma, &mapping->i_mmap, start, start + HPAGE_PMD_NR - 1)
		if (READ_ONCE(vma->vm_flags) & VM_LOCKED)
			return true;
	return false;
}

static bool text_maps_any(pte_t *table, struct page *head)
{
	unsigned int i;

	for (i = 0; i < HPAGE_PMD_NR; i++) {
		pte_t entry = ptep_get(table + i);

		if (pte_present(entry) && pte_pfn(entry) == page_to_pfn(head + i))
			return true;
	}
	return false;
}

static void text_unlock_tables(const struct text_tables *tables)
{
	unsigned int i;

	for (i = tables->nr; i--;)
		pte_unmap_unlock(tables->table[i], tables->ptl[i]);
}

/*
 * Lock a page table. Others lock two of them in another order, so it is only tried if one is locked
 * already. Returns NULL if it is locked, if there is none, or if it has become shared, which takes
 * the lock.
 */
static pte_t *text_map_table(struct mm_struct *mm, pmd_t *pmd, unsigned long addr, bool try,
			     spinlock_t **ptl)
{
	pmd_t entry;
	pte_t *table = __pte_offset_map(pmd, addr, &entry);

	if (!table)
		return NULL;
	*ptl = pte_lockptr(mm, &entry);
	if (!try)
		spin_lock(*ptl);
	else if (!spin_trylock(*ptl))
		goto unmap;
	if (pmd_same(entry, pmdp_get_lockless(pmd)))
		return table;
	spin_unlock(*ptl);
unmap:
	pte_unmap(table);
	return NULL;
}

/*
 * Lock the page table in which an area maps the block, if it does and can be locked. Otherwise the
 * mapcounts tell. Returns 0, or -EAGAIN if it is one too many.
 */
static int text_lock_table(struct text_tables *tables, struct vm_area_struct *vma, pgoff_t start,
			   struct page *head)
{
	unsigned long addr = vma->vm_start + ((start - vma->vm_pgoff) << PAGE_SHIFT);
	unsigned int nr = tables->nr;
	spinlock_t *ptl;
	pte_t *table;
	pmd_t *pmd;

	if (!IS_ALIGNED(addr, PMD_SIZE) || addr < vma->vm_start || addr + PMD_SIZE > vma->vm_end)
		return 0;
	pmd = mm_find_pmd(vma->vm_mm, addr);
	if (!pmd || quire_pt_marked(pmd))
		return 0;
	table = text_map_table(vma->vm_mm, pmd, addr, nr, &ptl);
	if (!table)
		return 0;
	tables->looked++;
	if (!text_maps_any(table, head)) {
		pte_unmap_unlock(table, ptl);
		return tables->looked < TEXT_MOST_LOOKS ? 0 : -EAGAIN;
	}
	if (nr == TEXT_MOST_TABLES || mm_has_notifiers(vma->vm_mm)) {
		pte_unmap_unlock(table, ptl);
		return -EAGAIN;
	}
	tables->table[nr] = table;
	tables->ptl[nr] = ptl;
	tables->nr++;
	return 0;
}

/*
 * Merge the folios under the locks of the page tables that map the block. Mappings by shared
 * tables, or by areas that map a part of the block, are noticed by the mapcounts. Who has an MMU
 * notifier may use what the process maps without a reference, and must be told first.
 */
static int text_exchange_mapped(struct address_space *mapping, pgoff_t start, struct page *head)
{
	struct text_tables tables = {};
	struct vm_area_struct *vma;
	int error = 0;

	i_mmap_assert_locked(mapping);
	if (text_is_locked(mapping, start))
		return -EAGAIN;
	vma_interval_tree_foreach(vma, &mapping->i_mmap, start, start + HPAGE_PMD_NR - 1) {
		error = text_lock_table(&tables, vma, start, head);
		if (error)
			break;
	}
	if (!error)
		error = text_exchange(mapping, start, head, &tables);
	text_unlock_tables(&tables);
	return error;
}

/* All folios are locked and isolated. Their references to @memcg are but one after that. */
static int text_merge_block(struct address_space *mapping, pgoff_t start, struct page *head,
			    struct mem_cgroup *memcg)
{
	struct folio *folio = text_small(head, 0);
	int error;

	if (!text_keep_writers_away(mapping))
		return -EAGAIN;
	i_mmap_lock_read(mapping);
	error = text_exchange_mapped(mapping, start, head);
	i_mmap_unlock_read(mapping);
	if (error) {
		text_let_writers_in(mapping);
		return error;
	}
	text_put_memcg(memcg, HPAGE_PMD_NR - 1);
	if (folio_mapped(folio))
		unmap_mapping_pages(mapping, start, HPAGE_PMD_NR, false);
	/* Nobody can have mapped it again, as it is locked. A table that still did must stay. */
	if (!folio_mapped(folio))
		quire_text_retract_tables(mapping, start);
	folio_unlock(folio);
	folio_putback_lru(folio);
	folio_put(folio);
	return 0;
}

/* Lock and isolate all folios, and merge them. */
static int text_promote(struct address_space *mapping, pgoff_t start, struct page *head)
{
	struct mem_cgroup *memcg = NULL;
	LIST_HEAD(folios);
	unsigned int i;
	int error = 0;

	for (i = 0; i < HPAGE_PMD_NR && !error; i++) {
		error = text_take_folio(mapping, start + i, text_small(head, i), &memcg);
		if (!error)
			list_add_tail(&text_small(head, i)->lru, &folios);
	}
	if (!error)
		error = text_merge_block(mapping, start, head, memcg);
	if (error)
		text_put_back(&folios);
	return error;
}

/**
 * quire_text_promote_block - make a block one huge folio where it is
 * @inode: of the file, with a reference held; not of shmem
 * @start: the block's first page
 *
 * Nothing is set aside for the block after that.
 *
 * Context: the worker only; may sleep; takes the locks named at the head of this file.
 * Return: 0, or -errno if the block must be copied: -EXDEV if its pages are not in one
 * piece, -EAGAIN if somebody uses one of them.
 */
int quire_text_promote_block(struct inode *inode, pgoff_t start)
{
	struct address_space *mapping = inode->i_mapping;
	struct page *head = text_one_piece(mapping, start);
	int error;

	if (text_allocations_recorded())
		return -EXDEV;
	if (!head && text_gather(mapping, start))
		head = text_one_piece(mapping, start);
	if (!head)
		return -EXDEV;
	/* Others may have to wait for a folio's lock. */
	quire_text_set_nice(MIN_NICE);
	error = text_promote(mapping, start, head);
	quire_text_set_nice(0);
	text_count(error ? TEXT_PROMOTE_BUSY : TEXT_PROMOTED_BLOCKS, 1);
	return error;
}
