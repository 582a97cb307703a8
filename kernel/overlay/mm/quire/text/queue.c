// SPDX-License-Identifier: GPL-2.0
/*
 * The files whose text is to be collapsed.
 *
 * A mapping of executable file pages queues its file, keyed by inode. When it is due,
 * the worker makes an attempt at it, in runs of a limited number of blocks, and more
 * attempts as long as something is left that may still succeed.
 *
 * Locking: text_lock covers the slots, text_open and the arming of the worker.
 * It nests inside mmap_lock and takes only the workqueue's own locks. There is
 * one worker, so a TEXT_BUSY slot belongs to the worker, and other tasks may
 * change only its @start, @end, @again and @forget; a TEXT_ENDING slot belongs
 * to the task that set this state.
 *
 * Lifetime: a queued slot holds a reference on its inode, and on no file, mount
 * or superblock: the queue does not affect locks on the file, unmounts or the end
 * of namespaces. The reference is dropped when the work is done, when memory is
 * short, after TEXT_TRIES attempts as soon as one finds no more of the file in the
 * page cache than those before, when the file has no name left, before its
 * superblock is shut down (quire_text_shutdown()), and when the feature is
 * switched off.
 *
 * Undo: quire_text_close_queue() empties the queue.
 */
#define pr_fmt(fmt) "quire: " fmt

#include <linux/fs.h>
#include <linux/init.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/quire/text.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "text.h"

#define TEXT_SLOTS		64
#define TEXT_TRIES		6	/* the delay doubles each time: 3.1 s from first to last */
#define TEXT_MIN_RETRY_MS	20U
#define TEXT_POSTPONE		4	/* delays, from the first mapping */
#define TEXT_RUNS_PER_S		10
#define TEXT_STOP_WAIT_S	30

/* Key: L text_lock; O text_lock for writing, and the worker reads it without. */
static DEFINE_SPINLOCK(text_lock);
static struct text_slot text_slots[TEXT_SLOTS];
static bool text_open;				/* (O) */
static unsigned long text_not_before;		/* (L) jiffies; of the next run */
static unsigned long text_backoff_end;		/* (L) jiffies; while text_backing_off */
static bool text_backing_off;			/* (L) */
static DECLARE_WAIT_QUEUE_HEAD(text_idle);
static struct workqueue_struct *text_wq;

static void text_work_fn(struct work_struct *work);
static DECLARE_DELAYED_WORK(text_work, text_work_fn);

unsigned int quire_text_delay_ms = 100;
unsigned int quire_text_backoff_ms = 10000;
unsigned int quire_text_blocks_per_s = 256;

/* ---- queue ---- */

/* Wake the worker when the first waiting slot is due. */
static void text_arm(void)
{
	unsigned long now = jiffies, due = 0;
	bool any = false;
	int i;

	lockdep_assert_held(&text_lock);
	for (i = 0; i < TEXT_SLOTS; i++) {
		struct text_slot *slot = &text_slots[i];

		if (slot->state != TEXT_WAITING)
			continue;
		if (!any || time_before(slot->due, due))
			due = slot->due;
		any = true;
	}
	if (!any || !text_open)
		return;
	if (time_before(due, text_not_before))
		due = text_not_before;
	mod_delayed_work(text_wq, &text_work, time_after(due, now) ? due - now : 0);
}

static struct text_slot *text_find(const struct inode *inode, struct text_slot **free)
{
	int i;

	*free = NULL;
	for (i = 0; i < TEXT_SLOTS; i++) {
		struct text_slot *slot = &text_slots[i];

		if (slot->state == TEXT_FREE)
			*free = slot;
		else if (slot->state != TEXT_ENDING && !slot->forget &&
			 slot->inode == inode)
			return slot;
	}
	return NULL;
}

static void text_fill(struct text_slot *slot, struct inode *inode, pgoff_t start,
		      pgoff_t end)
{
	unsigned long delay = msecs_to_jiffies(READ_ONCE(quire_text_delay_ms));

	ihold(inode);
	*slot = (struct text_slot) {
		.state = TEXT_WAITING,
		.inode = inode,
		.sb = inode->i_sb,
		.start = start,
		.end = end,
		.due = jiffies + delay,
		.latest = jiffies + TEXT_POSTPONE * delay,
	};
}

/* A queued file was mapped again: do not copy while its program starts again. */
static void text_postpone(struct text_slot *slot)
{
	unsigned long due = jiffies + msecs_to_jiffies(READ_ONCE(quire_text_delay_ms));

	lockdep_assert_held(&text_lock);
	if (slot->state != TEXT_WAITING || slot->pass.unfinished)
		return;
	if (time_after(due, slot->latest))
		due = slot->latest;
	if (time_after(due, slot->due))
		slot->due = due;
}

