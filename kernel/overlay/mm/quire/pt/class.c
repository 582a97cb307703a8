// SPDX-License-Identifier: GPL-2.0
/*
 * The two kinds of shared page tables: the counters and the feature of each kind.
 *
 * fork shares copy-on-write tables; pt.c has their rules. shm shares tables of shared memory;
 * shm/shm.c has their rules. pt depends on neither feature: each registers a struct quire_pt_class,
 * and the PMD tells which one to call.
 *
 * Locking: none. Each entry of quire_pt_classes is written at boot, before a table of its kind is
 * shared.
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
 * quire_pt_register - register the feature that shares tables of one kind
 * @kind: the kind
 * @class: static storage
 *
 * Context: boot, before the feature is switched on.
 * Return: 0 or -ENOMEM.
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
 * Lockless walkers that tested the key before it was enabled must have finished before a table is
 * shared, including those that were preempted between the test and their lock. Walks over a file's
 * VMAs may sleep; shm/join.c waits for those.
 * Context: may sleep.
 * Return: 0.
 */
int quire_pt_start(void)
{
	static_branch_enable(&quire_pt_used_key);
	synchronize_rcu_tasks();
	synchronize_rcu();
	return 0;
}

/**
 * quire_pt_marked_pmds - how many PMDs point to shared copy-on-write tables
 *
 * Context: any.
 * Return: the number, or a higher one while it changes.
 */
unsigned long quire_pt_marked_pmds(void)
{
	/*
	 * Read this one first: a PMD that is marked and unmarked meanwhile must not hide another.
	 */
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
 * quire_pt_count_cleared - count an entry that the reverse map cleared for several users
 * @kind: the kind of the table
 *
 * Context: any.
 */
void quire_pt_count_cleared(enum quire_pt_kind kind)
{
	count(kind, QUIRE_PT_RMAP_CLEARED);
}

/**
 * quire_pt_count_flush - count a TLB flush, done or deferred, for a shared table's user
 * @kind: the kind of the table
 * @why: the cause
 *
 * Context: any.
 */
void quire_pt_count_flush(enum quire_pt_kind kind, enum quire_pt_flush why)
{
	count(kind, QUIRE_PT_FLUSHES + why);
}

/**
 * __quire_pt_unshare - stop a process from using a shared table
 * @vma: covers the table, or reaches into it if the table is mixed
 * @pmd: marked when the caller looked
 * @addr: any address that the table maps
 * @cause: who asks
 * @gfp: 0, or __GFP_NOFAIL
 *
 * For private memory the process has its own table afterwards. For shared memory it may have none,
 * because its entries can be filled again from the file.
 * Context: may sleep; mmap_lock or the VMA's lock is held, for reading at least, which keeps fork
 * from marking the PMD again.
 * Return: 0, or -ENOMEM with the table still shared, only if @gfp is 0.
 */
int __quire_pt_unshare(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr,
		       enum quire_pt_cause cause, gfp_t gfp)
{
	pmd_t seen = pmdp_get_lockless(pmd);

	/* Another thread was faster. */
	if (!pmd_pt_marked(seen))
		return 0;
	return quire_pt_classes[quire_pt_kind(seen)]->unshare(vma, pmd, addr & PMD_MASK, cause,
							      gfp);
}

/**
 * __quire_pt_still_shared - does a table have another user?
 * @vma: covers the whole table
 * @pmd: marked when the caller looked
 * @addr: any address that the table maps
 *
 * For callers that skip shared tables. The last user adopts the table. Allocates nothing.
 * Context: as __quire_pt_unshare(), but does not sleep.
 * Return: whether it has.
 */
bool __quire_pt_still_shared(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr)
{
	pmd_t seen = pmdp_get_lockless(pmd);

	/* Another thread was faster. */
	if (!pmd_pt_marked(seen))
		return false;
	return quire_pt_classes[quire_pt_kind(seen)]->still_shared(vma, pmd, addr & PMD_MASK);
}

/**
 * quire_pt_stray - report a marked PMD that outlived its VMA
 * @pmd: the PMD's value
 *
 * This is a bug. The table leaks, but its users' memory is safe.
 * Context: any.
 */
void quire_pt_stray(pmd_t pmd)
{
	quire_warn(quire_pt_classes[quire_pt_kind(pmd)]->feature,
		   "shared table left behind by unmapping\n");
}
