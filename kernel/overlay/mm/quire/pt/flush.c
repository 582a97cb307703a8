// SPDX-License-Identifier: GPL-2.0
/*
 * Flushing the TLBs of a shared table's users after the reverse map has cleared an entry.
 *
 * The walk that clears the entry visits an area of each user anyway, for each has a link
 * wherever a page of the table can be found (docs/rmap.md). So the first visit clears the
 * entry and flushes for the user that it visits, now or with reclaim's batch, and each later
 * visit flushes for its user. The walk goes on to its end for that, though nothing maps the
 * page any more.
 *
 * Why no TLB keeps the translation: take a process that was a user when the entry was cleared,
 * which is to say that its PMD led to the table, or did until it began to leave.
 *
 *  - It had begun to leave and had not flushed: the table says so (leaving), and all CPUs
 *    flush at once.
 *  - Its PMD led to the table. Then it was not visited before, for that visit would have
 *    cleared the entry. Nor has it become a user since its visit: fork makes a new process one,
 *    which has not run yet; of a table of shared memory nobody becomes a user while a walk is
 *    under way (shm/shm.c), but the first of a new one, which is its only one until then.
 *  - So it is visited later, whether it leaves, copies or adopts the table meanwhile or not,
 *    for its area cannot leave the reverse map during the walk. The visit does not look at
 *    the PMD: it flushes for each process that has ever shared a table.
 *  - KSM's walks go by its own items, and may visit others: all CPUs flush. So they do
 *    if a walk breaks off.
 *
 * Reclaim keeps the page until it has flushed its batch, and migration copies it after the
 * walk. What is left in a TLB until then is for reading where the table is copy-on-write. Where
 * it maps shared memory it may be for writing, as what Linux defers may be: the page is
 * marked dirty then, and the batch flushes before the page is written out.
 *
 * By mm->tlb_flush_batched munmap, mprotect and their like flush what reclaim has deferred. It is
 * raised for the first user alone. The others' tables have QUIRE_PT_STALE, under the PTL: who
 * copies or adopts such a table flushes what it maps, who leaves one does so anyway, and
 * truncation, which changes entries in place, flushes for all users.
 *
 * Locks: the walk holds the lock of the reverse map. current->quire_unflushed belongs to it.
 */
#include <linux/mm.h>
#include <linux/rmap.h>
#include <linux/sched.h>
#include <linux/sched/coredump.h>

#include <asm/tlbflush.h>

#include "../../internal.h"
#include "../fork/fork.h"
#include "pt.h"

/**
 * __quire_pvmw_cleared - the reverse map has cleared an entry of a table with several users
 * @pvmw: has found it; the PTL is held
 *
 * Context: the TLBs of the process that the walk visits are flushed, or will be.
 */
void __quire_pvmw_cleared(struct page_vma_mapped_walk *pvmw)
{
	struct quire_pt_state *state = quire_pt_state(quire_pmd_ptdesc(*pvmw->pmd));

	lockdep_assert_held(pvmw->ptl);
	state->flags |= QUIRE_PT_STALE;
	fork_count(FORK_RMAP_CLEARED);
	current->quire_unflushed = 1;
	if (unlikely(state->leaving))
		quire_pt_flush_sharers();
}

#ifdef CONFIG_ARCH_WANT_BATCHED_UNMAP_TLB_FLUSH
/*
 * False if no other CPU has to flush, so that the page is flushed alone: as it is for each user
 * that has an entry of its own. A folio that is dirty may be written to by way of a TLB until
 * the flush, but not where the table is copy-on-write.
 */
static bool defer_flush(struct folio *folio, struct mm_struct *mm, unsigned long start)
{
	struct tlbflush_unmap_batch *batch = &current->tlb_ubc;

	if (!arch_tlbbatch_should_defer(mm))
		return false;
	arch_tlbbatch_add_pending(&batch->arch, mm, start);
	batch->flush_required = true;
	if (folio_test_dirty(folio) && !folio_test_anon(folio))
		batch->writable = true;
	return true;
}
#else
static bool defer_flush(struct folio *folio, struct mm_struct *mm, unsigned long start)
{
	return false;
}
#endif

/**
 * __quire_rmap_visit - the reverse map visits an area after it has cleared an entry
 * @folio: whose entry
 * @pvmw: of the area, not begun
 *
 * Flushes for the area's process, now or at the end of the walk or of reclaim's batch.
 * Return: whether that was all there is to do, as nothing maps the folio any more.
 */
bool __quire_rmap_visit(struct folio *folio, struct page_vma_mapped_walk *pvmw)
{
	struct mm_struct *mm = pvmw->vma->vm_mm;

	if (test_bit(MMF_QUIRE_SHARED, &mm->flags) && !defer_flush(folio, mm, pvmw->address))
		flush_tlb_mm_range(mm, pvmw->address, vma_address_end(pvmw), PAGE_SHIFT, false);
	return !folio_mapped(folio);
}

/**
 * __quire_rmap_broken_off - the reverse map's walk ends before all users were visited
 */
void __quire_rmap_broken_off(void)
{
	current->quire_unflushed = 0;
	quire_pt_flush_sharers();
}

/**
 * __quire_rmap_walked - the reverse map's walk has come to its end
 * @folio: for which
 * @flags: of the walk
 *
 * Flushes unless the caller will.
 */
void __quire_rmap_walked(struct folio *folio, enum ttu_flags flags)
{
	if (folio_test_ksm(folio))
		__quire_rmap_broken_off();
	else if (!(flags & TTU_BATCH_FLUSH))
		try_to_unmap_flush();
	current->quire_unflushed = 0;
}

/**
 * quire_pt_flush_zapped - truncation has emptied a part of a shared table
 * @vma: of the process whose gather holds the pages, and flushes for it
 * @pmd: leads to the table; the PTL is held
 * @addr: an address in the table
 * @taken: was there anything
 *
 * Flushes for the other users, and what reclaim has deferred.
 * Context: interrupts are on. Return: whether all CPUs did.
 */
bool quire_pt_flush_zapped(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr,
			   bool taken)
{
	struct quire_pt_state *state = quire_pt_state(quire_pmd_ptdesc(*pmd));
	bool stale = state->flags & QUIRE_PT_STALE;
	bool others = quire_pt_users(pmd) > 1;

	flush_tlb_batched_pending(vma->vm_mm);
	addr &= PMD_MASK;
	if (others && pmd_pt_shared(*pmd) && (taken || stale))
		fork_count(FORK_ZAP_FLUSHES);
	if (others && (taken || stale))
		flush_tlb_all();
	else if (stale)
		flush_tlb_mm_range(vma->vm_mm, addr, addr + PMD_SIZE, PAGE_SHIFT, false);
	else
		return false;
	state->flags &= ~QUIRE_PT_STALE;
	return others;
}
