/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Hooks for shared page tables, whichever feature shares them.
 *
 * A PMD that points to a shared page table is marked; pmd_pt_marked() in asm/pgtable.h tells. All
 * gates are static inline, and constant if no configured feature shares page tables.
 * mm/quire/pt/pt.c says what a shared page table is and who may change it.
 */
#ifndef _LINUX_QUIRE_PT_H
#define _LINUX_QUIRE_PT_H

#include <linux/jump_label.h>
#include <linux/mm.h>
#include <linux/pagewalk.h>
#include <linux/rmap.h>
#include <linux/sched/coredump.h>

struct mmu_gather;

/* Why a process gets a page table of its own; each cause has a counter. */
enum quire_pt_cause {
	QUIRE_PT_FAULT,		/* a page fault must change an entry */
	QUIRE_PT_GUP,		/* GUP takes a reference to a page */
	QUIRE_PT_WALK,		/* a page table walk may change entries */
	QUIRE_PT_SYSCALL,	/* a system call changes the VMA */
	QUIRE_PT_FORK,		/* fork must not share the table again */
	QUIRE_PT_SWAPOFF,
	QUIRE_PT_BACKGROUND,	/* a worker unshares ahead of need */
	QUIRE_PT_NR_CAUSES,
};

#ifdef CONFIG_QUIRE_PT

/*
 * mm/quire/pt/copy.c also calls fork's functions that copy one entry. In vanilla they are static
 * and inlined in their one caller; that caller still inlines them.
 */
#define quire_pt_extern	__always_inline
unsigned long copy_nonpresent_pte(struct mm_struct *dst_mm, struct mm_struct *src_mm,
				  pte_t *dst_pte, pte_t *src_pte, struct vm_area_struct *dst_vma,
				  struct vm_area_struct *src_vma, unsigned long addr, int *rss);
int copy_present_ptes(struct vm_area_struct *dst_vma, struct vm_area_struct *src_vma,
		      pte_t *dst_pte, pte_t *src_pte, pte_t pte, unsigned long addr, int max_nr,
		      int *rss, struct folio **prealloc);

DECLARE_STATIC_KEY_FALSE(quire_pt_used_key);

bool __quire_pt_zap(struct mmu_gather *tlb, struct vm_area_struct *vma, pmd_t **pmd,
		    unsigned long *addr, unsigned long end, struct zap_details *details);
extern bool quire_pt_mixed_made;
int __quire_pt_make_room(struct mm_struct *mm, unsigned long start, unsigned long end);
int __quire_pt_unshare_at(struct mm_struct *mm, unsigned long addr);
int __quire_pt_unshare(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr,
		       enum quire_pt_cause cause, gfp_t gfp);
int __quire_pt_fault(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr,
		     unsigned int flags);
int __quire_pt_split(struct vm_area_struct *vma, unsigned long addr);
int __quire_pt_unshare_range(struct vm_area_struct *vma, unsigned long start,
			     unsigned long end);
int quire_pt_unshare_mm(struct mm_struct *mm);
int __quire_pt_swapoff(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr,
		       unsigned int type);
bool __quire_pt_still_shared(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr);
bool __quire_walk_others(struct folio_walk *fw, struct vm_area_struct *vma, unsigned long addr,
			 int node);
void quire_pt_stray(pmd_t pmd);
pte_t *__quire_pte_offset_map_lock(struct mm_struct *mm, pmd_t *pmd,
				   unsigned long addr, spinlock_t **ptlp);
pte_t *quire_pte_offset_map_trylock(struct mm_struct *mm, unsigned long addr, spinlock_t **ptlp);
struct mm_struct *quire_pt_charged(pmd_t *pmd);
unsigned int quire_pt_users(pmd_t *pmd);
void quire_pt_note_reference(pmd_t *pmd);
void __quire_pt_may_have_pins(pgtable_t table);
void quire_pt_moves_into(pmd_t *pmd);
void quire_pt_show_orphans(void);
unsigned long __quire_pt_oom_points(struct mm_struct *mm);

/**
 * quire_pt_used - may there be a shared page table?
 *
 * Vanilla: every page table is private.
 * Context: any.
 * Return: true once quire_pt_start() has run; never false again.
 */
static inline bool quire_pt_used(void)
{
	return static_branch_unlikely(&quire_pt_used_key);
}

/**
 * quire_pt_marked - does a PMD point to a shared page table?
 * @pmd: the PMD
 *
 * All CPUs see the key before the first PMD is marked, so testing the key first hides no mark, and
 * costs nothing until then.
 * Vanilla: every page table is private.
 * Context: any; without the PMD's lock or the PTL the answer is a hint.
 * Return: whether the PMD is marked.
 */
