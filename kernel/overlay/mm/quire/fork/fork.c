// SPDX-License-Identifier: GPL-2.0
/*
 * The fork feature: what fork() shares, the policy, the switch.
 *
 * Fork lets the child use each last-level page table that qualifies. A table that does not qualify
 * is copied as in vanilla: a reason to refuse is never an error. pt/pt.c says what happens to a
 * shared table afterwards.
 *
 * Locking: the hook runs in dup_mmap(), with both mmap_locks held for writing and the parent's VMA
 * locked, so neither the parent's faults nor its system calls run at the same time. The per-process
 * policy is two bits of mm->flags.
 *
 * Undo: "2" walks all processes and gives them their own tables. Fork then shares nothing and
 * unshares the shared tables that it meets, so a pass that finds no marked PMD is the last one.
 */
#include <linux/mmu_notifier.h>
#include <linux/pagewalk.h>
#include <linux/rcupdate.h>
#include <linux/sched/coredump.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/seq_file.h>
#include <linux/userfaultfd_k.h>

#include "fork.h"

#define CREATE_TRACE_POINTS
#include <trace/events/quire_fork.h>

DEFINE_STATIC_KEY_FALSE(quire_fork_key);
DEFINE_PER_CPU(unsigned long [FORK_NR_COUNTS], quire_fork_counts);

static const char * const fork_count_names[] = {
	[FORK_REFUSED_POLICY] = "refused_policy",
	[FORK_REFUSED_FEW_TABLES] = "refused_few_tables",
	[FORK_REFUSED_VMA] = "refused_vma",
	[FORK_REFUSED_RANGE] = "refused_range",
	[FORK_REFUSED_PINNED] = "refused_pinned",
	[FORK_REFUSED_GONE] = "refused_gone",
	[FORK_REFUSED_LIMIT] = "refused_limit",
	[FORK_REFUSED_NOTIFIER] = "refused_notifier",
	[FORK_REFUSED_OFF] = "refused_off",
	[FORK_BACKGROUND_DONE] = "background_done",
	[FORK_BACKGROUND_EXITED] = "background_exited",
	[FORK_BACKGROUND_NO_MEMORY] = "background_no_memory",
	NULL
};

static const struct quire_counters fork_counters = {
	.names = fork_count_names,
	.counts = (unsigned long __percpu *)quire_fork_counts,
};

/*
 * A process with fewer page tables forks as in vanilla: sharing a few tables saves less than the
 * faults that unshare them cost.
 */
static unsigned int min_tables = 16;
/* Whether to share mixed tables; see pt/mixed.c. They need code of the shm feature. */
static unsigned int mixed;
QUIRE_UINT_KNOB(min_tables, min_tables, 1, 1U << 30);
QUIRE_UINT_KNOB(mixed, mixed, 0, IS_ENABLED(CONFIG_QUIRE_SHM));

static const struct attribute * const fork_knobs[] = {
	&min_tables_knob.attr.attr,
	&mixed_knob.attr.attr,
	&quire_background_knob.attr.attr,
	NULL
};

VISIBLE_IF_KUNIT bool quire_fork_vma_shareable(struct vm_area_struct *dst,
					       struct vm_area_struct *src)
{
	return vma_is_anonymous(src) && !(src->vm_flags & QUIRE_PT_UNSHAREABLE) &&
	       (src->vm_flags & VM_MAYWRITE) && !userfaultfd_armed(src) &&
	       dst->vm_flags == src->vm_flags;
}

/**
 * quire_fork_mixes - may fork share mixed tables?
 *
 * Context: any; the answer may change at any moment.
 * Return: whether the knob says so.
 */
bool quire_fork_mixes(void)
{
	return static_branch_unlikely(&quire_fork_key) && READ_ONCE(mixed);
}

static bool few_tables(struct mm_struct *mm)
{
	return mm_pgtables_bytes(mm) / PAGE_SIZE < READ_ONCE(min_tables);
}

