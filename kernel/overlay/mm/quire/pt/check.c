// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/kernel/debug/quire/pt_check: check the invariants of shared page tables.
 *
 * Reading it visits every process and compares
 *  - each shared table's users with the marked PMDs that point to it,
 *  - its owner with the processes that use it, or the orphans' mm,
 *  - each process's RSS counters with the entries that are charged to it,
 *  - the count of marked PMDs with those found,
 *  - tables of shared memory with the registry, and with what is charged for them,
 *  - the PMDs that point to these tables with the process's count of them,
 *  - the VMAs that the users of a mixed table have where it has entries,
 * and checks that no migration entry is left.
 *
 * Writing "walk" to it walks over the writer's memory like a walker that does not know of shared
 * tables. It fails with ENOENT if that met no shared table. The debug kernel warns.
 *
 * The check is exact only while no process changes its memory, so a test runs it when all is quiet.
 * A failed comparison is repeated a few times before it is reported.
 *
 * Locking: check_lock serialises readers. Each process is visited with mmap_lock held for writing,
 * and each VMA is locked for writing before it is walked, which keeps faults out. One page table at
 * a time is visited under its PTL.
 */
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/hash.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/pagewalk.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/swapops.h>
#include <linux/xarray.h>

#include "../../internal.h"
#include "pt.h"

#define ATTEMPTS 5
#define MAX_COMPLAINTS 20

static DEFINE_MUTEX(check_lock);

struct seen_table {
	unsigned long found;	/* marked PMDs that point to it */
	unsigned long users;	/* the table's own count */
	struct mm_struct *owner;
	bool owner_has_it;
	bool file;		/* maps shared memory */
	bool laid_out;
	unsigned long layout;	/* hash of what its entries map, from the first user's VMAs */
};

struct check {
	struct seq_file *m;
	struct xarray tables;	/* PFN -> struct seen_table */
	pmd_t *pmd;		/* PMD of the shared table whose VMAs are being walked */
	struct seen_table *table;	/* that table */
	unsigned long layout;	/* hash of what these VMAs map */
	long *counts;		/* where the table's entries are counted */
	unsigned long marked;
	unsigned long processes;
	pid_t pid;		/* the process that is walked */
	unsigned int complaints;
	long rss[NR_MM_COUNTERS];	/* of that process */
	unsigned long shm_pmds;		/* of that process */
	long orphans[NR_MM_COUNTERS];
	long shm[NR_MM_COUNTERS];
	unsigned long migrations;	/* entries of migrations that have not ended */
	unsigned long shm_marked, shm_tables;
	int error;
};

#define complain(check, fmt, ...) do {					\
	if ((check)->complaints++ < MAX_COMPLAINTS)				\
		seq_printf((check)->m, fmt, ##__VA_ARGS__);			\
} while (0)

static void count_entry(struct check *check, long *rss, struct vm_area_struct *vma,
			unsigned long addr, pte_t pte)
{
	struct page *page;
	swp_entry_t entry;

	if (pte_none(pte))
		return;
	if (pte_present(pte)) {
		page = vm_normal_page(vma, addr, pte);
		if (page)
			rss[mm_counter(page_folio(page))]++;
		return;
	}
	entry = pte_to_swp_entry(pte);
	/* pfn_swap_entry_folio() asserts that the folio of a migration entry is locked. */
	if (!non_swap_entry(entry))
		rss[MM_SWAPENTS]++;
	else if (is_migration_entry(entry))
		rss[mm_counter(pfn_folio(swp_offset_pfn(entry)))]++;
}

static struct seen_table *seen(struct check *check, unsigned long pfn)
{
	struct seen_table *table = xa_load(&check->tables, pfn);

	if (table)
		return table;
	table = kzalloc(sizeof(*table), GFP_ATOMIC);
	if (table && xa_is_err(xa_store(&check->tables, pfn, table, GFP_ATOMIC))) {
		kfree(table);
		table = NULL;
	}
	if (!table)
		check->error = -ENOMEM;
	return table;
}

/* Returns where to count the entries; NULL if they are charged to another process. */
static long *note_shared(struct check *check, struct seen_table *table, pmd_t *pmd,
			 struct mm_struct *mm)
{
	long *rss = NULL;

	table->users = quire_pt_users(pmd);
	table->owner = quire_pt_charged(pmd);
	if (pmd_pt_file(*pmd)) {
		check->shm_marked++;
		check->shm_pmds++;
		if (!table->found) {
			check->shm_tables++;
			rss = check->shm;
		}
		table->file = true;
		table->found++;
		return rss;
	}
	check->marked++;
	if (table->owner == mm) {
		table->owner_has_it = true;
		rss = check->rss;
	} else if (table->owner == quire_pt_orphans && !table->found) {
		rss = check->orphans;
	}
	table->found++;
	return rss;
}

/* All of the process's VMAs that reach into the table have been walked. */
static void end_table(struct check *check)
{
	struct seen_table *table = check->table;

	if (table && table->laid_out && table->layout != check->layout)
		complain(check, "a mixed table's users have other areas, one is pid %d\n",
			 check->pid);
	if (table) {
		table->laid_out = true;
		table->layout = check->layout;
	}
	check->layout = 0;
	check->table = NULL;
	check->pmd = NULL;
}

