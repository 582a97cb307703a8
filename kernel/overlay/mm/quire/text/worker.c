// SPDX-License-Identifier: GPL-2.0
/*
 * What the worker does with the blocks of a file.
 *
 * A block of which enough is in the page cache is completed by readahead, and
 * collapsed at the next attempt with khugepaged's own code.
 *
 * Locking: none of our own; the worker has the slot to itself (queue.c).
 *
 * Lifetime: the slot holds the inode. Nothing else outlasts a block.
 *
 * Undo: a block that cannot be collapsed stays as it is.
 */
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/quire/text.h>
#include <linux/sched.h>
#include <linux/swap.h>

#include <trace/events/quire_text.h>

#include "text.h"

unsigned int quire_text_min_resident = HPAGE_PMD_NR / 2;
unsigned int quire_text_max_permil = 250;

/**
 * quire_text_resident - how many pages of a block are in the page cache
 * @mapping: the file's
 * @start: the block's first page
 * @first: set to the index of the first resident page, if any
 *
 * Context: any; takes only RCU, so the number may be wrong, and too large, while pages
 * come and go.
 * Return: the number of resident pages.
 */
unsigned int quire_text_resident(struct address_space *mapping, pgoff_t start, pgoff_t *first)
{
	XA_STATE(xas, &mapping->i_pages, start);
	unsigned int resident = 0;
	void *entry;

	rcu_read_lock();
	xas_for_each(&xas, entry, start + HPAGE_PMD_NR - 1) {
		if (xas_retry(&xas, entry) || xa_is_value(entry))
			continue;
		if (!resident)
			*first = xas.xa_index;
		resident += 1U << xas_get_order(&xas);
	}
	rcu_read_unlock();
	return resident;
}

/*
 * May a filesystem be read without an open file, and be trusted to answer? Those
 * on a block device may. Those that a network or a process serves want to know on
 * whose behalf they are read, and may keep the worker waiting forever.
 */
static bool text_may_read(const struct inode *inode)
{
	const struct super_block *sb = inode->i_sb;

	return sb->s_bdev && sb->s_magic != FUSE_SUPER_MAGIC;
}

/*
 * Start reading the missing pages of a block, and do not wait for them: the next
 * attempt finds them. A collapse must not read, because it holds locks of pages that
 * a truncation may wait for. Readahead is used since it takes the invalidate_lock: no
 * page appears in a range in which a hole is being punched.
 */
static void text_read_missing(struct inode *inode, pgoff_t start)
{
	struct address_space *mapping = inode->i_mapping;
	pgoff_t index = start, end = start + HPAGE_PMD_NR;
	struct file_ra_state ra = {};
	struct folio *folio;

	file_ra_state_init(&ra, mapping);
	while (index < end) {
		folio = filemap_get_folio(mapping, index);
		if (IS_ERR(folio)) {
			page_cache_sync_readahead(mapping, &ra, NULL, index, end - index);
			folio = filemap_get_folio(mapping, index);
		}
		if (IS_ERR(folio))
			return;
		index = folio_next_index(folio);
		folio_put(folio);
	}
}

/* The memcg that a page is charged to, for mem_cgroup_put(). NULL: try later. */
static struct mem_cgroup *text_memcg(struct address_space *mapping, pgoff_t index)
{
	struct folio *folio = filemap_get_folio(mapping, index);
	struct mem_cgroup *memcg = NULL;

	if (IS_ERR(folio))
		return NULL;
	if (folio_trylock(folio)) {
		if (folio->mapping == mapping)
			memcg = get_mem_cgroup_from_folio(folio);
		folio_unlock(folio);
	}
	folio_put(folio);
	return memcg;
}

/*
 * The block's memory stays with the memcg that its resident pages are charged to, and
 * so do the pages that are read to complete it. All pages must be on the LRU lists:
 * those that were read recently are in per-CPU batches.
 */
static int text_collapse_charged(struct inode *inode, pgoff_t start, pgoff_t first,
				 struct text_pass *pass, bool complete)
{
	struct mem_cgroup *memcg = text_memcg(inode->i_mapping, first), *old;
	int ret = -EAGAIN;

