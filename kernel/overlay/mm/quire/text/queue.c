// SPDX-License-Identifier: GPL-2.0
/*
 * The files whose text is to be collapsed.
 *
 * A mapping of executable file pages queues its file, keyed by inode. When it is due,
 * the worker makes an attempt at it, in runs of a limited number of blocks, and more
 * attempts as long as something is left that may still succeed.
 *
 * Locking: text_lock covers the slots, text_open and the arming of the worker.
 * It nests inside mmap_lock and the invalidate_lock, and takes i_lock and the worker's own
 * lock. There is one worker, so a TEXT_BUSY slot belongs to the worker, and other tasks may
 * change only its @start, @end, @due, @patience, @maps, @known, @again and @forget.
 *
 * Lifetime: a waiting slot holds no reference. It is freed before its inode is:
 * evict() calls quire_text_evict() first. So the queue keeps no deleted file's
 * blocks allocated, and does not affect memory pressure on inodes, locks on files,
 * unmounts and the end of namespaces. The worker holds a reference on the inode
 * during a run; if igrab() fails, the inode is being evicted, and the slot is freed.
 * A slot is also freed when the work is done, when memory is short, after TEXT_TRIES
 * attempts as soon as one finds no more of the file in the page cache than those
 * before, before its superblock is shut down (quire_text_shutdown()), and when the
 * feature is switched off.
 *
 * Undo: quire_text_close_queue() empties the queue.
 */
#define pr_fmt(fmt) "quire: " fmt

#include <linux/fs.h>
#include <linux/init.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/quire/text.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/swap.h>
#include <linux/wait.h>
#include <linux/writeback.h>

#include "text.h"

#define TEXT_SLOTS		64
#define TEXT_MIN_RETRY_MS	20U
#define TEXT_POSTPONE		3	/* delays, before an attempt and once more during it */
#define TEXT_LATE_TRIES		4	/* after so many the program has run for 1.6 s */
#define TEXT_DIRTY_TRIES	12	/* a minute by default */
#define TEXT_DIRTY_WAIT_S	5UL
#define TEXT_RUNS_PER_S		10
#define TEXT_MAPS_COUNTED	16U
#define TEXT_LEAD		(HZ / 10)	/* for each of them */
#define TEXT_READ_WAIT		(HZ / 10)
#define TEXT_STOP_WAIT_S	30

/* Key: L text_lock; O text_lock for writing, and the worker reads it without. */
static DEFINE_SPINLOCK(text_lock);
static struct text_slot text_slots[TEXT_SLOTS];
static bool text_open;				/* (O) */
static unsigned long text_not_before;		/* (L) jiffies; of the next run */
static unsigned long text_backoff_end;		/* (L) jiffies; while text_backing_off */
static bool text_backing_off;			/* (L) */
static const struct super_block *text_held;	/* (L) of the inode that the worker references */
static DECLARE_WAIT_QUEUE_HEAD(text_idle);
static struct kthread_worker *text_worker;

static void text_work_fn(struct kthread_work *work);
static DEFINE_KTHREAD_DELAYED_WORK(text_work, text_work_fn);

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
	kthread_mod_delayed_work(text_worker, &text_work, time_after(due, now) ? due - now : 0);
}

/*
 * The slot of a file, or NULL; then @free is one to use: a free one, or else one that has
 * waited for writeback, or NULL.
 */
static struct text_slot *text_find(const struct inode *inode, struct text_slot **free)
{
	int i;

	*free = NULL;
	for (i = 0; i < TEXT_SLOTS; i++) {
		struct text_slot *slot = &text_slots[i];

		if (slot->state == TEXT_FREE)
			*free = slot;
		else if (!READ_ONCE(slot->forget) && slot->inode == inode)
			return slot;
		else if (!*free && slot->state == TEXT_WAITING && slot->dirty_tries)
			*free = slot;
	}
	return NULL;
}

/* How long programs that start leave the worker alone, in jiffies. */
static unsigned long text_delay(void)
{
	return msecs_to_jiffies(READ_ONCE(quire_text_delay_ms));
}

