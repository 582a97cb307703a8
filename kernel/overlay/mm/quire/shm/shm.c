// SPDX-License-Identifier: GPL-2.0
/*
 * The shm feature: processes that map the same shared memory share the last-level page tables that
 * map it, as was first done for Linux in 2005/06.
 *
 * A shared table is as in pt/pt.c: the table itself, with a count of the PMDs that point to it in
 * its ptdesc. Nothing in it is copy-on-write. The PMDs are marked and stay writable, and faults
 * fill entries in place for all users.
 *
 * Rules
 *
 *  - A table is found by its key: the file's address_space, the offset in it that the first entry
 *    maps, everything on which the entries' protection depends, and which users may share. Only a
 *    page fault joins a process to a table.
 *  - Every entry maps the page of the file that belongs there. Dropping an entry for all users is
 *    always allowed: it faults in again. So a process that must not share leaves the table, which
 *    needs no memory and cannot fail. Its next fault joins again or fills a table of its own.
 *  - A user that is alone adopts the table instead. From then on it is an ordinary table of that
 *    process, with all its entries, which are charged to the process.
 *  - Page faults and the reverse map change entries, and readers read them. All other code leaves
 *    or adopts the table first, or skips it. __pte_offset_map() refuses a marked PMD, so a walker
 *    that was forgotten sees no table.
 *  - Folio references and mapcounts count the entries that exist. The entries are charged (RSS) to
 *    a pseudo process, never to a process that uses them; see user.c.
 *  - In each process the table lies within one VMA, which has no flag of UNSHAREABLE. Code that
 *    moves a VMA boundary into the table or sets such a flag leaves the table while the VMA is
 *    locked for writing, so that no fault joins it again.
 *
 * Locks: the PMD's lock, then the lock of struct shm_table, then the table's page table lock (PTL),
 * then the registry's bucket lock. Before all of these, the first fault that is about to put a
 * table of a file into the registry takes the file's i_mmap lock for writing and drops it, under
 * the VMA's lock or mmap_lock: see wait_for_unannounced(). The PTL covers the count of users and
 * the PMDs that point to the table. The lock of struct shm_table covers whether the table is in the
 * registry. RCU keeps a struct shm_table that was found there. A leaver clears its PMD, flushes its
 * TLB and drops its count in one critical section. So no TLB holds a table without users, and the
 * last leaver drops the entries at once: at no time is there an entry that no PMD leads to.
 *
 * Lifetime: a table without users has left the registry and is freed by RCU, on which GUP-fast
 * relies, and faults before they hold the PTL. An adopted table is freed as any other, which waits
 * only for the adopter's threads. So a table is adopted only after a grace period has passed since
 * another user left. The key's address_space outlives the table: a user's VMA holds the file, and a
 * VMA is zapped, which leaves the table, before it drops its file.
 *
 * Truncation, hole punching and the reverse map visit each VMA in the file's i_mmap. The first VMA
 * that leads to a table has its entries changed for all users. If a user joined behind such a walk
 * while the last user ahead of it left, the walk would miss the table. So joining is refused while
 * a walk is under way. The process then has a table that is not in the registry, until one of its
 * faults finds no walk: that fault registers the table, or gives it up for the one that is
 * registered. A joiner sets its PMD and then checks whether a walk began, both under the PTL. A
 * walk announces itself and then looks at PMDs. Either the joiner sees the walk and backs out,
 * before any user can leave the table, or the walk sees the PMD. A locked folio, as in truncation's
 * last pass, cannot get new entries meanwhile. That pass also waits for a last user that has
 * cleared its PMD and is dropping the entries, under the PMD's lock.
 *
 * Undo: "2" closes the gate and visits all processes until no table is left.
 */
#include <linux/compat.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/sched/mm.h>
#include <linux/seq_file.h>

#include "../pt/pt.h"
#include "shm.h"

#define CREATE_TRACE_POINTS
#include <trace/events/quire_shm.h>

DEFINE_STATIC_KEY_FALSE(quire_shm_key);

