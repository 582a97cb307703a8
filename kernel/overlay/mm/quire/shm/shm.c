// SPDX-License-Identifier: GPL-2.0
/*
 * The shm feature: processes that map the same shared memory share the
 * last-level page tables that map it, as was first done for Linux in 2005/06.
 *
 * The object is that of pt/pt.c: the table itself, with a count of the PMDs that
 * point to it in its ptdesc. Nothing in it is copy-on-write. The PMDs are marked
 * and stay writable, and faults fill entries in place for all users.
 *
 * Rules
 *
 *  - A table is found by its key: the file's address_space, the offset in it
 *    that the first entry maps, what the entries' protection depends on, and who
 *    may share with whom. Only a page fault joins a process to a table.
 *  - Every entry maps the page of the file that belongs there. To drop one, for
 *    everybody, is always allowed: it faults in again. So a process that must
 *    not share leaves the table, which needs no memory and cannot fail, and its
 *    next fault joins again or fills a table of its own.
 *  - A user that is alone adopts the table instead: it is an ordinary one of that process
 *    from then on, with all its entries, which are charged to the process.
 *  - Page faults and the reverse map change entries, readers read them. All
 *    others leave or adopt first, or pass over the table; __pte_offset_map() refuses a
 *    marked PMD, so that a walker that was forgotten sees no table.
 *  - folio references and mapcounts count the entries that exist. They are
 *    charged (RSS) to a pseudo process, never to one that uses them, see user.c.
 *  - The table lies within one VMA in each process, which has no flag of
 *    UNSHAREABLE. Who moves a boundary into it or sets such a flag leaves it
 *    while the VMA is locked for writing, so that no fault joins it again.
 *
 * Locks: the PMD's lock, then the lock of struct shm_table, then the table's page
 * table lock (PTL), then the registry's bucket. Before all of these, the first fault
 * that is about to put a table of a file into the registry takes the file's i_mmap
 * lock for writing and drops it, under the VMA's or the mmap lock: see
 * wait_for_unannounced(). users and the PMDs that point to the table change under the
 * PTL; whether it is in the registry, under the lock of struct shm_table, which RCU
 * keeps for who has found it there. A leaver clears its PMD, flushes its TLB and gives
 * up its count in one critical section. So no TLB knows a table without users, and the
 * last leaver drops the entries there and then: at no time is there an entry that no
 * PMD leads to.
 *
 * Lifetime: a table without users has left the registry and is freed by RCU,
 * which faults before they have the PTL and GUP-fast rely on. A table that was adopted is
 * freed as any other, which waits for the adopter's threads and nobody else's. So it is
 * adopted only when a grace period has passed since another user left. The key's
 * address_space outlives the table: a user's VMA holds the file, and a VMA is
 * zapped, which leaves, before it lets go of its file.
 *
 * Truncation, hole punching and the reverse map visit each VMA in the file's
 * i_mmap; the first one that leads to a table has its entries changed for all
 * users. A user that joins behind such a walk while the last one ahead of it
 * leaves would keep the table from being met. Joining is therefore refused while a
 * walk is under way. The process has a table that is not in the registry then, until a
 * fault of it finds no walk: that fault registers the table, or gives it up for the one
 * that is registered. A joiner sets its PMD and then looks whether a walk began, both
 * under the PTL; a walk announces itself and then looks at PMDs. Either the joiner sees
 * the walk and backs out, before anybody could leave the table, or the walk sees the
 * PMD. A folio that is locked, as truncation's last pass has it, cannot get new entries
 * meanwhile; that pass also waits for a last user that has cleared its PMD and is
 * dropping the entries, under the PMD's lock.
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
/* Place large shared mappings so that their tables can be shared. */
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
 * __quire_shm_place - is a mapping to be aligned as its file is
 * @len: its length
 * @flags: MAP_*
 *
 * Only tables that begin at the same offset can be shared. The alignment costs 9
 * of the address's random bits, of which 32-bit tasks have 8 unless configured otherwise.
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

/* Needs no memory and cannot fail: the file has what a process loses. */
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