/* Called for each of the process's VMAs that reaches into a shared table. */
static void begin_table(struct check *check, pmd_t *pmd, struct mm_struct *mm)
{
	if (check->pmd == pmd)
		return;
	end_table(check);
	check->pmd = pmd;
	check->table = seen(check, pmd_pfn(*pmd));
	check->counts = check->table ? note_shared(check, check->table, pmd, mm) : NULL;
}

static unsigned long laid_out(struct vm_area_struct *vma, unsigned long addr)
{
	unsigned long what = vma->vm_flags & (VM_READ | VM_WRITE | VM_EXEC | VM_SHARED);

	if (vma->vm_file)
		what += (unsigned long)vma->vm_file->f_mapping + linear_page_index(vma, addr);
	return hash_long(what ^ addr, BITS_PER_LONG);
}

static long *check_shared(struct check *check, struct vm_area_struct *vma, pmd_t *pmd,
			  unsigned long addr, unsigned long next)
{
	const struct quire_pt_class *class = quire_pt_classes[quire_pt_kind(*pmd)];
	const char *wrong = class->check ? class->check(vma, pmd, addr & PMD_MASK) : NULL;
	bool mixed = pmd_pt_cow(*pmd) && quire_pt_is_mixed(pmd);

	if (wrong)
		complain(check, "table at %lx of pid %d: %s\n", addr, check->pid, wrong);
	if (!mixed && (!IS_ALIGNED(addr, PMD_SIZE) || next - addr != PMD_SIZE))
		complain(check, "table at %lx of pid %d is not in one VMA\n", addr, check->pid);
	begin_table(check, pmd, vma->vm_mm);
	return check->counts;
}

static int check_pmd_entry(pmd_t *pmd, unsigned long addr, unsigned long next,
			   struct mm_walk *walk)
{
	struct check *check = walk->private;
	bool mixed = false;
	long *rss = check->rss;
	spinlock_t *ptl;
	pte_t *pte, *start;

	walk->action = ACTION_CONTINUE;
	ptl = pmd_trans_huge_lock(pmd, walk->vma);
	if (ptl) {
		if (pmd_present(*pmd) && !is_huge_zero_pmd(*pmd))
			rss[mm_counter(page_folio(pmd_page(*pmd)))] += HPAGE_PMD_NR;
		else if (is_pmd_migration_entry(*pmd))
			rss[MM_ANONPAGES] += HPAGE_PMD_NR;
		check->migrations += is_pmd_migration_entry(*pmd);
		spin_unlock(ptl);
		return 0;
	}
	start = pte = __quire_pte_offset_map_lock(walk->mm, pmd, addr, &ptl);
	if (!pte)
		return 0;
	if (pmd_pt_marked(*pmd)) {
		rss = check_shared(check, walk->vma, pmd, addr, next);
		mixed = pmd_pt_cow(*pmd) && quire_pt_is_mixed(pmd);
	}
	for (; addr != next; pte++, addr += PAGE_SIZE) {
		check->migrations += !pte_present(ptep_get(pte)) &&
				     is_migration_entry(pte_to_swp_entry(ptep_get(pte)));
		if (rss)
			count_entry(check, rss, walk->vma, addr, ptep_get(pte));
		if (mixed && !pte_none(ptep_get(pte)))
			check->layout += laid_out(walk->vma, addr);
	}
	pte_unmap_unlock(start, ptl);
	return 0;
}

static const struct mm_walk_ops check_ops = {
	.pmd_entry = check_pmd_entry,
	.walk_lock = PGWALK_WRLOCK,	/* also keeps out faults under a VMA's lock */
	QUIRE_READS_SHARED,
};

static void compare_pmds(struct check *check, struct mm_struct *mm)
{
	unsigned long counted = quire_pt_classes[QUIRE_PT_FILE]->pmds(mm);

	if (check->shm_pmds != counted)
		complain(check, "pid %d: %lu PMDs of shared memory counted, found %lu\n",
			 check->pid, counted, check->shm_pmds);
}

static void check_mm_struct(struct check *check, struct mm_struct *mm, pid_t pid)
{
	int i;

	memset(check->rss, 0, sizeof(check->rss));
	check->shm_pmds = 0;
	check->pid = pid;
	mmap_write_lock(mm);
	/* hugetlb's mappings are not walked and are in no RSS counter. */
	walk_page_range(mm, 0, TASK_SIZE_MAX, &check_ops, check);
	end_table(check);
	for (i = 0; i < NR_MM_COUNTERS; i++) {
		long says = percpu_counter_sum(&mm->rss_stat[i]);

		if (says != check->rss[i])
			complain(check, "pid %d: RSS counter %d says %ld, found %ld\n",
				 pid, i, says, check->rss[i]);
	}
	if (quire_pt_classes[QUIRE_PT_FILE])
		compare_pmds(check, mm);
	mmap_write_unlock(mm);
	check->processes++;
}

