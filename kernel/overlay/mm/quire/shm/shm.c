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
	[SHM_RMAP_CLEARED] = "rmap_cleared",
	QUIRE_FLUSH_NAMES(SHM_FLUSHES),
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

/*
 * Walkers without the lock, from before the first table is shared, must be gone.
 * They do not sleep. Walks over a file's VMAs may; join.c waits for those.
 */
static int shm_start(void)
{
	static_branch_enable(&quire_pt_used_key);
	synchronize_rcu();
	synchronize_rcu_tasks();
	return 0;
}

/* A fault that began before the gate closed may join until it ends. */
static int shm_drain(void)
{
	return quire_mm_drain(MMF_QUIRE_SHARED, quire_shm_leave_mm_now, quire_shm_tables);
}

struct quire_feature quire_shm_feature = {
	.name = "shm",
	.key = &quire_shm_key,
	.start = shm_start,
	.drain = shm_drain,
	.knobs = shm_knobs,
	.counter_names = quire_shm_count_names,
	.counters = (unsigned long __percpu *)quire_shm_counts,
};

static int __init quire_shm_init(void)
{
	int ret = quire_shm_tables_init() ?: quire_shm_users_init();

	return ret ? ret : quire_register(&quire_shm_feature);
}
late_initcall(quire_shm_init);
