// SPDX-License-Identifier: GPL-2.0
/*
 * Unsharing the page tables of ranges, at VMA boundaries and of whole processes, for system calls
 * that change what the users of a shared table have in common. quire_pt_unshare() unshares one
 * table; pt.c has the rules.
 *
 * Locks: mmap_lock keeps fork out, and with it any further sharing. No state is kept, so there is
 * nothing to undo: the next fork shares again.
 */
#include <linux/mm.h>
#include <linux/pagewalk.h>
#include <linux/sched/signal.h>
#include <linux/swap.h>
#include <linux/swapops.h>

#include "../../internal.h"
#include "pt.h"

/**
 * quire_find_pmd - find the PMD of an address
 * @mm: the mm
 * @addr: the address
 *
 * Unlike mm_find_pmd(), does not take the page that a huge PUD maps for a PMD table.
 * Context: mmap_lock or a lock of the reverse map is held, which keeps the upper-level tables;
 * neither keeps a huge PUD from being zapped.
 * Return: the PMD, or NULL.
 */
pmd_t *quire_find_pmd(struct mm_struct *mm, unsigned long addr)
{
	pgd_t *pgd = pgd_offset(mm, addr);
	p4d_t *p4d;
	pud_t pud;

	if (!pgd_present(*pgd))
		return NULL;
	p4d = p4d_offset(pgd, addr);
	if (!p4d_present(*p4d))
		return NULL;
	pud = pudp_get(pud_offset(p4d, addr));
	return pud_present(pud) && !pud_leaf(pud) ? pmd_offset(&pud, addr) : NULL;
}

/**
 * __quire_pt_unshare_at - give a process its own page table at an address
 * @mm: the process's mm
 * @addr: any address that the table maps
 *
 * Context: mmap_lock is held; may sleep.
 * Return: 0 or -ENOMEM.
 */
int __quire_pt_unshare_at(struct mm_struct *mm, unsigned long addr)
{
	unsigned long start = addr & PMD_MASK;
	struct vm_area_struct *vma;
	pmd_t *pmd;

	if (!test_bit(MMF_QUIRE_PT, &mm->flags))
		return 0;
	/* Any VMA that reaches into the table will do. */
	vma = find_vma_intersection(mm, start, start + PMD_SIZE);
	pmd = vma ? quire_find_pmd(mm, addr) : NULL;
	return pmd ? quire_pt_unshare(vma, pmd, addr, QUIRE_PT_SYSCALL) : 0;
}

/**
 * __quire_pt_split - unshare the table in which a VMA boundary is about to be
 * @vma: will end or begin at @addr, or pass the part beyond it to another VMA
 * @addr: the boundary
 *
 * Context: mmap_lock is held for writing, and no lock of the VMA's reverse map; may sleep.
 * Return: 0 or -ENOMEM.
 */
int __quire_pt_split(struct vm_area_struct *vma, unsigned long addr)
{
	pmd_t *pmd;

	if (IS_ALIGNED(addr, PMD_SIZE) || addr <= vma->vm_start || addr >= vma->vm_end)
		return 0;
	/* Keep out the faults that join tables of shared memory. */
	vma_start_write(vma);
	if (!test_bit(MMF_QUIRE_PT, &vma->vm_mm->flags))
		return 0;
	pmd = quire_find_pmd(vma->vm_mm, addr);
	if (!pmd || !pmd_pt_marked(pmdp_get_lockless(pmd)))
		return 0;
	return __quire_pt_unshare(vma, pmd, addr, QUIRE_PT_SYSCALL, 0);
}

/* For a warning that is not about a certain table. */
static const struct quire_pt_class *a_class(void)
{
	return quire_pt_classes[QUIRE_PT_COW] ?: quire_pt_classes[QUIRE_PT_FILE];
}

static int unshare_entry(pmd_t *pmd, unsigned long addr, unsigned long next,
			 struct mm_walk *walk)
{
	walk->action = ACTION_CONTINUE;
	if (!pmd_pt_cow(*pmd))
		return 0;
	/* An OOM victim must not take one page after another from the reserves. */
	if (fatal_signal_pending(current))
		return -EINTR;
	cond_resched();
	return quire_pt_unshare(walk->vma, pmd, addr, QUIRE_PT_SYSCALL);
}

/* The callback unshares, and not the walk itself, which cannot fail. */
static const struct mm_walk_ops unshare_ops = {
	.pmd_entry = unshare_entry,
	.walk_lock = PGWALK_RDLOCK,
	QUIRE_READS_SHARED,
};

/**
 * __quire_pt_unshare_range - give a process its own page tables in a range
 * @vma: covers the range
 * @start: start of the range
 * @end: end of the range
 *
 * Context: mmap_lock is held; may sleep.
 * Return: 0, -ENOMEM, or -EINTR if the caller is being killed.
 */
int __quire_pt_unshare_range(struct vm_area_struct *vma, unsigned long start,
			     unsigned long end)
{
	int ret;

	if (!test_bit(MMF_QUIRE_PT, &vma->vm_mm->flags))
		return 0;
	start = max(start, vma->vm_start);
	if (start >= end)
		return 0;
	ret = walk_page_range_vma(vma, start, end, &unshare_ops, NULL);
	if (ret == -EINVAL)
		quire_warn(a_class()->feature, "a range that is not in its VMA\n");
	return ret;
}