static void compare_shm(struct check *check, const struct quire_pt_class *class)
{
	long says;
	int i;

	if (check->shm_tables != class->tables())
		complain(check, "%lu tables of shared memory registered, found %lu\n",
			 class->tables(), check->shm_tables);
	for (i = 0; i < NR_MM_COUNTERS; i++) {
		says = class->charged(i);
		if (says != check->shm[i])
			complain(check, "shm: RSS counter %d says %ld, found %ld\n",
				 i, says, check->shm[i]);
	}
}

static void compare_tables(struct check *check)
{
	struct seen_table *table;
	unsigned long pfn, counted;
	int i;

	xa_for_each(&check->tables, pfn, table) {
		if (table->users != table->found)
			complain(check, "table %lx: %lu users, found %lu\n", pfn,
				 table->users, table->found);
		if (!table->file && table->owner != quire_pt_orphans && !table->owner_has_it)
			complain(check, "table %lx: its owner does not have it\n", pfn);
	}
	counted = quire_pt_marked_pmds();
	if (counted != check->marked)
		complain(check, "%lu marked PMDs counted, found %lu\n", counted, check->marked);
	for (i = 0; i < NR_MM_COUNTERS; i++) {
		long says = percpu_counter_sum(&quire_pt_orphans->rss_stat[i]);

		if (says != check->orphans[i])
			complain(check, "orphans: RSS counter %d says %ld, found %ld\n",
				 i, says, check->orphans[i]);
	}
	if (quire_pt_classes[QUIRE_PT_FILE])
		compare_shm(check, quire_pt_classes[QUIRE_PT_FILE]);
}

static void visit_all(struct check *check)
{
	struct quire_mm_walk walk;
	struct mm_struct *mm;

	quire_mm_walk_begin(&walk);
	while ((mm = quire_mm_walk_next(&walk))) {
		check_mm_struct(check, mm, walk.next - 1);
		mmput(mm);
		cond_resched();
	}
	quire_mm_walk_end(&walk);
}

static int check_once(struct seq_file *m, struct check *check)
{
	struct seen_table *table;
	unsigned long pfn;

	memset(check, 0, sizeof(*check));
	check->m = m;
	xa_init(&check->tables);
	visit_all(check);
	compare_tables(check);
	if (check->migrations)
		complain(check, "%lu migration entries\n", check->migrations);
	seq_printf(m, "%lu processes, %lu marked PMDs, orphans %ld pages, shm %lu PMDs of %lu tables with %ld pages, %u complaints\n",
		   check->processes, check->marked, check->orphans[MM_ANONPAGES],
		   check->shm_marked, check->shm_tables, check->shm[MM_SHMEMPAGES],
		   check->complaints);
	xa_for_each(&check->tables, pfn, table)
		kfree(table);
	xa_destroy(&check->tables);
	return check->error;
}

static int pt_check_show(struct seq_file *m, void *v)
{
	static struct check check;
	int attempts = ATTEMPTS;
	int ret;

	mutex_lock(&check_lock);
	while ((ret = check_once(m, &check)) == 0 && check.complaints && --attempts) {
		/* Discard the report of this attempt. */
		m->count = 0;
		msleep(50);
	}
	mutex_unlock(&check_lock);
	return ret;
}

/* Map a shared table like a walker that takes every table for private: it must be refused. */
static int forget_pmd_entry(pmd_t *pmd, unsigned long addr, unsigned long next,
			    struct mm_walk *walk)
{
	bool *refused = walk->private;
	pte_t *pte;

	walk->action = ACTION_CONTINUE;
	if (!quire_pt_cow(pmd))
		return 0;
	pte = pte_offset_map(pmd, addr);
	if (!pte) {
		*refused = true;
		return 0;
	}
	pte_unmap(pte);
	return -EUCLEAN;
}

static const struct mm_walk_ops forget_ops = {
	.pmd_entry = forget_pmd_entry,
	.walk_lock = PGWALK_RDLOCK,
	QUIRE_READS_SHARED,
};

static ssize_t pt_check_write(struct file *file, const char __user *ubuf, size_t len,
			      loff_t *pos)
{
	struct mm_struct *mm = current->mm;
	bool refused = false;
	char word[8] = "";
	int ret;

	if (len >= sizeof(word))
		return -EINVAL;
	if (copy_from_user(word, ubuf, len))
		return -EFAULT;
	if (!sysfs_streq(word, "walk"))
		return -EINVAL;
	mmap_read_lock(mm);
	ret = walk_page_range(mm, 0, TASK_SIZE, &forget_ops, &refused);
	mmap_read_unlock(mm);
	if (!ret && !refused)
		ret = -ENOENT;
	return ret ? : len;
}
DEFINE_SHOW_STORE_ATTRIBUTE(pt_check);

static int __init pt_check_init(void)
{
	debugfs_create_file("pt_check", 0600, quire_debugfs(), NULL, &pt_check_fops);
	return 0;
}
late_initcall(pt_check_init);
