// SPDX-License-Identifier: GPL-2.0
/*
 * Faults on program text: how much is mapped at once.
 *
 * Blocks that are not huge (yet), and the ends of the text, which are no
 * whole blocks, are mapped 16 pages a fault. The first fault of an area in a page
 * table maps all of the table that is resident instead. Later ones do not: they
 * would look again at what is mapped.
 *
 * Locking: called under the mmap lock or the VMA's. There is nothing to undo.
 */
#include <linux/fs.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/quire_text.h>
#include <linux/shmem_fs.h>

#include "text.h"

unsigned int quire_text_fault_around_kb = PMD_SIZE >> 10;

/* Has no page of the area's part of this page table been mapped? One in @step is looked at. */
static bool text_nothing_mapped(const struct vm_fault *vmf, unsigned long step)
{
	unsigned long addr = max(vmf->address & PMD_MASK, vmf->vma->vm_start);
	unsigned long end = min((vmf->address & PMD_MASK) + PMD_SIZE, vmf->vma->vm_end);
	bool nothing = true;
	pte_t *table;

	if (pmd_none(*vmf->pmd))
		return true;
	table = pte_offset_map(vmf->pmd, addr);
	if (!table)
		return false;
	for (unsigned long i = 0; addr + i * PAGE_SIZE < end && nothing; i += step)
		nothing = pte_none(ptep_get(table + i));
	pte_unmap(table);
	return nothing;
}

unsigned long __quire_text_fault_around(const struct vm_fault *vmf, unsigned long nr_pages)
{
	unsigned long wide = READ_ONCE(quire_text_fault_around_kb) >> (PAGE_SHIFT - 10);
	pgoff_t start, end;

	wide = rounddown_pow_of_two(wide);
	if (wide <= nr_pages || !text_blocks(vmf->vma, &start, &end) ||
	    shmem_file(vmf->vma->vm_file) || !text_nothing_mapped(vmf, nr_pages))
		return nr_pages;
	text_count(TEXT_WIDE_FAULTS, 1);
	return wide;
}