/**
 * quire_pt_unshare_mm - give a process its own page tables everywhere
 * @mm: the process's mm
 *
 * Context: mmap_lock is held; may sleep.
 * Return: 0, -ENOMEM, or -EINTR if the caller is being killed.
 */
int quire_pt_unshare_mm(struct mm_struct *mm)
{
	if (!quire_pt_used() || !test_bit(MMF_QUIRE_PT, &mm->flags))
		return 0;
	return walk_page_range(mm, 0, TASK_SIZE_MAX, &unshare_ops, NULL);
}

/**
 * __quire_pt_swapoff - unshare a page table that has swap entries of a device
 * @vma: covers the whole table
 * @pmd: marked when the caller looked
 * @addr: any address that the table maps
 * @type: the device
 *
 * Context: as __quire_pt_unshare().
 * Return: 0 or -ENOMEM. The table is still shared if none of its entries is on the device.
 */
int __quire_pt_swapoff(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr,
		       unsigned int type)
{
	spinlock_t *ptl;
	pte_t *start = __quire_pte_offset_map_lock(vma->vm_mm, pmd, addr & PMD_MASK, &ptl);
	bool found = false;
	int i;

	for (i = 0; start && i < PTRS_PER_PTE && !found; i++) {
		pte_t pte = ptep_get(start + i);

		/* Non-swap entries have types that no device has. */
		found = is_swap_pte(pte) && swp_type(pte_to_swp_entry(pte)) == type;
	}
	if (start)
		pte_unmap_unlock(start, ptl);
	return found ? quire_pt_unshare(vma, pmd, addr, QUIRE_PT_SWAPOFF) : 0;
}

/**
 * __quire_walk_others - do other processes map the page by the same table?
 * @fw: the walk that has found the page
 * @vma: the walk's VMA
 * @addr: the walk's address
 * @node: the node to which the page would move
 *
 * Context: between folio_walk_start() and folio_walk_end(): the PTL is held.
 * Return: true if the page is in a shared table that has another user. False if the page does not
 * move anyway: a zero page, a device's page, or a page that is on @node already.
 */
bool __quire_walk_others(struct folio_walk *fw, struct vm_area_struct *vma, unsigned long addr,
			 int node)
{
	struct folio *folio;

	if (fw->level != FW_LEVEL_PTE || !fw->page)
		return false;
	folio = page_folio(fw->page);
	return !is_zero_folio(folio) && !folio_is_zone_device(folio) &&
	       folio_nid(folio) != node && quire_pt_others(quire_find_pmd(vma->vm_mm, addr));
}

/**
 * quire_pt_forgotten - was a walk refused a table that it should have unshared?
 * @pmd: the PMD
 * @seen: the odd value that the walk read from it
 *
 * Only fork makes a table copy-on-write, with mmap_lock held for writing, so a walk that has
 * unshared a table keeps its own. There are three exceptions. Truncation, and the worker of text,
 * reach a file's VMAs in a mixed table without mmap_lock, and any fault may join a file's table: all
 * may meet a mark that was not there when they looked. The reverse map does not hold mmap_lock
 * either; it maps the table by a copy of the PMD.
 *
 * Context: the RCU read lock is held, which keeps the table. The state is read without the PTL, so
 * it counts only if the PMD has not changed.
 * Return: whether it was.
 */
bool quire_pt_forgotten(pmd_t *pmd, pmd_t seen)
{
	/* Other bits of the word may change, but not this one while the table is shared. */
	return pmd_pt_cow(seen) && !data_race(quire_pt_is_mixed(&seen)) &&
	       pmd_same(pmdp_get_lockless(pmd), seen);
}

struct table_count {
	struct quire_pt_tables *tables;
	pmd_t *last;		/* several VMAs may reach into a table */
};

static int count_pmd(pmd_t *pmd, unsigned long addr, unsigned long next, struct mm_walk *walk)
{
	struct table_count *count = walk->private;
	spinlock_t *ptl;
	pte_t *pte;

	walk->action = ACTION_CONTINUE;
	if (pmd == count->last || !pmd_pt_marked(pmdp_get_lockless(pmd)))
		return 0;
	count->last = pmd;
	pte = __quire_pte_offset_map_lock(walk->mm, pmd, addr, &ptl);
	if (!pte)
		return 0;
	if (pmd_pt_marked(*pmd)) {
		count->tables->shared[quire_pt_kind(*pmd)]++;
		count->tables->owned += quire_pt_charged(pmd) == walk->mm;
	}
	pte_unmap_unlock(pte, ptl);
	cond_resched();
	return 0;
}

static const struct mm_walk_ops count_ops = {
	.pmd_entry = count_pmd,
	.walk_lock = PGWALK_RDLOCK,
	QUIRE_READS_SHARED,
};

/**
 * quire_pt_count_tables - count the shared tables that a process uses
 * @mm: the process's mm; the caller holds mm_users
 * @tables: filled in
 *
 * Context: takes mmap_lock for reading; may sleep.
 * Return: 0 or -EINTR.
 */
int quire_pt_count_tables(struct mm_struct *mm, struct quire_pt_tables *tables)
{
	struct table_count count = { .tables = tables };
	int ret;

	*tables = (struct quire_pt_tables){};
	if (!test_bit(MMF_QUIRE_PT, &mm->flags))
		return 0;
	ret = mmap_read_lock_killable(mm);
	if (ret)
		return ret;
	walk_page_range(mm, 0, TASK_SIZE_MAX, &count_ops, &count);
	mmap_read_unlock(mm);
	return 0;
}
