// SPDX-License-Identifier: GPL-2.0
/*
 * What the OOM killer is told of shared page tables: the RSS of the processes that use them does
 * not contain all of their pages, or none.
 *
 * Waits for no lock: counters are summed as they are, the bits of mm->flags are never cleared, and
 * page tables are walked only if mmap_lock can be taken at once. Only the sums are kept, for one
 * tick.
 */
#include <linux/mm.h>
#include <linux/pagewalk.h>

#include "../../internal.h"
#include "pt.h"

/* Pages of files, including shared memory's in private mappings. */
static unsigned long orphans_file(void)
{
	return get_mm_counter_sum(quire_pt_orphans, MM_FILEPAGES) +
	       get_mm_counter_sum(quire_pt_orphans, MM_SHMEMPAGES);
}

/**
 * quire_pt_show_orphans - print how much memory no process is charged for
 *
 * It is in tables whose owner has left, and is freed with their last user.
 * Context: any.
 */
void quire_pt_show_orphans(void)
{
	pr_info("quire: fork: in shared page tables whose owner left: anon %lukB, file %lukB, swap %lukB\n",
		K(get_mm_counter_sum(quire_pt_orphans, MM_ANONPAGES)),
		K(orphans_file()),
		K(get_mm_counter_sum(quire_pt_orphans, MM_SWAPENTS)));
}

/* The orphans' pages and swap. The per-CPU counters are summed at most once per tick. */
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

/* Fractions of a page, so that a table of very many users does not count as nothing. */
#define PARTS	1024

/* So many PMDs are searched, which map 1 TiB: preemption is off. */
#define MOST_SEARCHED	(1UL << (40 - PMD_SHIFT))

struct orphan_count {
	pmd_t *last;		/* several VMAs may reach into a table */
	unsigned long parts;
	unsigned long enough;	/* parts */
	unsigned long searched;	/* PMDs */
};

/* RCU keeps the table. Its state is read without the PTL: any recent value will do. */
static void count_orphan(struct orphan_count *count, pmd_t *pmd)
{
	struct mm_struct *owner;
	struct ptdesc *pt;
	unsigned int users;
	pmd_t seen;

	if (pmd == count->last)
		return;
	count->last = pmd;
	guard(rcu)();
	seen = pmdp_get_lockless(pmd);
	if (!pmd_pt_cow(seen))
		return;
	pt = quire_pmd_ptdesc(seen);
	/* An estimate: what either is at some moment will do. */
	owner = data_race(*quire_pt_owner(pt));
	/* Likewise. */
	users = data_race(quire_pt_state(pt)->users);
	if (owner == quire_pt_orphans)
		count->parts += PTRS_PER_PTE * PARTS / max(users, 1U);
}

/*
 * A PUD callback, because a walk that visits PMDs adopts a table that nobody else uses. Returns 1 if
 * more would not change the result.
 */
static int count_orphans(pud_t *pud, unsigned long addr, unsigned long end, struct mm_walk *walk)
{
	struct orphan_count *count = walk->private;
	pmd_t *pmd;

	walk->action = ACTION_CONTINUE;
	if (!pud_present(*pud) || pud_leaf(*pud))
		return 0;
	count->searched += DIV_ROUND_UP(end - addr, PMD_SIZE);
	if (count->searched > MOST_SEARCHED)
		count->parts = count->enough;
	if (count->parts >= count->enough)
		return 1;
	for (pmd = pmd_offset(pud, addr); addr < end; pmd++, addr = pmd_addr_end(addr, end))
		count_orphan(count, pmd);
	return 0;
}

static const struct mm_walk_ops orphan_ops = {
	.pud_entry = count_orphans,
	.walk_lock = PGWALK_RDLOCK,
};

/*
 * A process's part of the orphans, up to @reach: from each of their tables that it uses, the part
 * that falls to one user. If its page tables cannot be walked now, or are too many, it may use all
 * of them.
 */
static unsigned long orphans_of(struct mm_struct *mm, unsigned long reach)
{
	struct orphan_count count = {};

	reach = min(reach, orphans());
	if (!reach || !mmap_read_trylock(mm))
		return reach;
	count.enough = reach * PARTS;
	walk_page_range(mm, 0, TASK_SIZE_MAX, &orphan_ops, &count);
	mmap_read_unlock(mm);
	return min(reach, count.parts / PARTS);
}

/**
 * __quire_pt_oom_points - what a process may hold without being charged for it
 * @mm: the process's mm; the caller keeps it alive
 *
 * This is the process's part of the orphans, as far as its tables reach beyond what it is charged
 * for itself. How many pages a table maps is not known, so each table counts as full: all processes
 * together get as many points as there are orphans, or somewhat more, and no process is overlooked.
 * What a process reaches through tables of shared memory is added: it is charged for nothing in
 * these.
 * Context: any; does not sleep.
 * Return: pages.
 */
unsigned long __quire_pt_oom_points(struct mm_struct *mm)
{
	const struct quire_pt_class *files = quire_pt_classes[QUIRE_PT_FILE];
	unsigned long charged, tables, reached = 0, file_tables = 0;

	if (!test_bit(MMF_QUIRE_PT, &mm->flags))
		return 0;
	if (files)
		reached = files->reached(mm, &file_tables);
	charged = get_mm_rss(mm) + get_mm_counter(mm, MM_SWAPENTS);
	tables = mm_pgtables_bytes(mm) / PAGE_SIZE;
	/* A fault in progress has counted a table that the process does not have yet. */
	tables -= min(tables, file_tables);
	if (tables * PTRS_PER_PTE <= charged)
		return reached;
	return reached + orphans_of(mm, tables * PTRS_PER_PTE - charged);
}
