/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Hooks for shared page tables, whichever feature shares them.
 *
 * A PMD that points to a shared table is marked; pmd_pt_marked() in
 * asm/pgtable.h tells. Everything is static inline and constant where no
 * feature that shares tables is configured. mm/quire/pt/pt.c describes what a
 * shared table is and who may do what to it.
 */
#ifndef _LINUX_QUIRE_PT_H
#define _LINUX_QUIRE_PT_H

#include <linux/jump_label.h>
#include <linux/mm.h>
#include <linux/pagewalk.h>
#include <linux/rmap.h>
#include <linux/sched/coredump.h>

struct mmu_gather;

/* Who asks for a private table; each has its counter. */
enum quire_pt_cause {
	QUIRE_PT_FAULT,		/* a page fault has to change an entry */
	QUIRE_PT_GUP,		/* a reference to a page is taken */
	QUIRE_PT_WALK,		/* a page table walk may change entries */
	QUIRE_PT_SYSCALL,	/* the VMA changes */
	QUIRE_PT_FORK,		/* fork may not share it any longer */
	QUIRE_PT_SWAPOFF,
	QUIRE_PT_BACKGROUND,	/* a worker, ahead of need */
	QUIRE_PT_NR_CAUSES,
};

#ifdef CONFIG_QUIRE_PT

/*
 * mm/quire/pt/copy.c uses fork's functions that copy one entry, too. In Linux they are static
 * and inlined in their one caller; that caller inlines them here as well.
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

/* Has a table ever been shared since boot? Never goes back. */
static inline bool quire_pt_used(void)
{
	return static_branch_unlikely(&quire_pt_used_key);
}

/*
 * A PMD is marked after all CPUs have seen the key, so to ask the key first tells no
 * less than the PMD does, and costs nothing before the first table is shared.
 */
static inline bool quire_pt_marked(pmd_t *pmd)
{
	return quire_pt_used() && pmd_pt_marked(*pmd);
}

static inline bool quire_pt_cow(pmd_t *pmd)
{
	return quire_pt_used() && pmd_pt_cow(*pmd);
}

/* zap: true if a run of tables was dealt with; *pmd is the last one, *addr its end. */
static inline bool quire_pt_zap(struct mmu_gather *tlb, struct vm_area_struct *vma,
				pmd_t **pmd, unsigned long *addr, unsigned long end,
				struct zap_details *details)
{
	if (quire_pt_cow(*pmd)) {
		/* Copies: what has its address taken would be in memory all along the loop. */
		pmd_t *last = *pmd;
		unsigned long left = *addr;
		bool done = __quire_pt_zap(tlb, vma, &last, &left, end, details);

		*pmd = last;
		*addr = left;
		return done;
	}
	return false;
}

/* One table; mmap_lock held. 0 or -ENOMEM. */
static inline int quire_pt_unshare_at(struct mm_struct *mm, unsigned long addr)
{
	return quire_pt_used() ? __quire_pt_unshare_at(mm, addr) : 0;
}

/* A file is mapped, or its mapping grows or moves; mmap_lock held for writing. 0 or -ENOMEM. */
static inline int quire_pt_make_room(struct file *file, struct mm_struct *mm,
				     unsigned long start, unsigned long end)
{
	return file && quire_pt_used() && READ_ONCE(quire_pt_mixed_made) ?
		__quire_pt_make_room(mm, start, end) : 0;
}

static inline int quire_pt_unshare(struct vm_area_struct *vma, pmd_t *pmd,
				   unsigned long addr, enum quire_pt_cause cause)
{
	if (likely(!quire_pt_cow(pmd)))
		return 0;
	return __quire_pt_unshare(vma, pmd, addr, cause, 0);
}

/* 1: repeat the access; 0: the table is private; -ENOMEM. */
static inline int quire_pt_fault(struct vm_area_struct *vma, pmd_t *pmd,
				 unsigned long addr, unsigned int flags)
{
	if (likely(!quire_pt_cow(pmd)))
		return 0;
	return __quire_pt_fault(vma, pmd, addr, flags);
}

