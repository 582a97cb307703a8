// SPDX-License-Identifier: GPL-2.0
/*
 * Collapse of program text in the page cache.
 *
 * A mapping of executable file pages queues its file, keyed by inode, and a
 * worker collapses the 2 MiB file blocks in the range with khugepaged's own
 * code; the next fault of any process then maps a PMD. The result belongs to
 * the page cache, not to a process, so every later exec uses it, too. khugepaged
 * itself finds such text only by scanning address spaces, minutes after most
 * programs have ended.
 *
 * Eligibility is that of READ_ONLY_THP_FOR_FS: regular files that nobody has
 * open for writing. Opening the file for writing empties the page cache, as in
 * vanilla, and so does truncation by path.
 *
 * Locking: text_lock covers the slots, text_open and the arming of the worker.
 * It nests inside mmap_lock and takes only the workqueue's own locks. There is
 * one worker, so a TEXT_BUSY slot belongs to the worker, and other tasks may
 * change only its @start, @end, @again and @forget; a TEXT_ENDING slot belongs
 * to the task that set this state.
 *
 * Lifetime: a queued slot holds a reference on its inode, and on no file, mount
 * or superblock: the queue does not affect locks on the file, unmounts or the end
 * of namespaces. The reference is dropped when the work is done, when memory is
 * short, after TEXT_TRIES attempts as soon as one finds no more of the file in the
 * page cache than those before, when the file has no name left, before its
 * superblock is shut down (quire_text_shutdown()), and when the feature is
 * switched off. quire_text_used_key is on from the first start to the end of a
 * complete drain: as long as files may be queued, also while the feature is being
 * switched off, and as long as huge folios may be left.
 *
 * Undo: switching off empties the queue; enabled=2 also splits the huge folios
 * of all filesystems that count them (drain.c). On filesystems that have large
 * folios anyway nobody can tell our huge folios from theirs, and they stay.
 */
#define pr_fmt(fmt) "quire: " fmt

#include <linux/dax.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/hugetlb.h>
#include <linux/init.h>
#include <linux/memcontrol.h>
#include <linux/magic.h>
#include <linux/pagemap.h>
#include <linux/quire/text.h>
#include <linux/sched/mm.h>
#include <linux/secretmem.h>
#include <linux/shmem_fs.h>
#include <linux/swap.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "../core/quire.h"
#include "text.h"

#define CREATE_TRACE_POINTS
#include <trace/events/quire_text.h>

#define TEXT_SLOTS		64
#define TEXT_TRIES		6	/* the delay doubles each time: 3.1 s from first to last */
#define TEXT_MIN_RETRY_MS	20U
#define TEXT_POSTPONE		4	/* delays, from the first mapping */
#define TEXT_RUNS_PER_S		10
#define TEXT_STOP_WAIT_S	30

enum text_slot_state {
	TEXT_FREE,
	TEXT_WAITING,		/* queued; due at @due */
	TEXT_BUSY,		/* the worker is at it */
	TEXT_ENDING,		/* the inode is about to be dropped */
};

/**
 * struct text_pass - one attempt at a file, which may take several runs
 * @next: first page of the block to do next
 * @end: page after the range
 * @resident: how many of the blocks' pages are in the page cache
 * @left: how many blocks were not collapsed, by reason (TEXT_FALLBACK_...)
 * @unfinished: the run's budget is spent
 * @drained: pages in per-CPU LRU batches were put on the lists
 */
struct text_pass {
	pgoff_t next, end;
	unsigned long resident;
	unsigned int left[TEXT_NR_COUNTERS];
	bool unfinished;
	bool drained;
};

/**
 * struct text_slot - a file whose text is to be collapsed
 * @state: (L) what the worker does with it
 * @inode: (C) referenced, unless TEXT_FREE; the file's own inode, not overlayfs's
 * @sb: (C) of @inode; only compared
 * @start: (L) first page of the range, at the start of a block
 * @end: (L) page after the range
 * @due: (L) when to work on it, in jiffies
 * @latest: (C) when to begin at the latest, even if it is mapped again until then
 * @tries: (L) attempts so far that left blocks to do, at most TEXT_TRIES - 1
 * @resident: (L) the most pages that one of them found in the page cache
 * @pass: (W) the current attempt
 * @again: (L) mapped again since the attempt began
 * @forget: (F) to be dropped at once
 *
 * Key: L text_lock; C set under text_lock when queued, constant until TEXT_FREE;
 * W the worker alone while TEXT_BUSY, else text_lock; F only ever set, under text_lock
 * or by the worker, which reads it without the lock.
 */
