// SPDX-License-Identifier: GPL-2.0
/*
 * What the worker does with the blocks of a file.
 *
 * A block of which enough is in the page cache is completed by readahead, and
 * collapsed at the next attempt with khugepaged's own code. Nobody asked for this,
 * so it must not harm anybody:
 *
 * - A file that is found dirty is not written back for it, and one without a name is
 *   left alone.
 * - If most of a block is resident, the rest is read at once: at most a twentieth
 *   more than the program has read. A block of which less is used is read whole only
 *   once it is likely to pay: if the file was mapped before, or still is after 1.6 s.
 * - Nothing is read into a memory cgroup that has not enough room for the whole text:
 *   other pages would be evicted for it, and then the text itself.
 * - Whoever runs in a block waits while its pages are exchanged. So text that is locked
 *   in memory, or in which a real-time task runs, is left alone, and so is text that very
 *   many processes map, because the block is unmapped from all of them. For the others
 *   the wait must depend little on what else runs: the worker has the highest priority of
 *   ordinary tasks as long as pages are locked or unmapped, that of most tasks while it may
 *   hold what others wait for, and the lowest while it copies.
 * - While the file is being read, and something else wants the worker's CPU, nothing is done: it
 *   may be the program that reads.
 *
 * Locking: i_mmap_lock while looking at a block's mappings. The worker has the slot to
 * itself (queue.c).
 *
 * Lifetime: the worker holds the inode. Nothing else outlasts a block.
 *
 * Undo: a block that cannot be collapsed stays as it is.
 */
#include <linux/fs.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/page_counter.h>
#include <linux/pagemap.h>
#include <linux/pid_namespace.h>
#include <linux/quire/text.h>
#include <linux/sched.h>
#include <linux/sched/rt.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <linux/swap.h>

#include <trace/events/quire_text.h>

#include "text.h"

/* If so many pages of a block are resident, no more than a twentieth of that is read. */
#define TEXT_NEARLY_WHOLE	(HPAGE_PMD_NR - HPAGE_PMD_NR / 21)

/* Exchanging a block that more processes map takes too long for those that run in it. */
#define TEXT_MOST_MAPPINGS	256

/* If so many pages of a file are read within a short time, a program is being read. */
#define TEXT_READ_MUCH		(HPAGE_PMD_NR / 8)

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
 * May a filesystem be read without an open file, by readahead alone? Of those that text_fs_copes()
 * lets through, all that are on a block device may, because they need no lock that is taken outside
 * of readahead. But zisofs reads each page by itself, and asks the file for its inode.
 */
static bool text_may_read(const struct inode *inode)
{
	return inode->i_sb->s_bdev && inode->i_mapping->a_ops->readahead;
}

/*
 * Start reading the missing pages of a block, and do not wait for them: the next
 * attempt finds them. A collapse must not read, because it holds locks of pages that
 * a truncation may wait for. Readahead is used since it takes the invalidate_lock: no
 * page appears in a range in which a hole is being punched. Returns about how many pages it read.
 */
