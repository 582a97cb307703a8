// SPDX-License-Identifier: GPL-2.0
/*
 * Leaving the shared tables of shared memory, over ranges and for whole processes.
 * quire_shm_leave() in table.c leaves or adopts one of them, and shm.c has the rules.
 *
 * Whether a process joins again is the caller's matter: who holds mmap_lock and the
 * VMAs' locks for writing keeps faults out until it lets go, others must cope.
 * Who has left joins again by a later fault; what was adopted is private until it is unmapped.
 */
#include <linux/mm.h>
#include <linux/pagewalk.h>
#include <linux/sched.h>

#include "../pt/pt.h"
#include "shm.h"

static int leave_entry(pmd_t *pmd, unsigned long addr, unsigned long next,
		       struct mm_walk *walk)
{
	walk->action = ACTION_CONTINUE;
	if (pmd_pt_file(pmdp_get_lockless(pmd))) {
		quire_shm_leave(walk->vma, pmd, addr & PMD_MASK);
		cond_resched();
	}
	return 0;
}

static const struct mm_walk_ops leave_ops = {
	.pmd_entry = leave_entry,
	.walk_lock = PGWALK_RDLOCK,
	QUIRE_READS_SHARED,
};

/* For who holds mmap_lock for writing: no fault comes in between. */
static const struct mm_walk_ops leave_locked_ops = {
	.pmd_entry = leave_entry,
	.walk_lock = PGWALK_WRLOCK,
	QUIRE_READS_SHARED,
};

/**
 * __quire_shm_leave_range - leave the tables of a range for as long as is needed
 * @vma: covers the range
 * @start: of the range
 * @end: of the range
 *
 * Context: mmap_lock is held for writing and the VMA is locked for writing too, so
 * that no fault joins again until they are let go. Due before vm_page_prot changes:
 * migration gives an entry the protection of whichever user's VMA it meets first.
 */
void __quire_shm_leave_range(struct vm_area_struct *vma, unsigned long start,
			     unsigned long end)
{
	if (test_bit(MMF_QUIRE_PT, &vma->vm_mm->flags))
		walk_page_range_vma(vma, start, end, &leave_locked_ops, NULL);
}

/**
 * __quire_shm_leave_now - leave the tables of a range
 * @vma: covers the range
 * @start: of the range
 * @end: of the range
 *
 * For who copes with a table that is joined again. Context: mmap_lock is held.
 */
void __quire_shm_leave_now(struct vm_area_struct *vma, unsigned long start,
			   unsigned long end)
{
	if (test_bit(MMF_QUIRE_PT, &vma->vm_mm->flags))
		walk_page_range_vma(vma, start, end, &leave_ops, NULL);
}

/**
 * quire_shm_retract - a huge page has taken the place of what a table maps
 * @vma: may map it by a shared table
 * @addr: the first address that the huge page maps there
 *
 * No user of a shared table would ever map the huge page. Context: mmap_lock is held or, for
 * reading at least, the file's i_mmap lock, which keeps the tables above the last level.
 */
void quire_shm_retract(struct vm_area_struct *vma, unsigned long addr)
{
	pmd_t *pmd = quire_find_pmd(vma->vm_mm, addr);

	if (pmd)
		quire_shm_leave(vma, pmd, addr);
}

/**
 * quire_shm_leave_mm - leave all tables of a process
 * @mm: mmap_lock is held for writing
 */
void quire_shm_leave_mm(struct mm_struct *mm)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, 0);

	/* Before the test, as above; and the caller may sleep before it is done. */
	for_each_vma(vmi, vma)
		vma_start_write(vma);
	if (test_bit(MMF_QUIRE_PT, &mm->flags))
		walk_page_range(mm, 0, TASK_SIZE_MAX, &leave_locked_ops, NULL);
}

/**
 * quire_shm_leave_mm_now - leave the tables that a process uses now
 * @mm: has a user; mmap_lock is held for reading
 *
 * As __quire_shm_leave_now().
 */
void quire_shm_leave_mm_now(struct mm_struct *mm)
{
	walk_page_range(mm, 0, TASK_SIZE_MAX, &leave_ops, NULL);
}