struct text_slot {
	enum text_slot_state state;
	struct inode *inode;
	const struct super_block *sb;
	pgoff_t start, end;
	unsigned long due, latest;
	unsigned int tries;
	unsigned long resident;
	struct text_pass pass;
	bool again;
	bool forget;
};

DEFINE_STATIC_KEY_FALSE(quire_text_key);
DEFINE_STATIC_KEY_FALSE(quire_text_used_key);
DEFINE_PER_CPU(unsigned long [TEXT_NR_COUNTERS], quire_text_counts);

static const char * const text_counter_names[] = {
	[TEXT_QUEUED] = "queued",
	[TEXT_SKIPPED_HUGE] = "skipped_huge",
	[TEXT_SKIPPED_POLICY] = "skipped_policy",
	[TEXT_SKIPPED_FILE] = "skipped_file",
	[TEXT_SKIPPED_SMALL] = "skipped_small",
	[TEXT_SKIPPED_UNALIGNED] = "skipped_unaligned",
	[TEXT_SKIPPED_BACKOFF] = "skipped_backoff",
	[TEXT_SKIPPED_QUEUE_FULL] = "skipped_queue_full",
	[TEXT_COLLAPSED_BLOCKS] = "collapsed_blocks",
	[TEXT_COPIED_AHEAD] = "copied_ahead",
	[TEXT_COPIES_VOID] = "copies_void",
	[TEXT_FALLBACK_WRITER] = "fallback_writer",
	[TEXT_FALLBACK_DIRTY] = "fallback_dirty",
	[TEXT_FALLBACK_COLD] = "fallback_cold",
	[TEXT_FALLBACK_NOMEM] = "fallback_nomem",
	[TEXT_FALLBACK_LIMIT] = "fallback_limit",
	[TEXT_FALLBACK_SHARE] = "fallback_share",
	[TEXT_FALLBACK_BUSY] = "fallback_busy",
	[TEXT_FALLBACK_TRUNCATED] = "fallback_truncated",
	[TEXT_FORGOTTEN] = "forgotten",
	[TEXT_DROPPED_WRITER] = "dropped_writer",
	[TEXT_DRAINED_BLOCKS] = "drained_blocks",
	[TEXT_PLACED_PROGRAM] = "placed_program",
	[TEXT_PLACED_MAP] = "placed_map",
	[TEXT_PLACE_SMALL] = "place_small",
	[TEXT_PLACE_ALIGN] = "place_align",
	[TEXT_PLACE_MAP_SMALL] = "place_map_small",
	[TEXT_READ_BLOCKS] = "readahead_blocks",
	[TEXT_READ_PARTIAL] = "readahead_partial",
	[TEXT_READ_NOMEM] = "readahead_nomem",
	[TEXT_READ_SHARE] = "readahead_share",
	[TEXT_WIDE_FAULTS] = "wide_faults",
	[TEXT_NR_COUNTERS] = NULL
};

/* Key: L text_lock; O text_lock for writing, and the worker reads it without. */
static DEFINE_SPINLOCK(text_lock);
static struct text_slot text_slots[TEXT_SLOTS];
static bool text_open;				/* (O) */
static unsigned long text_not_before;		/* (L) jiffies; of the next run */
static unsigned long text_backoff_end;		/* (L) jiffies; while text_backing_off */
static bool text_backing_off;			/* (L) */
static DECLARE_WAIT_QUEUE_HEAD(text_idle);
static struct workqueue_struct *text_wq;

static void text_work_fn(struct work_struct *work);
static DECLARE_DELAYED_WORK(text_work, text_work_fn);

