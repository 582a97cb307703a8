// SPDX-License-Identifier: GPL-2.0
/*
 * Splitting huge folios of the page cache: the drain of the text feature.
 *
 * Filesystems without large folios count their huge ones (nr_thps). All of those
 * are split, no matter what made them.
 *
 * Locking: the feature's lock is held throughout, so one drain at a time is under
 * way. s_umount of a superblock is held for reading while its inodes are visited;
 * s_inode_list_lock only to step from one inode to the next; a folio's lock while
 * the folio is split.
 *
 * Lifetime: an inode is referenced while its folios are split, and until the next
 * inode has been done: the walk over the list continues from it.
 *
 * Undo: this is the feature's undo. A split block is collapsed again when it is
 * mapped anew while the feature is on.
 */
#define pr_fmt(fmt) "quire: " fmt

#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/pagevec.h>
#include <linux/quire/text.h>
#include <linux/swap.h>

#include "text.h"

#define TEXT_DRAIN_ROUNDS	5

/* Split the huge folios of a mapping. Returns how many could not be split. */
static unsigned long text_split_mapping(struct address_space *mapping)
{
	unsigned long left = 0;
	struct folio_batch batch;
	pgoff_t index = 0;
	unsigned int i;

	folio_batch_init(&batch);
	while (filemap_get_folios(mapping, &index, ULONG_MAX, &batch)) {
		for (i = 0; i < folio_batch_count(&batch); i++) {
			struct folio *folio = batch.folios[i];
			bool split;

			if (!folio_test_pmd_mappable(folio))
				continue;
			folio_lock(folio);
			split = folio->mapping == mapping && !split_folio(folio);
			if (split)
				text_count(TEXT_DRAINED_BLOCKS, 1);
			else if (folio->mapping == mapping)
				left++;
			folio_unlock(folio);
		}
		folio_batch_release(&batch);
		cond_resched();
	}
	return left;
}

/* s_umount is held for reading. Drops inodes only while the list's lock is not held. */
static void text_split_sb(struct super_block *sb, void *arg)
{
	struct inode *inode, *held = NULL;
	unsigned long *left = arg;

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
			*left += text_split_mapping(inode->i_mapping);
		iput(held);
		held = inode;
		cond_resched();

		spin_lock(&sb->s_inode_list_lock);
	}
	spin_unlock(&sb->s_inode_list_lock);
	iput(held);
}

/**
 * quire_text_drain - split the huge folios of all filesystems that count them
 *
 * Pinned folios (by O_DIRECT writes from text, say) do not split.
 *
 * Context: may sleep, for seconds. The feature is off and its lock is held; takes the
 * locks named at the head of this file.
 * Return: 0 when no huge folio is left, with quire_text_used_key off, or -EBUSY if some
 * are left or the worker still holds its file.
 */
int quire_text_drain(void)
{
	unsigned long left = 0;
	int round;

	if (quire_text_uses(NULL))
		return -EBUSY;
	for (round = 0; round < TEXT_DRAIN_ROUNDS; round++) {
		left = 0;
		lru_add_drain_all();
		iterate_supers(text_split_sb, &left);
		if (!left) {
			static_branch_disable(&quire_text_used_key);
			return 0;
		}
		schedule_timeout_uninterruptible(HZ / 10);
	}
	pr_info("text: %lu huge folios are in use and stay\n", left);
	return -EBUSY;
}
