// SPDX-License-Identifier: GPL-2.0
/*
 * Borrowers that are written to and go on borrowing, within a budget.
 *
 * A child that is about to exec or exit writes to its stack and to a little data
 * first. It would be a waste to give these VMAs their own anon_vmas, so the folios
 * are deferred: they are attached to the borrowed anon_vma. This is valid, but a walk
 * for such a folio visits all VMAs that are linked to that anon_vma, and each child
 * that the parent forks later adds one.
 *
 * So each mm has a budget of deferred folios, which all its threads share. The first
 * folio beyond the budget ends it for good: each VMA that has deferred folios is
 * upgraded, and the folios move to its own anon_vma, as Linux moves a folio when it
 * finds that only one process maps it. If defer_faults drops to what an mm has used, or
 * below, the next write to one of its borrowers ends its budget.
 *
 * Two kinds of VMAs never defer: VMAs that may get large folios, since one entry does
 * not tell whether somebody else maps another part of the folio; and VMAs that are as
 * long as a page table or longer, since the end of the budget searches them for folios.
 * userfaultfd never defers either, since it prepares a VMA once for any number of
 * pages: find_vma_and_prepare_anon() upgrades it.
 *
 * Locking: mmap_lock, at least for reading, keeps the VMAs in place. The lock of a
 * single VMA is not enough: __vmf_anon_prepare() takes mmap_lock, too. A fault sets
 * vma->anon_deferred before it increments mm->quire_deferred, which is atomic, so
 * either the end of the budget sees the flag, or the fault sees the end. A folio moves
 * under its own lock and that of its page table, under which faults read vma->anon_vma.
 *
 * Lifetime: mm->quire_deferred starts at 0 in each new mm. vma->anon_deferred stays
 * set as long as the VMA lives, and means nothing once the VMA has its own anon_vma. A
 * split copies it, a merge passes it on (quire_rmap_merge()), and a child that borrows
 * starts without it.
 *
 * Undo: none is needed, since a folio may be attached to either anon_vma.
 */
#include <linux/align.h>
#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/quire/pt.h>
#include <linux/quire/rmap.h>
#include <linux/rmap.h>

#include "../core/quire.h"
#include "../../internal.h"
#include "rmap.h"

/* The budget of an mm, in folios. */
static unsigned int defer_faults = 32;
struct quire_uint_attr quire_defer_faults_knob = {
	.attr = __ATTR(defer_faults, 0644, quire_uint_show, quire_uint_store),
	.value = &defer_faults,
	.max = 4096,
};

/* Folios are not attached to an anon_vma that has more VMAs and children than this. */
#define DEFER_USERS 8

/* mm->quire_deferred: the budget has ended. Late increments leave it negative. */
#define DEFER_ENDED INT_MIN

/*
 * An estimate of what a walk visits: the VMAs that use the anon_vma, and its child
 * anon_vmas, since the VMAs that use those stay linked. A root is its own child.
 */
static bool has_many_users(struct vm_area_struct *vma)
{
	/* Stale at worst: whatever the pointer has pointed to is in the chain. */
	struct anon_vma *anon_vma = READ_ONCE(vma->anon_vma);

	/* An estimate. */
	return data_race(anon_vma->num_active_vmas + anon_vma->num_children) > DEFER_USERS;
}

/* Folios are aligned to their size: if the smallest one does not fit, none does. */
static bool may_get_large_folios(struct vm_area_struct *vma)
{
	unsigned long orders, size;

	if (!vma_is_anonymous(vma))
		return false;
	orders = thp_vma_allowable_orders(vma, vma->vm_flags, TVA_IN_PF | TVA_ENFORCE_SYSFS,
					  THP_ORDERS_ALL_ANON);
	if (!orders)
		return false;
	size = PAGE_SIZE << __ffs(orders);
	return ALIGN(vma->vm_start, size) + size <= vma->vm_end;
}

