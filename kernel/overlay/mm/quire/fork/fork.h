/* SPDX-License-Identifier: GPL-2.0 */
/* Declarations for the fork feature's own files. */
#ifndef _MM_QUIRE_FORK_H
#define _MM_QUIRE_FORK_H

#include <kunit/visibility.h>
#include <linux/quire/fork.h>

#include "../core/quire.h"
#include "../pt/pt.h"

/* Counters that are not counters of page tables, in the order of their names in fork.c. */
enum fork_count {
	FORK_REFUSED_POLICY,
	FORK_REFUSED_FEW_TABLES,
	FORK_REFUSED_VMA,
	FORK_REFUSED_RANGE,
	FORK_REFUSED_PINNED,
	FORK_REFUSED_GONE,	/* an empty table of a file was removed meanwhile */
	FORK_REFUSED_LIMIT,	/* the memory cgroup has no room for the charges of the copies */
	FORK_REFUSED_NOTIFIER,
	FORK_REFUSED_OFF,
	FORK_BACKGROUND_DONE,	/* children whose tables are all unshared */
	FORK_BACKGROUND_EXITED,	/* children given up: gone, or the policy is off */
	FORK_BACKGROUND_NO_MEMORY,
	FORK_NR_COUNTS,
};

DECLARE_PER_CPU(unsigned long [FORK_NR_COUNTS], quire_fork_counts);
#define fork_count(id)		this_cpu_inc(quire_fork_counts[id])

/* background.c */
extern struct quire_uint_attr quire_background_knob;
void quire_background_add(struct mm_struct *mm);

#if IS_ENABLED(CONFIG_KUNIT)
bool quire_fork_vma_shareable(struct vm_area_struct *dst, struct vm_area_struct *src);
unsigned int quire_background_budget(unsigned int per_s);
#endif

#endif /* _MM_QUIRE_FORK_H */
