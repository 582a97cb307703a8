/* SPDX-License-Identifier: GPL-2.0 */
/* What shared tables are to those who share them: fork, shm and what tells of both. */
#ifndef _MM_QUIRE_PT_H
#define _MM_QUIRE_PT_H

#include <kunit/visibility.h>
#include <linux/quire/fork.h>
#include <linux/quire/pt.h>

/* A shared table would break what these promise; see the rules in pt.c. */
#define QUIRE_FORK_UNSHAREABLE								\
	(VM_SHARED | VM_MAYSHARE | VM_SPECIAL | VM_LOCKED_MASK | VM_HUGETLB |		\
	 VM_UFFD_MISSING | VM_UFFD_WP | VM_UFFD_MINOR | VM_MERGEABLE |			\
	 VM_SHADOW_STACK | VM_DROPPABLE | VM_GROWSDOWN | VM_GROWSUP |			\
	 VM_WIPEONFORK | VM_DONTCOPY)

extern struct mm_struct *quire_pt_orphans;

struct obj_cgroup;

int quire_pt_share(struct vm_area_struct *vma, unsigned long addr,
		   struct mm_struct *dst_mm, pmd_t *src_pmd, pmd_t *dst_pmd, bool mixed);
bool quire_pt_leave(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr);
void quire_pt_drop_slot(struct vm_area_struct *vma, unsigned long addr, pte_t pte);
int quire_pt_charged_as(struct vm_area_struct *vma, unsigned long addr, pte_t pte,
			bool mixed);
void quire_pt_on_mmlist(struct mm_struct *mm);
int quire_pt_init(void);

/* Of a marked PMD whose table's PTL is held. */
static inline bool quire_pt_is_mixed(pmd_t *pmd)
{
	return quire_pt_state(quire_pmd_ptdesc(*pmd))->flags & QUIRE_PT_MIXED;
}

/*
 * A look without the locks, at a table of either kind. A user that leaves meanwhile may make it
 * stale: then the table is taken for shared, as it would have been a moment earlier. If another
 * thread of this process copies the table, its last user may even free it: no more than a
 * struct page is read.
 */
static inline bool quire_pt_has_other_users(pmd_t *pmd)
{
	pmd_t seen;

	guard(rcu)();
	seen = pmdp_get_lockless(pmd);
	return pmd_pt_marked(seen) && data_race(quire_pt_state(quire_pmd_ptdesc(seen))->users) > 1;
}

/* Why TLBs of a shared table's users are flushed. Each feature counts that for its tables. */
enum quire_pt_flush {
	QUIRE_FLUSH_RECLAIM,	/* also memory failure; for each user after the first */
	QUIRE_FLUSH_MIGRATION,	/* likewise */
	QUIRE_FLUSH_TRUNCATION,
	QUIRE_FLUSH_LEAVE,	/* a user has left tables, copied one, or adopted a stale one */
	QUIRE_FLUSH_ALL,	/* all CPUs, where the users are not known */
	QUIRE_NR_FLUSHES,
};

#define QUIRE_FLUSH_NAMES(first)							\
	[(first) + QUIRE_FLUSH_RECLAIM] = "flushes_reclaim",				\
	[(first) + QUIRE_FLUSH_MIGRATION] = "flushes_migration",			\
	[(first) + QUIRE_FLUSH_TRUNCATION] = "flushes_truncation",			\
	[(first) + QUIRE_FLUSH_LEAVE] = "flushes_leave",				\
	[(first) + QUIRE_FLUSH_ALL] = "flushes_all"

/* range.c */
pmd_t *quire_find_pmd(struct mm_struct *mm, unsigned long addr);
void quire_pt_count_cleared(bool file);
void quire_pt_count_flush(bool file, enum quire_pt_flush why);

/* copy.c */
extern struct vm_area_struct quire_pt_orphans_area;
void quire_pt_init_copy(void);
int quire_pt_copy_slots(struct vm_area_struct *vma, struct ptdesc *copy, struct ptdesc *pt,
			unsigned long addr, int *rss, bool mixed);

/* pins.c */
void quire_pt_note_no_pins(struct ptdesc *pt);
bool quire_pt_maps_pinned(struct ptdesc *pt, struct vm_area_struct *vma, unsigned long addr);

/* charge.c */
#ifdef CONFIG_MEMCG
int quire_pt_charge(struct obj_cgroup **objcg);
void quire_pt_end_charge(struct obj_cgroup *objcg, bool keep);
int quire_pt_claim(struct ptdesc *pt, struct obj_cgroup *objcg, bool shared);
void quire_pt_uncharge(struct ptdesc *pt);
void quire_pt_hand_charge(struct ptdesc *pt, struct ptdesc *copy);
#else
static inline int quire_pt_charge(struct obj_cgroup **objcg)
{
	*objcg = NULL;
	return 0;
}

static inline void quire_pt_end_charge(struct obj_cgroup *objcg, bool keep) { }

static inline int quire_pt_claim(struct ptdesc *pt, struct obj_cgroup *objcg, bool shared)
{
	return 0;
}

static inline void quire_pt_uncharge(struct ptdesc *pt) { }
static inline void quire_pt_hand_charge(struct ptdesc *pt, struct ptdesc *copy) { }
#endif

/* mixed.c */
bool quire_pt_mixable(struct mm_struct *mm, struct mm_struct *child, unsigned long addr);
bool quire_pt_zap_in_place(struct mmu_gather *tlb, struct vm_area_struct *vma, pmd_t *pmd,
			   unsigned long *addr, unsigned long end,
			   struct zap_details *details);

#if IS_ENABLED(CONFIG_KUNIT)
bool quire_pt_area_mixable(struct vm_area_struct *vma);
pte_t quire_pt_sanitized(pte_t pte);
#endif

#endif /* _MM_QUIRE_PT_H */
