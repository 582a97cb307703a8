/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Hooks of the shm feature: processes that map the same shared memory share the last-level page
 * tables that map it.
 *
 * A PMD that points to such a table is marked and not write-protected; pmd_pt_file() in
 * asm/pgtable.h tells. All gates are static inline, and constant if the option is off. The rules
 * are in mm/quire/shm/shm.c.
 */
#ifndef _LINUX_QUIRE_SHM_H
#define _LINUX_QUIRE_SHM_H

#include <linux/jump_label.h>
#include <linux/mm.h>
#include <linux/quire/pt.h>

struct mmu_gather;

#ifdef CONFIG_QUIRE_SHM
#include <linux/quire/pt_state.h>

DECLARE_STATIC_KEY_FALSE(quire_shm_key);

/* quire_pt_marked() for tables of shared memory alone. */
static inline bool quire_pt_file(pmd_t *pmd)
{
	return quire_pt_used() && pmd_pt_file(pmdp_get_lockless(pmd));
}

void __quire_shm_join(struct vm_fault *vmf);
bool __quire_shm_zap(struct mmu_gather *tlb, struct vm_area_struct *vma, pmd_t *pmd,
		     unsigned long *addr, unsigned long end, struct zap_details *details);
bool quire_shm_leave(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr);
bool quire_shm_still_shared(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr);
bool quire_shm_skip_hints(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr);
void quire_shm_retract(struct vm_area_struct *vma, unsigned long addr);
void __quire_shm_leave_range(struct vm_area_struct *vma, unsigned long start,
			     unsigned long end);
void __quire_shm_leave_now(struct vm_area_struct *vma, unsigned long start,
			   unsigned long end);
void quire_shm_leave_mm(struct mm_struct *mm);
pte_t *__quire_shm_map(pmd_t *pmd, unsigned long addr);
struct mm_struct *__quire_shm_charged(pmd_t *pmd);
atomic_t *__quire_shm_walk_begin(struct rb_root_cached *i_mmap);
void __quire_shm_walk_end(atomic_t *walking);
bool __quire_shm_place(unsigned long len, unsigned long flags);

/**
 * quire_shm_reader - is a VMA a shared mapping that can never become writable?
 * @vma: the VMA
 *
 * Such a VMA has no anonymous page, so it needs no anon_vma.
 * Vanilla: prepares an anon_vma for it.
 * Context: mmap_lock is held.
 * Return: whether it is.
 */
static inline bool quire_shm_reader(struct vm_area_struct *vma)
{
	return (vma->vm_flags & (VM_MAYSHARE | VM_SHARED | VM_MAYWRITE)) == VM_MAYSHARE;
}

/*
 * Does the PMD point to a table that other processes cannot find? Only a hint: another thread may
 * leave the table meanwhile. If the table is freed then, this reads no more than a struct page.
 */
static inline bool quire_shm_unlisted(pmd_t pmd)
{
	if (!pmd_pt_file(pmd))
		return false;
	/* Only a hint, see above. */
	return data_race(quire_pt_state(quire_pmd_ptdesc(pmd))->flags & QUIRE_PT_UNLISTED);
}

/**
 * quire_shm_join - let a page fault join a shared page table
 * @vmf: the fault
 *
 * Vanilla: does nothing.
 * Context: __handle_mm_fault(), before it looks for the PTE; mmap_lock or the VMA's lock is held;
 * may sleep.
 */
static inline void quire_shm_join(struct vm_fault *vmf)
{
	pmd_t pmd;

	if (!static_branch_unlikely(&quire_shm_key) || !(vmf->vma->vm_flags & VM_MAYSHARE))
		return;
	pmd = pmdp_get_lockless(vmf->pmd);
	if (pmd_none(pmd) || quire_shm_unlisted(pmd))
		__quire_shm_join(vmf);
}