static bool is_deferrable(struct vm_area_struct *vma)
{
	return current->mm == vma->vm_mm && vma->vm_end - vma->vm_start < PMD_SIZE &&
	       !has_many_users(vma) && !may_get_large_folios(vma);
}

/* Upgrade the VMAs that have deferred folios, once. mmap_lock is held; may sleep. */
static void end_budget(struct mm_struct *mm)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, 0);

	/* A full barrier; pairs with the one in quire_rmap_defer(). */
	if (atomic_xchg(&mm->quire_deferred, DEFER_ENDED) < 0)
		return;
	for_each_vma(vmi, vma) {
		if (quire_rmap_borrowed(vma) && READ_ONCE(vma->anon_deferred))
			quire_rmap_upgrade(vma);
		cond_resched();
	}
}

/**
 * quire_rmap_defer - may a borrower that is written to go on borrowing?
 * @vma: the borrower, about to get one anonymous folio
 *
 * Ends the budget of the mm if it is spent.
 *
 * Context: mmap_lock is held; may sleep.
 * Return: true if it may, false if the caller has to upgrade it.
 */
bool quire_rmap_defer(struct vm_area_struct *vma)
{
	struct mm_struct *mm = vma->vm_mm;
	int limit = READ_ONCE(defer_faults);
	int used = atomic_read(&mm->quire_deferred);

	mmap_assert_locked(mm);
	if (used < 0)
		return false;
	if (used < limit) {
		if (!is_deferrable(vma))
			return false;
		WRITE_ONCE(vma->anon_deferred, true);
		/* A full barrier; pairs with the one in end_budget(). */
		used = atomic_fetch_inc(&mm->quire_deferred);
		if (used >= 0 && used < limit)
			return true;
	}
	/* If the limit is 0 and nothing is deferred, there is nothing to end. */
	if (used)
		end_budget(mm);
	return false;
}

/* The page table lock is held, so an exclusive page stays exclusive. */
static bool move_folio(struct vm_area_struct *vma, unsigned long addr, pte_t pte)
{
	struct folio *folio;
	struct page *page;

	page = pte_present(pte) ? vm_normal_page(vma, addr, pte) : NULL;
	if (!page || !PageAnon(page) || !PageAnonExclusive(page))
		return false;
	folio = page_folio(page);
	/* A holder of the folio's lock may rely on its anon_vma. */
	if (folio_test_large(folio) || folio_anon_vma(folio) == vma->anon_vma ||
	    !folio_trylock(folio))
		return false;
	folio_move_anon_rmap(folio, vma);
	folio_unlock(folio);
	return true;
}

static unsigned long move_table(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr,
				unsigned long end)
{
	unsigned long moved = 0;
	pte_t *pte, *first;
	spinlock_t *ptl;

	first = pte = pte_offset_map_lock(vma->vm_mm, pmd, addr, &ptl);
	if (!pte)
		return 0;
	for (; addr != end; pte++, addr += PAGE_SIZE)
		moved += move_folio(vma, addr, ptep_get(pte));
	pte_unmap_unlock(first, ptl);
	return moved;
}

/**
 * quire_rmap_take_along - move a VMA's folios to the anon_vma that it has now
 * @vma: the VMA, which was upgraded
 *
 * Moves the folios that nobody else maps. A folio that is locked, in swap or under
 * migration stays where it is, and so do the folios of a table that fork shares.
 *
 * Context: mmap_lock is held, so fork does not share a table meanwhile; may sleep.
 * Return: how many folios were moved.
 */
unsigned long quire_rmap_take_along(struct vm_area_struct *vma)
{
	unsigned long addr, next, moved = 0;

	mmap_assert_locked(vma->vm_mm);
	for (addr = vma->vm_start; addr != vma->vm_end; addr = next) {
		pmd_t *pmd = mm_find_pmd(vma->vm_mm, addr);

		next = pmd_addr_end(addr, vma->vm_end);
		if (pmd && !quire_pt_marked(pmd))
			moved += move_table(vma, pmd, addr, next);
		cond_resched();
	}
	return moved;
}
