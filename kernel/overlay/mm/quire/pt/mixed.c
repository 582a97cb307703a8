// SPDX-License-Identifier: GPL-2.0
/*
 * Mixed tables: shared copy-on-write page tables that do not lie within one anonymous VMA. Several
 * private VMAs, including those of files, reach into one table. A fork server's libraries are an
 * example: each has some pages of text that no child writes, and some of data.
 *
 * The rules of pt.c hold, and these in addition:
 *
 *  - When fork shares a table, all of the parent's VMAs that reach into it are locked for writing
 *    and qualify for sharing, and the child gets all of them.
 *  - Where an entry is present, all users have the same VMA: a process that changes or unmaps the
 *    VMA unshares the table first. A VMA that is mapped later lies where the entries are none, and
 *    a process that would fill one of them unshares the table first, too. Drivers fill entries
 *    without a fault, so mapping a file makes room for it first (quire_pt_make_room()).
 *  - So what truncation does to one user's entry is right for all users. It changes entries in
 *    place, under the file's i_mmap lock, as the reverse map does.
 *  - An entry that maps a file's page must be found through the file's i_mmap at all times:
 *    truncation expects no page to be mapped afterwards. So a user gives up its PMD and its count
 *    in one critical section, the last user adopts the table, and a walk that must not miss an
 *    entry waits for that critical section if it finds no PMD (quire_shm_sync_none()). A fork that
 *    fails leaves its tables before the parent's lock is dropped, because the child lacks VMAs.
 *  - A process that ends loses all its VMAs, so it leaves a table at the first of them.
 *
 * Locks and lifetime are as in pt.c. Undo: as for all tables; the knob stops further sharing.
 */
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/pagemap.h>
#include <linux/pagewalk.h>
#include <linux/rmap.h>
#include <linux/sched/coredump.h>
#include <linux/swap.h>
#include <linux/swapops.h>
#include <linux/userfaultfd_k.h>

#include <asm/tlb.h>

#include "../../internal.h"
#include "pt.h"

/* Was a mixed table ever made? Mappings of files need not look for mixed tables until then. */
bool quire_pt_mixed_made __read_mostly;

VISIBLE_IF_KUNIT bool quire_pt_area_mixable(struct vm_area_struct *vma)
{
	const struct vm_operations_struct *ops = vma->vm_ops;

	if ((vma->vm_flags & QUIRE_PT_UNSHAREABLE) || !(vma->vm_flags & VM_MAYWRITE) ||
	    userfaultfd_armed(vma))
		return false;
	/* Files qualify if they map pages of the page cache at the file's offsets. */
	return vma_is_anonymous(vma) ||
	       (ops->map_pages == filemap_map_pages && !ops->open && !vma_is_dax(vma));
}

/*
 * Did fork not link the child's copy of a VMA to the VMA's anon_vmas, because it is empty? A walk
 * of the reverse map that found the parent's table through such a VMA does not keep the child's VMA
 * from being unmapped. If the child adopted the table, that would free the table that the walk is
 * using.
 */
static bool is_unlinked(struct mm_struct *child, struct vm_area_struct *vma)
{
	struct vm_area_struct *copy = vma->anon_vma ? vma_lookup(child, vma->vm_start) : NULL;

	/* The child's tree has the parent's VMAs where fork has not been yet. */
	return copy && copy->vm_mm == child && !copy->anon_vma;
}

/**
 * quire_pt_mixable - may fork share a table into which several VMAs reach?
 * @mm: the parent's mm
 * @child: the child's mm
 * @addr: any address that the table maps
 *
 * Locks the VMAs for writing until mmap_lock is dropped, so that no fault uses the table.
 * Context: both mmap_locks are held for writing; may sleep.
 * Return: whether all of the VMAs qualify.
 */
bool quire_pt_mixable(struct mm_struct *mm, struct mm_struct *child, unsigned long addr)
{
	unsigned long start = addr & PMD_MASK;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, start);

	for_each_vma_range(vmi, vma, start + PMD_SIZE) {
		if (!quire_pt_area_mixable(vma))
			return false;
		vma_start_write(vma);
		if (is_unlinked(child, vma))
			return false;
	}
	/* A process that gets such a table is a child of this fork, so it sees the flag. */
	if (!READ_ONCE(quire_pt_mixed_made))
		WRITE_ONCE(quire_pt_mixed_made, true);
	return true;
}

static int make_room_at(struct mm_struct *mm, unsigned long addr)
{
	return IS_ALIGNED(addr, PMD_SIZE) ? 0 : __quire_pt_unshare_at(mm, addr);
}