/**
 * quire_shm_zap - zap a range that a shared page table maps
 * @tlb: gathers the pages
 * @vma: contains the range
 * @pmd: the PMD
 * @addr: start of the range; set to its end if the range was handled
 * @end: end of the range, within the table
 * @details: as for zap_pte_range()
 *
 * unmap_vmas() and madvise() zap for one process, which leaves the table. What zaps by way of the
 * file zaps for all users.
 * Vanilla: zaps the entries of the page table.
 * Context: zap_pmd_range(); mmap_lock or the file's i_mmap lock is held, or the mm is exiting; may
 * sleep.
 * Return: true if the range was handled.
 */
static inline bool quire_shm_zap(struct mmu_gather *tlb, struct vm_area_struct *vma,
				 pmd_t *pmd, unsigned long *addr, unsigned long end,
				 struct zap_details *details)
{
	if (quire_pt_file(pmd)) {
		/* A copy, as in quire_pt_zap(). */
		unsigned long left = *addr;
		bool done = __quire_shm_zap(tlb, vma, pmd, &left, end, details);

		*addr = left;
		return done;
	}
	return false;
}

/**
 * quire_shm_walk_begin - a walk over the VMAs that map a range of a file begins
 * @i_mmap: the file's tree of VMAs, locked
 *
 * For zapping and the reverse map. Until the walk ends no process joins a table of the file, so
 * that the walk cannot miss a table whose users come and go meanwhile.
 * Vanilla: does nothing.
 * Context: the file's i_mmap lock is held; does not sleep.
 * Return: what quire_shm_walk_end() needs.
 */
static inline atomic_t *quire_shm_walk_begin(struct rb_root_cached *i_mmap)
{
	return quire_pt_used() ? __quire_shm_walk_begin(i_mmap) : NULL;
}
/**
 * quire_shm_walk_end - the walk has ended
 * @walking: what quire_shm_walk_begin() returned
 *
 * Vanilla: does nothing.
 * Context: the file's i_mmap lock is held; does not sleep.
 */

static inline void quire_shm_walk_end(atomic_t *walking)
{
	if (unlikely(walking))
		__quire_shm_walk_end(walking);
}

/**
 * quire_shm_sync_none - wait until the last user of a table has dropped the entries
 * @mm: the mm
 * @pmd: the PMD, which is none
 * @sync: the caller must not miss an entry
 *
 * The last user clears its PMD before it drops the entries, both under the PMD's lock.
 * Vanilla: does so only for what a PMD may map.
 * Context: page_vma_mapped_walk(); a lock of the reverse map is held, and no page table lock.
 */
static inline void quire_shm_sync_none(struct mm_struct *mm, pmd_t *pmd, bool sync)
{
	if (quire_pt_used() && sync && pmd_none(*pmd))
		spin_unlock(pmd_lock(mm, pmd));
}

/**
 * quire_shm_zap_none - as above, if the folio must be unmapped afterwards
 * @mm: the mm
 * @pmd: the PMD, which is none
 * @details: as for zap_pte_range()
 *
 * Vanilla: does so only for what a PMD may map.
 * Context: zap_pmd_range(); no page table lock is held.
 */
static inline void quire_shm_zap_none(struct mm_struct *mm, pmd_t *pmd,
				      struct zap_details *details)
{
	quire_shm_sync_none(mm, pmd, details && details->single_folio);
}

/**
 * quire_pte_offset_map_nolock - pte_offset_map_nolock() that enters tables of shared memory
 * @mm: the mm
 * @pmd: the PMD
 * @addr: the address
 * @ptlp: set to the table's lock, which is not held
 *
 * The fault must test quire_pte_moved() once it holds that lock.
 * Vanilla: pte_offset_map_nolock().
 * Context: handle_pte_fault(); mmap_lock or the VMA's lock is held; does not sleep.
 * Return: the PTE, for pte_unmap(), or NULL: repeat the fault.
 */
