/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Included by mm/memory.c alone, after fork's functions that copy one entry,
 * which it uses.
 */
#ifdef CONFIG_QUIRE_FORK
/* A private page of a file that nobody wrote to: it faults in again. */
static bool quire_pt_of_file(struct vm_area_struct *vma, unsigned long addr, pte_t pte)
{
	struct page *page = vm_normal_page(vma, addr, pte);

	return page && !PageAnon(page);
}

/**
 * quire_pt_copy_slots - copy the entries of a table as fork would
 * @vma: whose copy it is
 * @src: the same VMA, with an mm that has no pins
 * @dst_pte: first slot of the copy, empty
 * @src_pte: first slot of the table
 * @addr: the address that both map
 * @rss: incremented by what was copied
 * @mixed: leave out the pages of files, as fork does where it can
 *
 * Context: the source's page table lock is held, no process knows the copy.
 * Entries of both are write-protected and not exclusive when copied.
 * Returns how many slots were done: less than all if one's swap count cannot be
 * raised before its map is continued.
 */
int quire_pt_copy_slots(struct vm_area_struct *vma, struct vm_area_struct *src,
			pte_t *dst_pte, pte_t *src_pte, unsigned long addr, int *rss,
			bool mixed)
{
	struct folio *prealloc = NULL;
	int i, nr;

	for (i = 0; i < PTRS_PER_PTE; i += nr) {
		unsigned long a = addr + i * PAGE_SIZE;
		pte_t ptent = ptep_get(src_pte + i);

		nr = 1;
		if (pte_none(ptent))
			continue;
		if (!pte_present(ptent)) {
			int ret = copy_nonpresent_pte(vma->vm_mm, src->vm_mm,
						      dst_pte + i, src_pte + i,
						      vma, src, a, rss);
			if (!ret)
				continue;
			if (ret != -ENOENT)
				break;
			ptent = ptep_get(src_pte + i);
		}
		if (mixed && quire_pt_of_file(src, a, ptent))
			continue;
		nr = copy_present_ptes(vma, src, dst_pte + i, src_pte + i, ptent, a,
				       PTRS_PER_PTE - i, rss, &prealloc);
	}
	return i;
}
#endif
