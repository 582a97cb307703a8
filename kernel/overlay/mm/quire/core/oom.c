// SPDX-License-Identifier: GPL-2.0
/*
 * What the OOM killer is told of shared tables: their pages are not, or not all,
 * in the RSS of those who use them.
 *
 * Takes no lock: counters are summed as they are, and mm->flags' bits are never
 * cleared. Nothing is kept, so there is nothing to undo.
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

/**
 * __quire_pt_oom_points - what a process may hold without being charged for it
 * @mm: any
 *
 * Whose tables the orphans' charge is for is not recorded, nor who uses which table
 * of shared memory. A sharer may be a user of all of them, as far as its tables
 * reach beyond what it is charged for itself. That is too much for some, and hides
 * nobody from the OOM killer. Context: any. Returns pages.
 */
unsigned long __quire_pt_oom_points(struct mm_struct *mm)
{
	unsigned long unseen, charged, reach;

	if (!test_bit(MMF_QUIRE_SHARED, &mm->flags))
		return 0;
	unseen = get_mm_counter_sum(quire_pt_orphans, MM_ANONPAGES) +
		 orphans_file() +
		 get_mm_counter_sum(quire_pt_orphans, MM_SWAPENTS) +
		 quire_shm_reached(mm);
	charged = get_mm_rss(mm) + get_mm_counter(mm, MM_SWAPENTS);
	reach = mm_pgtables_bytes(mm) / PAGE_SIZE * PTRS_PER_PTE;
	return reach > charged ? min(unseen, reach - charged) : 0;
}