/**
 * quire_text_enqueue - have a file's text collapsed
 * @inode: referenced
 * @start: first page of the range, at the start of a block
 * @end: page after the range
 *
 * Context: mmap_lock is held; does not sleep; takes text_lock.
 * Return: TEXT_QUEUED, or why the file was not queued.
 */
enum text_counter quire_text_enqueue(struct inode *inode, pgoff_t start, pgoff_t end)
{
	enum text_counter why = TEXT_QUEUED;
	struct text_slot *slot, *free;

	spin_lock(&text_lock);
	slot = text_find(inode, &free);
	if (text_backing_off && time_after_eq(jiffies, text_backoff_end))
		text_backing_off = false;
	if (!text_open) {
		why = TEXT_SKIPPED_POLICY;
	} else if (text_backing_off) {
		why = TEXT_SKIPPED_BACKOFF;
	} else if (slot) {
		slot->start = min(slot->start, start);
		slot->end = max(slot->end, end);
		slot->again = true;
		text_postpone(slot);
	} else if (free) {
		text_fill(free, inode, start, end);
		text_arm();
	} else {
		why = TEXT_SKIPPED_QUEUE_FULL;
	}
	spin_unlock(&text_lock);
	return why;
}

/* Give a due slot to the worker, to begin an attempt or to continue one. */
static struct text_slot *text_begin(void)
{
	struct text_slot *slot = NULL;
	int i;

	spin_lock(&text_lock);
	for (i = 0; i < TEXT_SLOTS && text_open && !slot; i++)
		if (text_slots[i].state == TEXT_WAITING &&
		    time_after_eq(jiffies, text_slots[i].due))
			slot = &text_slots[i];
	if (slot) {
		slot->state = TEXT_BUSY;
		if (!slot->pass.unfinished) {
			slot->again = false;
			slot->pass = (struct text_pass) { .next = slot->start, .end = slot->end };
		}
		slot->pass.unfinished = false;
		slot->pass.drained = false;
	}
	spin_unlock(&text_lock);
	return slot;
}

/**
 * quire_text_wanted - is the worker to go on with a file
 * @slot: TEXT_BUSY
 *
 * Context: the worker only; takes no lock.
 * Return: false if the file is to be forgotten, or the feature is being switched off.
 */
bool quire_text_wanted(const struct text_slot *slot)
{
	return !READ_ONCE(slot->forget) && READ_ONCE(text_open);
}

static void text_count_pass(const struct text_pass *pass)
{
	enum text_counter why;

	for (why = TEXT_FALLBACK_FIRST; why <= TEXT_FALLBACK_LAST; why++)
		text_count(why, pass->left[why]);
}

/* Was anything left undone that the next attempt may be able to do? */
static bool text_worth_retry(const struct text_pass *pass)
{
	return pass->left[TEXT_FALLBACK_WRITER] || pass->left[TEXT_FALLBACK_DIRTY] ||
		pass->left[TEXT_FALLBACK_COLD] || pass->left[TEXT_FALLBACK_BUSY];
}

/* Does the slot wait for another attempt? If so, sets when it is due. */
static bool text_requeue(struct text_slot *slot)
{
	const struct text_pass *pass = &slot->pass;
	unsigned int delay_ms = READ_ONCE(quire_text_delay_ms);
	unsigned long delay = msecs_to_jiffies(max(delay_ms, TEXT_MIN_RETRY_MS));
	bool grown;

	lockdep_assert_held(&text_lock);
	slot->due = jiffies;
	if (slot->forget || !text_open || pass->left[TEXT_FALLBACK_NOMEM])
		return false;
	if (pass->unfinished)
		return true;
	if (slot->again) {
		slot->tries = 0;
		slot->resident = 0;
		slot->due += delay;
		return true;
	}
	if (!text_worth_retry(pass))
		return false;
	slot->due += delay << slot->tries;
	grown = pass->resident > slot->resident;
	slot->resident = max(slot->resident, pass->resident);
	/* After the last try, only for a program that is still being read. */
	if (slot->tries == TEXT_TRIES - 1)
		return grown;
	slot->tries++;
	return true;
}

/* Drop the inode of a slot that the caller has made TEXT_ENDING. */
static void text_release(struct text_slot *slot)
{
	iput(slot->inode);

	spin_lock(&text_lock);
	slot->state = TEXT_FREE;
	slot->inode = NULL;
	spin_unlock(&text_lock);
	wake_up_all(&text_idle);
}

