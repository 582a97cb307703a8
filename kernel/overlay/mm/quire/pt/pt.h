/* SPDX-License-Identifier: GPL-2.0 */
/* Shared page tables: declarations for the features that share them, and for pt's own files. */
#ifndef _MM_QUIRE_PT_H
#define _MM_QUIRE_PT_H

#include <kunit/visibility.h>
#include <linux/quire/pt.h>
#include <linux/quire/pt_state.h>

#include "../core/quire.h"

/* VMAs whose flags a shared table would break; see the rules in pt.c. */
#define QUIRE_PT_UNSHAREABLE								\
	(VM_SHARED | VM_MAYSHARE | VM_SPECIAL | VM_LOCKED_MASK | VM_HUGETLB |		\
	 VM_UFFD_MISSING | VM_UFFD_WP | VM_UFFD_MINOR | VM_MERGEABLE |			\
	 VM_SHADOW_STACK | VM_DROPPABLE | VM_GROWSDOWN | VM_GROWSUP |			\
	 VM_WIPEONFORK | VM_DONTCOPY)

extern struct mm_struct *quire_pt_orphans;

struct obj_cgroup;

int quire_pt_share(struct vm_area_struct *vma, unsigned long addr,
		   struct mm_struct *dst_mm, pmd_t *src_pmd, pmd_t *dst_pmd, bool mixed);
bool quire_pt_leave(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr);
void quire_pt_drop_entry(struct vm_area_struct *vma, pte_t pte);
int quire_pt_charged_as(struct vm_area_struct *vma, unsigned long addr, pte_t pte,
			bool mixed);
void quire_pt_on_mmlist(struct mm_struct *mm);
int quire_pt_init(void);
int quire_pt_cow_unshare(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr,
			 enum quire_pt_cause cause, gfp_t gfp);
bool quire_pt_cow_still_shared(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr);

/* @pmd is marked, and its table's PTL is held. */
static inline bool quire_pt_is_mixed(pmd_t *pmd)
{
	return quire_pt_state(quire_pmd_ptdesc(*pmd))->flags & QUIRE_PT_MIXED;
}

/*
 * A lockless check of a table of either kind. A user that leaves meanwhile may make the answer
 * stale: then the table is taken for shared, as it was a moment earlier. If another thread of this
 * process copies the table, the table's last user may even free it: this reads no more than a
 * struct page.
 */
static inline bool quire_pt_has_other_users(pmd_t *pmd)
{
	pmd_t seen;

	guard(rcu)();
	seen = pmdp_get_lockless(pmd);
	/* Stale at worst, see above. */
	return pmd_pt_marked(seen) && data_race(quire_pt_state(quire_pmd_ptdesc(seen))->users) > 1;
}

/* Why the TLBs of a shared table's users are flushed. */
enum quire_pt_flush {
	QUIRE_FLUSH_RECLAIM,	/* also memory failure; for each user after the first */
	QUIRE_FLUSH_MIGRATION,	/* also for each user after the first */
	QUIRE_FLUSH_TRUNCATION,
	QUIRE_FLUSH_LEAVE,	/* a user left tables, copied one, or adopted a stale one */
	QUIRE_FLUSH_ALL,	/* all CPUs, because the users are not known */
	QUIRE_NR_FLUSHES,
};

/* Events of tables of either kind. */
enum quire_pt_event {
	QUIRE_PT_RMAP_CLEARED,	/* the reverse map cleared an entry of a table with several users */
	QUIRE_PT_FLUSHES,	/* by enum quire_pt_flush */
	QUIRE_PT_NR_EVENTS = QUIRE_PT_FLUSHES + QUIRE_NR_FLUSHES,
};

/* Further events of copy-on-write tables. */
enum quire_pt_cow_event {
	PT_PMDS_MARKED = QUIRE_PT_NR_EVENTS, /* PMDs that began to point to a shared table */
	PT_PMDS_UNMARKED,	/* PMDs that ceased to point to a shared table */
	PT_TABLES_SHARED,	/* fork added a user without copying the table */
	PT_TABLES_COPIED,	/* a user got its own copy */
	PT_TABLES_ADOPTED,	/* the last user took the table as it was */
	PT_TABLES_SANITIZED,
	PT_TABLES_LEFT,		/* a user unmapped the table while others stay */
	PT_TABLES_DROPPED,	/* the last users left at the same time */
	PT_COPY_RETRIED,
	PT_TABLES_SEARCHED,	/* searches for pinned pages */
	PT_REFERENCES,		/* references for reading, without a copy */
	PT_CAUSE_FIRST,
	PT_NR_EVENTS = PT_CAUSE_FIRST + QUIRE_PT_NR_CAUSES,
};

DECLARE_PER_CPU(unsigned long [PT_NR_EVENTS], quire_pt_cow_events);
#define pt_count(id)		this_cpu_inc(quire_pt_cow_events[id])

/* A marked PMD tells the kind of its table. */
enum quire_pt_kind {
	QUIRE_PT_COW,		/* private memory, copy-on-write */
	QUIRE_PT_FILE,		/* shared memory */
	QUIRE_PT_NR_KINDS,
};

static inline enum quire_pt_kind quire_pt_kind(pmd_t pmd)
{
	return pmd_pt_file(pmd) ? QUIRE_PT_FILE : QUIRE_PT_COW;
}

/**
 * struct quire_pt_class - the feature that shares the tables of one kind
 * @feature: a warning about one of its tables disables it
 * @unshare: stop a process from using a table; as __quire_pt_unshare()
 * @still_shared: as __quire_pt_still_shared()
 * @reached: how many pages a process may reach through such tables without being charged for them,
 *	and in how many tables; waits for no lock
 * @check: what is wrong with a table, or NULL; its PTL is held
 * @tables: how many tables there are
 * @pmds: how many of a process's PMDs point to such tables, as counted
 * @charged: what their entries are charged as: pages, by MM_*
 *
 * Addresses are those of the table's first entry. @reached and what follows are NULL for
 * QUIRE_PT_COW.
 */
struct quire_pt_class {
	struct quire_feature *feature;
	int (*unshare)(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr,
		       enum quire_pt_cause cause, gfp_t gfp);
	bool (*still_shared)(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr);
	unsigned long (*reached)(struct mm_struct *mm, unsigned long *tables);
	const char *(*check)(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr);
	unsigned long (*tables)(void);
	unsigned long (*pmds)(struct mm_struct *mm);
	long (*charged)(int type);
};

/* class.c */
extern const struct quire_pt_class *quire_pt_classes[QUIRE_PT_NR_KINDS];
extern const struct quire_counters quire_pt_cow_counters;
extern const struct quire_counters quire_pt_file_counters;
int quire_pt_register(enum quire_pt_kind kind, const struct quire_pt_class *class);
int quire_pt_start(void);
unsigned long quire_pt_marked_pmds(void);
void quire_pt_count_cleared(enum quire_pt_kind kind);
void quire_pt_count_flush(enum quire_pt_kind kind, enum quire_pt_flush why);

/**
 * struct quire_pt_tables - the shared tables that a process uses
 * @shared: how many, by kind
 * @owned: how many copy-on-write tables the process is charged for
 */
struct quire_pt_tables {
	unsigned long shared[QUIRE_PT_NR_KINDS];
	unsigned long owned;
};

/* range.c */
pmd_t *quire_find_pmd(struct mm_struct *mm, unsigned long addr);
int quire_pt_count_tables(struct mm_struct *mm, struct quire_pt_tables *tables);

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
