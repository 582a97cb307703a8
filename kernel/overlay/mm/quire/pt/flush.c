// SPDX-License-Identifier: GPL-2.0
/*
 * Flushing the TLBs of a shared page table's users after the reverse map has cleared an entry.
 *
 * The walk of the reverse map visits a VMA of each user anyway, because each user has a link
 * wherever a page of the table can be found (docs/rmap.md). The first visit clears the entry and
 * flushes for the user that it visits, at once or with reclaim's batch. Each later visit flushes
 * for its own user. For that the walk goes on to its end although nothing maps the page any more.
 *
 * If the entry is put back as it was, because the page cannot be reclaimed after all, the TLBs are
 * right, and the walk ends there.
 *
 * Why no TLB keeps the translation: consider a process that was a user when the entry was cleared.
 * Its PMD pointed to the table, or had done so until the process began to leave.
 *
 *  - The process had begun to leave and had not flushed: the table says so (leaving), and all CPUs
 *    flush at once.
 *  - Its PMD pointed to the table. Then the walk had not visited the process before, because that
 *    visit would have cleared the entry. Nor did the process become a user after its visit. Fork
 *    adds only a new process, which has not run yet. A process cannot join a table of shared memory
 *    while a walk is under way (shm/shm.c); it can only be the first user of a new table, and then
 *    the only one until the walk ends. (A process whose table fork is about to share may still
 *    write through its TLB. It is visited before its child, whose links follow its own, and the
 *    entry tells whether it may write.)
 *  - So the walk visits the process later, whether or not it leaves, copies or adopts the table
 *    meanwhile, because its VMA cannot leave the reverse map during the walk. The visit does not
 *    look at the PMD: it flushes for each process that has ever shared a table.
 *  - KSM's walks follow KSM's own items and may visit other processes, so all CPUs flush. All CPUs
 *    also flush if a walk breaks off.
 *
 * Reclaim keeps the page until it has flushed its batch, and migration copies the page after the
 * walk. A translation that stays in a TLB until then is read-only if the table is copy-on-write. If
 * the table maps shared memory it may be writable, as may be what Linux defers: the page is marked
 * dirty then, and the batch is flushed before the page is written out.
 *
 * munmap(), mprotect() and similar calls flush what reclaim has deferred if mm->tlb_flush_batched
 * says so, which is raised for the first user only. For the other users the table has
 * QUIRE_PT_STALE, under the PTL: a process that copies or adopts such a table flushes what it maps,
 * a process that leaves a table flushes anyway, and truncation, which changes entries in place,
 * flushes for all users.
 *
 * Locks: the walk holds the lock of the reverse map. current->quire_unflushed belongs to the walk.
 * Truncation holds the file's i_mmap lock and the PTL. current->tlb_ubc, reclaim's batch, is empty
 * again when flush_areas() returns.
 */
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/rmap.h>
#include <linux/sched.h>
#include <linux/sched/coredump.h>

#include <asm/tlbflush.h>

#include "../../internal.h"
#include "pt.h"

/* Bits of current->quire_unflushed: an entry of such a table was cleared. */
#define UNFLUSHED_COW	1
#define UNFLUSHED_FILE	2

static void count_flush(unsigned int unflushed, enum quire_pt_flush why)
{
	if (unflushed & UNFLUSHED_COW)
		quire_pt_count_flush(QUIRE_PT_COW, why);
	if (unflushed & UNFLUSHED_FILE)
		quire_pt_count_flush(QUIRE_PT_FILE, why);
}

/* For callers that do not know the users. Interrupts are on. */
static void flush_all(unsigned int unflushed)
{
	count_flush(unflushed, QUIRE_FLUSH_ALL);
	flush_tlb_all();
}

/**
 * __quire_pvmw_cleared - note that an entry of a table with several users was cleared
 * @pvmw: the walk that has found the entry
 *
 * Context: the PTL is held; the TLBs of the process that the walk visits are flushed, or will be.
 */