static unsigned long text_read_missing(struct inode *inode, pgoff_t start)
{
	struct address_space *mapping = inode->i_mapping;
	pgoff_t index = start, end = start + HPAGE_PMD_NR;
	unsigned long before = READ_ONCE(mapping->nrpages);
	struct file_ra_state ra = {};
	unsigned int ra_pages;
	struct folio *folio;

	file_ra_state_init(&ra, mapping);
	ra_pages = ra.ra_pages;
	while (index < end) {
		folio = filemap_get_folio(mapping, index);
		if (IS_ERR(folio)) {
			/* It may read as much as this, however little is asked for. */
			ra.ra_pages = min_t(pgoff_t, ra_pages, end - index);
			page_cache_sync_readahead(mapping, &ra, NULL, index, end - index);
			folio = filemap_get_folio(mapping, index);
		}
		if (IS_ERR(folio))
			break;
		index = folio_next_index(folio);
		folio_put(folio);
	}
	return READ_ONCE(mapping->nrpages) - before;
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

/**
 * quire_text_room - how many more pages may be charged to a memcg
 * @memcg: the group, with a reference held; NULL if there are none
 *
 * Context: any; takes no lock, so the number may change at once.
 * Return: how many, before something is reclaimed for them.
 */
unsigned long quire_text_room(struct mem_cgroup *memcg)
{
	unsigned long room = ULONG_MAX;

	for (; memcg; memcg = parent_mem_cgroup(memcg)) {
		unsigned long limit = text_memcg_limit(memcg);

		room = min(room, limit - min(limit, mem_cgroup_size(memcg)));
	}
	return room;
}

/*
 * May a page of a whole block be in a per-CPU LRU batch, which holds a reference to it? Pages that
 * were read a moment ago are. Others may hold a reference, too: a fault that waits, a pin, reclaim.
 * Then the batches are emptied in vain.
 */
static bool text_in_batches(struct address_space *mapping, pgoff_t start)
{
	pgoff_t index = start, end = start + HPAGE_PMD_NR;
	bool found = false;

	while (index < end && !found) {
		struct folio *folio = filemap_get_folio(mapping, index);

		if (IS_ERR(folio))
			break;
		found = !folio_test_lru(folio) || !text_unreferenced(folio);
		index = folio_next_index(folio);
		folio_put(folio);
	}
	return found;
}

/* Make a whole block huge: where it is, if nobody uses it otherwise, or else by a copy. */
static int text_make_huge(struct inode *inode, pgoff_t start)
{
	if (READ_ONCE(quire_text_in_place) && !quire_text_promote_block(inode, start))
		return 0;
	return quire_text_collapse_block(inode, start);
}

/*
 * The block's memory stays with the memcg that its resident pages are charged to, and
 * so do the pages that are read to complete it. All pages must be on the LRU lists.
 */
static int text_collapse_charged(struct text_slot *slot, pgoff_t start, pgoff_t first,
				 unsigned int resident)
{
	bool complete = resident == HPAGE_PMD_NR;
	struct text_pass *pass = &slot->pass;
	struct inode *inode = slot->inode;
	struct mem_cgroup *memcg, *old;
	int ret = -EAGAIN;

	memcg = text_memcg(inode->i_mapping, first);
	if (!memcg && !mem_cgroup_disabled())
		return ret;
	old = set_active_memcg(memcg);
	if (quire_text_room(memcg) < (complete ? HPAGE_PMD_NR : pass->end - pass->start))
		ret = -EBUSY;
	else if (!complete)
		slot->cached += text_read_missing(inode, start);
	else if (!pass->drained && text_in_batches(inode->i_mapping, start))
		pass->undrained = true;
	else
		ret = text_make_huge(inode, start);
	set_active_memcg(old);
	mem_cgroup_put(memcg);
	return ret;
}

/**
 * quire_text_share_left - may there be more huge pages of file memory
 * @blocks: how many
 *
 * Concurrent callers may exceed the share, max_permil, by a page each.
 *
 * Context: any; takes no lock.
 * Return: whether they are within the share.
 */
bool quire_text_share_left(unsigned int blocks)
{
	unsigned long huge = global_node_page_state(NR_FILE_THPS) + blocks * HPAGE_PMD_NR;

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

/*
 * Is a thread of the process real-time? The owner of a fork that is about to fail has threads
 * that are freed without a grace period; it is not hashed yet.
 */
static bool text_is_realtime(const struct mm_struct *mm)
{
	struct task_struct *owner, *thread;
	bool found = false;

	rcu_read_lock();
	owner = text_owner(mm);
	if (owner && find_task_by_pid_ns(owner->pid, &init_pid_ns) == owner) {
		for_each_thread(owner, thread) {
			found = rt_or_dl_task_policy(thread);
			if (found)
				break;
		}
	}
	rcu_read_unlock();
	return found;
}

/**
 * quire_text_stays_mapped - must a block of text stay mapped
 * @mapping: the file's
 * @start: the block's first page
 * @most: how many mappings it may have
 *
 * Who locks the text or becomes real-time after that waits once for each block, at most.
 *
 * Context: may sleep; takes i_mmap_rwsem for reading.
 * Return: why, or TEXT_COLLAPSED_BLOCKS if it may be unmapped.
 */
enum text_counter quire_text_stays_mapped(struct address_space *mapping, pgoff_t start,
					  unsigned int most)
{
	enum text_counter why = TEXT_COLLAPSED_BLOCKS;
	struct vm_area_struct *vma;
	unsigned int mappings = 0;

	i_mmap_lock_read(mapping);
	vma_interval_tree_foreach(vma, &mapping->i_mmap, start, start + HPAGE_PMD_NR - 1) {
		if (READ_ONCE(vma->vm_flags) & VM_LOCKED)
			why = TEXT_FALLBACK_LOCKED;
		else if (text_is_realtime(vma->vm_mm))
			why = TEXT_FALLBACK_REALTIME;
		else if (++mappings > most)
			why = TEXT_FALLBACK_MAPPINGS;
		if (why != TEXT_COLLAPSED_BLOCKS)
			break;
		cond_resched();
	}
	i_mmap_unlock_read(mapping);
	return why;
}

/* How much of a block must be resident for the worker to read the rest? */
static unsigned int text_enough(const struct inode *inode, const struct text_pass *pass)
{
	unsigned int least = READ_ONCE(quire_text_min_resident);

	if (!text_may_read(inode))
		return HPAGE_PMD_NR;
	if (pass->pays)
		return least;
	return max(least, TEXT_NEARLY_WHOLE);
}

static void text_do_block(struct text_slot *slot, pgoff_t start, int *budget)
{
	struct text_pass *pass = &slot->pass;
	struct inode *inode = slot->inode;
	struct address_space *mapping = inode->i_mapping;
	loff_t end = (loff_t)(start + HPAGE_PMD_NR) << PAGE_SHIFT;
	enum text_counter why;
	unsigned int resident;
	pgoff_t first = start;
	int error;

	*budget -= 1;
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
	if (resident < text_enough(inode, pass)) {
		text_leave(pass, inode, start, TEXT_FALLBACK_COLD);
		return;
	}
	if (!quire_text_share_left(1)) {
		text_leave(pass, inode, start, TEXT_FALLBACK_SHARE);
		return;
	}
	*budget -= TEXT_COST_BLOCK;
	quire_text_set_nice(0);
	why = quire_text_stays_mapped(mapping, start, TEXT_MOST_MAPPINGS);
	if (why != TEXT_COLLAPSED_BLOCKS) {
		text_leave(pass, inode, start, why);
		return;
	}
	error = text_collapse_charged(slot, start, first, resident);
	if (pass->undrained) {
		/* It is looked at once more. */
		pass->resident -= resident;
		*budget += TEXT_COST_BLOCK;
		return;
	}
	if (!error) {
		/* In this order, for tests that wait for the count and read the trace. */
		trace_text_collapse(inode, start, resident);
		text_count(TEXT_COLLAPSED_BLOCKS, 1);
	} else if (error != -EEXIST) {
		text_leave(pass, inode, start, text_failure(error));
	}
}

/*
 * Is somebody writing the file, or was it just written? Then a later attempt may find it
 * closed and clean.
 */
static bool text_is_written(struct inode *inode, struct text_pass *pass)
{
	struct address_space *mapping = inode->i_mapping;

	if (inode_is_open_for_write(inode))
		text_leave(pass, inode, pass->next, TEXT_FALLBACK_WRITER);
	else if (mapping_tagged(mapping, PAGECACHE_TAG_DIRTY) ||
		 mapping_tagged(mapping, PAGECACHE_TAG_WRITEBACK))
		text_leave(pass, inode, pass->next, TEXT_FALLBACK_DIRTY);
	else
		return false;
	return true;
}

/*
 * Go on to the next block of which something is in the page cache; the others are cold.
 * Returns whether there is one.
 */
static bool text_skip_holes(struct address_space *mapping, struct text_pass *pass)
{
	unsigned long index = pass->next;
	pgoff_t next = pass->end;

	if (pass->next >= pass->end)
		return false;
	if (xa_find(&mapping->i_pages, &index, pass->end - 1, XA_PRESENT))
		next = round_down(index, HPAGE_PMD_NR);
	pass->left[TEXT_FALLBACK_COLD] += (next - pass->next) / HPAGE_PMD_NR;
	pass->next = next;
	return next < pass->end;
}

/*
 * Has much of the file been read since the worker gave way last, or had its CPU for itself, and
 * does anything else want that CPU now? Then the program that reads would start later for what is
 * done. After a drain, which has disturbed all CPUs already, the worker goes on.
 */
static bool text_is_in_the_way(struct text_slot *slot)
{
	unsigned long cached = READ_ONCE(slot->inode->i_mapping->nrpages);
	bool alone = num_online_cpus() > 1 && single_task_running();

	if (alone || cached < slot->cached) {
		slot->cached = cached;
		return false;
	}
	if (cached < slot->cached + TEXT_READ_MUCH || slot->pass.drained)
		return false;
	slot->cached = cached;
	return true;
}

/**
 * quire_text_set_nice - set the worker's priority
 * @nice: MAX_NICE to yield to all others, MIN_NICE while others wait for the worker
 *
 * Context: the worker only; takes locks of the scheduler.
 */
void quire_text_set_nice(int nice)
{
	sched_set_normal(current, nice);
}

/**
 * quire_text_do_file - collapse blocks of a file
 * @slot: TEXT_BUSY; says which blocks, and is told what came of them
 * @budget: what is left for this run, in units of a look at a block
 *
 * Context: the worker only; may sleep.
 */
void quire_text_do_file(struct text_slot *slot, int *budget)
{
	struct text_pass *pass = &slot->pass;
	struct inode *inode = slot->inode;
	struct address_space *mapping = inode->i_mapping;

	if (!READ_ONCE(inode->i_nlink)) {
		WRITE_ONCE(slot->forget, true);
		return;
	}
	if (text_is_written(inode, pass))
		return;
	for (; text_skip_holes(mapping, pass); pass->next += HPAGE_PMD_NR) {
		if (!quire_text_wanted(slot) || !READ_ONCE(inode->i_nlink) ||
		    pass->left[TEXT_FALLBACK_NOMEM])
			break;
		pass->gave_way = text_is_in_the_way(slot);
		if (*budget <= 0 || pass->gave_way || quire_text_gives_way(slot)) {
			pass->unfinished = true;
			break;
		}
		if (text_is_written(inode, pass))
			break;
		text_do_block(slot, pass->next, budget);
		quire_text_set_nice(MAX_NICE);
		if (pass->undrained) {
			pass->unfinished = true;
			break;
		}
		cond_resched();
	}
}