const char * const quire_shm_count_names[] = {
	[SHM_PUBLISHED] = "tables_published",
	[SHM_JOINED] = "tables_joined",
	[SHM_LEFT] = "tables_left",
	[SHM_DROPPED] = "tables_dropped",
	[SHM_ADOPTED] = "tables_adopted",
	[SHM_UNLISTED] = "tables_unlisted",
	[SHM_MERGED] = "tables_merged",
	[SHM_ZAPPED] = "pages_zapped",
	[SHM_WAITS] = "join_waits",
	[SHM_REFUSED_POLICY] = "refused_policy",
	[SHM_REFUSED_FEW_TABLES] = "refused_few_tables",
	[SHM_REFUSED_VMA] = "refused_vma",
	[SHM_REFUSED_RANGE] = "refused_range",
	[SHM_REFUSED_HUGE] = "refused_huge",
	[SHM_REFUSED_NOTIFIER] = "refused_notifier",
	[SHM_REFUSED_FOREIGN] = "refused_foreign",
	[SHM_REFUSED_USERS] = "refused_users",
	[SHM_REFUSED_NOMEM] = "refused_nomem",
	NULL
};

DEFINE_PER_CPU(unsigned long [SHM_NR_COUNTS], quire_shm_counts);

static const struct quire_counters shm_counters = {
	.names = quire_shm_count_names,
	.counts = (unsigned long __percpu *)quire_shm_counts,
};

unsigned int quire_shm_min_tables = 16;
unsigned int quire_shm_cross_user;
/* Align large shared mappings so that their tables can be shared. */
static unsigned int place = 1;
QUIRE_UINT_KNOB(min_tables, quire_shm_min_tables, 1, 1U << 30);
QUIRE_UINT_KNOB(cross_user, quire_shm_cross_user, 0, 1);
QUIRE_UINT_KNOB(place, place, 0, 1);

static ssize_t tables_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%lu\n", quire_shm_tables());
}
QUIRE_ATTR_RO(tables);

static ssize_t mapped_kb_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	long pages = max(quire_shm_mapped(MM_SHMEMPAGES), 0L);

	return sysfs_emit(buf, "%ld\n", pages << (PAGE_SHIFT - 10));
}
QUIRE_ATTR_RO(mapped_kb);

static const struct attribute * const shm_knobs[] = {
	&min_tables_knob.attr.attr,
	&cross_user_knob.attr.attr,
	&place_knob.attr.attr,
	&tables_knob.attr,
	&mapped_kb_knob.attr,
	NULL
};

/**
 * __quire_shm_place - align a mapping so that its tables can be shared?
 * @len: length of the mapping
 * @flags: MAP_*
 *
 * Only tables that begin at the same offset can be shared. The alignment costs 9 random bits of the
 * address, of which 32-bit tasks have 8 unless configured otherwise.
 * Context: any.
 * Return: whether to align it.
 */
bool __quire_shm_place(unsigned long len, unsigned long flags)
{
	return READ_ONCE(place) && (flags & MAP_TYPE) != MAP_PRIVATE && !in_compat_syscall() &&
	       len / PMD_SIZE >= READ_ONCE(quire_shm_min_tables);
}

/* A fault that began before the gate closed may join until it ends. */
static int shm_drain(void)
{
	return quire_mm_drain(MMF_QUIRE_PT, quire_shm_leave_mm_now, quire_shm_tables);
}

static int shm_show(struct seq_file *m, struct mm_struct *mm)
{
	struct quire_pt_tables tables;
	int ret = quire_pt_count_tables(mm, &tables);

	if (ret)
		return ret;
	seq_printf(m, "shm_shared_tables: %lu\n", tables.shared[QUIRE_PT_FILE]);
	seq_printf(m, "shm_shared_kb: %lu\n", tables.shared[QUIRE_PT_FILE] * (PMD_SIZE / 1024));
	return 0;
}

struct quire_feature quire_shm_feature = {
	.name = "shm",
	.key = &quire_shm_key,
	.start = quire_pt_start,
	.drain = shm_drain,
	.knobs = shm_knobs,
	.counters = { &shm_counters, &quire_pt_file_counters },
	.show = shm_show,
};

/* Needs no memory and cannot fail: what a process loses can be filled again from the file. */
static int unshare(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr,
		   enum quire_pt_cause cause, gfp_t gfp)
{
	quire_shm_leave(vma, pmd, addr);
	return 0;
}

static const struct quire_pt_class shm_class = {
	.feature = &quire_shm_feature,
	.unshare = unshare,
	.still_shared = quire_shm_still_shared,
	.reached = quire_shm_reached,
	.check = quire_shm_check,
	.tables = quire_shm_tables,
	.pmds = quire_shm_pmds,
	.charged = quire_shm_mapped,
};

static int __init quire_shm_init(void)
{
	int ret = quire_shm_tables_init() ?: quire_shm_users_init();

	return ret ?: quire_pt_register(QUIRE_PT_FILE, &shm_class) ?:
	       quire_register(&quire_shm_feature);
}
late_initcall(quire_shm_init);