/*
 * GUP, before and after it locks the table: only references for reading are
 * taken from a shared one, neither pins nor what is to be written. 0 or -ENOMEM.
 */
static inline int quire_pt_gup(struct vm_area_struct *vma, pmd_t *pmd,
			       unsigned long addr, unsigned int foll)
{
	if (likely(!quire_pt_cow(pmd)))
		return 0;
	if ((foll & (FOLL_GET | FOLL_WRITE)) == FOLL_GET) {
		/* What nobody else uses any more is its own, and GUP-fast enters it. */
		__quire_pt_still_shared(vma, pmd, addr);
		return 0;
	}
	return quire_pt_unshare(vma, pmd, addr, QUIRE_PT_GUP);
}

/* A private table is about to map pages that may have a pin; see mm/quire/pt/pins.c. */
static inline void quire_pt_may_have_pins(pgtable_t table)
{
	if (quire_pt_used())
		__quire_pt_may_have_pins(table);
}

/* GUP-fast, after it has read write_protect_seq. */
static inline void quire_pt_gup_fast(pmd_t pmd, bool pins)
{
	if (pins)
		quire_pt_may_have_pins(pmd_page(pmd));
}

static inline void quire_pt_gup_locked(pmd_t *pmd, bool pins)
{
	if (unlikely(quire_pt_cow(pmd)))
		quire_pt_note_reference(pmd);
	else if (pins)
		quire_pt_may_have_pins(pmd_page(*pmd));
}

/* Where there is no way to fail: the one page comes from the reserves. */
static inline void quire_pt_unshare_nofail(struct vm_area_struct *vma, pmd_t *pmd,
					   unsigned long addr,
					   enum quire_pt_cause cause)
{
	if (quire_pt_marked(pmd))
		__quire_pt_unshare(vma, pmd, addr, cause, __GFP_NOFAIL);
}

/* mremap(), before it moves what one table maps, or a part; mmap_lock held for writing. */
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

/* A table about to be freed that others may use: it is kept for ever instead. */
static inline bool quire_pt_keep(pmd_t *pmd)
{
	if (likely(!quire_pt_marked(pmd)))
		return false;
	quire_pt_stray(*pmd);
	return true;
}

/* A VMA boundary is about to be at addr. mmap_lock held for writing. */
static inline int quire_pt_split(struct vm_area_struct *vma, unsigned long addr)
{
	if (!quire_pt_used())
		return 0;
	/* It has shared nothing yet, and no fault that holds the area's lock can begin to. */
	if (!(vma->vm_flags & VM_MAYSHARE) && !test_bit(MMF_QUIRE_PT, &vma->vm_mm->flags))
		return 0;
	return __quire_pt_split(vma, addr);
}

/* mmap_lock held. 0, -ENOMEM, or -EINTR if the caller is being killed. */
static inline int quire_pt_unshare_range(struct vm_area_struct *vma,
					 unsigned long start, unsigned long end)
{
	return quire_pt_used() ? __quire_pt_unshare_range(vma, start, end) : 0;
}

/*
 * Before a walk's callbacks see a PMD: those that may change entries get a
 * private table, the others at least one that nobody else uses any more, unless it maps
 * shared memory: there a look changes nothing. True if the PMD must be skipped, for want of
 * a VMA.
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

/* For who leaves alone what others use, too: true if they do. The last user's is its own. */
static inline bool quire_pt_skip(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr)
{
	return quire_pt_marked(pmd) && __quire_pt_still_shared(vma, pmd, addr);
}

/* swapoff: a table with entries of that device is made private. 0 or -ENOMEM. */
static inline int quire_pt_swapoff(struct vm_area_struct *vma, pmd_t *pmd,
				   unsigned long addr, unsigned int type)
{
	return quire_pt_cow(pmd) ? __quire_pt_swapoff(vma, pmd, addr, type) : 0;
}

