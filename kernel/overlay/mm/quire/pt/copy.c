// SPDX-License-Identifier: GPL-2.0
/*
 * Copy a shared page table for one of its users, with the functions by which Linux's fork copies an
 * entry.
 *
 * These functions take the VMAs to copy from and to. Here both are one VMA of the orphans' mm. It
 * is copy-on-write, like everything that a shared table maps. Its mm has no pins, because no page
 * of a shared table is pinned, so no entry is refused because other references look like a pin.
 * Nothing else about the VMAs of the entries matters to the copy. In a mixed table these VMAs
 * differ.
 */
#include <linux/mm.h>
#include <linux/rmap.h>
#include <linux/swap.h>
#include <linux/swapops.h>

#include "pt.h"

/* See the head of this file. */
struct vm_area_struct quire_pt_orphans_area __ro_after_init;

void __init quire_pt_init_copy(void)
{
	vma_init(&quire_pt_orphans_area, quire_pt_orphans);
	vm_flags_init(&quire_pt_orphans_area, VM_READ | VM_MAYREAD | VM_MAYWRITE);
}

/* Is this a private file mapping's page that was not written to? It faults in again. */
static bool is_of_file(unsigned long addr, pte_t pte)
{
	struct page *page = vm_normal_page(&quire_pt_orphans_area, addr, pte);

	return page && !PageAnon(page);
}

/*
 * Restore a device-exclusive entry for the CPU, with the protection of its VMA. In a mixed table
 * that may not be the VMA that was passed, or munmap() may have taken it out of the tree already.
 * Then the VMA that was passed must do, because the entry ends up read-only. Returns -ENOENT if the
 * entry is present now, or -EBUSY if its page is locked.
 */
static int restore(struct vm_area_struct *vma, pte_t *dst_pte, pte_t *src_pte,
		   unsigned long addr, int *rss)
{
	guard(rcu)();
	if (addr < vma->vm_start || addr >= vma->vm_end)
		vma = vma_lookup(vma->vm_mm, addr) ?: vma;
	return copy_nonpresent_pte(vma->vm_mm, vma->vm_mm, dst_pte, src_pte, vma, vma, addr, rss);
}

/* Returns 1 if the entry is done, 0 if it is present now, or -errno if it must wait. */
static int copy_nonpresent(struct vm_area_struct *vma, pte_t *dst_pte, pte_t *src_pte,
			   unsigned long addr, int *rss)
{
	int ret;

	if (is_device_exclusive_entry(pte_to_swp_entry(ptep_get(src_pte))))
		ret = restore(vma, dst_pte, src_pte, addr, rss);
	else
		ret = copy_nonpresent_pte(quire_pt_orphans, quire_pt_orphans, dst_pte, src_pte,
					  &quire_pt_orphans_area, &quire_pt_orphans_area, addr,
					  rss);
	return ret == -ENOENT ? 0 : ret ?: 1;
}

/*
 * Fork leaves the copies old, because the parent keeps the entries that it has used. The owner of a
 * table, who used its entries before it was shared, would lose them with the table.
 */
static void keep_young(pte_t *dst, pte_t *src, unsigned long addr, int nr)
{
	int i;

	for (i = 0; i < nr; i++, addr += PAGE_SIZE)
		if (pte_young(ptep_get(src + i)))
			set_pte_at(quire_pt_orphans, addr, dst + i, pte_mkyoung(ptep_get(dst + i)));
}

/**
 * quire_pt_copy_slots - copy the entries of a table as fork would
 * @vma: a VMA of the user that gets the copy
 * @copy: empty
 * @pt: the shared table
 * @addr: the first address that both map
 * @rss: incremented for what was copied
 * @mixed: leave out pages of files, as fork does where it can
 *
 * Entries of both tables are write-protected and not exclusive once they are copied. The copy has
 * the accessed bits only if its user owns the table.
 * Context: @pt's PTL is held; no process can reach the copy.
 * Return: how many slots were done. Less than all if the swap map must be extended before an
 * entry's swap count can be raised, or if a device's page is locked.
 */
int quire_pt_copy_slots(struct vm_area_struct *vma, struct ptdesc *copy, struct ptdesc *pt,
			unsigned long addr, int *rss, bool mixed)
{
	pte_t *dst = ptdesc_address(copy), *src = ptdesc_address(pt);
	bool owns = *quire_pt_owner(pt) == vma->vm_mm;
	struct folio *prealloc = NULL;
	int i, nr;

	lockdep_assert_held(ptlock_ptr(pt));
	for (i = 0; i < PTRS_PER_PTE; i += nr) {
		unsigned long a = addr + i * PAGE_SIZE;
		pte_t ptent = ptep_get(src + i);

		nr = 1;
		if (pte_none(ptent))
			continue;
		if (!pte_present(ptent)) {
			int done = copy_nonpresent(vma, dst + i, src + i, a, rss);

			if (done < 0)
				break;
			if (done)
				continue;
			ptent = ptep_get(src + i);
		}
		if (mixed && is_of_file(a, ptent))
			continue;
		nr = copy_present_ptes(&quire_pt_orphans_area, &quire_pt_orphans_area, dst + i,
				       src + i, ptent, a, PTRS_PER_PTE - i, rss, &prealloc);
		if (owns)
			keep_young(dst + i, src + i, a, nr);
	}
	return i;
}
