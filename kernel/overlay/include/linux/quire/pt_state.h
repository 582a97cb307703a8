/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The state of a shared page table, kept in words of its ptdesc that a live
 * PTE table leaves unused. Valid only while some PMD that points to the table
 * is marked, and changed only under the table's page table lock.
 */
#ifndef _LINUX_QUIRE_PT_STATE_H
#define _LINUX_QUIRE_PT_STATE_H

#include <linux/mm.h>
#include <linux/mm_types.h>

struct shm_table;

/* No entry is writable or marked as exclusive any more. */
#define QUIRE_PT_SANITIZED	BIT(0)
/* Somebody took a reference (FOLL_GET) to a page, for reading. */
#define QUIRE_PT_REFERENCED	BIT(4)
/* Several areas may reach into it, and may map files; see mm/quire/pt/mixed.c. */
#define QUIRE_PT_MIXED		BIT(5)

/* The reverse map has cleared entries that TLBs of users may still know; see pt/flush.c. */
#define QUIRE_PT_STALE		BIT(6)

/* Of shared memory: others cannot find it, see mm/quire/shm/table.c. */
#define QUIRE_PT_UNLISTED	BIT(7)

struct quire_pt_state {
	u32 users;		/* PMDs that point to the table, and leavers not yet flushed */
	u32 leaving : 24;	/* the latter */
	u32 flags : 8;
};
static_assert(sizeof(struct quire_pt_state) == sizeof_field(struct ptdesc, pt_index));

/* Shares its word with what hugetlb counts in PMD tables. */
static inline struct quire_pt_state *quire_pt_state(struct ptdesc *pt)
{
	return (struct quire_pt_state *)&pt->pt_index;
}

/*
 * The mm that the entries are charged to: one of the users, or the orphans'
 * mm. An aligned pointer leaves bit 0 of the word, which would make the page
 * a tail page, clear.
 */
static inline struct mm_struct **quire_pt_owner(struct ptdesc *pt)
{
	return (struct mm_struct **)&pt->_pt_pad_1;
}

/* Of a table that maps shared memory: its entry in the registry of mm/quire/shm/table.c. */
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