static inline pte_t *quire_pte_offset_map_nolock(struct mm_struct *mm, pmd_t *pmd,
						 unsigned long addr, spinlock_t **ptlp)
{
	pmd_t pmdval;
	pte_t *pte;

	if (!quire_pt_used())
		return pte_offset_map_nolock(mm, pmd, addr, ptlp);
	pmdval = pmdp_get_lockless(pmd);
	/* quire_pt_fault() has unshared it, and fork needs the lock that the fault holds. */
	VM_WARN_ON_ONCE(pmd_pt_cow(pmdval));
	if (likely(!pmd_pt_file(pmdval)))
		return pte_offset_map_nolock(mm, pmd, addr, ptlp);
	pte = __quire_shm_map(&pmdval, addr);
	/* Read the PMD again: only from here on can the table not be freed. */
	if (!pmd_same(pmdval, pmdp_get_lockless(pmd))) {
		pte_unmap(pte);
		return NULL;
	}
	*ptlp = pte_lockptr(mm, &pmdval);
	return pte;
}

/**
 * quire_pte_moved - did the process leave the table after the fault mapped it?
 * @vmf: the fault
 *
 * The table is not empty then if other processes use it.
 * Vanilla: compares the entry alone.
 * Context: handle_pte_fault(); the PTL is held.
 * Return: true if the PMD points elsewhere.
 */
static inline bool quire_pte_moved(struct vm_fault *vmf)
{
	return quire_pt_used() &&
	       pmd_page_vaddr(*vmf->pmd) != ((unsigned long)vmf->pte & PAGE_MASK);
}

/**
 * quire_pte_offset_map_gup - pte_offset_map() for lockless walkers
 * @pmd: a copy of the PMD
 * @addr: the address
 *
 * GUP checks the PMD after it has taken its reference, and takes the slow path for a page of a
 * copy-on-write table. perf takes no reference, and reports 4 KiB for such a table.
 * Vanilla: pte_offset_map().
 * Context: gup_fast_pte_range() and perf; interrupts are off.
 * Return: the PTE, for pte_unmap(), or NULL.
 */
static inline pte_t *quire_pte_offset_map_gup(pmd_t *pmd, unsigned long addr)
{
	if (quire_pt_file(pmd))
		return __quire_shm_map(pmd, addr);
	return quire_pt_cow(pmd) ? NULL : pte_offset_map(pmd, addr);
}

/**
 * quire_shm_mprotect - prepare a table of shared memory for a change of protection
 * @vma: the VMA
 * @pmd: the PMD
 * @addr: the address
 * @cp_flags: MM_CP_*
 *
 * Vanilla: changes the entries.
 * Context: change_pmd_range(); mmap_lock is held; does not sleep.
 * Return: true if there is no table to change, or NUMA hints must skip it.
 */
static inline bool quire_shm_mprotect(struct vm_area_struct *vma, pmd_t *pmd,
				      unsigned long addr, unsigned long cp_flags)
{
	if (likely(!quire_pt_file(pmd)))
		return false;
	if (cp_flags & MM_CP_PROT_NUMA)
		return quire_shm_skip_hints(vma, pmd, addr & PMD_MASK);
	return quire_shm_leave(vma, pmd, addr & PMD_MASK);
}

/**
 * quire_fault_mm - the mm to charge for an entry that a page fault has made
 * @mm: the fault's mm
 * @pmd: the PMD
 *
 * Vanilla: charges the fault's mm.
 * Context: the PTL is held.
 * Return: the mm.
 */
static inline struct mm_struct *quire_fault_mm(struct mm_struct *mm, pmd_t *pmd)
{
	return quire_pt_file(pmd) ? __quire_shm_charged(pmd) : mm;
}

/**
 * quire_shm_leave_range - leave the tables in a range and keep faults from joining again
 * @vma: covers the range
 * @start: start of the range
 * @end: end of the range
 *
 * Locks the VMA before the test, as the caller is about to do anyway: a fault may be joining its
 * first table, and the feature may be switched on for the first time.
 * Vanilla: does nothing.
 * Context: mmap_lock is held for writing; no table is joined until it is dropped; may sleep.
 */
