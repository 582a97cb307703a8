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
 * queue.c has the queue and the worker's turns, worker.c what it does with a block.
 *
 * Locking: quire_text_mapped() is called under mmap_lock and takes the queue's lock.
 * A file's count of huge pages (nr_thps) is raised under its invalidate_lock: held for
 * reading by a collapse or promotion, and for writing by __quire_text_drop(), which
 * lowers it again under the lock. A collapse or promotion that fails lowers it with the
 * block's pages locked, unless memory cannot be read (see __quire_text_drop()). Else it
 * is lowered with the huge folio locked, when that is split or leaves the page cache.
 *
 * Lifetime: quire_text_used_key is on from the first start to the end of a
 * complete drain: as long as files may be queued, also while the feature is being
 * switched off, and as long as huge folios may be left.
 *
 * Undo: switching off empties the queue; enabled=2 also splits the huge folios
 * of all filesystems that count them (drain.c). On filesystems that have large
 * folios anyway nobody can tell our huge folios from theirs, and they stay.
 */
#include <linux/dax.h>
#include <linux/fs.h>
#include <linux/hugetlb.h>
#include <linux/init.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/quire/text.h>
#include <linux/secretmem.h>
#include <linux/shmem_fs.h>

#include "../core/quire.h"
#include "text.h"

#define CREATE_TRACE_POINTS
#include <trace/events/quire_text.h>

DEFINE_STATIC_KEY_FALSE(quire_text_key);
DEFINE_STATIC_KEY_FALSE(quire_text_used_key);
DEFINE_PER_CPU(unsigned long [TEXT_NR_COUNTERS], quire_text_counts);

