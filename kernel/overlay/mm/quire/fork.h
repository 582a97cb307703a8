/* SPDX-License-Identifier: GPL-2.0 */
/* The fork feature's own files to each other. */
#ifndef _MM_QUIRE_FORK_H
#define _MM_QUIRE_FORK_H

#include <kunit/visibility.h>
#include <linux/quire_fork.h>
#include <linux/quire_pt.h>

#include "quire.h"

/* Counters, in the order of their names in fork.c. */
enum fork_count {
	FORK_PMDS_MARKED,	/* PMDs that began to point to a shared table */
	FORK_PMDS_UNMARKED,	/* ... and ceased to */
	FORK_TABLES_SHARED,	/* fork took one more table without copying it */
	FORK_TABLES_COPIED,	/* a user got a copy for itself */
	FORK_TABLES_ADOPTED,	/* the last user took the table as it was */
	FORK_TABLES_SANITIZED,
	FORK_TABLES_LEFT,	/* unmapped while others stay */
	FORK_TABLES_DROPPED,	/* the last users left at the same time */
	FORK_COPY_RETRIED,
	FORK_REFERENCES,	/* taken for reading, without a copy */
	FORK_CAUSE_FIRST,
	FORK_REFUSED_POLICY = FORK_CAUSE_FIRST + QUIRE_PT_NR_CAUSES,
	FORK_REFUSED_FEW_TABLES,
	FORK_REFUSED_VMA,
	FORK_REFUSED_RANGE,
	FORK_REFUSED_PINNED,
	FORK_REFUSED_NOTIFIER,
	FORK_REFUSED_OFF,
	FORK_RMAP_FLUSHES,
	FORK_NR_COUNTS,
};

DECLARE_PER_CPU(unsigned long [FORK_NR_COUNTS], quire_fork_counts);
#define fork_count(id)		this_cpu_inc(quire_fork_counts[id])
#define fork_count_add(id, n)	this_cpu_add(quire_fork_counts[id], n)

extern struct quire_feature quire_fork_feature;
extern struct mm_struct *quire_pt_orphans;

unsigned int quire_pt_share(struct mm_struct *src_mm, struct mm_struct *dst_mm,
			    pmd_t *src_pmd, pmd_t *dst_pmd);
void quire_pt_on_mmlist(struct mm_struct *mm);
int quire_pt_init(void);
struct mm_struct *quire_next_mm(pid_t *pid);

#endif /* _MM_QUIRE_FORK_H */