static unsigned int text_delay_ms = 100;
static unsigned int text_min_resident = HPAGE_PMD_NR / 2;
static unsigned int text_max_permil = 250;
static unsigned int text_backoff_ms = 10000;
static unsigned int text_blocks_per_s = 256;

/* ---- queue ---- */

/* Wake the worker when the first waiting slot is due. */
static void text_arm(void)
{
	unsigned long now = jiffies, due = 0;
	bool any = false;
	int i;

	lockdep_assert_held(&text_lock);
	for (i = 0; i < TEXT_SLOTS; i++) {
		struct text_slot *slot = &text_slots[i];

		if (slot->state != TEXT_WAITING)
			continue;
		if (!any || time_before(slot->due, due))
			due = slot->due;
		any = true;
	}
	if (!any || !text_open)
		return;
	if (time_before(due, text_not_before))
		due = text_not_before;
	mod_delayed_work(text_wq, &text_work, time_after(due, now) ? due - now : 0);
}

static struct text_slot *text_find(const struct inode *inode, struct text_slot **free)
{
	int i;

	*free = NULL;
	for (i = 0; i < TEXT_SLOTS; i++) {
		struct text_slot *slot = &text_slots[i];

		if (slot->state == TEXT_FREE)
			*free = slot;
		else if (slot->state != TEXT_ENDING && !slot->forget &&
			 slot->inode == inode)
			return slot;
	}
	return NULL;
}

static void text_fill(struct text_slot *slot, struct inode *inode, pgoff_t start,
		      pgoff_t end)
{
	unsigned long delay = msecs_to_jiffies(READ_ONCE(text_delay_ms));

	ihold(inode);
	*slot = (struct text_slot) {
		.state = TEXT_WAITING,
		.inode = inode,
		.sb = inode->i_sb,
		.start = start,
		.end = end,
		.due = jiffies + delay,
		.latest = jiffies + TEXT_POSTPONE * delay,
	};
}

/* A queued file was mapped again: do not copy while its program starts again. */
static void text_postpone(struct text_slot *slot)
{
	unsigned long due = jiffies + msecs_to_jiffies(READ_ONCE(text_delay_ms));

	lockdep_assert_held(&text_lock);
	if (slot->state != TEXT_WAITING || slot->pass.unfinished)
		return;
	if (time_after(due, slot->latest))
		due = slot->latest;
	if (time_after(due, slot->due))
		slot->due = due;
}

static enum text_counter text_enqueue(struct inode *inode, pgoff_t start, pgoff_t end)
{
	enum text_counter why = TEXT_QUEUED;
	struct text_slot *slot, *free;

	spin_lock(&text_lock);
	slot = text_find(inode, &free);
	if (text_backing_off && time_after_eq(jiffies, text_backoff_end))
		text_backing_off = false;
	if (!text_open) {
		why = TEXT_SKIPPED_POLICY;
	} else if (text_backing_off) {
		why = TEXT_SKIPPED_BACKOFF;
	} else if (slot) {
		slot->start = min(slot->start, start);
		slot->end = max(slot->end, end);
		slot->again = true;
		text_postpone(slot);
	} else if (free) {
		text_fill(free, inode, start, end);
		text_arm();
	} else {
		why = TEXT_SKIPPED_QUEUE_FULL;
	}
	spin_unlock(&text_lock);
	return why;
}

/**
 * quire_text_block_huge - is a block one huge entry of the page cache
 * @mapping: the file's
 * @index: the block's first page
 *
 * Context: any; takes only RCU, so the answer may change at once.
 * Return: true if it is.
 */
bool quire_text_block_huge(struct address_space *mapping, pgoff_t index)
{
	XA_STATE(xas, &mapping->i_pages, index);
	bool huge = false;
	void *entry;

	rcu_read_lock();
	do {
		entry = xas_load(&xas);
		huge = entry && !xa_is_value(entry) &&
			xas_get_order(&xas) >= HPAGE_PMD_ORDER;
	} while (xas_retry(&xas, entry));
	rcu_read_unlock();
	return huge;
}

