// SPDX-License-Identifier: GPL-2.0
/*
 * Pins (FOLL_PIN) in private page tables: fork does not share a table that maps a pinned page.
 *
 * Only a process that has ever pinned memory needs a search, but then it needs one for each of its
 * tables at each fork. So a flag of the table's page says that it maps no pinned page. The flag is
 * set where that is known, under the PTL: by a search, and for a table that was shared or is the
 * copy of a shared one, because no pin is taken through a shared table. It is cleared where a pin
 * can come:
 *
 *  - GUP pins a page through the table. GUP-slow clears the flag under the PTL, and fork's lock of
 *    the mm keeps it out. GUP-fast has read write_protect_seq before it clears the flag, and pins
 *    afterwards: if fork misses the cleared flag or the pin, GUP-fast sees that the sequence was
 *    raised and drops the pin.
 *  - mremap() moves entries into the table. A table that it moves whole takes its flag along.
 *  - A huge page is split into the table: khugepaged keeps used tables for that.
 *  - The table is freed: the page allocator clears all flags.
 *
 * Clearing the flag where no pin comes is always safe, and costs a search. Nothing else brings a
 * pinned page. Only exclusive anonymous pages have pins that matter to fork. Such a page is mapped
 * once, is neither swapped out nor migrated, and UFFDIO_MOVE refuses it. If a device uses it
 * exclusively, its entry is not present for a while and counts as pinned. All other entries that
 * are filled lead to pages that are new, or that had no pins when their entry was cleared.
 */
#include <linux/mm.h>
#include <linux/page-flags.h>
#include <linux/rmap.h>
#include <linux/swap.h>
#include <linux/swapops.h>

#include "pt.h"

/* Not used on page tables: Xen uses other flags there, and prezero uses others on free pages. */
#define NO_PINS	PG_workingset

/**
 * quire_pt_note_no_pins - note that a table maps no pinned page
 * @pt: the table
 *
 * Context: the PTL is held, or nobody else can reach the table.
 */
void quire_pt_note_no_pins(struct ptdesc *pt)
{
	set_bit(NO_PINS, &pt->__page_flags);
	/* Before GUP-fast can find the table through the PMD. */
	smp_mb__after_atomic();
}

/**
 * __quire_pt_may_have_pins - note that a table is about to map pages that may be pinned
 * @table: the page table; private as a rule, or not in use yet
 *
 * Context: before the pin is taken; the head of mm/quire/pt/pins.c says under which locks.
 */
void __quire_pt_may_have_pins(pgtable_t table)
{
	struct ptdesc *pt = page_ptdesc(table);

	/* The pin, a full barrier, comes between this and GUP-fast's next read of the sequence. */
	if (test_bit(NO_PINS, &pt->__page_flags))
		clear_bit(NO_PINS, &pt->__page_flags);
}

/**
 * quire_pt_moves_into - note that mremap() is about to move entries into a table
 * @pmd: points to the table, if there is one yet
 *
 * An empty table of a file may be removed meanwhile; RCU frees it.
 * Context: mmap_lock is held for writing.
 */
void quire_pt_moves_into(pmd_t *pmd)
{
	pmd_t seen;

	guard(rcu)();
	seen = pmdp_get_lockless(pmd);
	if (pmd_present(seen) && !pmd_leaf(seen))
		__quire_pt_may_have_pins(pmd_page(seen));
}

/* May the entry's page be pinned? A page that is exclusive to a device keeps its pins. */
static bool may_be_pinned(struct vm_area_struct *vma, unsigned long addr, pte_t pte)
{
	struct page *page;

	if (!pte_present(pte))
		return !pte_none(pte) && is_device_exclusive_entry(pte_to_swp_entry(pte));
	page = vm_normal_page(vma, addr, pte);
	return page && PageAnon(page) && PageAnonExclusive(page) &&
	       folio_maybe_dma_pinned(page_folio(page));
}

/**
 * quire_pt_maps_pinned - does a table map a pinned page?
 * @pt: private
 * @vma: covers @addr, and is locked
 * @addr: the first address that the table maps
 *
 * No entry changes meanwhile, because the VMA is locked and the reverse map needs the PTL. This
 * misses a pin that GUP-fast takes now, and GUP-fast drops that pin.
 * Context: the PTL is held; write_protect_seq of the mm was raised, and a full barrier has
 * followed.
 * Return: whether it does, or may.
 */
bool quire_pt_maps_pinned(struct ptdesc *pt, struct vm_area_struct *vma, unsigned long addr)
{
	pte_t *pte = ptdesc_address(pt);
	int i;

	lockdep_assert_held(ptlock_ptr(pt));
	VM_WARN_ON_ONCE(!(raw_read_seqcount(&vma->vm_mm->write_protect_seq) & 1));
	if (test_bit(NO_PINS, &pt->__page_flags))
		return false;
	pt_count(PT_TABLES_SEARCHED);
	for (i = 0; i < PTRS_PER_PTE; i++, pte++, addr += PAGE_SIZE)
		if (may_be_pinned(vma, addr, ptep_get(pte)))
			return true;
	quire_pt_note_no_pins(pt);
	return false;
}