static inline bool quire_pt_marked(pmd_t *pmd)
{
	return quire_pt_used() && pmd_pt_marked(pmdp_get_lockless(pmd));
}

/* quire_pt_marked() for copy-on-write tables alone. */
static inline bool quire_pt_cow(pmd_t *pmd)
{
	return quire_pt_used() && pmd_pt_cow(pmdp_get_lockless(pmd));
}

/**
 * quire_pt_zap - zap a run of shared copy-on-write page tables
 * @tlb: gathers the pages
 * @vma: contains the range
 * @pmd: the PMD of *@addr; set to the last PMD that was handled
 * @addr: start of the range; set to the end of what was handled
 * @end: end of the range, within one PMD page
 * @details: as for zap_pte_range()
 *
 * Vanilla: zaps the entries of one page table.
 * Context: zap_pmd_range(); mmap_lock or the file's i_mmap lock is held, or the mm is exiting; may
 * sleep.
 * Return: true if something was handled; false if the caller must zap a private page table.
 */
static inline bool quire_pt_zap(struct mmu_gather *tlb, struct vm_area_struct *vma,
				pmd_t **pmd, unsigned long *addr, unsigned long end,
				struct zap_details *details)
{
	if (quire_pt_cow(*pmd)) {
		/*
		 * Copies: a variable whose address is taken would stay in memory during the whole
		 * loop.
		 */
		pmd_t *last = *pmd;
		unsigned long left = *addr;
		bool done = __quire_pt_zap(tlb, vma, &last, &left, end, details);

		*pmd = last;
		*addr = left;
		return done;
	}
	return false;
}

/**
 * quire_pt_unshare_at - give a process its own page table at an address
 * @mm: the process's mm
 * @addr: any address that the table maps
 *
 * Vanilla: every page table is private.
 * Context: mmap_lock is held; may sleep.
 * Return: 0 or -ENOMEM.
 */
static inline int quire_pt_unshare_at(struct mm_struct *mm, unsigned long addr)
{
	return quire_pt_used() ? __quire_pt_unshare_at(mm, addr) : 0;
}

/**
 * quire_pt_make_room - unshare the tables at both ends of a file's new mapping
 * @file: the file, or NULL
 * @mm: the process's mm
 * @start: start of the range that will map the file
 * @end: end of the range
 *
 * For mmap(), and for a mapping that grows or moves.
 * Vanilla: every page table is private.
 * Context: mmap_lock is held for writing; may sleep.
 * Return: 0 or -ENOMEM.
 */
static inline int quire_pt_make_room(struct file *file, struct mm_struct *mm,
				     unsigned long start, unsigned long end)
{
	return file && quire_pt_used() && READ_ONCE(quire_pt_mixed_made) ?
		__quire_pt_make_room(mm, start, end) : 0;
}

/**
 * quire_pt_unshare - unshare a copy-on-write page table of a process
 * @vma: covers the table, or reaches into it if the table is mixed
 * @pmd: the PMD
 * @addr: any address that the table maps
 * @cause: the counter to increment
 *
 * Vanilla: every page table is private.
 * Context: mmap_lock or the VMA's lock is held; may sleep.
 * Return: 0, or -ENOMEM with the table still shared.
 */
static inline int quire_pt_unshare(struct vm_area_struct *vma, pmd_t *pmd,
				   unsigned long addr, enum quire_pt_cause cause)
{
	if (likely(!quire_pt_cow(pmd)))
		return 0;
	return __quire_pt_unshare(vma, pmd, addr, cause, 0);
}

/**
 * quire_pt_fault - unshare the page table that a page fault meets
 * @vma: the fault's VMA
 * @pmd: the PMD
 * @addr: the fault's address
 * @flags: FAULT_FLAG_*
 *
 * Vanilla: goes on with handle_pte_fault().
 * Context: __handle_mm_fault(); mmap_lock or the VMA's lock is held; may sleep.
 * Return: 1 to repeat the access, 0 if the table is private, or -ENOMEM.
 */
static inline int quire_pt_fault(struct vm_area_struct *vma, pmd_t *pmd,
				 unsigned long addr, unsigned int flags)
{
	if (likely(!quire_pt_cow(pmd)))
		return 0;
	return __quire_pt_fault(vma, pmd, addr, flags);
}

