// SPDX-License-Identifier: GPL-2.0
/*
 * The two kinds of shared tables: what is counted for each, and the feature that shares it.
 *
 * fork shares copy-on-write tables, whose rules are in pt.c, and shm shares those of shared
 * memory, whose rules are in shm/shm.c. pt knows of neither feature: it has a struct
 * quire_pt_class of each, and the PMD tells which one is to be asked.
 *
 * Locking: none. quire_pt_classes is written at boot, before a table is shared.
 */
#include <linux/mm.h>
#include <linux/rcupdate.h>
#include <linux/swap.h>

#include "pt.h"

DEFINE_STATIC_KEY_FALSE(quire_pt_used_key);

const struct quire_pt_class *quire_pt_classes[QUIRE_PT_NR_KINDS] __ro_after_init;

DEFINE_PER_CPU(unsigned long [PT_NR_EVENTS], quire_pt_cow_events);
static DEFINE_PER_CPU(unsigned long [QUIRE_PT_NR_EVENTS], file_events);

#define EVENT_NAMES									\
	[QUIRE_PT_RMAP_CLEARED] = "rmap_cleared",					\
	[QUIRE_PT_FLUSHES + QUIRE_FLUSH_RECLAIM] = "flushes_reclaim",			\
	[QUIRE_PT_FLUSHES + QUIRE_FLUSH_MIGRATION] = "flushes_migration",		\
	[QUIRE_PT_FLUSHES + QUIRE_FLUSH_TRUNCATION] = "flushes_truncation",		\
	[QUIRE_PT_FLUSHES + QUIRE_FLUSH_LEAVE] = "flushes_leave",			\
	[QUIRE_PT_FLUSHES + QUIRE_FLUSH_ALL] = "flushes_all"

static const char * const cow_event_names[] = {
	EVENT_NAMES,
	[PT_PMDS_MARKED] = "pmds_marked",
	[PT_PMDS_UNMARKED] = "pmds_unmarked",
	[PT_TABLES_SHARED] = "tables_shared",
	[PT_TABLES_COPIED] = "tables_copied",
	[PT_TABLES_ADOPTED] = "tables_adopted",
	[PT_TABLES_SANITIZED] = "tables_sanitized",
	[PT_TABLES_LEFT] = "tables_left",
	[PT_TABLES_DROPPED] = "tables_dropped",
	[PT_COPY_RETRIED] = "copies_retried",
	[PT_TABLES_SEARCHED] = "tables_searched",
	[PT_REFERENCES] = "references",
	[PT_CAUSE_FIRST + QUIRE_PT_FAULT] = "unshared_fault",
	[PT_CAUSE_FIRST + QUIRE_PT_GUP] = "unshared_gup",
	[PT_CAUSE_FIRST + QUIRE_PT_WALK] = "unshared_walk",
	[PT_CAUSE_FIRST + QUIRE_PT_SYSCALL] = "unshared_syscall",
	[PT_CAUSE_FIRST + QUIRE_PT_FORK] = "unshared_fork",
	[PT_CAUSE_FIRST + QUIRE_PT_SWAPOFF] = "unshared_swapoff",
	[PT_CAUSE_FIRST + QUIRE_PT_BACKGROUND] = "unshared_background",
	NULL
};

static const char * const file_event_names[] = {
	EVENT_NAMES,
	NULL
};

const struct quire_counters quire_pt_cow_counters = {
	.names = cow_event_names,
	.counts = (unsigned long __percpu *)quire_pt_cow_events,
};

const struct quire_counters quire_pt_file_counters = {
	.names = file_event_names,
	.counts = (unsigned long __percpu *)file_events,
};

/**
 * quire_pt_register - name the feature that shares tables of a kind
 * @kind: which
 * @class: static storage
 *
 * Context: boot, before the feature is switched on. Return: 0 or -ENOMEM.
 */
