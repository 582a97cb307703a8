// SPDX-License-Identifier: GPL-2.0
/*
 * Background unsharing: a policy on top of shared tables, off by default.
 *
 * After a fork, a parent pays for the copy of a table with its first write to
 * each 2 MiB. While background_tables_per_s is set, a worker gives the children
 * tables of their own ahead of that, at most so many a second. The parent is
 * then the last user of the old ones, which its faults adopt without a copy.
 * That the child's side copies, so that the parent need not wait, is the idea of
 * Async-fork (Pang et al., VLDB 2023).
 *
 * The worker does what a write fault of the child does, with mmap_lock held for
 * reading, and stops for that period when somebody waits for the lock. It gives
 * a child up when a page for a table is not to be had without direct reclaim,
 * when the OOM killer took its memory, and when nobody else uses the mm.
 *
 * Locking: children_lock covers the list. The worker alone removes from it, so
 * what it took a pointer to stays. Lifetime: an entry holds mm_count, and
 * mm_users only while its tables are unshared: no process lives longer for it.
 */
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/oom.h>
#include <linux/pagewalk.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "fork.h"

/* Also how long a child is left alone at first: it may exec, or exit. */
#define PERIOD max((unsigned int)HZ / 100, 1U)

struct waiting_child {
	struct list_head list;
	struct mm_struct *mm;
	unsigned long next;	/* where to go on */
};

static unsigned int background_tables_per_s;
struct quire_uint_attr quire_background_knob = {
	.attr = __ATTR(background_tables_per_s, 0644, quire_uint_show, quire_uint_store),
	.value = &background_tables_per_s,
	.max = 1U << 20,
};

static LIST_HEAD(children);
static DEFINE_SPINLOCK(children_lock);

static void background_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(background, background_work);

/* So long that a period with one table is not too much. */
static void start_worker(unsigned int per_s)
{
	queue_delayed_work(system_unbound_wq, &background, max(PERIOD, HZ / per_s));
}

/* A fork adds its child with each table; two at once may do so several times. */
static bool added_last(struct mm_struct *mm)
{
	guard(spinlock)(&children_lock);
	return !list_empty(&children) &&
	       list_last_entry(&children, struct waiting_child, list)->mm == mm;
}

/**
 * quire_background_add - have a new child's tables unshared later
 * @mm: the child's, which shares another table now
 *
 * Context: fork, may sleep. Does nothing while the policy is off; a child that
 * there is no memory for is left to its faults.
 */
void quire_background_add(struct mm_struct *mm)
{
	unsigned int per_s = READ_ONCE(background_tables_per_s);
	struct waiting_child *child;

	if (likely(!per_s) || added_last(mm))
		return;
	child = kmalloc(sizeof(*child), GFP_KERNEL | __GFP_NOWARN);
	if (!child) {
		fork_count(FORK_BACKGROUND_NO_MEMORY);
		return;
	}
	mmgrab(mm);
	child->mm = mm;
	child->next = 0;
	spin_lock(&children_lock);
	list_add_tail(&child->list, &children);
	spin_unlock(&children_lock);
	start_worker(per_s);
}

struct unsharing {
	struct waiting_child *child;
	unsigned int budget;	/* tables left for this period */
};

/* 0: go on; 1: another time, child->next tells where; -errno: give up. */
static int unshare_one(pmd_t *pmd, unsigned long addr, unsigned long next,
		       struct mm_walk *walk)
{
	struct unsharing *todo = walk->private;
	int ret;

	walk->action = ACTION_CONTINUE;
	if (!pmd_pt_cow(pmdp_get_lockless(pmd)))
		return 0;
	/* The process is gone, and its tables wait for us alone. */
	if (atomic_read(&walk->mm->mm_users) == 1)
		return -ESRCH;
	if (mmap_lock_is_contended(walk->mm))
		todo->budget = 0;
	if (!todo->budget) {
		todo->child->next = addr;
		return 1;
	}
	todo->budget--;
	ret = __quire_pt_unshare(walk->vma, pmd, addr, QUIRE_PT_BACKGROUND, 0);
	cond_resched();
	return ret;
}

static const struct mm_walk_ops background_ops = {
	.pmd_entry = unshare_one,
	.walk_lock = PGWALK_RDLOCK,
	QUIRE_READS_SHARED,
};

/* As unshare_one(), for all that the budget allows. */
static int unshare_some(struct unsharing *todo)
{
	struct mm_struct *mm = todo->child->mm;
	int ret;

	if (!mmget_not_zero(mm))
		return -ESRCH;
	mmap_read_lock(mm);
	/* A fork that failed half-way leaves a tree that must not be walked. */
	ret = check_stable_address_space(mm) ? -ESRCH :
	      walk_page_range(mm, todo->child->next, TASK_SIZE_MAX, &background_ops, todo);
	mmap_read_unlock(mm);
	mmput(mm);
	return ret;
}

static void forget(struct waiting_child *child, int result)
{
	fork_count(!result ? FORK_BACKGROUND_DONE :
		   result == -ENOMEM ? FORK_BACKGROUND_NO_MEMORY : FORK_BACKGROUND_EXITED);
	spin_lock(&children_lock);
	list_del(&child->list);
	spin_unlock(&children_lock);
	mmdrop(child->mm);
	kfree(child);
}

static struct waiting_child *first_child(void)
{
	guard(spinlock)(&children_lock);
	return list_first_entry_or_null(&children, struct waiting_child, list);
}

static void move_to_end(struct waiting_child *child)
{
	guard(spinlock)(&children_lock);
	list_move_tail(&child->list, &children);
}

/* How many tables may be unshared in a period, at least one. */
VISIBLE_IF_KUNIT unsigned int quire_background_budget(unsigned int per_s)
{
	return max(mul_u64_u32_div(per_s, PERIOD, HZ), 1ULL);
}

static void background_work(struct work_struct *work)
{
	unsigned int per_s = READ_ONCE(background_tables_per_s);
	struct unsharing todo = { .budget = quire_background_budget(per_s) };

	while ((todo.child = first_child())) {
		int ret = per_s ? unshare_some(&todo) : -ECANCELED;

		if (ret > 0) {
			move_to_end(todo.child);
			start_worker(per_s);
			return;
		}
		forget(todo.child, ret);
	}
}