/**
 * quire_pt_gup - prepare a page table for GUP
 * @vma: the VMA
 * @pmd: the PMD
 * @addr: the address
 * @writes: FOLL_WRITE or FOLL_PIN is set
 *
 * A shared table allows references for reading only: neither pins nor references for writing.
 * Vanilla: goes on to lock the page table.
 * Context: follow_page_pte(), before the PTL is taken; mmap_lock is held; may sleep.
 * Return: 0 or -ENOMEM.
 */
static inline int quire_pt_gup(struct vm_area_struct *vma, pmd_t *pmd,
			       unsigned long addr, bool writes)
{
	if (likely(!quire_pt_cow(pmd)))
		return 0;
	if (!writes) {
		/* The last user adopts the table, so that GUP-fast can enter it. */
		__quire_pt_still_shared(vma, pmd, addr);
		return 0;
	}
	return quire_pt_unshare(vma, pmd, addr, QUIRE_PT_GUP);
}

/**
 * quire_pt_may_have_pins - a private table is about to map pages that may be pinned
 * @table: the page table
 *
 * See mm/quire/pt/pins.c.
 * Vanilla: records no such thing.
 * Context: __split_huge_pmd_locked(), under the PMD's lock, and GUP; does not sleep.
 */
static inline void quire_pt_may_have_pins(pgtable_t table)
{
	if (quire_pt_used())
		__quire_pt_may_have_pins(table);
}

/**
 * quire_pt_gup_fast - note that GUP-fast is about to reference pages
 * @pmd: the value that GUP-fast read from the PMD
 * @pins: FOLL_PIN is set
 *
 * Vanilla: does nothing.
 * Context: gup_fast_pte_range(), after write_protect_seq was read; interrupts are off.
 */
static inline void quire_pt_gup_fast(pmd_t pmd, bool pins)
{
	if (pins)
		quire_pt_may_have_pins(pmd_page(pmd));
}

/**
 * quire_pt_gup_locked - note that GUP is about to reference a page
 * @pmd: the PMD
 * @gets: FOLL_GET is set
 * @pins: FOLL_PIN is set
 *
 * Vanilla: does nothing.
 * Context: follow_page_pte(); the PTL is held.
 */
static inline void quire_pt_gup_locked(pmd_t *pmd, bool gets, bool pins)
{
	if (gets && quire_pt_cow(pmd))
		quire_pt_note_reference(pmd);
	else if (pins)
		quire_pt_may_have_pins(pmd_page(*pmd));
}

/**
 * quire_pt_unshare_nofail - quire_pt_unshare() for callers that cannot fail
 * @vma: as for quire_pt_unshare()
 * @pmd: the PMD; of a table of either kind
 * @addr: any address that the table maps
 * @cause: the counter to increment
 *
 * The page for the copy may come from the reserves.
 * Vanilla: every page table is private.
 * Context: mmap_lock or the VMA's lock is held; may sleep.
 */
static inline void quire_pt_unshare_nofail(struct vm_area_struct *vma, pmd_t *pmd,
					   unsigned long addr,
					   enum quire_pt_cause cause)
{
	if (quire_pt_marked(pmd))
		__quire_pt_unshare(vma, pmd, addr, cause, __GFP_NOFAIL);
}

/**
 * quire_pt_move - unshare what mremap() is about to move
 * @vma: the old VMA
 * @pmd: the old PMD
 * @addr: the old address
 * @new_vma: the new VMA
 * @new_pmd: the new PMD
 * @new_addr: the new address
 *
 * Vanilla: does nothing.
 * Context: move_page_tables(), for each page table or part of one that is not moved along with a
 * whole table of PMDs; mmap_lock is held for writing; may sleep.
 */
static inline void quire_pt_move(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr,
				 struct vm_area_struct *new_vma, pmd_t *new_pmd,
				 unsigned long new_addr)
{
	if (!quire_pt_used())
		return;
	quire_pt_unshare_nofail(vma, pmd, addr, QUIRE_PT_SYSCALL);
	quire_pt_unshare_nofail(new_vma, new_pmd, new_addr, QUIRE_PT_SYSCALL);
	quire_pt_moves_into(new_pmd);
}

/**
 * quire_pt_keep - keep a marked page table from being freed
 * @pmd: the PMD
 *
 * Other processes may use the table, so it leaks instead.
 * Vanilla: frees the page table.
 * Context: free_pmd_range(); does not sleep.
 * Return: true if the PMD is marked, which is a bug.
 */
static inline bool quire_pt_keep(pmd_t *pmd)
{
	if (likely(!quire_pt_marked(pmd)))
		return false;
	quire_pt_stray(*pmd);
	return true;
}

/**
 * quire_pt_split - unshare the table into which a VMA boundary is about to be moved
 * @vma: the VMA
 * @addr: the boundary
 *
 * Vanilla: every page table is private.
 * Context: mmap_lock is held for writing; may sleep.
 * Return: 0 or -ENOMEM.
 */