int __init quire_pt_register(enum quire_pt_kind kind, const struct quire_pt_class *class)
{
	int ret = quire_pt_orphans ? 0 : quire_pt_init();

	if (!ret)
		quire_pt_classes[kind] = class;
	return ret;
}

/**
 * quire_pt_start - prepare for the first shared table
 *
 * Walkers without the lock, from before the first table is shared, must be gone: those that
 * were preempted between the test of the key and their lock, too. Walks over a file's VMAs
 * may sleep; shm/join.c waits for those.
 * Context: may sleep. Return: 0.
 */
int quire_pt_start(void)
{
	static_branch_enable(&quire_pt_used_key);
	synchronize_rcu_tasks();
	synchronize_rcu();
	return 0;
}

/**
 * quire_pt_marked_pmds - how many PMDs lead to copy-on-write tables
 *
 * Context: any. Return: the number, or more while it changes.
 */
unsigned long quire_pt_marked_pmds(void)
{
	/* In this order: what is marked and unmarked meanwhile must not hide another one. */
	unsigned long unmarked = quire_counter(&quire_pt_cow_counters, PT_PMDS_UNMARKED);

	return quire_counter(&quire_pt_cow_counters, PT_PMDS_MARKED) - unmarked;
}

static void count(enum quire_pt_kind kind, unsigned int event)
{
	if (kind == QUIRE_PT_FILE)
		this_cpu_inc(file_events[event]);
	else
		this_cpu_inc(quire_pt_cow_events[event]);
}

/**
 * quire_pt_count_cleared - the reverse map has cleared an entry of a table with several users
 * @kind: of the table
 */
void quire_pt_count_cleared(enum quire_pt_kind kind)
{
	count(kind, QUIRE_PT_RMAP_CLEARED);
}

/**
 * quire_pt_count_flush - TLBs of users of a shared table are flushed, or will be
 * @kind: of the table
 * @why: the cause
 */
void quire_pt_count_flush(enum quire_pt_kind kind, enum quire_pt_flush why)
{
	count(kind, QUIRE_PT_FLUSHES + why);
}

/**
 * __quire_pt_unshare - have a process no longer use a shared table
 * @vma: covers the table, or reaches into it if that is mixed
 * @pmd: marked when the caller looked
 * @addr: any address that the table maps
 * @cause: who asks
 * @gfp: 0, or __GFP_NOFAIL
 *
 * Of private memory it has a table of its own afterwards. Of shared memory it may have none,
 * for the file has what it loses.
 * Context: may sleep. mmap_lock or the VMA's lock is held, for reading at least, and keeps
 * fork from marking the PMD again. Return: 0, or -ENOMEM if @gfp is 0; it is shared still then.
 */
int __quire_pt_unshare(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr,
		       enum quire_pt_cause cause, gfp_t gfp)
{
	enum quire_pt_kind kind = quire_pt_kind(pmdp_get_lockless(pmd));

	return quire_pt_classes[kind]->unshare(vma, pmd, addr & PMD_MASK, cause, gfp);
}

/**
 * __quire_pt_still_shared - has a table another user?
 * @vma: covers the whole table
 * @pmd: marked when the caller looked
 * @addr: any address that the table maps
 *
 * For those who skip shared tables: the last user's is its own. Allocates nothing.
 * Context: as __quire_pt_unshare(), but does not sleep. Return: whether it has.
 */
bool __quire_pt_still_shared(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr)
{
	enum quire_pt_kind kind = quire_pt_kind(pmdp_get_lockless(pmd));

	return quire_pt_classes[kind]->still_shared(vma, pmd, addr & PMD_MASK);
}

/**
 * quire_pt_stray - a marked PMD outlived its VMA
 * @pmd: what it is, or was
 *
 * A bug. The table leaks; the users' memory is safe. Context: any.
 */
void quire_pt_stray(pmd_t pmd)
{
	quire_warn(quire_pt_classes[quire_pt_kind(pmd)]->feature,
		   "shared table left behind by unmapping\n");
}
