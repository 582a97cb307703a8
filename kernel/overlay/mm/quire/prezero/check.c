// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/kernel/debug/quire/prezero_check: walks all free blocks, and hugetlb's free
 * pages, and reports how many pages are marked, how many of the marked blocks are not
 * zero, by how many pages the counts are wrong, and how many pages of hugetlb count as
 * zero. The second and the third number must be 0.
 *
 * prezero_hibernate, next to it: writing 1 does what precedes hibernation, 0 what
 * follows it, for kernels and machines that cannot hibernate.
 *
 * Locking: zone->lock, with interrupts off, is held over the blocks of one pageblock
 * at a time, so that no block is taken while it is checked, and once more over all
 * lists of the zone, which must agree with its count. hugetlb_lock is held over 2 MB
 * of a free huge page, and once more over each free list. mem_hotplug_lock is held for
 * reading throughout, so that no memory goes away. prezero_hibernate takes the locks
 * that quire_prezero_pm_event() takes.
 *
 * Lifetime: the files are made at boot and stay; a report belongs to its reader.
 *
 * Undo: reading changes nothing, except that an error disables the feature. After
 * a 1 there are no marks until a 0.
 */
#include <linux/debugfs.h>
#include <linux/memory_hotplug.h>
#include <linux/quire/prezero.h>
#include <linux/seq_file.h>
#include <linux/suspend.h>

#include "../../internal.h"
#include "prezero.h"

/* Returns how many pages to advance by. */
static unsigned long check_block(struct page *page, struct prezero_report *report)
{
	unsigned long nr;

	/* On a page in use, the flag has other meanings. */
	if (!PageBuddy(page))
		return 1;
	nr = 1UL << buddy_order(page);
	if (!PageZeroed(page))
		return nr;
	report->marked += nr;
	if (!quire_prezero_is_zero(page_address(page), nr << PAGE_SHIFT))
		report->dirty++;
	return nr;
}

static void check_contents(struct zone *zone, struct prezero_report *report)
{
	unsigned long pfn = zone->zone_start_pfn;

	while (pfn < zone_end_pfn(zone)) {
		struct page *page = pfn_to_online_page(pfn);
		unsigned long end = min(pageblock_end_pfn(pfn), zone_end_pfn(zone));

		/* The flags beside the zone's number change while the page is in use. */
		if (!page || data_race(page_zone(page)) != zone) {
			pfn = end;
			continue;
		}
		spin_lock_irq(&zone->lock);
		while (pfn < end)
			pfn += check_block(pfn_to_page(pfn), report);
		spin_unlock_irq(&zone->lock);
		cond_resched();
	}
}

/* In one hold of the lock, because the lists and the counts must agree. */
static void check_count(struct zone *zone, struct prezero_report *report)
{
	struct prezero_zone *z = quire_prezero_zone(zone);
	unsigned long pages = 0, huge = 0;
	unsigned int order, mt;
	struct page *page;

	spin_lock_irq(&zone->lock);
	for_each_migratetype_order(order, mt) {
		list_for_each_entry(page, &zone->free_area[order].free_list[mt], buddy_list) {
			if (!PageZeroed(page))
				continue;
			pages += 1UL << order;
			huge += order >= pageblock_order && mt == MIGRATE_MOVABLE;
		}
	}
	report->miscounted += abs_diff(pages, z->pages) +
			      (abs_diff(huge, z->huge) << pageblock_order);
	spin_unlock_irq(&zone->lock);
}

static int prezero_check_show(struct seq_file *m, void *v)
{
	struct prezero_report report = {};
	struct zone *zone;

	get_online_mems();
	for_each_populated_zone(zone) {
		check_contents(zone, &report);
		check_count(zone, &report);
	}
	quire_prezero_hugetlb_check(&report);
	put_online_mems();
	seq_printf(m, "marked_pages %lu\ndirty_blocks %lu\nmiscounted_pages %lu\n"
		   "hugetlb_pages %lu\n",
		   report.marked, report.dirty, report.miscounted, report.hugetlb);
	if (report.dirty || report.miscounted)
		quire_warn(&quire_prezero_feature,
			   "%lu marked blocks are not zero, %lu pages miscounted\n",
			   report.dirty, report.miscounted);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(prezero_check);

static int prezero_hibernate_set(void *data, u64 value)
{
	if (value > 1)
		return -EINVAL;
	quire_prezero_pm_event(value ? PM_HIBERNATION_PREPARE : PM_POST_HIBERNATION);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(prezero_hibernate_fops, NULL, prezero_hibernate_set, "%llu\n");

static int __init prezero_check_init(void)
{
	debugfs_create_file("prezero_check", 0400, quire_debugfs(), NULL, &prezero_check_fops);
	debugfs_create_file_unsafe("prezero_hibernate", 0200, quire_debugfs(), NULL,
				   &prezero_hibernate_fops);
	return 0;
}
late_initcall(prezero_check_init);