static bool text_all_huge(struct address_space *mapping, pgoff_t start, pgoff_t end)
{
	for (; start < end; start += HPAGE_PMD_NR)
		if (!quire_text_block_huge(mapping, start))
			return false;
	return true;
}

static bool text_file_eligible(struct vm_area_struct *vma)
{
	struct file *file = vma->vm_file;
	struct address_space *mapping = file->f_mapping;

	return S_ISREG(file_inode(file)->i_mode) && (file->f_mode & FMODE_READ) &&
		file_inode(file) == mapping->host && !IS_SWAPFILE(mapping->host) &&
		vma->vm_ops && vma->vm_ops->map_pages && mapping->a_ops->read_folio &&
		!(vma->vm_flags & VM_NO_KHUGEPAGED) && !vma_is_dax(vma) &&
		!is_file_hugepages(file) && !shmem_mapping(mapping) &&
		!secretmem_mapping(mapping);
}

void __quire_text_mapped(struct vm_area_struct *vma)
{
	struct file *file = vma->vm_file;
	enum text_counter why;
	pgoff_t start, end;

	if (!text_blocks(vma, &start, &end))
		why = TEXT_SKIPPED_SMALL;
	else if (!text_congruent(vma))
		why = TEXT_SKIPPED_UNALIGNED;
	else if (!hugepage_global_enabled() || thp_disabled_by_hw() ||
		 vma_thp_disabled(vma, vma->vm_flags))
		why = TEXT_SKIPPED_POLICY;
	else if (!text_file_eligible(vma))
		why = TEXT_SKIPPED_FILE;
	else if (text_all_huge(file->f_mapping, start, end))
		why = TEXT_SKIPPED_HUGE;
	else
		why = text_enqueue(file_inode(file), start, end);
	text_count(why, 1);
	if (why == TEXT_QUEUED)
		trace_text_queue(file_inode(file), start, end);
	else if (why == TEXT_SKIPPED_HUGE)
		trace_text_map(file_inode(file), start, end);
}

void __quire_text_drop(struct address_space *mapping)
{
	filemap_invalidate_lock(mapping);
	if (filemap_nr_thps(mapping)) {
		text_count(TEXT_DROPPED_WRITER, 1);
		unmap_mapping_range(mapping, 0, 0, 0);
		truncate_inode_pages(mapping, 0);
	}
	filemap_invalidate_unlock(mapping);
}

/* ---- worker ---- */

/* Give a due slot to the worker, to begin an attempt or to continue one. */
static struct text_slot *text_begin(void)
{
	struct text_slot *slot = NULL;
	int i;

	spin_lock(&text_lock);
	for (i = 0; i < TEXT_SLOTS && text_open && !slot; i++)
		if (text_slots[i].state == TEXT_WAITING &&
		    time_after_eq(jiffies, text_slots[i].due))
			slot = &text_slots[i];
	if (slot) {
		slot->state = TEXT_BUSY;
		if (!slot->pass.unfinished) {
			slot->again = false;
			slot->pass = (struct text_pass) { .next = slot->start, .end = slot->end };
		}
		slot->pass.unfinished = false;
		slot->pass.drained = false;
	}
	spin_unlock(&text_lock);
	return slot;
}

static void text_count_pass(const struct text_pass *pass)
{
	enum text_counter why;

	for (why = TEXT_FALLBACK_FIRST; why <= TEXT_FALLBACK_LAST; why++)
		text_count(why, pass->left[why]);
}

/* Was anything left undone that the next attempt may be able to do? */
static bool text_worth_retry(const struct text_pass *pass)
{
	return pass->left[TEXT_FALLBACK_WRITER] || pass->left[TEXT_FALLBACK_DIRTY] ||
		pass->left[TEXT_FALLBACK_COLD] || pass->left[TEXT_FALLBACK_BUSY];
}