static inline int quire_pt_split(struct vm_area_struct *vma, unsigned long addr)
{
	/*
	 * A fault must not share a table across the boundary because the feature is switched on
	 * after the key was read. The caller locks the area anyway.
	 */
	if ((vma->vm_flags & VM_MAYSHARE) && !IS_ALIGNED(addr, PMD_SIZE))
		vma_start_write(vma);
	if (!quire_pt_used())
		return 0;
	/* The process has shared no table yet. A fault cannot begin to: it needs VM_MAYSHARE. */
	if (!(vma->vm_flags & VM_MAYSHARE) && !test_bit(MMF_QUIRE_PT, &vma->vm_mm->flags))
		return 0;
	return __quire_pt_split(vma, addr);
}

/**
 * quire_pt_unshare_range - unshare the copy-on-write page tables in a range
 * @vma: covers the range
 * @start: start of the range
 * @end: end of the range
 *
 * Vanilla: every page table is private.
 * Context: mmap_lock is held; may sleep.
 * Return: 0, -ENOMEM, or -EINTR if the caller is being killed.
 */
static inline int quire_pt_unshare_range(struct vm_area_struct *vma,
					 unsigned long start, unsigned long end)
{
	return quire_pt_used() ? __quire_pt_unshare_range(vma, start, end) : 0;
}

/**
 * quire_pt_walk - prepare a page table for the callbacks of a page table walk
 * @walk: the walk
 * @pmd: the PMD
 * @addr: the address
 *
 * A walk that may change entries gets a private table. A walk that only reads adopts a
 * copy-on-write table that nobody else uses; it leaves a table of shared memory as it is, because
 * looking changes nothing there.
 * Vanilla: calls ->pmd_entry().
 * Context: walk_pmd_range(), under the locks that the walk requires; may sleep.
 * Return: true if the walk must skip the PMD, because it has no VMA.
 */
static inline bool quire_pt_walk(struct mm_walk *walk, pmd_t *pmd, unsigned long addr)
{
	if (likely(!quire_pt_marked(pmd)))
		return false;
	if (walk->no_vma || !walk->vma)
		return true;
	if (!walk->ops->reads_shared)
		quire_pt_unshare_nofail(walk->vma, pmd, addr, QUIRE_PT_WALK);
	else if (pmd_pt_cow(*pmd))
		__quire_pt_still_shared(walk->vma, pmd, addr);
	return false;
}

/**
 * quire_pt_skip - must a caller that skips shared page tables skip this one?
 * @vma: covers the table
 * @pmd: the PMD
 * @addr: any address that the table maps
 *
 * The last user adopts the table.
 * Vanilla: every page table is private.
 * Context: mmap_lock is held; does not sleep.
 * Return: true if other processes use the table.
 */
static inline bool quire_pt_skip(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr)
{
	return quire_pt_marked(pmd) && __quire_pt_still_shared(vma, pmd, addr);
}

/**
 * quire_pt_swapoff - unshare a page table that has swap entries of a device
 * @vma: the VMA
 * @pmd: the PMD
 * @addr: any address that the table maps
 * @type: the device
 *
 * Vanilla: every page table is private.
 * Context: unuse_pmd_range(); mmap_lock is held for reading; may sleep.
 * Return: 0 or -ENOMEM. The table is still shared if it has no entry of the device.
 */
static inline int quire_pt_swapoff(struct vm_area_struct *vma, pmd_t *pmd,
				   unsigned long addr, unsigned int type)
{
	return quire_pt_cow(pmd) ? __quire_pt_swapoff(vma, pmd, addr, type) : 0;
}

/**
 * quire_pt_mprotect - prepare a copy-on-write table for a change of protection
 * @vma: the VMA
 * @pmd: the PMD
 * @addr: the address
 * @cp_flags: MM_CP_*
 *
 * NUMA hints skip shared tables, and everything else unshares them.
 * Vanilla: changes the entries.
 * Context: change_pmd_range(); mmap_lock is held; may sleep unless MM_CP_PROT_NUMA is set.
 * Return: true if the table must be skipped.
 */
static inline bool quire_pt_mprotect(struct vm_area_struct *vma, pmd_t *pmd,
				     unsigned long addr, unsigned long cp_flags)
{
	if (likely(!quire_pt_cow(pmd)))
		return false;
	if (cp_flags & MM_CP_PROT_NUMA)
		return __quire_pt_still_shared(vma, pmd, addr);
	quire_pt_unshare_nofail(vma, pmd, addr, QUIRE_PT_SYSCALL);
	return false;
}