static void text_fill(struct text_slot *slot, struct inode *inode, pgoff_t start,
		      pgoff_t end)
{
	if (slot->state == TEXT_WAITING)
		text_count(TEXT_FALLBACK_DIRTY, 1);
	*slot = (struct text_slot) {
		.state = TEXT_WAITING,
		.inode = inode,
		.sb = inode->i_sb,
		.start = start,
		.end = end,
		.due = jiffies + text_delay(),
		.patience = TEXT_POSTPONE * text_delay(),
		.cached = READ_ONCE(inode->i_data.nrpages),
		.known = test_and_set_bit(QUIRE_TEXT_AS_QUEUED, &inode->i_data.flags),
	};
}

static void text_free(struct text_slot *slot)
{
	lockdep_assert_held(&text_lock);
	slot->state = TEXT_FREE;
	slot->inode = NULL;
}

/*
 * A queued file was mapped again: do not copy while its program starts again. What this takes is
 * limited, because a program that is started all the time is to have huge pages, too.
 */
static void text_postpone(struct text_slot *slot)
{
	unsigned long now = jiffies, until = now + text_delay(), extra;
	unsigned long due = time_after(slot->due, now) ? slot->due : now;

	lockdep_assert_held(&text_lock);
	if (!time_after(until, due))
		return;
	extra = min(until - due, slot->patience);
	slot->patience -= extra;
	if (extra)
		WRITE_ONCE(slot->due, due + extra);
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
		WRITE_ONCE(slot->again, true);
		slot->known = true;
		slot->maps++;
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

/**
 * quire_text_queued - is a block's text queued
 * @inode: the file's
 * @start: the block's first page
 *
 * Context: does not sleep; takes text_lock.
 * Return: true if the worker is to look at it.
 */
bool quire_text_queued(const struct inode *inode, pgoff_t start)
{
	struct text_slot *slot, *free;
	bool queued;

	spin_lock(&text_lock);
	slot = text_find(inode, &free);
	queued = slot && start >= slot->start && start < slot->end;
	spin_unlock(&text_lock);
	return queued;
}

/*
 * When a slot's turn is: each time that it was mapped again moves it forward, but not so far that
 * the others would never have theirs.
 */
static unsigned long text_turn(const struct text_slot *slot)
{
	return slot->due - min(slot->maps, TEXT_MAPS_COUNTED) * TEXT_LEAD;
}

/* Does a slot come before another? First of all the one for which the LRU batches were emptied. */
static bool text_is_before(const struct text_slot *slot, const struct text_slot *other)
{
	if (slot->pass.undrained != other->pass.undrained)
		return slot->pass.undrained;
	return time_before(text_turn(slot), text_turn(other));
}

/* Of the slots that are due, the one whose turn it is, or NULL. */
static struct text_slot *text_first_due(void)
{
	struct text_slot *first = NULL;
	int i;

	lockdep_assert_held(&text_lock);
	for (i = 0; i < TEXT_SLOTS && text_open; i++) {
		struct text_slot *slot = &text_slots[i];

		if (slot->state == TEXT_WAITING && time_after_eq(jiffies, slot->due) &&
		    (!first || text_is_before(slot, first)))
			first = slot;
	}
	return first;
}

/*
 * Give a due slot to the worker, to begin an attempt or to continue one, with a
 * reference on its inode. There is none to be had once the inode is being evicted.
 * @drained says whether the per-CPU LRU batches were emptied just now.
 */
static struct text_slot *text_begin(bool drained)
{
	struct text_slot *slot;

	spin_lock(&text_lock);
	while ((slot = text_first_due()) && !igrab(slot->inode))
		text_free(slot);
	if (slot) {
		slot->state = TEXT_BUSY;
		text_held = slot->sb;
		if (!slot->pass.unfinished) {
			slot->again = false;
			slot->patience = TEXT_POSTPONE * text_delay();
			slot->pass = (struct text_pass) {
				.start = slot->start,
				.next = slot->start,
				.end = slot->end,
			};
		}
		slot->pass.unfinished = false;
		slot->pass.gave_way = false;
		slot->pass.drained = drained;
		slot->pass.undrained = false;
		slot->pass.pays = slot->known || (slot->tries >= TEXT_LATE_TRIES &&
						  mapping_mapped(slot->inode->i_mapping));
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

/**
 * quire_text_gives_way - is the worker to let a program start first
 * @slot: TEXT_BUSY
 *
 * Context: the worker only; takes no lock.
 * Return: true if the file was mapped again a moment ago, unless that happened often already.
 */
bool quire_text_gives_way(const struct text_slot *slot)
{
	return time_before(jiffies, READ_ONCE(slot->due));
}

static void text_count_pass(const struct text_pass *pass)
{
	enum text_counter why;

	for (why = TEXT_FALLBACK_FIRST; why <= TEXT_FALLBACK_LAST; why++)
		text_count(why, pass->left[why]);
}

/* Wait for the file to be written back, but not forever: somebody may have switched that off. */
static bool text_await_writeback(struct text_slot *slot)
{
	unsigned long interval = msecs_to_jiffies(dirty_writeback_interval * 10);

	/* Some set it to hours. */
	interval = clamp(interval, msecs_to_jiffies(TEXT_MIN_RETRY_MS), TEXT_DIRTY_WAIT_S * HZ);
	if (!slot->pass.left[TEXT_FALLBACK_DIRTY] || slot->dirty_tries == TEXT_DIRTY_TRIES)
		return false;
	slot->dirty_tries++;
	slot->due += interval;
	return true;
}

/* Was anything left undone that the next attempt may be able to do? */
static bool text_worth_retry(const struct text_pass *pass)
{
	return pass->left[TEXT_FALLBACK_WRITER] || pass->left[TEXT_FALLBACK_COLD] ||
		pass->left[TEXT_FALLBACK_BUSY];
}

/* Does the slot wait for another attempt? If so, sets when it is due. */
static bool text_requeue(struct text_slot *slot)
{
	const struct text_pass *pass = &slot->pass;
	unsigned int delay_ms = READ_ONCE(quire_text_delay_ms);
	unsigned long delay = msecs_to_jiffies(max(delay_ms, TEXT_MIN_RETRY_MS));
	bool grown;

	lockdep_assert_held(&text_lock);
	/* If it only waits for a drain, it is still the first. */
	if (time_before(slot->due, jiffies) && !pass->undrained)
		slot->due = jiffies;
	if (slot->forget || !text_open || pass->left[TEXT_FALLBACK_NOMEM])
		return false;
	if (text_await_writeback(slot))
		return true;
	if (pass->unfinished) {
		slot->due += pass->gave_way ? TEXT_READ_WAIT : 0;
		return true;
	}
	slot->maps /= 2;
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

/* Have the slot wait for the next attempt, or free it. Returns whether it waits for a drain. */
static bool text_put_back(struct text_slot *slot)
{
	const struct text_pass *pass = &slot->pass;

	lockdep_assert_held(&text_lock);
	text_count(TEXT_GAVE_WAY, pass->gave_way);
	if (text_requeue(slot)) {
		slot->state = TEXT_WAITING;
		return pass->undrained;
	}
	if (slot->forget || !text_open)
		text_count(TEXT_FORGOTTEN, 1);
	else
		text_count_pass(pass);
	if (pass->left[TEXT_FALLBACK_NOMEM]) {
		text_backing_off = true;
		text_backoff_end = jiffies + msecs_to_jiffies(READ_ONCE(quire_text_backoff_ms));
	}
	text_free(slot);
	return false;
}

/* The run goes on with another file. Returns whether this one waits for a drain. */
static bool text_end(struct text_slot *slot)
{
	struct inode *inode = slot->inode;
	bool undrained;

	spin_lock(&text_lock);
	undrained = text_put_back(slot);
	spin_unlock(&text_lock);

	/* This may evict it, which frees the slot; the filesystem may wait for us meanwhile. */
	quire_text_set_nice(0);
	iput(inode);
	quire_text_set_nice(MAX_NICE);

	spin_lock(&text_lock);
	text_held = NULL;
	spin_unlock(&text_lock);
	wake_up_all(&text_idle);
	return undrained;
}

static void text_work_fn(struct kthread_work *work)
{
	unsigned int rate = READ_ONCE(quire_text_blocks_per_s) * TEXT_COST_BLOCK;
	unsigned long start = jiffies, took, rest;
	int share = DIV_ROUND_UP(rate, TEXT_RUNS_PER_S), budget = share;
	unsigned int drains = 0;
	struct text_slot *slot;
	bool drain = false;

	while (budget > 0) {
		/*
		 * Waits for work on all CPUs, one of which a real-time task may keep: no inode
		 * is held, which umount or "off" would have to wait for.
		 */
		if (drain) {
			/* Others may wait for its mutex. */
			quire_text_set_nice(0);
			lru_add_drain_all();
			quire_text_set_nice(MAX_NICE);
			drains++;
		}
		slot = text_begin(drain);
		if (!slot)
			break;
		quire_text_do_file(slot, &budget);
		/* Not before: a small budget would never suffice for more. */
		if (drain && drains > 1)
			budget -= TEXT_COST_DRAIN;
		drain = text_end(slot);
	}
	if (drains)
		budget -= TEXT_COST_DRAIN;
	spin_lock(&text_lock);
	/* Rest for what was done, however little: programs may come one by one. */
	if (budget < share) {
		took = jiffies - start;
		rest = DIV_ROUND_UP((unsigned long)(share - budget) * HZ, rate);
		/* At least half of the time, however long a block takes. */
		text_not_before = start + max(rest, 2 * took);
	}
	text_arm();
	spin_unlock(&text_lock);
}

/* ---- forgetting ---- */

static bool text_matches(const struct text_slot *slot, const struct super_block *sb)
{
	return slot->state != TEXT_FREE && (!sb || slot->sb == sb);
}

/* Drop the files of @sb (NULL: all). The worker drops its own after the current block. */
static void text_forget(const struct super_block *sb)
{
	int i;

	spin_lock(&text_lock);
	for (i = 0; i < TEXT_SLOTS; i++) {
		struct text_slot *slot = &text_slots[i];

		if (!text_matches(slot, sb))
			continue;
		if (slot->state == TEXT_WAITING) {
			text_count(TEXT_FORGOTTEN, 1);
			text_free(slot);
		} else {
			WRITE_ONCE(slot->forget, true);
		}
	}
	spin_unlock(&text_lock);
}

/* Nobody has a reference to @inode any more, not the worker either, and igrab() fails. */
void __quire_text_evict(struct inode *inode)
{
	struct text_slot *slot, *free;

	spin_lock(&text_lock);
	slot = text_find(inode, &free);
	if (slot) {
		VM_WARN_ON_ONCE(slot->state != TEXT_WAITING);
		text_count(TEXT_FORGOTTEN, 1);
		text_free(slot);
	}
	spin_unlock(&text_lock);
	quire_text_unreserve(&inode->i_data);
}

/**
 * quire_text_uses - is a file of a filesystem in the queue
 * @sb: the filesystem, only compared; NULL: any
 *
 * A file counts until the worker has dropped its reference.
 *
 * Context: does not sleep; takes text_lock.
 * Return: true if there is one.
 */
bool quire_text_uses(const struct super_block *sb)
{
	bool uses;
	int i;

	spin_lock(&text_lock);
	uses = text_held && (!sb || text_held == sb);
	for (i = 0; i < TEXT_SLOTS && !uses; i++)
		uses = text_matches(&text_slots[i], sb);
	spin_unlock(&text_lock);
	return uses;
}

/* Nobody can map its files any more, and the worker drops its file between two blocks. */
void __quire_text_shutdown(struct super_block *sb)
{
	text_forget(sb);
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
	WRITE_ONCE(text_open, true);
	text_backing_off = false;
	text_not_before = jiffies;
	spin_unlock(&text_lock);
	quire_text_open_places();
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
	text_forget(NULL);
	quire_text_close_places();
	if (!wait_event_timeout(text_idle, !quire_text_uses(NULL), TEXT_STOP_WAIT_S * HZ))
		pr_warn("text: a filesystem does not answer the worker\n");
}

/**
 * quire_text_make_worker - start the worker's thread
 *
 * Like khugepaged, it yields to all other tasks, also to the program that starts.
 *
 * Context: at boot.
 * Return: 0 or -errno.
 */
int __init quire_text_make_worker(void)
{
	text_worker = kthread_create_worker(KTW_FREEZABLE, "quire_text");
	if (IS_ERR(text_worker))
		return PTR_ERR(text_worker);
	sched_set_normal(text_worker->task, MAX_NICE);
	return 0;
}