/* Does the slot wait for another attempt? If so, sets when it is due. */
static bool text_requeue(struct text_slot *slot)
{
	const struct text_pass *pass = &slot->pass;
	unsigned int delay_ms = READ_ONCE(text_delay_ms);
	unsigned long delay = msecs_to_jiffies(max(delay_ms, TEXT_MIN_RETRY_MS));
	bool grown;

	lockdep_assert_held(&text_lock);
	slot->due = jiffies;
	if (slot->forget || !text_open || pass->left[TEXT_FALLBACK_NOMEM])
		return false;
	if (pass->unfinished)
		return true;
	if (slot->again) {
		slot->tries = 0;
		slot->resident = 0;
		slot->due += delay;
		return true;
	}
	if (!text_worth_retry(pass))
		return false;
	slot->due += delay << slot->tries;
	grown = pass->resident > slot->resident;
	slot->resident = max(slot->resident, pass->resident);
	/* After the last try, only for a program that is still being read. */
	if (slot->tries == TEXT_TRIES - 1)
		return grown;
	slot->tries++;
	return true;
}

/* Drop the inode of a slot that the caller has made TEXT_ENDING. */
static void text_release(struct text_slot *slot)
{
	iput(slot->inode);

	spin_lock(&text_lock);
	slot->state = TEXT_FREE;
	slot->inode = NULL;
	spin_unlock(&text_lock);
	wake_up_all(&text_idle);
}

static void text_end(struct text_slot *slot)
{
	const struct text_pass *pass = &slot->pass;
	bool forgotten;

	spin_lock(&text_lock);
	if (text_requeue(slot)) {
		slot->state = TEXT_WAITING;
		spin_unlock(&text_lock);
		return;
	}
	forgotten = slot->forget || !text_open;
	slot->state = TEXT_ENDING;
	if (pass->left[TEXT_FALLBACK_NOMEM]) {
		text_backing_off = true;
		text_backoff_end = jiffies + msecs_to_jiffies(READ_ONCE(text_backoff_ms));
	}
	spin_unlock(&text_lock);

	if (forgotten)
		text_count(TEXT_FORGOTTEN, 1);
	else
		text_count_pass(pass);
	text_release(slot);
}

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

	return huge * 1000 <= totalram_pages() * READ_ONCE(text_max_permil);
}

