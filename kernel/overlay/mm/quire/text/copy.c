// SPDX-License-Identifier: GPL-2.0
/*
 * Copying a block of text while it is still mapped, and unmapping it.
 *
 * collapse_file() locks and unmaps the pages of a block one by one, and then copies
 * them: programs that run in the block wait until all 2 MiB are copied, once for every
 * block if the worker goes through text of a program that is starting. So the
 * worker copies before it unmaps, and collapse_file() copies only the pages that
 * are missing. It unmaps the block when all pages are locked, from each page table
 * in one go.
 *
 * Why the copies are good: an up-to-date page holds what its file holds, and that
 * does not change while nobody has write access to the inode. A task that gets write
 * access, by opening the file or to truncate it, calls quire_text_writer() before it
 * changes anything, and that voids the copies of that file:
 *
 *	worker					writer
 *	text_copy.inode = inode			get_write_access()
 *	full barrier				full barrier
 *	inode_is_open_for_write(): no copies	text_copy.inode == inode: stale
 *
 * One of the two sees the other, or the writer has come and gone before the
 * first page is copied. If the writer comes and goes after that, the worker sees
 * @stale: both have held the lock of the page that was changed. A writer that comes
 * after collapse_file() has last looked for writers finds nr_thps, as in vanilla.
 * Pages that somebody may still write to through an old reference (a pin outlives
 * mapping and file) are not copied here.
 *
 * This is only done for filesystems for which all of this is known to hold. On a
 * filesystem that several machines mount, or that a process serves, contents change
 * without a writer.
 *
 * Locking: text_copy belongs to the single worker; quire_text_writer() reads
 * @inode and sets @stale. Pages are copied ahead with the new folio locked, which nobody
 * else knows, and unmapped with the block's folios locked: i_mmap_rwsem nests inside
 * folio locks (mm/rmap.c).
 *
 * Lifetime: the copies, from collapse_file() to the end of quire_text_collapse_block(),
 * during which the worker holds a reference on the inode. The block's folios, while
 * collapse_file() holds references to them.
 *
 * Undo: the copies are in a folio that only collapse_file() knows. What was unmapped
 * and is not replaced faults in again.
 */
#include <linux/bitmap.h>
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/highmem.h>
#include <linux/jiffies.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/quire/text.h>

#include "../core/quire.h"
#include "text.h"

/* Key: W the worker only; P set by the worker, read by writers; S set by writers, too. */
static struct {
	const struct inode *inode;		/* (P) the file being copied, or NULL */
	bool stale;				/* (S) a writer has voided the copies */
	DECLARE_BITMAP(done, HPAGE_PMD_NR);	/* (W) pages that were copied */
} text_copy;

/*
 * Where a test wants the kernel to wait: 0 nowhere; TEXT_HOLD_COPIED or TEXT_HOLD_DROP; one more
 * while somebody waits there. With TEXT_HOLD_EXPIRY, no place expires, and nobody waits.
 */
static u32 text_hold;

/**
 * quire_text_hold - wait for a test that wants to do something meanwhile
 * @place: TEXT_HOLD_COPIED or TEXT_HOLD_DROP
 *
 * A test writes a place to debugfs text_hold, reads the next number once somebody waits there, and
 * writes 0. Nobody waits for much longer than a minute; without CONFIG_QUIRE_DEBUG nobody waits.
 *
 * Context: may sleep. The caller may hold locks.
 */
void quire_text_hold(u32 place)
{
	unsigned long end = jiffies + 60 * HZ;

	if (!IS_ENABLED(CONFIG_QUIRE_DEBUG) || cmpxchg(&text_hold, place, place + 1) != place)
		return;
	while (READ_ONCE(text_hold) == place + 1 && time_before(jiffies, end))
		msleep(10);
	/* Not if the test has let go, and asks again. */
	cmpxchg(&text_hold, place + 1, 0);
}

/**
 * quire_text_held_back - does a test keep something from happening?
 * @what: TEXT_HOLD_EXPIRY
 *
 * A test writes it to debugfs text_hold, and 0 later. Nobody waits.
 *
 * Context: any.
 * Return: whether it does; false without CONFIG_QUIRE_DEBUG.
 */
bool quire_text_held_back(u32 what)
{
	return IS_ENABLED(CONFIG_QUIRE_DEBUG) && READ_ONCE(text_hold) == what;
}

static bool text_known(const struct inode *inode)
{
	/* The kernel writes to a quota file without write access. */
	if (IS_NOQUOTA(inode))
		return false;
	switch (inode->i_sb->s_magic) {
	case EXT4_SUPER_MAGIC:	/* ext2, too */
	case EROFS_SUPER_MAGIC_V1:
	case SQUASHFS_MAGIC:
		return inode->i_sb->s_bdev;
	default:
		return false;
	}
}

/* Does the folio hold what the file holds, and does nobody else refer to it? */
static bool text_settled(struct folio *folio)
{
	return folio_order(folio) < HPAGE_PMD_ORDER &&
		folio_test_uptodate(folio) && !folio_test_dirty(folio) &&
		!folio_test_writeback(folio) && !folio_test_hwpoison(folio) &&
		text_unreferenced(folio);
}

/* Copy the pages of a folio that can be read. Returns false if one cannot. */
static bool text_copy_folio(struct folio *new, struct folio *old, unsigned int at)
{
	unsigned int i;

	for (i = 0; i < folio_nr_pages(old); i++) {
		if (copy_mc_highpage(folio_page(new, at + i), folio_page(old, i)) > 0)
			return false;
		__set_bit(at + i, text_copy.done);
	}
	return true;
}

