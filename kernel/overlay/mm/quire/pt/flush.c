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
 *    (A process whose table fork is about to share may still write by way of its TLB. It is
 *    visited before its child, whose links are behind its own, and the entry tells.)
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
 * Truncation holds the file's i_mmap lock and the PTL, and current->tlb_ubc, reclaim's batch,
 * is empty again when flush_areas() returns.
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

/* Of current->quire_unflushed: an entry of such a table was cleared. */
#define UNFLUSHED_COW	1
#define UNFLUSHED_FILE	2

static void count_flush(unsigned int unflushed, enum quire_pt_flush why)
{
	if (unflushed & UNFLUSHED_COW)
		quire_pt_count_flush(QUIRE_PT_COW, why);
	if (unflushed & UNFLUSHED_FILE)
		quire_pt_count_flush(QUIRE_PT_FILE, why);
}

/* For who does not know the users. Interrupts are on. */
static void flush_all(unsigned int unflushed)
{
	count_flush(unflushed, QUIRE_FLUSH_ALL);
	flush_tlb_all();
}

/**
 * __quire_pvmw_cleared - the reverse map has cleared an entry of a table with several users
 * @pvmw: has found it; the PTL is held
 *
 * Context: the TLBs of the process that the walk visits are flushed, or will be.
 */
void __quire_pvmw_cleared(struct page_vma_mapped_walk *pvmw)
{
	struct quire_pt_state *state = quire_pt_state(quire_pmd_ptdesc(*pvmw->pmd));
	bool file = pmd_pt_file(*pvmw->pmd);

	lockdep_assert_held(pvmw->ptl);
	state->flags |= QUIRE_PT_STALE;
	quire_pt_count_cleared(quire_pt_kind(*pvmw->pmd));
	current->quire_unflushed |= file ? UNFLUSHED_FILE : UNFLUSHED_COW;
	if (unlikely(state->leaving))
		flush_all(file ? UNFLUSHED_FILE : UNFLUSHED_COW);
}

/*
 * False if no other CPU has to flush, so that the page is flushed alone: as it is for each user
 * that has an entry of its own. @writable: it may be written to by way of a TLB until then.
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
 * __quire_rmap_visit - the reverse map visits an area after it has cleared an entry
 * @folio: whose entry
 * @pvmw: of the area, not begun
 * @migrates: the walk is migration's
 *
 * Flushes for the area's process, now or at the end of the walk or of reclaim's batch.
 * Return: whether that was all there is to do, as nothing maps the folio any more.
 */
bool __quire_rmap_visit(struct folio *folio, struct page_vma_mapped_walk *pvmw, bool migrates)
{
	struct mm_struct *mm = pvmw->vma->vm_mm;
	/* Where the table is copy-on-write nobody writes by way of a TLB. */
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
 * __quire_rmap_broken_off - the reverse map's walk ends before all users were visited
 */
void __quire_rmap_broken_off(void)
{
	flush_all(current->quire_unflushed);
	current->quire_unflushed = 0;
	try_to_unmap_flush();
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

/* A part of a file that a shared table maps, and what an area must have that leads to the table. */
struct zapped {
	pgoff_t first, last;
	pgoff_t table_first, table_last;
};

/* Flush that part of an area. Returns whether it will be flushed for the whole process. */
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
 * Flush for each process that maps the file there and has ever shared a table. The area @but is
 * passed over, and areas that cannot lead to the table.
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
 * quire_pt_flush_zapped - truncation has emptied a part of a shared table
 * @vma: of the process whose gather holds the pages, and flushes for it
 * @pmd: leads to the table; the PTL is held
 * @start: of the part
 * @end: of the part
 * @taken: was there anything
 *
 * Flushes for the other users, and what reclaim has deferred. Each user has an area that maps
 * the file there, or is a child that has not run yet: none joins during the walk, and none
 * leaves the file's tree of areas while that is locked.
 * Context: interrupts are on.
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
	/* Several areas may have parts of a mixed table: any will do that has some of this one. */
	mixed = state->flags & QUIRE_PT_MIXED;
	zapped.table_first = mixed ? zapped.last : linear_page_index(vma, start & PMD_MASK);
	zapped.table_last = mixed ? zapped.first : zapped.table_first + PTRS_PER_PTE - 1;
	/* Who is leaving need not have an area here any more, nor all of a mixed table be in it. */
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