static void text_leave(struct text_pass *pass, struct inode *inode, pgoff_t start,
		       enum text_counter why)
{
	pass->left[why]++;
	trace_text_fallback(inode, start, text_counter_names[why]);
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
	if (resident < (may_read ? READ_ONCE(text_min_resident) : HPAGE_PMD_NR)) {
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

static void text_do_file(struct text_slot *slot, unsigned int *budget)
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
		if (READ_ONCE(slot->forget) || !READ_ONCE(text_open) ||
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

static void text_work_fn(struct work_struct *work)
{
	unsigned int rate = READ_ONCE(text_blocks_per_s);
	unsigned int share = DIV_ROUND_UP(rate, TEXT_RUNS_PER_S), budget = share;
	struct text_slot *slot;

	while (budget && (slot = text_begin())) {
		text_do_file(slot, &budget);
		text_end(slot);
	}
	spin_lock(&text_lock);
	/* Rest for what was done, however little: programs may come one by one. */
	if (budget < share)
		text_not_before = jiffies + DIV_ROUND_UP((share - budget) * HZ, rate);
	text_arm();
	spin_unlock(&text_lock);
}

/* ---- forgetting ---- */

static bool text_matches(const struct text_slot *slot, const struct super_block *sb)
{
	return slot->state != TEXT_FREE && (!sb || slot->sb == sb);
}

/* Drop one waiting file of @sb (NULL: any). Returns whether there was one. */
static bool text_forget_one(const struct super_block *sb)
{
	struct text_slot *found = NULL;
	int i;

	spin_lock(&text_lock);
	for (i = 0; i < TEXT_SLOTS && !found; i++) {
		struct text_slot *slot = &text_slots[i];

		if (!text_matches(slot, sb))
			continue;
		if (slot->state == TEXT_WAITING) {
			slot->state = TEXT_ENDING;
			found = slot;
		} else {
			WRITE_ONCE(slot->forget, true);
		}
	}
	spin_unlock(&text_lock);
	if (!found)
		return false;
	text_count(TEXT_FORGOTTEN, 1);
	text_release(found);
	return true;
}

/**
 * quire_text_uses - is a file of a filesystem in the queue
 * @sb: the filesystem, only compared; NULL: any
 *
 * A file counts until its inode has been dropped.
 *
 * Context: does not sleep; takes text_lock.
 * Return: true if there is one.
 */
bool quire_text_uses(const struct super_block *sb)
{
	bool uses = false;
	int i;

	spin_lock(&text_lock);
	for (i = 0; i < TEXT_SLOTS && !uses; i++)
		uses = text_matches(&text_slots[i], sb);
	spin_unlock(&text_lock);
	return uses;
}

/* Nobody can map its files any more, and the worker drops its file between two blocks. */
void __quire_text_shutdown(struct super_block *sb)
{
	while (text_forget_one(sb))
		;
	wait_event(text_idle, !quire_text_uses(sb));
}

/* ---- switching ---- */

static int text_start(void)
{
	/* Before the queue opens: writers must void the copies of the first file in it. */
	static_branch_enable(&quire_text_used_key);
	static_branch_enable(&quire_text_batch_key);
	spin_lock(&text_lock);
	text_open = true;
	text_backing_off = false;
	text_not_before = jiffies;
	spin_unlock(&text_lock);
	return 0;
}

/*
 * The worker stops after the current block. That may take long if a device does not
 * answer, so the switch does not wait forever.
 */
static void text_stop(void)
{
	spin_lock(&text_lock);
	WRITE_ONCE(text_open, false);
	spin_unlock(&text_lock);
	cancel_delayed_work(&text_work);
	while (text_forget_one(NULL))
		;
	if (!wait_event_timeout(text_idle, !quire_text_uses(NULL), TEXT_STOP_WAIT_S * HZ))
		pr_warn("text: a filesystem does not answer the worker\n");
}

QUIRE_UINT_KNOB(placement, quire_text_placement, 0, 1);
QUIRE_UINT_KNOB(readahead, quire_text_readahead, 0, 1);
QUIRE_UINT_KNOB(fault_around_kb, quire_text_fault_around_kb, 64, PMD_SIZE >> 10);
QUIRE_UINT_KNOB(delay_ms, text_delay_ms, 0, 60000);
QUIRE_UINT_KNOB(min_resident_pages, text_min_resident, 1, HPAGE_PMD_NR);
QUIRE_UINT_KNOB(max_permil, text_max_permil, 0, 1000);
QUIRE_UINT_KNOB(backoff_ms, text_backoff_ms, 0, 600000);
QUIRE_UINT_KNOB(blocks_per_second, text_blocks_per_s, 1, 100000);

static const struct attribute * const text_knobs[] = {
	&placement_knob.attr.attr,
	&readahead_knob.attr.attr,
	&fault_around_kb_knob.attr.attr,
	&delay_ms_knob.attr.attr,
	&min_resident_pages_knob.attr.attr,
	&max_permil_knob.attr.attr,
	&backoff_ms_knob.attr.attr,
	&blocks_per_second_knob.attr.attr,
	NULL
};

static const struct quire_counters text_counters = {
	.names = text_counter_names,
	.counts = (unsigned long __percpu *)quire_text_counts,
};

static struct quire_feature text_feature = {
	.name = "text",
	.key = &quire_text_key,
	.start = text_start,
	.stop = text_stop,
	.drain = quire_text_drain,
	.knobs = text_knobs,
	.counters = { &text_counters },
};

/* Like khugepaged, the worker yields to all other tasks, also to the program that starts. */
static int __init text_make_workqueue(void)
{
	struct workqueue_attrs *attrs = alloc_workqueue_attrs();
	int ret = -ENOMEM;

	text_wq = alloc_workqueue("quire_text", WQ_UNBOUND | WQ_FREEZABLE, 1);
	if (attrs && text_wq) {
		attrs->nice = MAX_NICE;
		ret = apply_workqueue_attrs(text_wq, attrs);
	}
	if (ret && text_wq)
		destroy_workqueue(text_wq);
	free_workqueue_attrs(attrs);
	return ret;
}

static int __init text_init(void)
{
	int ret = text_make_workqueue();

	return ret ? ret : quire_register(&text_feature);
}
late_initcall(text_init);
