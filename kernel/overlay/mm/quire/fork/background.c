// SPDX-License-Identifier: GPL-2.0
/*
 * Background unsharing: a policy on top of shared page tables, off by default.
 *
 * After a fork, the parent pays for the copy of a page table with its first write to each 2 MiB.
 * While background_tables_per_s is set, a worker gives the children their own tables before that,
 * up to that many per second. The parent is then the last user of the old tables, and its faults
 * adopt them without a copy. Copying on the child's side, so that the parent need not wait, is the
 * idea of Async-fork (Pang et al., VLDB 2023).
 *
 * The worker does what a write fault of the child does, with mmap_lock held for reading. It stops
 * for the current period when another task waits for that lock. It gives up on a child if it cannot
 * get a page for a table without direct reclaim, if the OOM killer took the child's memory, or if
 * nobody else uses the mm.
 *
 * Locking: children_lock covers the list. Fork takes it with both mmap_locks held, and nothing is
 * taken inside it. Only the worker removes entries, so an entry that it has taken a pointer to
 * stays. Fork adds its child before it shares the first table. The worker then waits for the
 * child's mmap_lock until fork is done.
 *
 * Lifetime: an entry holds mm_count. It holds mm_users only while the worker unshares tables, so no
 * process lives longer because of it.
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

/* Also the delay before a new child's turn: it may exec or exit. */
#define PERIOD max((unsigned int)HZ / 100, 1U)

/* Key: C constant, L children_lock, W the worker alone */
struct waiting_child {
	struct list_head list;	/* L */
	struct mm_struct *mm;	/* C */
	unsigned long next;	/* W: where to continue */
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

/* The delay is long enough that one table per period does not exceed the rate. */
static void start_worker(unsigned int per_s)
{
	queue_delayed_work(system_unbound_wq, &background, max(PERIOD, HZ / per_s));
}

/**
 * quire_background_add - have a new child's tables unshared later
 * @mm: the child's mm, which is about to share its first table
 *
 * Does nothing while the policy is off. If there is no memory for an entry, the child's faults
 * unshare its tables.
 * Context: fork, which holds the child's mmap_lock for writing until all tables are shared; may
 * sleep.
 */
void quire_background_add(struct mm_struct *mm)
{
	unsigned int per_s = READ_ONCE(background_tables_per_s);
	struct waiting_child *child;

	mmap_assert_write_locked(mm);
	if (likely(!per_s))
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

/* Returns 0 to go on, 1 to continue at child->next in another period, or -errno to give up. */
static int unshare_one(pmd_t *pmd, unsigned long addr, unsigned long next,
		       struct mm_walk *walk)
{
	struct unsharing *todo = walk->private;
	int ret;

	walk->action = ACTION_CONTINUE;
	if (!pmd_pt_cow(pmdp_get_lockless(pmd)))
		return 0;
	/* The process is gone; only this reference keeps its tables. */
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

/* unshare_one() for all tables that the budget allows. */
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

/* How many tables may be unshared in a period; at least one. */
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
		cond_resched();
	}
}