static inline void quire_shm_leave_range(struct vm_area_struct *vma,
					 unsigned long start, unsigned long end)
{
	if (!(vma->vm_flags & VM_MAYSHARE))
		return;
	vma_start_write(vma);
	if (quire_pt_used())
		__quire_shm_leave_range(vma, start, end);
}

/**
 * quire_shm_leave_now - leave the tables in a range
 * @vma: covers the range
 * @start: start of the range
 * @end: end of the range
 *
 * A fault of another thread may join again.
 * Vanilla: does nothing.
 * Context: mmap_lock is held for reading; may sleep.
 */
static inline void quire_shm_leave_now(struct vm_area_struct *vma,
				       unsigned long start, unsigned long end)
{
	if (quire_pt_used())
		__quire_shm_leave_now(vma, start, end);
}

/**
 * quire_shm_retract_table - leave a table that a huge page replaces
 * @vma: the VMA
 * @addr: the first address that the huge page maps
 *
 * Vanilla: does nothing here.
 * Context: collapse_pte_mapped_thp() and retract_page_tables(); mmap_lock or the file's i_mmap lock
 * is held; does not sleep.
 */
static inline void quire_shm_retract_table(struct vm_area_struct *vma, unsigned long addr)
{
	if (quire_pt_used() && (vma->vm_flags & VM_MAYSHARE))
		quire_shm_retract(vma, addr);
}

/**
 * quire_shm_place - align a mapping so that its tables can be shared?
 * @len: length of the mapping
 * @flags: MAP_*
 *
 * Vanilla: aligns the mapping only if huge pages are enabled.
 * Context: shmem_get_unmapped_area().
 * Return: whether to align it.
 */
static inline bool quire_shm_place(unsigned long len, unsigned long flags)
{
	return static_branch_unlikely(&quire_shm_key) && __quire_shm_place(len, flags);
}

#else /* !CONFIG_QUIRE_SHM */

static inline void quire_shm_join(struct vm_fault *vmf)
{
}

static inline bool quire_shm_zap(struct mmu_gather *tlb, struct vm_area_struct *vma,
				 pmd_t *pmd, unsigned long *addr, unsigned long end,
				 struct zap_details *details)
{
	return false;
}

#define quire_shm_reader(vma)	false

#define quire_shm_walk_begin(i_mmap)	NULL

static inline void quire_shm_walk_end(atomic_t *walking)
{
}

static inline void quire_shm_sync_none(struct mm_struct *mm, pmd_t *pmd, bool sync)
{
}

static inline void quire_shm_zap_none(struct mm_struct *mm, pmd_t *pmd,
				      struct zap_details *details)
{
}

static inline bool quire_shm_mprotect(struct vm_area_struct *vma, pmd_t *pmd,
				      unsigned long addr, unsigned long cp_flags)
{
	return false;
}

#define quire_pte_offset_map_nolock(mm, pmd, addr, ptlp) \
	pte_offset_map_nolock(mm, pmd, addr, ptlp)
#define quire_pte_moved(vmf)			false
#define quire_pte_offset_map_gup(pmd, addr) \
	(quire_pt_cow(pmd) ? NULL : pte_offset_map(pmd, addr))
#define quire_fault_mm(mm, pmd)			(mm)

static inline void quire_shm_leave_range(struct vm_area_struct *vma,
					 unsigned long start, unsigned long end)
{
}

static inline void quire_shm_leave_now(struct vm_area_struct *vma,
				       unsigned long start, unsigned long end)
{
}

static inline void quire_shm_retract_table(struct vm_area_struct *vma, unsigned long addr)
{
}

static inline void quire_shm_leave_mm(struct mm_struct *mm)
{
}

#define quire_shm_place(len, flags)		false

#endif /* CONFIG_QUIRE_SHM */
#endif /* _LINUX_QUIRE_SHM_H */
