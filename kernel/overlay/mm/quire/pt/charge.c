// SPDX-License-Identifier: GPL-2.0
/*
 * What memory cgroups are charged for tables that fork shares: as much as if each user had
 * a table of its own.
 *
 * The page of a table is charged to the group of the process that made it. Fork charges the
 * same group one page more for each user that it adds. A user that copies the table hands
 * one of these charges to the page of its copy, and a user that leaves gives one back. So to
 * make a table private again charges nothing, whoever asks for it: no group meets its limit
 * because somebody looks at one of its processes, or because one of them gives memory back.
 *
 * Linux charges the child's tables to the group of the process that forks. So fork moves the
 * charge for a table's page to that group before it has a second user, and a table that users
 * in another group share already gets no further user: the forker copies it and shares the
 * copy. If the group has no room fork does not share, and copies as Linux does.
 *
 * Locking: a table with N users has N - 1 charges beside that of its page. The two numbers
 * change together, under the PTL, and the page's group only while nobody shares the table.
 */
#include <linux/memcontrol.h>
#include <linux/mm.h>

#include "pt.h"

static struct obj_cgroup *table_objcg(struct ptdesc *pt)
{
	struct folio *folio = ptdesc_folio(pt);

	return folio_memcg_kmem(folio) ? __folio_objcg(folio) : NULL;
}

/**
 * quire_pt_charge - charge the running task's group for one more user of a table
 * @objcg: set to the group, or to NULL if it is charged for nothing
 *
 * Tries as hard as a caller does that can do without: the OOM killer does not run.
 * Context: may sleep. Return: 0, or -ENOMEM if the group has no room.
 */
int quire_pt_charge(struct obj_cgroup **objcg)
{
	int err;

	*objcg = get_obj_cgroup_from_current();
	if (!*objcg)
		return 0;
	err = obj_cgroup_charge(*objcg, GFP_KERNEL | __GFP_NORETRY, PAGE_SIZE);
	if (err)
		obj_cgroup_put(*objcg);
	return err;
}

/**
 * quire_pt_end_charge - let go of the group that quire_pt_charge() has charged
 * @objcg: the group, or NULL
 * @keep: a table has a user for it
 */
void quire_pt_end_charge(struct obj_cgroup *objcg, bool keep)
{
	if (!objcg)
		return;
	if (!keep)
		obj_cgroup_uncharge(objcg, PAGE_SIZE);
	obj_cgroup_put(objcg);
}

/* Pass a charge of one page, which the group has already, to a table's page. */
static void set_table_objcg(struct ptdesc *pt, struct obj_cgroup *objcg)
{
	struct folio *folio = ptdesc_folio(pt);

	lruvec_stat_sub_folio(folio, NR_PAGETABLE);
	if (objcg)
		obj_cgroup_get(objcg);
	folio->memcg_data = objcg ? (unsigned long)objcg | MEMCG_DATA_KMEM : 0;
	lruvec_stat_add_folio(folio, NR_PAGETABLE);
}

/**
 * quire_pt_claim - let a table be charged to the group that is charged for its next user
 * @pt: the table
 * @objcg: what quire_pt_charge() has charged
 * @shared: has it several users
 *
 * Context: the PTL is held. Return: 0; -EXDEV if users in another group share it, -ENOMEM if
 * the group has no room for its page.
 */
int quire_pt_claim(struct ptdesc *pt, struct obj_cgroup *objcg, bool shared)
{
	struct obj_cgroup *old = table_objcg(pt);

	if (likely(old == objcg))
		return 0;
	if (shared)
		return -EXDEV;
	if (objcg && obj_cgroup_charge(objcg, GFP_NOWAIT | __GFP_NOWARN, PAGE_SIZE))
		return -ENOMEM;
	set_table_objcg(pt, objcg);
	if (old) {
		obj_cgroup_uncharge(old, PAGE_SIZE);
		obj_cgroup_put(old);
	}
	return 0;
}

/**
 * quire_pt_uncharge - a user has left a table, and others have not
 * @pt: the table
 *
 * Context: the PTL is held.
 */
void quire_pt_uncharge(struct ptdesc *pt)
{
	struct obj_cgroup *objcg = table_objcg(pt);

	if (objcg)
		obj_cgroup_uncharge(objcg, PAGE_SIZE);
}

/**
 * quire_pt_hand_charge - a user's charge becomes that of its copy's page
 * @pt: the table, which keeps another user
 * @copy: not charged yet
 *
 * Context: the PTL is held.
 */
void quire_pt_hand_charge(struct ptdesc *pt, struct ptdesc *copy)
{
	struct obj_cgroup *objcg = table_objcg(pt);

	if (objcg)
		set_table_objcg(copy, objcg);
}