/**
 * __quire_pt_make_room - unshare the tables at both ends of a file's new mapping
 * @mm: the process's mm
 * @start: start of the mapping
 * @end: end of the mapping
 *
 * The file's driver may fill entries of these tables, so they must not be shared. A table that lies
 * entirely within the range is gone once the range is unmapped.
 * Context: mmap_lock is held for writing; may sleep.
 * Return: 0 or -ENOMEM.
 */
int __quire_pt_make_room(struct mm_struct *mm, unsigned long start, unsigned long end)
{
	return make_room_at(mm, start) ?: make_room_at(mm, end);
}

/*
 * Does this zap drop the entry? Private copies stay unless @even_cows. None is KSM's zero page:
 * mergeable areas do not share tables.
 */
static bool goes(struct vm_area_struct *vma, unsigned long addr, pte_t pte, bool even_cows)
{
	swp_entry_t entry;
	struct page *page;

	if (even_cows)
		return true;
	if (pte_present(pte)) {
		page = vm_normal_page(vma, addr, pte);
		return !page || !PageAnon(page);
	}
	entry = pte_to_swp_entry(pte);
	return is_migration_entry(entry) && !folio_test_anon(pfn_swap_entry_folio(entry));
}

/* Clear an entry and count it in @rss. Returns the page to release after the flush. */
static struct page *take_slot(struct vm_area_struct *vma, unsigned long addr, pte_t *ptep,
			      int *rss)
{
	int type = quire_pt_charged_as(vma, addr, ptep_get(ptep), true);
	pte_t pte = ptep_get_and_clear(vma->vm_mm, addr, ptep);
	struct page *page;

	if (type >= 0)
		rss[type]--;
	if (!pte_present(pte)) {
		quire_pt_drop_entry(vma, pte);
		return NULL;
	}
	page = vm_normal_page(vma, addr, pte);
	if (page) {
		if (!PageAnon(page) && pte_young(pte) && vma_has_recency(vma))
			folio_mark_accessed(page_folio(page));
		folio_remove_rmap_pte(page_folio(page), page, vma);
	}
	return page;
}

/* Returns where it stopped because the gather is full, or @addr if the table is private now. */
static unsigned long zap_some(struct mmu_gather *tlb, struct vm_area_struct *vma, pmd_t *pmd,
			      unsigned long addr, unsigned long end, bool even_cows)
{
	int rss[NR_MM_COUNTERS] = {}, i;
	bool full = false, taken = false;
	unsigned long first = addr;
	pte_t *pte, *start;
	struct page *page;
	spinlock_t *ptl;

	start = pte = __quire_pte_offset_map_lock(vma->vm_mm, pmd, addr, &ptl);
	if (!pte)
		return addr;
	if (!pmd_pt_cow(*pmd)) {
		pte_unmap_unlock(start, ptl);
		return addr;
	}
	for (; addr != end && !full; pte++, addr += PAGE_SIZE) {
		pte_t ptent = ptep_get(pte);

		if (pte_none(ptent) || !goes(vma, addr, ptent, even_cows))
			continue;
		taken = true;
		page = take_slot(vma, addr, pte, rss);
		if (!page)
			continue;
		tlb_flush_pte_range(tlb, addr, PAGE_SIZE);
		full = __tlb_remove_page_size(tlb, page, false, PAGE_SIZE);
	}
	for (i = 0; i < NR_MM_COUNTERS; i++)
		if (rss[i])
			add_mm_counter(quire_pt_charged(pmd), i, rss[i]);
	quire_pt_flush_zapped(vma, pmd, first, addr, taken);
	pte_unmap_unlock(start, ptl);
	if (full)
		tlb_flush_mmu(tlb);
	return addr;
}

/**
 * quire_pt_zap_in_place - zap a part of a shared table for all users
 * @tlb: gathers the pages
 * @vma: contains the range
 * @pmd: marked when the caller looked
 * @addr: start of the range; set to the end of what was handled
 * @end: end of the range, within the table
 * @details: what to zap
 *
 * Allocates nothing except through the gather.
 * Context: the file's i_mmap lock is held; may sleep.
 * Return: true, or false if the table is private now and the caller must zap the rest of it.
 */
bool quire_pt_zap_in_place(struct mmu_gather *tlb, struct vm_area_struct *vma, pmd_t *pmd,
			   unsigned long *addr, unsigned long end,
			   struct zap_details *details)
{
	unsigned long next;

	tlb_change_page_size(tlb, PAGE_SIZE);
	while (*addr != end) {
		next = zap_some(tlb, vma, pmd, *addr, end, details->even_cows);
		if (next == *addr)
			return false;
		*addr = next;
	}
	return true;
}