void __quire_pvmw_cleared(struct page_vma_mapped_walk *pvmw)
{
	struct quire_pt_state *state = quire_pt_state(quire_pmd_ptdesc(*pvmw->pmd));
	bool file = pmd_pt_file(*pvmw->pmd);

	lockdep_assert_held(pvmw->ptl);
	state->flags |= QUIRE_PT_STALE;
	quire_pt_count_cleared(quire_pt_kind(*pvmw->pmd));
	pvmw->quire_cleared = current->quire_unflushed ? NULL : pvmw->pte;
	current->quire_unflushed |= file ? UNFLUSHED_FILE : UNFLUSHED_COW;
	if (unlikely(state->leaving))
		flush_all(file ? UNFLUSHED_FILE : UNFLUSHED_COW);
}

/**
 * __quire_pvmw_aborted - forget about an entry that reclaim has cleared and put back
 * @pvmw: the walk
 *
 * A page that was written to after MADV_FREE is put back, for example. All CPUs would flush then,
 * for each such page. Only the first entry that the walk of the reverse map has cleared can be
 * forgotten: after it, an earlier entry's users may still have to flush.
 * Context: the PTL is held if @pvmw has an entry.
 */
void __quire_pvmw_aborted(struct page_vma_mapped_walk *pvmw)
{
	if (!pvmw->pte || pvmw->quire_cleared != pvmw->pte)
		return;
	lockdep_assert_held(pvmw->ptl);
	if (pte_present(ptep_get(pvmw->pte)))
		current->quire_unflushed = 0;
}

/*
 * Returns false if no other CPU must flush. Then the caller flushes the page alone, as is done for
 * each user that has an entry of its own. @writable: until the flush, the page may be written to
 * through a TLB.
 */
static bool defer_flush(struct mm_struct *mm, unsigned long start, bool writable)
{
#ifdef CONFIG_ARCH_WANT_BATCHED_UNMAP_TLB_FLUSH
	struct tlbflush_unmap_batch *batch = &current->tlb_ubc;

	if (!arch_tlbbatch_should_defer(mm))
		return false;
	arch_tlbbatch_add_pending(&batch->arch, mm, start);
	batch->flush_required = true;
	batch->writable |= writable;
	return true;
#else
	return false;
#endif
}

/**
 * __quire_rmap_visit - visit a VMA after the reverse map has cleared an entry
 * @folio: the folio of the entry
 * @pvmw: the walk in this VMA, not begun
 * @migrates: the walk belongs to migration
 *
 * Flushes for the VMA's mm: now, at the end of the walk, or with reclaim's batch.
 * Context: a lock of the reverse map is held; interrupts are on.
 * Return: true if nothing maps the folio any more, so that this was all there is to do.
 */
bool __quire_rmap_visit(struct folio *folio, struct page_vma_mapped_walk *pvmw, bool migrates)
{
	struct mm_struct *mm = pvmw->vma->vm_mm;
	/* Nobody writes through a TLB if the table is copy-on-write. */
	bool writable = folio_test_dirty(folio) && !folio_test_anon(folio);

	if (test_bit(MMF_QUIRE_PT, &mm->flags)) {
		if (!defer_flush(mm, pvmw->address, writable))
			flush_tlb_mm_range(mm, pvmw->address, vma_address_end(pvmw), PAGE_SHIFT,
					   false);
		count_flush(current->quire_unflushed,
			    migrates ? QUIRE_FLUSH_MIGRATION : QUIRE_FLUSH_RECLAIM);
	}
	return !folio_mapped(folio);
}

/**
 * __quire_rmap_broken_off - flush all CPUs, as the walk ends before all users were visited
 *
 * Context: interrupts are on.
 */
void __quire_rmap_broken_off(void)
{
	flush_all(current->quire_unflushed);
	current->quire_unflushed = 0;
	try_to_unmap_flush();
}

/**
 * __quire_rmap_walked - end a walk that has cleared entries of tables with several users
 * @folio: the folio
 * @flags: the walk's TTU_*
 *
 * Flushes what was deferred, unless the caller will.
 * Context: interrupts are on.
 */
void __quire_rmap_walked(struct folio *folio, enum ttu_flags flags)
{
	if (folio_test_ksm(folio))
		__quire_rmap_broken_off();
	else if (!(flags & TTU_BATCH_FLUSH))
		try_to_unmap_flush();
	current->quire_unflushed = 0;
}