static void text_end(struct text_slot *slot)
{
	const struct text_pass *pass = &slot->pass;
	bool forgotten;

	spin_lock(&text_lock);
	if (text_requeue(slot)) {
		slot->state = TEXT_WAITING;
		spin_unlock(&text_lock);
		return;
	}
	forgotten = slot->forget || !text_open;
	slot->state = TEXT_ENDING;
	if (pass->left[TEXT_FALLBACK_NOMEM]) {
		text_backing_off = true;
		text_backoff_end = jiffies + msecs_to_jiffies(READ_ONCE(quire_text_backoff_ms));
	}
	spin_unlock(&text_lock);

	if (forgotten)
		text_count(TEXT_FORGOTTEN, 1);
	else
		text_count_pass(pass);
	text_release(slot);
}

static void text_work_fn(struct work_struct *work)
{
	unsigned int rate = READ_ONCE(quire_text_blocks_per_s);
	unsigned int share = DIV_ROUND_UP(rate, TEXT_RUNS_PER_S), budget = share;
	struct text_slot *slot;

	while (budget && (slot = text_begin())) {
		quire_text_do_file(slot, &budget);
		text_end(slot);
	}
	spin_lock(&text_lock);
	/* Rest for what was done, however little: programs may come one by one. */
	if (budget < share)
		text_not_before = jiffies + DIV_ROUND_UP((share - budget) * HZ, rate);
	text_arm();
	spin_unlock(&text_lock);
}

/* ---- forgetting ---- */

static bool text_matches(const struct text_slot *slot, const struct super_block *sb)
{
	return slot->state != TEXT_FREE && (!sb || slot->sb == sb);
}

/* Drop one waiting file of @sb (NULL: any). Returns whether there was one. */
static bool text_forget_one(const struct super_block *sb)
{
	struct text_slot *found = NULL;
	int i;

	spin_lock(&text_lock);
	for (i = 0; i < TEXT_SLOTS && !found; i++) {
		struct text_slot *slot = &text_slots[i];

		if (!text_matches(slot, sb))
			continue;
		if (slot->state == TEXT_WAITING) {
			slot->state = TEXT_ENDING;
			found = slot;
		} else {
			WRITE_ONCE(slot->forget, true);
		}
	}
	spin_unlock(&text_lock);
	if (!found)
		return false;
	text_count(TEXT_FORGOTTEN, 1);
	text_release(found);
	return true;
}

/**
 * quire_text_uses - is a file of a filesystem in the queue
 * @sb: the filesystem, only compared; NULL: any
 *
 * A file counts until its inode has been dropped.
 *
 * Context: does not sleep; takes text_lock.
 * Return: true if there is one.
 */
bool quire_text_uses(const struct super_block *sb)
{
	bool uses = false;
	int i;

	spin_lock(&text_lock);
	for (i = 0; i < TEXT_SLOTS && !uses; i++)
		uses = text_matches(&text_slots[i], sb);
	spin_unlock(&text_lock);
	return uses;
}

/* Nobody can map its files any more, and the worker drops its file between two blocks. */
void __quire_text_shutdown(struct super_block *sb)
{
	while (text_forget_one(sb))
		;
	wait_event(text_idle, !quire_text_uses(sb));
}

/* ---- switching ---- */

/**
 * quire_text_open_queue - let files be queued
 *
 * Context: does not sleep; takes text_lock.
 */
void quire_text_open_queue(void)
{
	spin_lock(&text_lock);
	text_open = true;
	text_backing_off = false;
	text_not_before = jiffies;
	spin_unlock(&text_lock);
}

/**
 * quire_text_close_queue - drop all files and let none be queued
 *
 * The worker stops after the current block. That may take long if a device does not
 * answer, so this does not wait forever.
 *
 * Context: may sleep.
 */
void quire_text_close_queue(void)
{
	spin_lock(&text_lock);
	WRITE_ONCE(text_open, false);
	spin_unlock(&text_lock);
	cancel_delayed_work(&text_work);
	while (text_forget_one(NULL))
		;
	if (!wait_event_timeout(text_idle, !quire_text_uses(NULL), TEXT_STOP_WAIT_S * HZ))
		pr_warn("text: a filesystem does not answer the worker\n");
}

/* Like khugepaged, the worker yields to all other tasks, also to the program that starts. */
int __init quire_text_make_worker(void)
{
	struct workqueue_attrs *attrs = alloc_workqueue_attrs();
	int ret = -ENOMEM;

	text_wq = alloc_workqueue("quire_text", WQ_UNBOUND | WQ_FREEZABLE, 1);
	if (attrs && text_wq) {
		attrs->nice = MAX_NICE;
		ret = apply_workqueue_attrs(text_wq, attrs);
	}
	if (ret && text_wq)
		destroy_workqueue(text_wq);
	free_workqueue_attrs(attrs);
	return ret;
}