	if (!memcg && !mem_cgroup_disabled())
		return ret;
	old = set_active_memcg(memcg);
	if (!complete) {
		text_read_missing(inode, start);
	} else {
		if (!pass->drained)
			lru_add_drain_all();
		pass->drained = true;
		ret = quire_text_collapse_block(inode, start);
	}
	set_active_memcg(old);
	mem_cgroup_put(memcg);
	return ret;
}

/**
 * quire_text_share_left - may there be another huge page of file memory
 *
 * Concurrent callers may exceed the share, max_permil, by a page each.
 *
 * Context: any; takes no lock.
 * Return: whether one more huge page is within the share.
 */
bool quire_text_share_left(void)
{
	unsigned long huge = global_node_page_state(NR_FILE_THPS) + HPAGE_PMD_NR;

	return huge * 1000 <= totalram_pages() * READ_ONCE(quire_text_max_permil);
}

static void text_leave(struct text_pass *pass, struct inode *inode, pgoff_t start,
		       enum text_counter why)
{
	pass->left[why]++;
	trace_text_fallback(inode, start, quire_text_counter_names[why]);
}

/* The reason for a failed collapse, from the result of quire_text_collapse_block(). */
static enum text_counter text_failure(int error)
{
	switch (error) {
	case -ENOMEM:
		return TEXT_FALLBACK_NOMEM;
	case -EBUSY:	/* the memcg's limit, or khugepaged/max_ptes_none */
		return TEXT_FALLBACK_LIMIT;
	default:
		return TEXT_FALLBACK_BUSY;
	}
}

static void text_do_block(struct inode *inode, pgoff_t start, struct text_pass *pass,
			  unsigned int *budget)
{
	struct address_space *mapping = inode->i_mapping;
	loff_t end = (loff_t)(start + HPAGE_PMD_NR) << PAGE_SHIFT;
	bool may_read = text_may_read(inode);
	unsigned int resident;
	pgoff_t first = start;
	int error;

	if (quire_text_block_huge(mapping, start)) {
		pass->resident += HPAGE_PMD_NR;
		return;
	}
	if (end > i_size_read(inode)) {
		text_leave(pass, inode, start, TEXT_FALLBACK_TRUNCATED);
		return;
	}
	resident = quire_text_resident(mapping, start, &first);
	pass->resident += resident;
	if (resident < (may_read ? READ_ONCE(quire_text_min_resident) : HPAGE_PMD_NR)) {
		text_leave(pass, inode, start, TEXT_FALLBACK_COLD);
		return;
	}
	if (!quire_text_share_left()) {
		text_leave(pass, inode, start, TEXT_FALLBACK_SHARE);
		return;
	}
	--*budget;
	error = text_collapse_charged(inode, start, first, pass, resident == HPAGE_PMD_NR);
	if (!error) {
		text_count(TEXT_COLLAPSED_BLOCKS, 1);
		trace_text_collapse(inode, start, resident);
	} else if (error != -EEXIST) {
		text_leave(pass, inode, start, text_failure(error));
	}
}

/**
 * quire_text_do_file - collapse blocks of a file
 * @slot: TEXT_BUSY; says which blocks, and is told what came of them
 * @budget: how many more blocks may be collapsed in this run
 *
 * Context: the worker only; may sleep.
 */
void quire_text_do_file(struct text_slot *slot, unsigned int *budget)
{
	struct text_pass *pass = &slot->pass;
	struct inode *inode = slot->inode;
	struct address_space *mapping = inode->i_mapping;

	if (!READ_ONCE(inode->i_nlink)) {
		WRITE_ONCE(slot->forget, true);
		return;
	}
	if (inode_is_open_for_write(inode)) {
		text_leave(pass, inode, pass->next, TEXT_FALLBACK_WRITER);
		return;
	}
	/* The program was just written: the next attempt finds it clean. */
	if (mapping_tagged(mapping, PAGECACHE_TAG_DIRTY) ||
	    mapping_tagged(mapping, PAGECACHE_TAG_WRITEBACK)) {
		filemap_flush(mapping);
		text_leave(pass, inode, pass->next, TEXT_FALLBACK_DIRTY);
		return;
	}
	for (; pass->next < pass->end; pass->next += HPAGE_PMD_NR) {
		if (!quire_text_wanted(slot) ||
		    pass->left[TEXT_FALLBACK_NOMEM])
			break;
		if (!*budget) {
			pass->unfinished = true;
			break;
		}
		text_do_block(inode, pass->next, pass, budget);
		cond_resched();
	}
}