/* Returns the counter of the reason not to share, or -1 with *is_mixed set. */
static int refusal(struct vm_area_struct *dst, struct vm_area_struct *src, pmd_t *dst_pmd,
		   unsigned long addr, unsigned long end, bool *is_mixed)
{
	struct mm_struct *mm = src->vm_mm;
	unsigned long policy = READ_ONCE(mm->flags) & MMF_QUIRE_POLICY_MASK;
	bool whole = IS_ALIGNED(addr, PMD_SIZE) && end - addr == PMD_SIZE;

	if (!static_branch_likely(&quire_fork_key))
		return FORK_REFUSED_OFF;
	if (policy == MMF_QUIRE_NEVER)
		return FORK_REFUSED_POLICY;
	if (policy != MMF_QUIRE_ALWAYS && few_tables(mm))
		return FORK_REFUSED_FEW_TABLES;
	*is_mixed = READ_ONCE(mixed) && !(whole && vma_is_anonymous(src));
	if (!*is_mixed && !quire_fork_vma_shareable(dst, src))
		return FORK_REFUSED_VMA;
	if ((!*is_mixed && !whole) || !pmd_none(*dst_pmd))
		return FORK_REFUSED_RANGE;
	if (mm_has_notifiers(mm))
		return FORK_REFUSED_NOTIFIER;
	if (*is_mixed && !quire_pt_mixable(mm, dst->vm_mm, addr))
		return FORK_REFUSED_VMA;
	return -1;
}

/*
 * quire_pt_share(). A table that is charged to another memory cgroup is copied, and the copy
 * shared.
 */
static int share(struct vm_area_struct *dst_vma, struct vm_area_struct *src_vma, pmd_t *dst_pmd,
		 pmd_t *src_pmd, unsigned long addr, bool is_mixed)
{
	int users = quire_pt_share(src_vma, addr & PMD_MASK, dst_vma->vm_mm, src_pmd, dst_pmd,
				   is_mixed);

	if (users != -EXDEV)
		return users;
	users = quire_pt_unshare(src_vma, src_pmd, addr, QUIRE_PT_FORK);
	return users ?: quire_pt_share(src_vma, addr & PMD_MASK, dst_vma->vm_mm, src_pmd,
				       dst_pmd, is_mixed);
}

/* Maps quire_pt_share()'s error to a counter. */
static int refusal_of(int err)
{
	switch (err) {
	case -ENOENT:
		return FORK_REFUSED_GONE;
	case -ENOMEM:
		return FORK_REFUSED_LIMIT;
	default:
		return FORK_REFUSED_PINNED;
	}
}

/* Returns whether it was not one before. */
static bool note_sharer(struct mm_struct *mm)
{
	bool first = !test_bit(MMF_QUIRE_PT, &mm->flags);

	if (first)
		set_bit(MMF_QUIRE_PT, &mm->flags);
	quire_pt_on_mmlist(mm);
	return first;
}

/* Most processes are too small to share anything. Finding that out must be cheap. */
static bool too_small(struct mm_struct *mm)
{
	return !(READ_ONCE(mm->flags) & MMF_QUIRE_POLICY_MASK) && few_tables(mm) &&
	       static_branch_likely(&quire_fork_key);
}

/**
 * __quire_fork_copy - share one page table with the child, or have fork copy it
 * @dst_vma: the child's VMA
 * @src_vma: the parent's VMA
 * @dst_pmd: the child's PMD
 * @src_pmd: the parent's PMD; points to a page table
 * @addr: start of the range that fork is about to copy
 * @end: end of the range, within the page table
 *
 * Context: see the head of this file; may sleep.
 * Return: 1 if the child shares the table, 0 if fork must copy it, or -ENOMEM.
 */
