// SPDX-License-Identifier: GPL-2.0
/*
 * How readers and the reverse map get to a page table that may be shared, with its lock held.
 * pt.c has the rules.
 */
#include <linux/mm.h>
#include <linux/rmap.h>

#include "pt.h"

/*
 * pte_offset_map_nolock() by a value that was read from the PMD, because fork may mark the PMD
 * meanwhile. A corrupt PMD is cleared itself, not just the copy: the caller would meet it again for
 * ever.
 */
static pte_t *map_seen(struct mm_struct *mm, pmd_t *pmd, pmd_t seen, unsigned long addr,
		       spinlock_t **ptlp)
{
	if (unlikely(pmd_present(seen) && !pmd_leaf(seen) && pmd_bad(seen))) {
		pmd_clear_bad(pmd);
		return NULL;
	}
	return pte_offset_map_nolock(mm, &seen, addr, ptlp);
}

/**
 * __quire_pte_offset_map_lock - pte_offset_map_lock() that enters shared tables
 * @mm: the mm
 * @pmd: the PMD
 * @addr: the address
 * @ptlp: set to the lock that is held on success
 *
 * For readers, and for the reverse map, which no lock separates from fork. The PMD does not change
 * while the PTL is held; pmd_pt_marked(*@pmd) tells whether the table is shared.
 * Context: mmap_lock, the VMA's lock or a lock of the reverse map is held; does not sleep.
 * Return: the PTE, for pte_unmap_unlock(), or NULL if there is no page table.
 */
pte_t *__quire_pte_offset_map_lock(struct mm_struct *mm, pmd_t *pmd,
				   unsigned long addr, spinlock_t **ptlp)
{
	for (;;) {
		pmd_t seen;
		spinlock_t *pml;
		pte_t *pte;

		rcu_read_lock();
		seen = pmdp_get_lockless(pmd);
		if (!pmd_pt_marked(seen)) {
			pte = map_seen(mm, pmd, seen, addr, ptlp);
			rcu_read_unlock();
			if (!pte)
				return NULL;
			spin_lock(*ptlp);
			if (pmd_same(seen, pmdp_get_lockless(pmd)))
				return pte;
			pte_unmap_unlock(pte, *ptlp);
			continue;
		}
		rcu_read_unlock();
		pml = pmd_lock(mm, pmd);
		if (!pmd_pt_marked(*pmd)) {
			spin_unlock(pml);
			continue;
		}
		/* pte_unmap() drops it. */
		rcu_read_lock();
		*ptlp = pte_lockptr(mm, pmd);
		spin_lock_nested(*ptlp, SINGLE_DEPTH_NESTING);
		spin_unlock(pml);
		return pte_offset_kernel(pmd, addr);
	}
}

/**
 * __quire_pte_offset_map_unmarked - pte_offset_map_nolock() that enters no shared table
 * @mm: the mm
 * @pmd: the PMD
 * @addr: the address
 * @ptlp: set to the table's lock, which is not held
 *
 * Fork may mark the PMD meanwhile, and the PMD may point to another table by the time the caller
 * has the lock: see quire_pvmw_moved().
 * Context: a lock of the reverse map is held; does not sleep.
 * Return: the PTE, for pte_unmap(), or NULL if there is no page table or a shared one.
 */
pte_t *__quire_pte_offset_map_unmarked(struct mm_struct *mm, pmd_t *pmd, unsigned long addr,
				       spinlock_t **ptlp)
{
	pmd_t seen;

	/* Taken before the PMD is read: the table's last user may leave it at once. */
	guard(rcu)();
	seen = pmdp_get_lockless(pmd);
	return pmd_pt_marked(seen) ? NULL : map_seen(mm, pmd, seen, addr, ptlp);
}

/**
 * quire_pvmw_unmap - unmap and unlock, so that the reverse map looks at the PMD again
 * @pvmw: the walk, which has mapped an entry
 *
 * Context: the PTL is held if @pvmw->ptl is set.
 */
void quire_pvmw_unmap(struct page_vma_mapped_walk *pvmw)
{
	if (pvmw->ptl)
		spin_unlock(pvmw->ptl);
	pvmw->ptl = NULL;
	pte_unmap(pvmw->pte);
	pvmw->pte = NULL;
}

/**
 * quire_pte_offset_map_trylock - map and lock a shared table without waiting
 * @mm: the mm
 * @addr: an address that the table maps
 * @ptlp: set to the lock that is held on success
 *
 * For callers that may skip the table.
 * Context: mmap_lock is held; does not sleep.
 * Return: the PTE, for pte_unmap_unlock(), or NULL.
 */
pte_t *quire_pte_offset_map_trylock(struct mm_struct *mm, unsigned long addr, spinlock_t **ptlp)
{
	pmd_t *pmd = quire_find_pmd(mm, addr);
	spinlock_t *pml;
	pte_t *pte = NULL;

	mmap_assert_locked(mm);
	if (!pmd)
		return NULL;
	pml = pmd_lockptr(mm, pmd);
	if (!spin_trylock(pml))
		return NULL;
	/* The PMD's lock keeps the table until its own lock is held. */
	if (pmd_pt_marked(*pmd)) {
		*ptlp = pte_lockptr(mm, pmd);
		if (spin_trylock(*ptlp)) {
			rcu_read_lock();
			pte = pte_offset_kernel(pmd, addr);
		}
	}
	spin_unlock(pml);
	return pte;
}

/**
 * quire_pt_charged - the mm that a shared table's entries are charged to
 * @pmd: marked
 *
 * Context: the table's PTL is held.
 * Return: the mm.
 */
struct mm_struct *quire_pt_charged(pmd_t *pmd)
{
	lockdep_assert_held(ptlock_ptr(quire_pmd_ptdesc(*pmd)));
	return *quire_pt_owner(quire_pmd_ptdesc(*pmd));
}

/**
 * quire_pt_users - how many users a shared table has
 * @pmd: marked
 *
 * Context: the table's PTL is held.
 * Return: the PMDs that point to the table, plus leavers that have not flushed their TLBs.
 */
unsigned int quire_pt_users(pmd_t *pmd)
{
	lockdep_assert_held(ptlock_ptr(quire_pmd_ptdesc(*pmd)));
	return quire_pt_state(quire_pmd_ptdesc(*pmd))->users;
}