/**
 * quire_pte_offset_map_lock - pte_offset_map_lock() that enters shared tables
 * @mm: the mm
 * @pmd: the PMD
 * @addr: the address
 * @ptlp: set to the lock that is held on success
 *
 * For page faults on shared memory, readers and the reverse map.
 * Vanilla: pte_offset_map_lock().
 * Context: mmap_lock, the VMA's lock or a lock of the reverse map is held; does not sleep.
 * Return: the PTE, for pte_unmap_unlock(), or NULL if there is no page table.
 */
static inline pte_t *quire_pte_offset_map_lock(struct mm_struct *mm, pmd_t *pmd,
					       unsigned long addr, spinlock_t **ptlp)
{
	if (quire_pt_used())
		return __quire_pte_offset_map_lock(mm, pmd, addr, ptlp);
	return pte_offset_map_lock(mm, pmd, addr, ptlp);
}

/**
 * quire_pte_offset_map_walk - as above, for a walk that changes entries only sometimes
 * @mm: the mm
 * @vma: the VMA
 * @pmd: the PMD
 * @addr: the address
 * @ptlp: set to the lock that is held on success
 * @writes: this walk changes entries
 *
 * For walks with QUIRE_READS_SHARED.
 * Vanilla: pte_offset_map_lock().
 * Context: mmap_lock is held; may sleep if @writes.
 * Return: the PTE, for pte_unmap_unlock(), or NULL if there is no page table.
 */
static inline pte_t *quire_pte_offset_map_walk(struct mm_struct *mm,
					       struct vm_area_struct *vma, pmd_t *pmd,
					       unsigned long addr, spinlock_t **ptlp,
					       bool writes)
{
	if (writes) {
		quire_pt_unshare_nofail(vma, pmd, addr, QUIRE_PT_WALK);
		return pte_offset_map_lock(mm, pmd, addr, ptlp);
	}
	return quire_pte_offset_map_lock(mm, pmd, addr, ptlp);
}

pte_t *__quire_pte_offset_map_unmarked(struct mm_struct *mm, pmd_t *pmd, unsigned long addr,
				       spinlock_t **ptlp);
void quire_pvmw_unmap(struct page_vma_mapped_walk *pvmw);

/**
 * quire_pte_offset_map_unmarked - pte_offset_map_nolock() for the reverse map
 * @mm: the mm
 * @pmd: the PMD
 * @addr: the address
 * @ptlp: set to the table's lock, which is not held
 *
 * The reverse map looks at an entry of a private table before it locks the table.
 * Vanilla: pte_offset_map_nolock().
 * Context: a lock of the reverse map is held; does not sleep.
 * Return: the PTE, for pte_unmap(), or NULL: look at the PMD again.
 */
static inline pte_t *quire_pte_offset_map_unmarked(struct mm_struct *mm, pmd_t *pmd,
						   unsigned long addr, spinlock_t **ptlp)
{
	if (quire_pt_used())
		return __quire_pte_offset_map_unmarked(mm, pmd, addr, ptlp);
	return pte_offset_map_nolock(mm, pmd, addr, ptlp);
}

/**
 * quire_pvmw_moved - check that the PMD still points to the mapped page table
 * @pvmw: the walk, which has mapped an entry of a private table
 *
 * If it does and the PTL is held, the table stays this process's, shared or not, until the PTL is
 * dropped. Without the PTL, the table was this process's all the time, because a process that left
 * a table cannot return to it: RCU keeps the table while it is mapped, and so does the lock of the
 * reverse map if the last user has adopted it. What was read from the table is then as good as in
 * vanilla.
 * Vanilla: does not check.
 * Context: a lock of the reverse map is held; the PTL may be held.
 * Return: true if it does not; the table is unmapped and unlocked then.
 */
static inline bool quire_pvmw_moved(struct page_vma_mapped_walk *pvmw)
{
	pmd_t now;

	if (!quire_pt_used())
		return false;
	/* Read the PMD after the entry. */
	smp_rmb();
	now = pmdp_get_lockless(pvmw->pmd);
	if (likely(pmd_present(now) && !pmd_leaf(now) &&
		   pmd_page_vaddr(now) == ((unsigned long)pvmw->pte & PAGE_MASK)))
		return false;
	quire_pvmw_unmap(pvmw);
	return true;
}

/**
 * quire_pvmw_passed - the reverse map skips an entry that does not map its folio
 * @pvmw: the walk, which has mapped the entry without the PTL
 * @ptl: the table's lock
 *
 * If the walk will look at further entries, it does so under the PTL.
 * Vanilla: goes on to the next entry.
 * Context: a lock of the reverse map is held.
 * Return: as quire_pvmw_moved().
 */
