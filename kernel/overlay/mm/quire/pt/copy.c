// SPDX-License-Identifier: GPL-2.0
/*
 * Copying a shared table for one of its users, by the functions with which Linux's fork copies
 * an entry.
 *
 * Those want to know the areas that they copy from and to. Here both are an area of the orphans'
 * mm. It is copy-on-write, as all that a shared table maps is, and its mm has no pins, as no
 * page of a shared table has; so nothing is refused because references of others look like a
 * pin. Of the areas in whose tables the entries are nothing else matters to the copy, and of a
 * mixed table they are not all the same.
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

/* A private page of a file that nobody wrote to: it faults in again. */
static bool is_of_file(unsigned long addr, pte_t pte)
{
	struct page *page = vm_normal_page(&quire_pt_orphans_area, addr, pte);

	return page && !PageAnon(page);
}

/*
 * What a device uses exclusively becomes the CPU's again, which takes the protection of the
 * area. In a mixed table it may be another one than was passed, or one that munmap() has taken
 * out of the tree already: then the one that was passed must do, for the entry is for reading
 * only in the end. -ENOENT: the entry is present now. -EBUSY: its page is locked.
 */
static int restore(struct vm_area_struct *vma, pte_t *dst_pte, pte_t *src_pte,
		   unsigned long addr, int *rss)
{
	guard(rcu)();
	if (addr < vma->vm_start || addr >= vma->vm_end)
		vma = vma_lookup(vma->vm_mm, addr) ?: vma;
	return copy_nonpresent_pte(vma->vm_mm, vma->vm_mm, dst_pte, src_pte, vma, vma, addr, rss);
}

/* Returns 1 if the entry is done, 0 if it is present now, or what makes it wait. */
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

/**
 * quire_pt_copy_slots - copy the entries of a table as fork would
 * @vma: of the user for which it is
 * @copy: empty
 * @pt: the shared table
 * @addr: what both map first
 * @rss: incremented by what was copied
 * @mixed: leave out the pages of files, as fork does where it can
 *
 * Context: the source's page table lock is held, no process knows the copy. Entries of both
 * are write-protected and not exclusive when copied.
 * Return: how many slots were done: less than all if one's swap count cannot be raised
 * before its map is continued, or if a device's page is locked.
 */
int quire_pt_copy_slots(struct vm_area_struct *vma, struct ptdesc *copy, struct ptdesc *pt,
			unsigned long addr, int *rss, bool mixed)
{
	pte_t *dst = ptdesc_address(copy), *src = ptdesc_address(pt);
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
	}
	return i;
}
