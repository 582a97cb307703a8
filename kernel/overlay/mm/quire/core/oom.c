// SPDX-License-Identifier: GPL-2.0
/*
 * What the OOM killer is told of shared tables: their pages are not, or not all,
 * in the RSS of those who use them.
 *
 * Takes no lock: counters are summed as they are, and mm->flags' bits are never
 * cleared. Nothing is kept but the sums, for a tick.
 */
#include <linux/mm.h>

#include "../../internal.h"
#include "../pt/pt.h"
#include "../shm/shm.h"

/* Pages of files, shared memory's in private mappings included. */
static unsigned long orphans_file(void)
{
	return get_mm_counter_sum(quire_pt_orphans, MM_FILEPAGES) +
	       get_mm_counter_sum(quire_pt_orphans, MM_SHMEMPAGES);
}

/**
 * quire_pt_show_orphans - tell how much memory no process is charged for
 *
 * It is in tables whose owner left, and is freed with their last user.
 */
void quire_pt_show_orphans(void)
{
	pr_info("quire: fork: in shared page tables whose owner left: anon %lukB, file %lukB, swap %lukB\n",
		K(get_mm_counter_sum(quire_pt_orphans, MM_ANONPAGES)),
		K(orphans_file()),
		K(get_mm_counter_sum(quire_pt_orphans, MM_SWAPENTS)));
}

/* All of it; the CPUs' parts are added up once in a tick at most, see shm/user.c. */
static unsigned long orphans(void)
{
	static unsigned long stamp = INITIAL_JIFFIES - 1, pages;

	if (READ_ONCE(stamp) != jiffies) {
		WRITE_ONCE(pages, get_mm_counter_sum(quire_pt_orphans, MM_ANONPAGES) +
			   orphans_file() + get_mm_counter_sum(quire_pt_orphans, MM_SWAPENTS));
		WRITE_ONCE(stamp, jiffies);
	}
	return READ_ONCE(pages);
}

/**
 * __quire_pt_oom_points - what a process may hold without being charged for it
 * @mm: any
 *
 * Whose tables the orphans' charge is for is not recorded: a sharer may be a user of all of
 * them, as far as its tables reach beyond what it is charged for itself. That is too much
 * for some, and hides nobody from the OOM killer. What it reaches by tables of shared memory
 * comes on top: it is charged for nothing in these. Context: any. Return: pages.
 */
unsigned long __quire_pt_oom_points(struct mm_struct *mm)
{
	unsigned long charged, tables, shm, shm_tables;

	if (!test_bit(MMF_QUIRE_SHARED, &mm->flags))
		return 0;
	shm = quire_shm_reached(mm, &shm_tables);
	charged = get_mm_rss(mm) + get_mm_counter(mm, MM_SWAPENTS);
	tables = mm_pgtables_bytes(mm) / PAGE_SIZE;
	/* A fault that is under way has counted one that is no table of the process yet. */
	tables -= min(tables, shm_tables);
	if (tables * PTRS_PER_PTE <= charged)
		return shm;
	return shm + min(orphans(), tables * PTRS_PER_PTE - charged);
}
