// SPDX-License-Identifier: GPL-2.0
/*
 * A walk over all address spaces, for work that may sleep: undoing what a feature has done, or
 * checking it.
 *
 * The walk reaches each process through any of its threads, because the leader may have exited
 * first. Several processes may use one mm (CLONE_VM without CLONE_THREAD, vfork), so the walk
 * remembers each mm that it has visited.
 *
 * Locking: RCU covers the search for a process, task_lock() covers its mm. A walk belongs to one
 * caller. It may miss processes that start meanwhile: a caller that must not miss any walks again.
 *
 * Lifetime: the walk holds mm_count of each mm that it remembers, so that no other mm gets its
 * address. If there is no memory to remember an mm, the walk may visit it again.
 */
#include <linux/mmap_lock.h>
#include <linux/mm_types.h>
#include <linux/oom.h>
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/xarray.h>

#include "quire.h"

#define CREATE_TRACE_POINTS
#include <trace/events/quire_core.h>

/* How many processes to look at per RCU read-side critical section. */
#define PIDS_AT_ONCE 64

/* The mm of a process, for mmput(), or NULL. The RCU read lock is held. */
static struct mm_struct *get_mm_of(struct pid *pid)
{
	struct task_struct *task = pid_task(pid, PIDTYPE_TGID);
	struct mm_struct *mm = NULL;

	task = task ? find_lock_task_mm(task) : NULL;
	if (!task)
		return NULL;
	if (!(task->flags & PF_KTHREAD) && mmget_not_zero(task->mm))
		mm = task->mm;
	task_unlock(task);
	return mm;
}

/* Advance to the next process with an mm, within a limit. Returns false at the end. */
static bool move_on(struct quire_mm_walk *walk, struct mm_struct **mm)
{
	struct pid *pid;
	int i;

	guard(rcu)();
	for (i = 0, *mm = NULL; i < PIDS_AT_ONCE && !*mm; i++) {
		pid = find_ge_pid(walk->next, &init_pid_ns);
		if (!pid)
			return false;
		walk->next = pid_nr(pid) + 1;
		*mm = get_mm_of(pid);
	}
	return true;
}

static bool is_first_visit(struct quire_mm_walk *walk, struct mm_struct *mm)
{
	int err = xa_insert(&walk->seen, (unsigned long)mm >> L1_CACHE_SHIFT, mm, GFP_KERNEL);

	if (!err)
		mmgrab(mm);
	return err != -EBUSY;
}

/**
 * quire_mm_walk_begin - begin a walk over all address spaces
 * @walk: provided by the caller
 *
 * Context: any.
 */
void quire_mm_walk_begin(struct quire_mm_walk *walk)
{
	walk->next = 1;
	xa_init(&walk->seen);
}

/**
 * quire_mm_walk_next - advance to the next address space
 * @walk: the walk
 *
 * Context: may sleep.
 * Return: an mm for mmput(), or NULL at the end.
 */
struct mm_struct *quire_mm_walk_next(struct quire_mm_walk *walk)
{
	struct mm_struct *mm;

	while (move_on(walk, &mm)) {
		if (mm && is_first_visit(walk, mm)) {
			trace_mm_visit(mm, walk->next - 1);
			return mm;
		}
		if (mm)
			mmput(mm);
		cond_resched();
	}
	return NULL;
}

/**
 * quire_mm_walk_end - end a walk
 * @walk: the walk, at its end or not
 *
 * Context: may sleep.
 */
void quire_mm_walk_end(struct quire_mm_walk *walk)
{
	struct mm_struct *mm;
	unsigned long index;

	xa_for_each(&walk->seen, index, mm) {
		mmdrop(mm);
		cond_resched();
	}
	xa_destroy(&walk->seen);
}

/* How often to try mmap_lock. */
#define LOCK_INTERVAL (HZ / 100)

/**
 * quire_mm_lock - take mmap_lock for reading unless a signal comes
 * @mm: the mm; the caller holds mm_users
 *
 * For walks over all processes: a process that holds its mmap_lock for long must not block an
 * administrator who would rather give up. Linux has only mmap_read_lock_killable(), which a signal
 * that a shell or an interpreter handles does not interrupt.
 * Context: may sleep.
 * Return: 0, for mmap_read_unlock(), or -EINTR.
 */
int quire_mm_lock(struct mm_struct *mm)
{
	while (!mmap_read_trylock(mm)) {
		schedule_timeout_interruptible(LOCK_INTERVAL + 1);
		if (signal_pending(current))
			return -EINTR;
	}
	return 0;
}

/* Returns 0 or -EINTR. */
static int undo_in(struct mm_struct *mm, int flag, void (*undo)(struct mm_struct *mm))
{
	int ret;

	if (!test_bit(flag, &mm->flags))
		return 0;
	ret = quire_mm_lock(mm);
	if (ret)
		return ret;
	undo(mm);
	mmap_read_unlock(mm);
	return 0;
}

/* Returns 0 or -EINTR. */
static int undo_in_all(int flag, void (*undo)(struct mm_struct *mm))
{
	struct quire_mm_walk walk;
	struct mm_struct *mm;
	int ret = 0;

	quire_mm_walk_begin(&walk);
	while (!ret && (mm = quire_mm_walk_next(&walk))) {
		ret = undo_in(mm, flag, undo);
		mmput(mm);
		cond_resched();
	}
	quire_mm_walk_end(&walk);
	return ret;
}

/* How often, and at which interval, to look for what the last pass missed. */
#define DRAIN_PASSES	20
#define DRAIN_INTERVAL	(HZ / 20)

/**
 * quire_mm_drain - undo what a feature has done to all address spaces
 * @flag: the bit of mm->flags that is set if the feature has done anything to an mm
 * @undo: undoes it in one mm; called with mm_users and with mmap_lock held for reading
 * @left: how much is left in all address spaces
 *
 * What began before the feature's gate closed may add to it until it ends, so the walk is repeated
 * while anything is left.
 * Context: may sleep.
 * Return: 0, -EINTR if a signal came, or -EBUSY if something is left nevertheless.
 */
int quire_mm_drain(int flag, void (*undo)(struct mm_struct *mm), unsigned long (*left)(void))
{
	int i, ret = 0;

	for (i = 0; i < DRAIN_PASSES && left() && !ret; i++) {
		if (i)
			schedule_timeout_uninterruptible(DRAIN_INTERVAL);
		ret = undo_in_all(flag, undo);
	}
	return left() ? ret ?: -EBUSY : 0;
}