int __quire_fork_copy(struct vm_area_struct *dst_vma, struct vm_area_struct *src_vma,
		      pmd_t *dst_pmd, pmd_t *src_pmd, unsigned long addr,
		      unsigned long end)
{
	struct mm_struct *src_mm = src_vma->vm_mm, *dst_mm = dst_vma->vm_mm;
	int reason, users, ret;
	bool is_mixed;

	if (!pmd_pt_marked(*src_pmd) && too_small(src_mm)) {
		fork_count(FORK_REFUSED_FEW_TABLES);
		trace_fork_fallback(src_mm, addr, fork_count_names[FORK_REFUSED_FEW_TABLES]);
		return 0;
	}
	/* Shared already, with another VMA that reaches into the table. */
	if (pmd_pt_cow(*dst_pmd))
		return 1;
	reason = refusal(dst_vma, src_vma, dst_pmd, addr, end, &is_mixed);
	if (reason < 0) {
		note_sharer(src_mm);
		/* Its first table: a fault sets the bit, too, but the child cannot run yet. */
		if (note_sharer(dst_mm))
			quire_background_add(dst_mm);
		users = share(dst_vma, src_vma, dst_pmd, src_pmd, addr, is_mixed);
		if (users > 0) {
			trace_fork_share(dst_mm, addr, users);
			/* Vanilla would, as it copies the table. */
			cond_resched();
			return 1;
		}
		reason = refusal_of(users);
	}
	fork_count(reason);
	trace_fork_fallback(src_mm, addr, fork_count_names[reason]);
	ret = quire_pt_unshare(src_vma, src_pmd, addr, QUIRE_PT_FORK);
	/* Linux copies the table now. It would silently skip a marked PMD. */
	VM_WARN_ON_ONCE(!ret && pmd_pt_marked(*src_pmd));
	return ret;
}

static int give_up(pmd_t *pmd, unsigned long addr, unsigned long next, struct mm_walk *walk)
{
	walk->action = ACTION_CONTINUE;
	if (pmd_pt_cow(*pmd))
		quire_pt_leave(walk->vma, pmd, addr & PMD_MASK);
	cond_resched();
	return 0;
}

static const struct mm_walk_ops give_up_ops = {
	.pmd_entry = give_up,
	.walk_lock = PGWALK_RDLOCK,
	QUIRE_READS_SHARED,
};

/**
 * __quire_fork_failed - leave the page tables that a failed fork has shared
 * @mm: the child's mm
 *
 * From where fork stopped, the child's tree contains the parent's VMAs.
 * Context: both mmap_locks are held for writing; may sleep.
 */
void __quire_fork_failed(struct mm_struct *mm)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, 0);

	if (!test_bit(MMF_QUIRE_PT, &mm->flags))
		return;
	for_each_vma(vmi, vma) {
		if (vma->vm_mm != mm)
			break;
		walk_page_range_vma(vma, vma->vm_start, vma->vm_end, &give_up_ops, NULL);
	}
}

/* The next pass unshares what this one could not. */
static void unshare(struct mm_struct *mm)
{
	quire_pt_unshare_mm(mm);
}

/* A fork that began before the gate closed may add users until it ends. */
static int fork_drain(void)
{
	return quire_mm_drain(MMF_QUIRE_PT, unshare, quire_pt_marked_pmds);
}

static int fork_show(struct seq_file *m, struct mm_struct *mm)
{
	struct quire_pt_tables tables;
	int ret = quire_pt_count_tables(mm, &tables);

	if (ret)
		return ret;
	seq_printf(m, "fork_shared_tables: %lu\n", tables.shared[QUIRE_PT_COW]);
	seq_printf(m, "fork_shared_kb: %lu\n", tables.shared[QUIRE_PT_COW] * (PMD_SIZE / 1024));
	seq_printf(m, "fork_charged_tables: %lu\n", tables.owned);
	return 0;
}

static struct quire_feature fork_feature = {
	.name = "fork",
	.key = &quire_fork_key,
	.start = quire_pt_start,
	.drain = fork_drain,
	.knobs = fork_knobs,
	.counters = { &quire_pt_cow_counters, &fork_counters },
	.show = fork_show,
};

static const struct quire_pt_class fork_class = {
	.feature = &fork_feature,
	.unshare = quire_pt_cow_unshare,
	.still_shared = quire_pt_cow_still_shared,
};

static int __init quire_fork_init(void)
{
	return quire_pt_register(QUIRE_PT_COW, &fork_class) ?: quire_register(&fork_feature);
}
late_initcall(quire_fork_init);