static inline bool quire_pvmw_passed(struct page_vma_mapped_walk *pvmw, spinlock_t *ptl)
{
	if (quire_pt_used() && pvmw->nr_pages > 1) {
		pvmw->ptl = ptl;
		spin_lock(ptl);
	}
	return quire_pvmw_moved(pvmw);
}

/**
 * quire_pvmw_shared - did the reverse map find an entry of a shared page table?
 * @pvmw: the walk
 *
 * Vanilla: every page table is private.
 * Context: the PTL is held if @pvmw->pte is set.
 * Return: whether it did.
 */
static inline bool quire_pvmw_shared(struct page_vma_mapped_walk *pvmw)
{
	return quire_pt_used() && pvmw->pte && pvmw->pmd && pmd_pt_marked(*pvmw->pmd);
}

/**
 * quire_pvmw_others - do several processes use the table in which the entry was found?
 * @pvmw: the walk
 *
 * While the PTL is held a single user is the process that the walk visits, so that flushing its TLB
 * is enough.
 * Vanilla: every page table is private.
 * Context: as quire_pvmw_shared().
 * Return: whether they do.
 */
static inline bool quire_pvmw_others(struct page_vma_mapped_walk *pvmw)
{
	return quire_pvmw_shared(pvmw) && quire_pt_users(pvmw->pmd) > 1;
}

/**
 * quire_pvmw_mm - the mm to charge for the entry that the reverse map found
 * @pvmw: the walk
 * @mm: what the walk has charged so far; the result without the option
 *
 * Vanilla: charges the VMA's mm.
 * Context: as quire_pvmw_shared().
 * Return: the mm.
 */
static inline struct mm_struct *quire_pvmw_mm(struct page_vma_mapped_walk *pvmw,
					      struct mm_struct *mm)
{
	/* Not @mm: it may be what was charged for the entry before. */
	return quire_pvmw_shared(pvmw) ? quire_pt_charged(pvmw->pmd) : pvmw->vma->vm_mm;
}

/**
 * quire_pt_oom_points - what a process may hold without being charged for it
 * @mm: the process's mm
 *
 * Vanilla: counts only what the process is charged for.
 * Context: oom_badness(), under task_lock(); does not sleep.
 * Return: the pages to add to the points.
 */
static inline unsigned long quire_pt_oom_points(struct mm_struct *mm)
{
	return quire_pt_used() ? __quire_pt_oom_points(mm) : 0;
}

/**
 * quire_pt_oom_report - add orphaned tables to the OOM killer's report
 *
 * Vanilla: prints nothing.
 * Context: dump_header(); does not sleep.
 */
static inline void quire_pt_oom_report(void)
{
	if (quire_pt_used())
		quire_pt_show_orphans();
}

/*
 * After the reverse map has cleared an entry of a table with several users, the walk goes on and
 * flushes the TLBs of each user that it visits; see mm/quire/pt/flush.c.
 */
void __quire_pvmw_cleared(struct page_vma_mapped_walk *pvmw);
void __quire_pvmw_aborted(struct page_vma_mapped_walk *pvmw);
bool __quire_rmap_visit(struct folio *folio, struct page_vma_mapped_walk *pvmw, bool migrates);
void __quire_rmap_broken_off(void);
void __quire_rmap_walked(struct folio *folio, enum ttu_flags flags);
void quire_pt_flush_zapped(struct vm_area_struct *vma, pmd_t *pmd, unsigned long start,
			   unsigned long end, bool taken);

/* The mm that the walk visits; @mm is the mm that is charged. */
#define quire_pvmw_visited(pvmw, mm)	((pvmw)->vma->vm_mm)

/**
 * quire_pvmw_cleared - the reverse map has cleared an entry
 * @pvmw: the walk
 *
 * Has the walk go on if other processes use the table.
 * Vanilla: does nothing.
 * Context: try_to_unmap_one() and try_to_migrate_one(); the PTL is held.
 */
static inline void quire_pvmw_cleared(struct page_vma_mapped_walk *pvmw)
{
	if (quire_pvmw_others(pvmw))
		__quire_pvmw_cleared(pvmw);
}

/**
 * quire_rmap_unflushed - has this walk cleared an entry of a table with several users?
 *
 * Vanilla: stops the walk when the folio is not mapped any more.
 * Context: the walk's own task.
 * Return: true if the walk must go on.
 */
static inline bool quire_rmap_unflushed(void)
{
	return quire_pt_used() && current->quire_unflushed;
}

