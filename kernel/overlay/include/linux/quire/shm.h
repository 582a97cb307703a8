/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Hooks of the shm feature: processes that map the same shared memory share the
 * last-level page tables that map it.
 *
 * A PMD that points to such a table is marked and not write-protected;
 * pmd_pt_file() in asm/pgtable.h tells. Everything is static inline and
 * constant where the option is off. The rules are in mm/quire/shm/shm.c.
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

/* quire_pt_marked() of tables that map shared memory. */
static inline bool quire_pt_file(pmd_t *pmd)
{
	return quire_pt_used() && pmd_pt_file(*pmd);
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

/* May it be read alone, for good? It has no anonymous page, and needs no anon_vma. */
static inline bool quire_shm_reader(struct vm_area_struct *vma)
{
	return (vma->vm_flags & (VM_MAYSHARE | VM_SHARED | VM_MAYWRITE)) == VM_MAYSHARE;
}

/*
 * Is there a table that others cannot find? A hint: another thread may leave it meanwhile, and
 * of a table that is freed then no more than a struct page is read.
 */
static inline bool quire_shm_unlisted(pmd_t pmd)
{
	return pmd_pt_file(pmd) &&
	       data_race(quire_pt_state(quire_pmd_ptdesc(pmd))->flags & QUIRE_PT_UNLISTED);
}

/* A page fault, before it looks for the page table entry. */
static inline void quire_shm_join(struct vm_fault *vmf)
{
	pmd_t pmd;

	if (!static_branch_unlikely(&quire_shm_key) || !(vmf->vma->vm_flags & VM_MAYSHARE))
		return;
	pmd = pmdp_get_lockless(vmf->pmd);
	if (pmd_none(pmd) || quire_shm_unlisted(pmd))
		__quire_shm_join(vmf);
}

/*
 * True if the range is dealt with; *addr is its end then. What unmap_vmas() and
 * madvise() zap is one process's affair; what comes by way of the file, all
 * processes'.
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

/*
 * All VMAs that map a range of a file are about to be visited, to zap there or on
 * behalf of the reverse map. Until the end nobody joins a table of the file, so
 * none escapes for its users come and go around the visitor.
 */
static inline atomic_t *quire_shm_walk_begin(struct rb_root_cached *i_mmap)
{
	return quire_pt_used() ? __quire_shm_walk_begin(i_mmap) : NULL;
}

static inline void quire_shm_walk_end(atomic_t *walking)
{
	if (unlikely(walking))
		__quire_shm_walk_end(walking);
}

/* The last user clears its PMD before the entries go: wait until they are gone. */
static inline void quire_shm_sync_none(struct mm_struct *mm, pmd_t *pmd, bool sync)
{
	if (quire_pt_used() && sync && pmd_none(*pmd))
		spin_unlock(pmd_lock(mm, pmd));
}

/* For who must find a folio unmapped afterwards. */
static inline void quire_shm_zap_none(struct mm_struct *mm, pmd_t *pmd,
				      struct zap_details *details)
{
	quire_shm_sync_none(mm, pmd, details && details->single_folio);
}

/* For page faults; NULL has them repeated. quire_pte_moved() is due under the lock. */
static inline pte_t *quire_pte_offset_map_nolock(struct mm_struct *mm, pmd_t *pmd,
						 unsigned long addr, spinlock_t **ptlp)
{
	pmd_t pmdval;
	pte_t *pte;

	if (!quire_pt_used())
		return pte_offset_map_nolock(mm, pmd, addr, ptlp);
	pmdval = pmdp_get_lockless(pmd);
	/* quire_pt_fault() has seen to it, and fork needs the lock that the fault holds. */
	VM_WARN_ON_ONCE(pmd_pt_cow(pmdval));
	if (likely(!pmd_pt_file(pmdval)))
		return pte_offset_map_nolock(mm, pmd, addr, ptlp);
	pte = __quire_shm_map(&pmdval, addr);
	/* Read again: only now is the table sure not to be freed. */
	if (!pmd_same(pmdval, pmdp_get_lockless(pmd))) {
		pte_unmap(pte);
		return NULL;
	}
	*ptlp = pte_lockptr(mm, &pmdval);
	return pte;
}

/* The table was left since it was mapped, and is not empty if others use it. */
static inline bool quire_pte_moved(struct vm_fault *vmf)
{
	return quire_pt_used() &&
	       pmd_page_vaddr(*vmf->pmd) != ((unsigned long)vmf->pte & PAGE_MASK);
}

/*
 * For lockless walkers that check the PMD after they took their reference. Those who
 * want a page of a copy-on-write table take the slow path, which asks for it.
 */
static inline pte_t *quire_pte_offset_map_gup(pmd_t *pmd, unsigned long addr)
{
	if (quire_pt_file(pmd))
		return __quire_shm_map(pmd, addr);
	return quire_pt_cow(pmd) ? NULL : pte_offset_map(pmd, addr);
}

/* mprotect and NUMA hints; true if there is no table to change, or it is others', too. */
static inline bool quire_shm_mprotect(struct vm_area_struct *vma, pmd_t *pmd,
				      unsigned long addr, unsigned long cp_flags)
{
	if (likely(!quire_pt_file(pmd)))
		return false;
	if (cp_flags & MM_CP_PROT_NUMA)
		return quire_shm_skip_hints(vma, pmd, addr & PMD_MASK);
	return quire_shm_leave(vma, pmd, addr & PMD_MASK);
}

/* The mm to charge for an entry that a fault made; the PTL is held. */
static inline struct mm_struct *quire_fault_mm(struct mm_struct *mm, pmd_t *pmd)
{
	return quire_pt_file(pmd) ? __quire_shm_charged(pmd) : mm;
}

/*
 * mmap_lock is held for writing; the range is not joined until it is let go. Lock
 * the VMA, as the caller is about to, before the test: a fault may be joining its
 * first table, and the feature may be switched on for the first time.
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

/* mmap_lock is held for reading: another thread's fault may join again. */
static inline void quire_shm_leave_now(struct vm_area_struct *vma,
				       unsigned long start, unsigned long end)
{
	if (quire_pt_used())
		__quire_shm_leave_now(vma, start, end);
}

/* Huge pages have taken the place of what a table maps; mmap_lock or i_mmap's lock is held. */
static inline void quire_shm_retract_table(struct vm_area_struct *vma, unsigned long addr)
{
	if (quire_pt_used() && (vma->vm_flags & VM_MAYSHARE))
		quire_shm_retract(vma, addr);
}

/* Is a mapping without an address to be congruent with those of others? */
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
