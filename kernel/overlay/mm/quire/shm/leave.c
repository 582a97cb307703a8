// SPDX-License-Identifier: GPL-2.0
/*
 * Leaving the shared page tables of shared memory, in ranges and in whole processes.
 * quire_shm_leave() in table.c leaves or adopts one table; shm.c has the rules.
 *
 * The caller decides whether the process may join again. A caller that holds mmap_lock and the
 * VMAs' locks for writing keeps faults out until it drops them; other callers must cope with a
 * table that is joined again. A process that has left joins again in a later fault. A table that it
 * has adopted is private until it is unmapped.
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

/* For callers that hold mmap_lock for writing: locks the VMAs, so no fault interferes. */
static const struct mm_walk_ops leave_locked_ops = {
	.pmd_entry = leave_entry,
	.walk_lock = PGWALK_WRLOCK,
	QUIRE_READS_SHARED,
};

/**
 * __quire_shm_leave_range - leave the tables in a range and keep faults from joining again
 * @vma: covers the range
 * @start: start of the range
 * @end: end of the range
 *
 * Must come before vm_page_prot changes: migration gives an entry the protection of the first
 * user's VMA that it meets.
 * Context: mmap_lock is held for writing and the VMA is locked for writing, so that no fault joins
 * again until they are dropped; may sleep.
 */
void __quire_shm_leave_range(struct vm_area_struct *vma, unsigned long start,
			     unsigned long end)
{
	if (test_bit(MMF_QUIRE_PT, &vma->vm_mm->flags))
		walk_page_range_vma(vma, start, end, &leave_locked_ops, NULL);
}

/**
 * __quire_shm_leave_now - leave the tables in a range
 * @vma: covers the range
 * @start: start of the range
 * @end: end of the range
 *
 * For callers that can cope with a table that is joined again.
 * Context: mmap_lock is held; may sleep.
 */
void __quire_shm_leave_now(struct vm_area_struct *vma, unsigned long start,
			   unsigned long end)
{
	if (test_bit(MMF_QUIRE_PT, &vma->vm_mm->flags))
		walk_page_range_vma(vma, start, end, &leave_ops, NULL);
}

/**
 * quire_shm_retract - leave a table that a huge page replaces
 * @vma: may map the range by a shared table
 * @addr: the first address that the huge page maps
 *
 * Otherwise no user of the table would ever map the huge page.
 * Context: mmap_lock is held, or the file's i_mmap lock, for reading at least, which keeps the
 * upper-level tables; does not sleep.
 */
void quire_shm_retract(struct vm_area_struct *vma, unsigned long addr)
{
	pmd_t *pmd = quire_find_pmd(vma->vm_mm, addr);

	if (pmd)
		quire_shm_leave(vma, pmd, addr);
}

/**
 * quire_shm_leave_mm - leave all tables of a process and keep faults from joining again
 * @mm: the process's mm
 *
 * Context: mmap_lock is held for writing; may sleep.
 */
void quire_shm_leave_mm(struct mm_struct *mm)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, 0);

	/*
	 * Lock before the test, as quire_shm_leave_range() does. The locks also keep faults out
	 * while the caller sleeps later on.
	 */
	for_each_vma(vmi, vma)
		vma_start_write(vma);
	if (test_bit(MMF_QUIRE_PT, &mm->flags))
		walk_page_range(mm, 0, TASK_SIZE_MAX, &leave_locked_ops, NULL);
}

/**
 * quire_shm_leave_mm_now - leave the tables that a process uses now
 * @mm: the process's mm; the caller holds mm_users
 *
 * Context: mmap_lock is held for reading; may sleep.
 */
void quire_shm_leave_mm_now(struct mm_struct *mm)
{
	walk_page_range(mm, 0, TASK_SIZE_MAX, &leave_ops, NULL);
}
