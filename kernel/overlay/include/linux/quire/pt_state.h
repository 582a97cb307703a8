/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The state of a shared page table, in words of its ptdesc that a live PTE table does not use. It
 * is valid only while a marked PMD points to the table or a leaver has not let go of it, and changes
 * only under the table's page table lock.
 */
#ifndef _LINUX_QUIRE_PT_STATE_H
#define _LINUX_QUIRE_PT_STATE_H

#include <linux/mm.h>
#include <linux/mm_types.h>

struct shm_table;

/* No entry is writable or exclusive any more. */
#define QUIRE_PT_SANITIZED	BIT(0)
/* A page of the table was referenced (FOLL_GET) for reading. */
#define QUIRE_PT_REFERENCED	BIT(4)
/* Several VMAs may reach into the table and may map files; see mm/quire/pt/mixed.c. */
#define QUIRE_PT_MIXED		BIT(5)

/* The reverse map cleared entries that users' TLBs may still hold; see mm/quire/pt/flush.c. */
#define QUIRE_PT_STALE		BIT(6)

/* Shared memory: the table is not in the registry; see mm/quire/shm/table.c. */
#define QUIRE_PT_UNLISTED	BIT(7)

/*
 * struct quire_pt_state - the users of a shared page table
 *
 * Key: P the table's page table lock; reads without it are hints
 */
struct quire_pt_state {
	u32 users;		/* P: PMDs that point to the table, plus leavers */
	u32 leaving : 24;	/* P: leavers that have not flushed their TLBs */
	u32 flags : 8;		/* P: QUIRE_PT_* */
};
static_assert(sizeof(struct quire_pt_state) == sizeof_field(struct ptdesc, pt_index));

/* Uses the word in which hugetlb counts the users of a PMD table. */
static inline struct quire_pt_state *quire_pt_state(struct ptdesc *pt)
{
	return (struct quire_pt_state *)&pt->pt_index;
}

/*
 * The mm that the entries are charged to: one of the users, or the orphans' mm. The pointer is
 * aligned, so bit 0 of the word, which would make the page a tail page, stays clear.
 */
static inline struct mm_struct **quire_pt_owner(struct ptdesc *pt)
{
	return (struct mm_struct **)&pt->_pt_pad_1;
}

/* Shared memory: the table's entry in the registry of mm/quire/shm/table.c. */
static inline struct shm_table **quire_pt_entry(struct ptdesc *pt)
{
	return (struct shm_table **)&pt->pmd_huge_pte;
}

static inline struct ptdesc *quire_pmd_ptdesc(pmd_t pmd)
{
	return page_ptdesc(pmd_page(pmd));
}

static inline pmd_t quire_pmd_mark(pmd_t pmd)
{
	return __pmd((pmd_val(pmd) | _PAGE_PT_MARKED) & ~(pmdval_t)_PAGE_RW);
}

static inline pmd_t quire_pmd_unmark(pmd_t pmd)
{
	return __pmd((pmd_val(pmd) & ~(pmdval_t)_PAGE_PT_MARKED) | _PAGE_RW);
}

#endif /* _LINUX_QUIRE_PT_STATE_H */