/* mprotect and NUMA hints; true if the table is to be skipped. */
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

/* Like pte_offset_map_lock(), for readers and the reverse map. */
static inline pte_t *quire_pte_offset_map_lock(struct mm_struct *mm, pmd_t *pmd,
					       unsigned long addr, spinlock_t **ptlp)
{
	if (quire_pt_used())
		return __quire_pte_offset_map_lock(mm, pmd, addr, ptlp);
	return pte_offset_map_lock(mm, pmd, addr, ptlp);
}

/* Walks that only sometimes change entries, and ask to see shared tables. */
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

/*
 * For the reverse map, which looks at an entry before it locks a table that is not shared.
 * NULL: look at the PMD again.
 */
static inline pte_t *quire_pte_offset_map_unmarked(struct mm_struct *mm, pmd_t *pmd,
						   unsigned long addr, spinlock_t **ptlp)
{
	if (quire_pt_used())
		return __quire_pte_offset_map_unmarked(mm, pmd, addr, ptlp);
	return pte_offset_map_nolock(mm, pmd, addr, ptlp);
}

/*
 * Does the PMD lead elsewhere by now? If not, and the table's lock is held, that does not
 * change until it is let go: the table is this process's, shared or not. If the lock is not
 * held the table was this process's all the time, for one that it has left cannot come back:
 * RCU keeps it while it is mapped, and where its last user has adopted it the lock of the
 * reverse map does. So what was read from it is as good as under vanilla.
 * True if so; nothing is mapped or locked then.
 */
static inline bool quire_pvmw_moved(struct page_vma_mapped_walk *pvmw)
{
	pmd_t now;

	if (!quire_pt_used())
		return false;
	/* After the entry was read. */
	smp_rmb();
	now = pmdp_get_lockless(pvmw->pmd);
	if (likely(pmd_present(now) && !pmd_leaf(now) &&
		   pmd_page_vaddr(now) == ((unsigned long)pvmw->pte & PAGE_MASK)))
		return false;
	quire_pvmw_unmap(pvmw);
	return true;
}

/*
 * It passes over an entry that does not map its folio, and has not locked the table. If it
 * will look at further entries it does so under the lock. As quire_pvmw_moved().
 */
static inline bool quire_pvmw_passed(struct page_vma_mapped_walk *pvmw, spinlock_t *ptl)
{
	if (quire_pt_used() && pvmw->nr_pages > 1) {
		pvmw->ptl = ptl;
		spin_lock(ptl);
	}
	return quire_pvmw_moved(pvmw);
}

/* Is the entry that the walk found, and locked, in a shared table? */
static inline bool quire_pvmw_shared(struct page_vma_mapped_walk *pvmw)
{
	return quire_pt_used() && pvmw->pte && pvmw->pmd && pmd_pt_marked(*pvmw->pmd);
}

/*
 * ... that other processes use too? While the lock is held a single user is the
 * one that is visited, and to flush its TLB is enough.
 */
static inline bool quire_pvmw_others(struct page_vma_mapped_walk *pvmw)
{
	return quire_pvmw_shared(pvmw) && quire_pt_users(pvmw->pmd) > 1;
}

/* The mm to charge for the entry that the walk found. Without the option it is @mm. */
static inline struct mm_struct *quire_pvmw_mm(struct page_vma_mapped_walk *pvmw,
					      struct mm_struct *mm)
{
	/* Not @mm: it may be what was charged for the entry before. */
	return quire_pvmw_shared(pvmw) ? quire_pt_charged(pvmw->pmd) : pvmw->vma->vm_mm;
}

/* Pages to count for an OOM victim beyond what it is charged for. */
static inline unsigned long quire_pt_oom_points(struct mm_struct *mm)
{
	return quire_pt_used() ? __quire_pt_oom_points(mm) : 0;
}