/* The part of a file that is zapped, and what a VMA must map to be able to lead to the table. */
struct zapped {
	pgoff_t first, last;
	pgoff_t table_first, table_last;
};

/* Flush that part of a VMA. Returns true if the flush for the whole mm is deferred. */
static bool flush_area(struct vm_area_struct *vma, const struct zapped *zapped)
{
	pgoff_t from = max(zapped->first, vma->vm_pgoff);
	pgoff_t to = min(zapped->last + 1, vma->vm_pgoff + vma_pages(vma));
	unsigned long start = vma->vm_start + ((from - vma->vm_pgoff) << PAGE_SHIFT);

	if (defer_flush(vma->vm_mm, start, false))
		return true;
	flush_tlb_mm_range(vma->vm_mm, start, start + ((to - from) << PAGE_SHIFT), PAGE_SHIFT,
			   false);
	return false;
}

/*
 * Flush for each process that maps that part of the file and has ever shared a table. Skips the VMA
 * @but and the VMAs that cannot lead to the table.
 */
static void flush_areas(struct address_space *mapping, const struct zapped *zapped,
			struct vm_area_struct *but)
{
	struct mm_struct *deferred = NULL;
	struct vm_area_struct *vma;

	i_mmap_assert_locked(mapping);
	vma_interval_tree_foreach(vma, &mapping->i_mmap, zapped->first, zapped->last) {
		if (vma == but || vma->vm_mm == deferred ||
		    !test_bit(MMF_QUIRE_PT, &vma->vm_mm->flags) ||
		    vma->vm_pgoff > zapped->table_first ||
		    vma->vm_pgoff + vma_pages(vma) <= zapped->table_last)
			continue;
		if (flush_area(vma, zapped))
			deferred = vma->vm_mm;
	}
	try_to_unmap_flush();
}

/**
 * quire_pt_flush_zapped - flush after truncation has emptied a part of a shared table
 * @vma: a VMA of the process whose gather holds the pages and flushes for it
 * @pmd: points to the table
 * @start: start of the part
 * @end: end of the part
 * @taken: an entry was cleared
 *
 * Flushes for the other users, and flushes what reclaim has deferred. Each user has a VMA that maps
 * this part of the file, or is a child that has not run yet: no process joins during the walk, and
 * no VMA leaves the file's tree while that is locked.
 * Context: the PTL and the file's i_mmap lock are held; interrupts are on.
 */
void quire_pt_flush_zapped(struct vm_area_struct *vma, pmd_t *pmd, unsigned long start,
			   unsigned long end, bool taken)
{
	struct quire_pt_state *state = quire_pt_state(quire_pmd_ptdesc(*pmd));
	bool stale = state->flags & QUIRE_PT_STALE;
	unsigned int kind = pmd_pt_file(*pmd) ? UNFLUSHED_FILE : UNFLUSHED_COW;
	bool others = quire_pt_users(pmd) > 1, mixed;
	struct zapped zapped;

	flush_tlb_batched_pending(vma->vm_mm);
	if (!stale && !(others && taken))
		return;
	/* What reclaim has deferred may be anywhere in the table. */
	if (stale) {
		start &= PMD_MASK;
		end = ALIGN(end, PMD_SIZE);
	}
	zapped.first = linear_page_index(vma, start);
	zapped.last = linear_page_index(vma, end - 1);
	/*
	 * Several VMAs may map parts of a mixed table: every VMA that maps some of this part
	 * counts.
	 */
	mixed = state->flags & QUIRE_PT_MIXED;
	zapped.table_first = mixed ? zapped.last : linear_page_index(vma, start & PMD_MASK);
	zapped.table_last = mixed ? zapped.first : zapped.table_first + PTRS_PER_PTE - 1;
	/*
	 * A leaver need not have a VMA here any more, nor need a VMA here cover all of a mixed
	 * table.
	 */
	if (others && (state->leaving || (stale && mixed)))
		flush_all(kind);
	else if (others)
		flush_areas(vma->vm_file->f_mapping, &zapped, stale ? NULL : vma);
	else
		flush_tlb_mm_range(vma->vm_mm, start, end, PAGE_SHIFT, false);
	if (others)
		count_flush(kind, QUIRE_FLUSH_TRUNCATION);
	state->flags &= ~QUIRE_PT_STALE;
}