/**
 * quire_pvmw_aborted - reclaim leaves the entry that it looks at
 * @pvmw: the walk
 *
 * If that was cleared and is there again, as it was, no TLB needs a flush because of it.
 * Vanilla: does nothing.
 * Context: try_to_unmap_one(); the PTL is held if @pvmw has an entry.
 */
static inline void quire_pvmw_aborted(struct page_vma_mapped_walk *pvmw)
{
	if (quire_pt_used() && current->quire_unflushed)
		__quire_pvmw_aborted(pvmw);
}

/**
 * quire_rmap_visit - the reverse map visits a VMA
 * @folio: the folio
 * @pvmw: the walk in this VMA, not begun
 * @migrates: the walk belongs to try_to_migrate()
 *
 * If an entry was cleared before, flushes the TLB for this VMA's mm.
 * Vanilla: looks for entries.
 * Context: a lock of the reverse map is held; interrupts are on.
 * Return: true if nothing maps the folio any more.
 */
static inline bool quire_rmap_visit(struct folio *folio, struct page_vma_mapped_walk *pvmw,
				    bool migrates)
{
	return quire_rmap_unflushed() && __quire_rmap_visit(folio, pvmw, migrates);
}

/**
 * quire_rmap_visited - the reverse map has visited a VMA
 * @goes_on: false if the walk ends here
 *
 * If it ends before all users were visited, flushes all CPUs.
 * Vanilla: does nothing.
 * Context: as quire_rmap_visit().
 * Return: @goes_on.
 */
static inline bool quire_rmap_visited(bool goes_on)
{
	if (!goes_on && quire_rmap_unflushed())
		__quire_rmap_broken_off();
	return goes_on;
}

/**
 * quire_rmap_walked - a walk of the reverse map has ended
 * @folio: the folio
 * @flags: TTU_*
 *
 * Flushes what the walk has deferred, unless the caller will.
 * Vanilla: does nothing.
 * Context: try_to_unmap() and try_to_migrate(), after the walk; interrupts are on.
 */
static inline void quire_rmap_walked(struct folio *folio, enum ttu_flags flags)
{
	if (quire_rmap_unflushed())
		__quire_rmap_walked(folio, flags);
}

/**
 * quire_pt_others - do other processes use the table?
 * @pmd: the PMD
 *
 * Vanilla: every page table is private.
 * Context: the PTL is held.
 * Return: whether they do.
 */
static inline bool quire_pt_others(pmd_t *pmd)
{
	return quire_pt_marked(pmd) && quire_pt_users(pmd) > 1;
}

/**
 * quire_pt_not_ours - must a process leave the pages of a table where they are?
 * @pmd: the PMD
 * @may_move_all: the process may also move pages that others map
 *
 * The mapcount does not tell, because an entry of a shared table counts once.
 * Vanilla: looks at the mapcount.
 * Context: queue_folios_pte_range(); the PTL is held.
 * Return: whether it must.
 */
static inline bool quire_pt_not_ours(pmd_t *pmd, bool may_move_all)
{
	return !may_move_all && quire_pt_others(pmd);
}

/**
 * quire_walk_others - do other processes map the page by the same table?
 * @fw: the walk that has found the page
 * @vma: the walk's VMA
 * @addr: the walk's address
 * @node: the node to which the page would move
 *
 * If so, move_pages() must not move the page for this process alone.
 * Vanilla: looks at the mapcount.
 * Context: after folio_walk_start(), whose PTL is held.
 * Return: whether they do.
 */
static inline bool quire_walk_others(struct folio_walk *fw, struct vm_area_struct *vma,
				     unsigned long addr, int node)
{
	return quire_pt_used() && __quire_walk_others(fw, vma, addr, node);
}

/* For smaps and numa_maps: how many other processes use the table that is walked. */
struct quire_smaps {
	unsigned int pt_others;
};

#define quire_smaps_others(mss)	((mss)->quire.pt_others)
/* Each table that maps a page has an equal share of it, and divides it equally among its users. */
#define quire_smaps_users(mss)	(quire_smaps_others(mss) + 1)
#define quire_smaps_set(mss, pmd) \
	((mss)->quire.pt_others = quire_pt_marked(pmd) ? quire_pt_users(pmd) - 1 : 0)
#define quire_smaps_clear(mss)	((mss)->quire.pt_others = 0)

#else /* !CONFIG_QUIRE_PT */

#define quire_pt_extern static

static inline bool quire_pt_used(void)
{
	return false;
}