/* Copy what can be copied of a block while it is mapped. */
static void text_copy_block(struct address_space *mapping, pgoff_t start, struct folio *new)
{
	pgoff_t index = start, end = start + HPAGE_PMD_NR;
	struct inode *inode = mapping->host;
	bool all = true;

	bitmap_zero(text_copy.done, HPAGE_PMD_NR);
	if (!text_known(inode))
		return;
	WRITE_ONCE(text_copy.stale, false);
	/* Pairs with __quire_text_writer(): its writer sees the cleared mark before it sets it. */
	smp_store_release(&text_copy.inode, inode);
	smp_mb();	/* pairs with the barrier of get_write_access() */
	if (inode_is_open_for_write(inode))
		return;

	while (index < end) {
		struct folio *old = filemap_get_folio(mapping, index);

		if (IS_ERR(old))
			return;
		if (!text_settled(old) || !text_copy_folio(new, old, old->index - start))
			all = false;
		index = folio_next_index(old);
		folio_put(old);
		/* Not with a reference held, which keeps others from moving the page. */
		cond_resched();
	}
	if (all)
		text_count(TEXT_COPIED_AHEAD, 1);
	/* The only lock held is that of the new folio, which nobody else knows. */
	quire_text_hold(TEXT_HOLD_COPIED);
}

/**
 * __quire_text_copy_ahead - copy a block's pages while they are mapped
 * @mapping: of the file
 * @start: first page of the block
 * @new: the locked folio that will replace the block
 *
 * quire_text_copy_end() ends it. collapse_file() copies what cannot be copied now, or
 * gives up the block. From here until then others may have to wait for the worker: those that
 * fault on a page that is locked, and then all that run in the block.
 *
 * Context: the worker only; may sleep; no lock is held but @new's.
 */
void __quire_text_copy_ahead(struct address_space *mapping, pgoff_t start, struct folio *new)
{
	quire_text_set_nice(MAX_NICE);
	text_copy_block(mapping, start, new);
	quire_text_set_nice(MIN_NICE);
}

/**
 * __quire_text_copied - does a page hold its copy already
 * @page: of the folio that will replace the block
 *
 * Context: the worker only, with the block's pages locked, when nobody has write
 * access any more, or can get it without emptying the page cache; does not sleep.
 * Return: true if it does; false for all pages once a writer has voided the copies.
 */
bool __quire_text_copied(const struct page *page)
{
	return test_bit(page_to_pfn(page) % HPAGE_PMD_NR, text_copy.done) &&
		!READ_ONCE(text_copy.stale);
}

/*
 * Has nobody locked the block in memory, or opened the file for writing, in the meantime? There were
 * few mappings when quire_text_stays_mapped() looked.
 */
static bool text_may_unmap(struct address_space *mapping, pgoff_t start)
{
	struct vm_area_struct *vma;
	bool locked = false;

	i_mmap_lock_read(mapping);
	vma_interval_tree_foreach(vma, &mapping->i_mmap, start, start + HPAGE_PMD_NR - 1) {
		locked = READ_ONCE(vma->vm_flags) & VM_LOCKED;
		if (locked)
			break;
		cond_resched();
	}
	i_mmap_unlock_read(mapping);
	return !locked && !inode_is_open_for_write(mapping->host);
}

/**
 * __quire_text_unmap - unmap a block whose folios are locked
 * @mapping: of the file
 * @start: first page of the block
 * @folios: the block's folios, locked, isolated from the LRU lists, with no references but by page
 *	tables, the page cache and the caller
 *
 * Takes the block out of each page table in one go. So programs that run in it go on until all is
 * locked, and wait only for the exchange. While they wait for a folio's lock they hold a reference
 * to it, so these are not counted again. Others that came through a page table meanwhile only read,
 * because a folio that is clean and locked is mapped read-only. But what is pinned must stay in the
 * page cache: who pins it relies on seeing what is written to the file later. Either GUP-fast sees
 * the cleared entry, or its pin is seen here; the flushes have full barriers.
 *
 * Context: the worker only; may sleep; takes i_mmap_rwsem for reading.
 * Return: true if the folios are unmapped, and may be replaced.
 */
bool __quire_text_unmap(struct address_space *mapping, pgoff_t start,
			const struct list_head *folios)
{
	struct folio *folio;

	if (!text_may_unmap(mapping, start))
		return false;
	unmap_mapping_pages(mapping, start, HPAGE_PMD_NR, false);
	list_for_each_entry(folio, folios, lru)
		if (folio_mapped(folio) || folio_maybe_dma_pinned(folio))
			return false;
	return true;
}

/**
 * quire_text_copy_end - the copies are used or not wanted
 *
 * Called after each collapse, whether anything was copied or not. From now on
 * writers have nothing to void.
 *
 * Context: the worker only; takes no lock.
 */
void quire_text_copy_end(void)
{
	quire_text_set_nice(MAX_NICE);
	WRITE_ONCE(text_copy.inode, NULL);
}

/**
 * __quire_text_writer - void the copies of a file that somebody can write to
 * @inode: the file; the caller has write access and has changed nothing so far
 *
 * Context: after the full barrier of get_write_access(); does not sleep, takes no lock.
 */
void __quire_text_writer(const struct inode *inode)
{
	/* Pairs with quire_text_copy_ahead(). */
	if (smp_load_acquire(&text_copy.inode) != inode)
		return;
	WRITE_ONCE(text_copy.stale, true);
	text_count(TEXT_COPIES_VOID, 1);
}

static int __init text_copy_init(void)
{
	if (IS_ENABLED(CONFIG_QUIRE_DEBUG))
		debugfs_create_u32("text_hold", 0600, quire_debugfs(), &text_hold);
	return 0;
}
late_initcall(text_copy_init);