const char * const quire_text_counter_names[] = {
	[TEXT_QUEUED] = "queued",
	[TEXT_SKIPPED_HUGE] = "skipped_huge",
	[TEXT_SKIPPED_POLICY] = "skipped_policy",
	[TEXT_SKIPPED_FILE] = "skipped_file",
	[TEXT_SKIPPED_SMALL] = "skipped_small",
	[TEXT_SKIPPED_UNALIGNED] = "skipped_unaligned",
	[TEXT_SKIPPED_BACKOFF] = "skipped_backoff",
	[TEXT_SKIPPED_QUEUE_FULL] = "skipped_queue_full",
	[TEXT_GAVE_WAY] = "gave_way",
	[TEXT_COLLAPSED_BLOCKS] = "collapsed_blocks",
	[TEXT_COPIED_AHEAD] = "copied_ahead",
	[TEXT_COPIES_VOID] = "copies_void",
	[TEXT_PROMOTED_BLOCKS] = "promoted_blocks",
	[TEXT_PROMOTE_BUSY] = "promote_busy",
	[TEXT_GATHERED_PAGES] = "gathered_pages",
	[TEXT_RESERVED_BLOCKS] = "reserved_blocks",
	[TEXT_RESERVE_NOMEM] = "reserve_nomem",
	[TEXT_RESERVE_UNFILLED] = "reserve_unfilled",
	[TEXT_FALLBACK_WRITER] = "fallback_writer",
	[TEXT_FALLBACK_DIRTY] = "fallback_dirty",
	[TEXT_FALLBACK_COLD] = "fallback_cold",
	[TEXT_FALLBACK_NOMEM] = "fallback_nomem",
	[TEXT_FALLBACK_LIMIT] = "fallback_limit",
	[TEXT_FALLBACK_SHARE] = "fallback_share",
	[TEXT_FALLBACK_BUSY] = "fallback_busy",
	[TEXT_FALLBACK_LOCKED] = "fallback_locked",
	[TEXT_FALLBACK_REALTIME] = "fallback_realtime",
	[TEXT_FALLBACK_MAPPINGS] = "fallback_mappings",
	[TEXT_FALLBACK_TRUNCATED] = "fallback_truncated",
	[TEXT_FORGOTTEN] = "forgotten",
	[TEXT_DROPPED_WRITER] = "dropped_writer",
	[TEXT_DRAINED_BLOCKS] = "drained_blocks",
	[TEXT_DROPPED_DRAIN] = "dropped_drain",
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

/*
 * Does all of a filesystem's code cope with a huge page of text? On a filesystem without large
 * folios, code that needs no writer may take each page for a small one: btrfs sends the first page
 * of a block 512 times, f2fs cannot move it to another segment, and FUSE replaces all of it by one
 * page of its server's. Network filesystems change contents without a writer, and drop only what is
 * not mapped. So only those that were read for this, and 9p, which caches if it is told to. That
 * ext2 copes depends on quire_text_truncate(), which runs before ext2 zeroes the end of a file.
 */
static bool text_fs_copes(const struct super_block *sb)
{
	switch (sb->s_magic) {
	case EROFS_SUPER_MAGIC_V1:
	case EXT4_SUPER_MAGIC:	/* ext2 and ext3, too */
	case ISOFS_SUPER_MAGIC:
	case SQUASHFS_MAGIC:
	case V9FS_MAGIC:
	case XFS_SUPER_MAGIC:
		return true;
	default:
		return false;
	}
}

static bool text_file_eligible(struct vm_area_struct *vma)
{
	struct file *file = vma->vm_file;
	struct address_space *mapping = file->f_mapping;

	return S_ISREG(file_inode(file)->i_mode) && (file->f_mode & FMODE_READ) &&
		READ_ONCE(file_inode(file)->i_nlink) && text_fs_copes(mapping->host->i_sb) &&
		file_inode(file) == mapping->host && !IS_SWAPFILE(mapping->host) &&
		vma->vm_ops && vma->vm_ops->map_pages && mapping->a_ops->read_folio &&
		!(vma->vm_flags & VM_NO_KHUGEPAGED) && !vma_is_dax(vma) &&
		!is_file_hugepages(file) && !shmem_mapping(mapping) &&
		!secretmem_mapping(mapping);
}

/* The whole blocks of the VMA's file that it maps; the mapping may be far larger than the file. */
static bool text_file_blocks(struct vm_area_struct *vma, pgoff_t *start, pgoff_t *end)
{
	loff_t size = i_size_read(vma->vm_file->f_mapping->host);

	if (!text_blocks(vma, start, end))
		return false;
	*end = min_t(pgoff_t, *end, round_down(size >> PAGE_SHIFT, HPAGE_PMD_NR));
	return *start < *end;
}

void __quire_text_mapped(struct vm_area_struct *vma)
{
	struct file *file = vma->vm_file;
	enum text_counter why;
	pgoff_t start, end;

	if (!text_file_blocks(vma, &start, &end))
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
		why = quire_text_enqueue(file_inode(file), start, end);
	text_count(why, 1);
	if (why == TEXT_QUEUED)
		trace_text_queue(file_inode(file), start, end);
	else if (why == TEXT_SKIPPED_HUGE)
		trace_text_map(file_inode(file), start, end);
}

/*
 * Empty a file's page cache for a writer, unless another writer has just done so. The count stays
 * raised meanwhile. The last huge folio may go before the last page does, and a second writer that
 * then found a count of zero would not wait for the lock, and lose the pages that it makes dirty.
 *
 * Left is what Linux does about memory that cannot be read: collapse_file() then unlocks its pages
 * before it lowers the count that it had raised, so a second writer may still find that one.
 */
void __quire_text_drop(struct address_space *mapping)
{
	filemap_invalidate_lock(mapping);
	if (atomic_inc_not_zero(&mapping->nr_thps)) {
		quire_text_hold(TEXT_HOLD_DROP);
		text_count(TEXT_DROPPED_WRITER, 1);
		unmap_mapping_range(mapping, 0, 0, 0);
		truncate_inode_pages(mapping, 0);
		/* A writer that reads zero makes pages dirty after the last of these has gone. */
		smp_mb__before_atomic();
		filemap_nr_thps_dec(mapping);
	}
	filemap_invalidate_unlock(mapping);
}

static int text_start(void)
{
	int ret = quire_text_make_places();

	if (ret)
		return ret;
	/* Before the queue opens: writers must void the copies of the first file in it. */
	static_branch_enable(&quire_text_used_key);
	static_branch_enable(&quire_text_batch_key);
	quire_text_open_queue();
	return 0;
}

QUIRE_UINT_KNOB(placement, quire_text_placement, 0, 1);
QUIRE_UINT_KNOB(readahead, quire_text_readahead, 0, 1);
QUIRE_UINT_KNOB(fault_around_kb, quire_text_fault_around_kb, 64, PMD_SIZE >> 10);
QUIRE_UINT_KNOB(in_place, quire_text_in_place, 0, 1);
QUIRE_UINT_KNOB(delay_ms, quire_text_delay_ms, 0, 60000);
QUIRE_UINT_KNOB(min_resident_pages, quire_text_min_resident, 1, HPAGE_PMD_NR);
QUIRE_UINT_KNOB(max_permil, quire_text_max_permil, 0, 1000);
QUIRE_UINT_KNOB(backoff_ms, quire_text_backoff_ms, 0, 600000);
QUIRE_UINT_KNOB(blocks_per_second, quire_text_blocks_per_s, 1, 100000);

static const struct attribute * const text_knobs[] = {
	&placement_knob.attr.attr,
	&readahead_knob.attr.attr,
	&fault_around_kb_knob.attr.attr,
	&in_place_knob.attr.attr,
	&delay_ms_knob.attr.attr,
	&min_resident_pages_knob.attr.attr,
	&max_permil_knob.attr.attr,
	&backoff_ms_knob.attr.attr,
	&blocks_per_second_knob.attr.attr,
	NULL
};

static const struct quire_counters text_counters = {
	.names = quire_text_counter_names,
	.counts = (unsigned long __percpu *)quire_text_counts,
};

static struct quire_feature text_feature = {
	.name = "text",
	.key = &quire_text_key,
	.start = text_start,
	.stop = quire_text_close_queue,
	.drain = quire_text_drain,
	.knobs = text_knobs,
	.counters = { &text_counters },
};

static int __init text_init(void)
{
	int ret = quire_text_make_worker();

	return ret ? ret : quire_register(&text_feature);
}
late_initcall(text_init);