#define quire_pt_skip(vma, pmd, addr)	false
#define quire_pte_offset_map_unmarked(mm, pmd, addr, ptlp) \
	pte_offset_map_nolock(mm, pmd, addr, ptlp)
#define quire_pvmw_moved(pvmw)		false
#define quire_pvmw_passed(pvmw, ptl)	false
#define quire_pt_marked(pmd)	false
#define quire_pt_cow(pmd)	false

static inline bool quire_pt_zap(struct mmu_gather *tlb, struct vm_area_struct *vma,
				pmd_t **pmd, unsigned long *addr, unsigned long end,
				struct zap_details *details)
{
	return false;
}

static inline int quire_pt_unshare_at(struct mm_struct *mm, unsigned long addr)
{
	return 0;
}

static inline int quire_pt_make_room(struct file *file, struct mm_struct *mm,
				     unsigned long start, unsigned long end)
{
	return 0;
}

static inline int quire_pt_unshare(struct vm_area_struct *vma, pmd_t *pmd,
				   unsigned long addr, enum quire_pt_cause cause)
{
	return 0;
}

/* Not even an empty function: the compiler would count it when it inlines other functions. */
#define quire_pt_unshare_nofail(vma, pmd, addr, cause)	do { } while (0)

static inline int quire_pt_fault(struct vm_area_struct *vma, pmd_t *pmd,
				 unsigned long addr, unsigned int flags)
{
	return 0;
}

static inline int quire_pt_gup(struct vm_area_struct *vma, pmd_t *pmd,
			       unsigned long addr, bool writes)
{
	return 0;
}

#define quire_pt_may_have_pins(table)			do { } while (0)
#define quire_pt_gup_fast(pmd, pins)			do { } while (0)
#define quire_pt_gup_locked(pmd, gets, pins)		do { } while (0)
#define quire_pt_move(vma, pmd, addr, new_vma, new_pmd, new_addr) \
	do { } while (0)

static inline bool quire_pt_keep(pmd_t *pmd)
{
	return false;
}

static inline int quire_pt_split(struct vm_area_struct *vma, unsigned long addr)
{
	return 0;
}

static inline int quire_pt_unshare_range(struct vm_area_struct *vma,
					 unsigned long start, unsigned long end)
{
	return 0;
}

static inline int quire_pt_unshare_mm(struct mm_struct *mm)
{
	return 0;
}

static inline int quire_pt_swapoff(struct vm_area_struct *vma, pmd_t *pmd,
				   unsigned long addr, unsigned int type)
{
	return 0;
}

static inline bool quire_pt_walk(struct mm_walk *walk, pmd_t *pmd, unsigned long addr)
{
	return false;
}

static inline bool quire_pt_mprotect(struct vm_area_struct *vma, pmd_t *pmd,
				     unsigned long addr, unsigned long cp_flags)
{
	return false;
}

#define quire_pte_offset_map_lock(mm, pmd, addr, ptlp) \
	pte_offset_map_lock(mm, pmd, addr, ptlp)
#define quire_pte_offset_map_walk(mm, vma, pmd, addr, ptlp, writes) \
	pte_offset_map_lock(mm, pmd, addr, ptlp)

static inline bool quire_pvmw_shared(struct page_vma_mapped_walk *pvmw)
{
	return false;
}

static inline bool quire_pvmw_others(struct page_vma_mapped_walk *pvmw)
{
	return false;
}

#define quire_pvmw_mm(pvmw, mm)	(mm)
#define quire_pte_offset_map_trylock(mm, addr, ptlp)	NULL
#define quire_pvmw_visited(pvmw, mm)	(mm)
#define quire_pvmw_cleared(pvmw)	do { } while (0)
#define quire_pvmw_aborted(pvmw)	do { } while (0)
#define quire_rmap_unflushed()	false
#define quire_rmap_visit(folio, pvmw, migrates)	false
#define quire_rmap_visited(goes_on)	(goes_on)
#define quire_rmap_walked(folio, flags)	do { } while (0)

static inline unsigned long quire_pt_oom_points(struct mm_struct *mm)
{
	return 0;
}

static inline void quire_pt_oom_report(void)
{
}

#define quire_pt_others(pmd)	false
#define quire_pt_not_ours(pmd, may_move_all)	false
#define quire_walk_others(fw, vma, addr, node)	false

struct quire_smaps { };

#define quire_smaps_others(mss)	0
#define quire_smaps_users(mss)	1
#define quire_smaps_set(mss, pmd)	do { } while (0)
#define quire_smaps_clear(mss)	do { } while (0)

#endif /* CONFIG_QUIRE_PT */
#endif /* _LINUX_QUIRE_PT_H */
