/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Hooks of the fork feature in fork() itself. The hooks for the page tables that it shares are in
 * linux/quire/pt.h.
 */
#ifndef _LINUX_QUIRE_FORK_H
#define _LINUX_QUIRE_FORK_H

#include <linux/jump_label.h>
#include <linux/mm_types.h>
#include <linux/quire/pt.h>

#ifdef CONFIG_QUIRE_FORK

DECLARE_STATIC_KEY_FALSE(quire_fork_key);

int __quire_fork_copy(struct vm_area_struct *dst_vma, struct vm_area_struct *src_vma,
		      pmd_t *dst_pmd, pmd_t *src_pmd, unsigned long addr,
		      unsigned long end);
void __quire_fork_failed(struct mm_struct *mm);
bool quire_fork_mixes(void);

/**
 * quire_fork_copy - share one page table with the child instead of copying it
 * @dst_vma: the child's VMA
 * @src_vma: the parent's VMA
 * @dst_pmd: the child's PMD
 * @src_pmd: the parent's PMD; points to a page table
 * @addr: start of the range that fork is about to copy
 * @end: end of the range, within the page table
 *
 * Vanilla: copies the page table.
 * Context: copy_pmd_range(); both mmap_locks are held for writing; may sleep.
 * Return: 1 if the child shares the table, 0 if fork must copy it, or -ENOMEM.
 */
static inline int quire_fork_copy(struct vm_area_struct *dst_vma,
				  struct vm_area_struct *src_vma, pmd_t *dst_pmd,
				  pmd_t *src_pmd, unsigned long addr,
				  unsigned long end)
{
	if (!quire_pt_used())
		return 0;
	return __quire_fork_copy(dst_vma, src_vma, dst_pmd, src_pmd, addr, end);
}

/**
 * quire_fork_failed - leave the page tables that a failed fork has shared
 * @mm: the child's mm
 *
 * Vanilla: does nothing.
 * Context: dup_mmap(); both mmap_locks are held for writing; may sleep.
 */
static inline void quire_fork_failed(struct mm_struct *mm)
{
	if (quire_pt_used())
		__quire_fork_failed(mm);
}

#else /* !CONFIG_QUIRE_FORK */

static inline int quire_fork_copy(struct vm_area_struct *dst_vma,
				  struct vm_area_struct *src_vma, pmd_t *dst_pmd,
				  pmd_t *src_pmd, unsigned long addr,
				  unsigned long end)
{
	return 0;
}

static inline void quire_fork_failed(struct mm_struct *mm)
{
}

#define quire_fork_mixes()	false

#endif /* CONFIG_QUIRE_FORK */
#endif /* _LINUX_QUIRE_FORK_H */
