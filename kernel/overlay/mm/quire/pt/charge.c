// SPDX-License-Identifier: GPL-2.0
/*
 * What memory cgroups are charged for page tables that fork shares: as much as if each user had its
 * own table.
 *
 * The page of a table is charged to the cgroup of the process that made it. Fork charges that
 * cgroup one more page for each user that it adds. A user that copies the table passes one of these
 * charges to the page of its copy, and a user that leaves gives one back. So making a table private
 * again charges nothing, no matter which task asks for it: no cgroup meets its limit because
 * another process looks at one of its processes, or because one of them gives memory back.
 *
 * Linux charges the child's tables to the cgroup of the process that forks. So fork moves the
 * charge for a table's page to that cgroup before the table has a second user. A table that users
 * in another cgroup share already gets no further user: the forking process copies it and shares
 * the copy. If the cgroup has no room, fork copies the table as Linux does.
 *
 * Locking: a table with N users has N - 1 charges beside that of its page. The two numbers change
 * together under the PTL. The page's cgroup changes under the PTL, and only while the table is not
 * shared.
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
 * quire_pt_charge - charge the current task's cgroup for one more user of a table
 * @objcg: set to the cgroup, or to NULL if nothing is charged
 *
 * Does not invoke the OOM killer, because the caller can do without the charge.
 * Context: may sleep.
 * Return: 0, or -ENOMEM if the cgroup has no room.
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
 * quire_pt_end_charge - put the cgroup that quire_pt_charge() has charged
 * @objcg: the cgroup, or NULL
 * @keep: the charge was used for a table's user
 *
 * Context: any.
 */
void quire_pt_end_charge(struct obj_cgroup *objcg, bool keep)
{
	if (!objcg)
		return;
	if (!keep)
		obj_cgroup_uncharge(objcg, PAGE_SIZE);
	obj_cgroup_put(objcg);
}

/* Pass a charge of one page, which the cgroup already has, to a table's page. */
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
 * quire_pt_claim - charge a table's page to the cgroup that is charged for its next user
 * @pt: the table
 * @objcg: the cgroup that quire_pt_charge() has charged
 * @shared: the table has several users
 *
 * Context: the PTL is held.
 * Return: 0, -EXDEV if users in another cgroup share the table, or -ENOMEM if the cgroup has no
 * room for its page.
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
 * quire_pt_uncharge - uncharge a user that has left a table which others still use
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
 * quire_pt_hand_charge - pass a user's charge to the page of its copy
 * @pt: the table, which keeps another user
 * @copy: the copy, not charged yet
 *
 * Context: the PTL of @pt is held.
 */
void quire_pt_hand_charge(struct ptdesc *pt, struct ptdesc *copy)
{
	struct obj_cgroup *objcg = table_objcg(pt);

	if (objcg)
		set_table_objcg(copy, objcg);
}