/* For the OOM killer's report. */
static inline void quire_pt_oom_report(void)
{
	if (quire_pt_used())
		quire_pt_show_orphans();
}

/*
 * After an entry of a table with several users was cleared the walk goes on, and flushes the
 * TLBs of each user that it visits; see mm/quire/pt/flush.c.
 */
void __quire_pvmw_cleared(struct page_vma_mapped_walk *pvmw);
bool __quire_rmap_visit(struct folio *folio, struct page_vma_mapped_walk *pvmw, bool migrates);
void __quire_rmap_broken_off(void);
void __quire_rmap_walked(struct folio *folio, enum ttu_flags flags);
void quire_pt_flush_zapped(struct vm_area_struct *vma, pmd_t *pmd, unsigned long start,
			   unsigned long end, bool taken);

/* The process that is visited, where @mm is the one that is charged. */
#define quire_pvmw_visited(pvmw, mm)	((pvmw)->vma->vm_mm)

static inline void quire_pvmw_cleared(struct page_vma_mapped_walk *pvmw)
{
	if (quire_pvmw_others(pvmw))
		__quire_pvmw_cleared(pvmw);
}

static inline bool quire_rmap_unflushed(void)
{
	return quire_pt_used() && current->quire_unflushed;
}

/* True if there is nothing else to do for the area. */
static inline bool quire_rmap_visit(struct folio *folio, struct page_vma_mapped_walk *pvmw,
				    bool migrates)
{
	return quire_rmap_unflushed() && __quire_rmap_visit(folio, pvmw, migrates);
}

/* An area was visited; returns whether the walk goes on. */
static inline bool quire_rmap_visited(bool goes_on)
{
	if (!goes_on && quire_rmap_unflushed())
		__quire_rmap_broken_off();
	return goes_on;
}

static inline void quire_rmap_walked(struct folio *folio, enum ttu_flags flags)
{
	if (quire_rmap_unflushed())
		__quire_rmap_walked(folio, flags);
}

/* Do other processes use the table? Its lock is held. */
static inline bool quire_pt_others(pmd_t *pmd)
{
	return quire_pt_marked(pmd) && quire_pt_users(pmd) > 1;
}

/*
 * Must a process that may move only what it alone maps leave the pages of this
 * table? A mapcount does not tell. The PTL is held.
 */
static inline bool quire_pt_not_ours(pmd_t *pmd, bool may_move_all)
{
	return !may_move_all && quire_pt_others(pmd);
}

/*
 * folio_walk_start() has found a page, its lock is held: do others map it by the table, so
 * that it must not move to @node for this process alone?
 */
static inline bool quire_walk_others(struct folio_walk *fw, struct vm_area_struct *vma,
				     unsigned long addr, int node)
{
	return quire_pt_used() && __quire_walk_others(fw, vma, addr, node);
}

/* smaps, numa_maps: how many processes use the table beyond the one that is walked. */
struct quire_smaps {
	unsigned int pt_others;
};

#define quire_smaps_others(mss)	((mss)->quire.pt_others)
/* Each table that maps a page has an equal share in it, and each user of the table in that. */
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

/* Not even an empty function: the compiler counts it when it inlines others. */
#define quire_pt_unshare_nofail(vma, pmd, addr, cause)	do { } while (0)

static inline int quire_pt_fault(struct vm_area_struct *vma, pmd_t *pmd,
				 unsigned long addr, unsigned int flags)
{
	return 0;
}

static inline int quire_pt_gup(struct vm_area_struct *vma, pmd_t *pmd,
			       unsigned long addr, unsigned int foll)
{
	return 0;
}

#define quire_pt_may_have_pins(table)			do { } while (0)
#define quire_pt_gup_fast(pmd, pins)			do { } while (0)
#define quire_pt_gup_locked(pmd, pins)			do { } while (0)
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
