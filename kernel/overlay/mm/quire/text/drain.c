// SPDX-License-Identifier: GPL-2.0
/*
 * Splitting huge folios of the page cache: the drain of the text feature.
 *
 * Filesystems without large folios count their huge ones (nr_thps). All of those
 * are split, no matter what made them.
 *
 * Who runs in a block faults as soon as it is unmapped to be split. The fault holds a
 * reference while it waits for the folio's lock, and a folio with such a reference does
 * not split. The last round drops these folios from the page cache, as reclaim could at
 * any time: a reference does not keep them there, and the waiters read the text again.
 * If the disk is gone by then, they get SIGBUS.
 *
 * Locking: the feature's lock is held throughout, so one drain at a time is under
 * way. s_umount of a superblock is held for reading while its inodes are visited;
 * s_inode_list_lock, and an inode's i_lock below it, only to step from one inode to the
 * next; a folio's lock while the folio is split or dropped, and i_mmap_rwsem below it.
 *
 * Lifetime: an inode is referenced while its folios are split, and until the next
 * inode has been done: the walk over the list continues from it.
 *
 * Undo: this is the feature's undo. A block is collapsed again when it is mapped anew
 * while the feature is on.
 */
#define pr_fmt(fmt) "quire: " fmt

#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/pagevec.h>
#include <linux/quire/text.h>
#include <linux/swap.h>

#include "../../internal.h"
#include "text.h"

#define TEXT_DRAIN_ROUNDS	5

struct text_drain {
	unsigned long left;	/* folios that stay huge */
	bool drop;		/* drop what does not split */
};

/*
 * Drop a folio from the page cache that has references of others. Its content must be on
 * the disk, and nobody who has locked it in memory or is real-time may have to read it
 * again. The page allocator would not notice that a large folio is poisoned.
 */
static bool text_drop_folio(struct address_space *mapping, struct folio *folio)
{
	if (folio_test_dirty(folio) || folio_test_writeback(folio) ||
	    folio_maybe_dma_pinned(folio) || folio_contain_hwpoisoned_page(folio) ||
	    quire_text_stays_mapped(mapping, folio->index, UINT_MAX) != TEXT_COLLAPSED_BLOCKS)
		return false;
	return !truncate_inode_folio(mapping, folio);
}

/* Split a folio, which is locked and in the mapping, or drop it. */
static void text_drain_folio(struct address_space *mapping, struct folio *folio,
			     struct text_drain *drain)
{
	int error = split_folio(folio);

	if (!error)
		text_count(TEXT_DRAINED_BLOCKS, 1);
	else if (error == -EAGAIN && drain->drop && text_drop_folio(mapping, folio))
		text_count(TEXT_DROPPED_DRAIN, 1);
	else
		drain->left++;
}

static void text_drain_mapping(struct address_space *mapping, struct text_drain *drain)
{
	struct folio_batch batch;
	pgoff_t index = 0;
	unsigned int i;

	folio_batch_init(&batch);
	while (filemap_get_folios(mapping, &index, ULONG_MAX, &batch)) {
		for (i = 0; i < folio_batch_count(&batch); i++) {
			struct folio *folio = batch.folios[i];

			if (!folio_test_pmd_mappable(folio))
				continue;
			folio_lock(folio);
			if (folio->mapping == mapping)
				text_drain_folio(mapping, folio, drain);
			folio_unlock(folio);
		}
		folio_batch_release(&batch);
		cond_resched();
	}
}

/* s_umount is held for reading. Drops inodes only while the list's lock is not held. */
static void text_drain_sb(struct super_block *sb, void *arg)
{
	struct inode *inode, *held = NULL;

	spin_lock(&sb->s_inode_list_lock);
	list_for_each_entry(inode, &sb->s_inodes, i_sb_list) {
		spin_lock(&inode->i_lock);
		if ((inode->i_state & (I_FREEING | I_WILL_FREE | I_NEW)) ||
		    (!filemap_nr_thps(inode->i_mapping) && !need_resched())) {
			spin_unlock(&inode->i_lock);
			continue;
		}
		__iget(inode);
		spin_unlock(&inode->i_lock);
		spin_unlock(&sb->s_inode_list_lock);

		if (filemap_nr_thps(inode->i_mapping))
			text_drain_mapping(inode->i_mapping, arg);
		iput(held);
		held = inode;
		cond_resched();

		spin_lock(&sb->s_inode_list_lock);
	}
	spin_unlock(&sb->s_inode_list_lock);
	iput(held);
}

/**
 * quire_text_drain - split or drop the huge folios of all filesystems that count them
 *
 * Pinned folios (by O_DIRECT writes from text, say) do not split, and stay. So do those
 * that somebody has locked in memory, while others use them.
 *
 * Context: may sleep, for seconds. The feature is off and its lock is held; takes the
 * locks named at the head of this file.
 * Return: 0 when no huge folio is left, with quire_text_used_key off, or -EBUSY if some
 * are left or the worker still holds its file.
 */
int quire_text_drain(void)
{
	struct text_drain drain;
	int round;

	if (quire_text_uses(NULL))
		return -EBUSY;
	for (round = 0; round < TEXT_DRAIN_ROUNDS; round++) {
		if (round)
			schedule_timeout_uninterruptible(HZ / 10);
		drain.left = 0;
		drain.drop = round == TEXT_DRAIN_ROUNDS - 1;
		lru_add_drain_all();
		iterate_supers(text_drain_sb, &drain);
		if (!drain.left) {
			static_branch_disable(&quire_text_used_key);
			return 0;
		}
	}
	pr_info("text: %lu huge folios are in use and stay\n", drain.left);
	return -EBUSY;
}
