// SPDX-License-Identifier: GPL-2.0
/*
 * What zeroes free memory: the CPU, or an engine that may be chosen instead.
 *
 * The CPU is the default and the last resort. Other engines are not trusted:
 * - The first and the last word of each transfer are not zero before it and must
 *   be zero after it, because some drivers do not report errors.
 * - If an engine fails on a block, the CPU zeroes the block.
 * - An engine is dropped if it reports a block as done that is not, does not come
 *   to an end, or fails MAX_FAILURES times in a row: the CPU does the work until an
 *   engine is chosen again.
 * - A block that an engine may still write to is never given back. It keeps a
 *   reference on each page, as if allocated, so that nothing waits for it to become
 *   free: taking a block of memory offline around it fails at once.
 *
 * Locking: quire_prezero_zero() is called while scrubbing is not halted, and the engine
 * is changed while it is halted, by one task at a time under engine_mutex; so no
 * engine is stopped while it zeroes. Tasks that zero may change engine_dropped and
 * engine_failures at any time.
 *
 * Lifetime: the engines are static. An engine is started before it is used, and
 * stopped when another has replaced it and its last block is done. Until then it
 * stays started, also while it is dropped or the feature is off.
 *
 * Undo: choosing "cpu" stops any other engine. Blocks that were left to an engine
 * stay allocated until the next boot.
 */
#define pr_fmt(fmt) "quire: prezero: " fmt

#include <linux/mutex.h>
#include <linux/quire/prezero.h>
#include <linux/rcupdate.h>
#include <linux/sizes.h>
#include <linux/string.h>

#include "../../internal.h"
#include "prezero.h"

#include <trace/events/quire_prezero.h>

#define CHUNK		SZ_64K
#define MAX_FAILURES	3
#define GUARD		(~0UL)

unsigned int quire_prezero_engine_timeout_ms = 2000;

/* Do we believe an engine that says it has stopped after a hang, or after a false "done"? */
unsigned int quire_prezero_trust_stop;

/* Key: H changed under engine_mutex while scrubbing is halted; A atomic, no lock. */
static DEFINE_MUTEX(engine_mutex);
static struct quire_zero_engine *engine = &quire_prezero_cpu_engine;	/* (H) */
static bool engine_dropped;		/* (A) */
static atomic_t engine_failures;	/* (A) */

/* Bypasses the caches, because it is not known yet which CPU will read the memory. */
static void clear_uncached(void *start, size_t len)
{
	unsigned long addr = (unsigned long)start, end = addr + len;

	for (; addr < end; addr += 64)
		asm volatile("movnti %1, (%0)\n\t"
			     "movnti %1, 8(%0)\n\t"
			     "movnti %1, 16(%0)\n\t"
			     "movnti %1, 24(%0)\n\t"
			     "movnti %1, 32(%0)\n\t"
			     "movnti %1, 40(%0)\n\t"
			     "movnti %1, 48(%0)\n\t"
			     "movnti %1, 56(%0)"
			     : : "r" (addr), "r" (0UL) : "memory");
}

/**
 * quire_prezero_clear - zero memory that nobody uses
 * @start: aligned to 64 bytes
 * @len: a multiple of 64
 *
 * Context: any.
 */
void quire_prezero_clear(void *start, size_t len)
{
	clear_uncached(start, len);
	/* These stores are weakly ordered, and another CPU may make the next ones. */
	wmb();
}

static int cpu_zero(struct quire_zero_engine *e, struct page *page, unsigned int order)
{
	void *start = page_address(page);
	size_t len = PAGE_SIZE << order, done;

	for (done = 0; done < len; done += CHUNK) {
		quire_prezero_clear(start + done, min_t(size_t, CHUNK, len - done));
		cond_resched_tasks_rcu_qs();
	}
	return 0;
}

struct quire_zero_engine quire_prezero_cpu_engine = {
	.name = "cpu",
	.zero = cpu_zero,
};

static struct quire_zero_engine * const engines[] = {
	&quire_prezero_cpu_engine,
	IS_ENABLED(CONFIG_DMA_ENGINE) ? &quire_prezero_dma_engine : &quire_prezero_cpu_engine,
};

/* Not instrumented, because KASAN does not allow access to free memory. */
__no_sanitize_address
static noinline void set_guards(void *start, size_t len, size_t transfer)
{
	size_t at;

	for (at = 0; at < len; at += transfer) {
		WRITE_ONCE(*(unsigned long *)(start + at), GUARD);
		WRITE_ONCE(*(unsigned long *)(start + at + transfer - sizeof(long)), GUARD);
	}
}

static bool guards_are_zero(void *start, size_t len, size_t transfer)
{
	size_t at;

	for (at = 0; at < len; at += transfer)
		if (!quire_prezero_is_zero(start + at, sizeof(long)) ||
		    !quire_prezero_is_zero(start + at + transfer - sizeof(long), sizeof(long)))
			return false;
	return true;
}

/**
 * quire_prezero_engine_try - have an engine zero a block, and check the result
 * @e: the engine
 * @page: the block's head, not on any list
 * @order: its order
 *
 * Context: may sleep.
 * Return: what the engine returned, or -EBADMSG if it claims to be done and is not.
 */
int quire_prezero_engine_try(struct quire_zero_engine *e, struct page *page, unsigned int order)
{
	void *start = page_address(page);
	size_t len = PAGE_SIZE << order, transfer = min(len, e->transfer);
	int ret;

	set_guards(start, len, transfer);
	ret = e->zero(e, page, order);
	if (ret)
		return ret;
	if (!guards_are_zero(start, len, transfer))
		return -EBADMSG;
	if (READ_ONCE(quire_prezero_verify) && !quire_prezero_is_zero(start, len))
		return -EBADMSG;
	return 0;
}

static void quarantine(struct page *page, unsigned int order)
{
	unsigned long i;

	for (i = 0; i < 1UL << order; i++)
		set_page_refcounted(page + i);
	prezero_count(PREZERO_QUARANTINED_PAGES, 1L << order);
	trace_prezero_quarantined(page, order);
}

static void drop(struct quire_zero_engine *e, int error)
{
	if (xchg(&engine_dropped, true))
		return;
	prezero_count(PREZERO_ENGINE_DROPS, 1);
	trace_prezero_engine_dropped(e->name, error);
	pr_warn("engine %s is dropped (%d), the CPU goes on\n", e->name, error);
}

static void failed(struct quire_zero_engine *e, int error)
{
	prezero_count(PREZERO_ENGINE_FAILURES, 1);
	trace_prezero_engine_failed(e->name, error);
	if (error == -EBADMSG || error == -EINPROGRESS || error == -ETIMEDOUT ||
	    atomic_inc_return(&engine_failures) >= MAX_FAILURES)
		drop(e, error);
}

/**
 * quire_prezero_zero - zero an isolated block
 * @page: its head
 * @order: its order
 *
 * Context: may sleep; scrubbing must not be halted.
 * Return: true if the block is lost to an engine that may still write to it; false
 * if it is zero.
 */
bool quire_prezero_zero(struct page *page, unsigned int order)
{
	struct quire_zero_engine *e = engine;
	int ret;

	if (e == &quire_prezero_cpu_engine || READ_ONCE(engine_dropped)) {
		cpu_zero(NULL, page, order);
		return false;
	}
	ret = quire_prezero_engine_try(e, page, order);
	if (!ret) {
		atomic_set(&engine_failures, 0);
		prezero_count(PREZERO_ENGINE_PAGES, 1L << order);
		return false;
	}
	failed(e, ret);
	if (ret == -EBADMSG && !READ_ONCE(quire_prezero_trust_stop)) {
		if (e->distrust)
			e->distrust(e);
		ret = -EINPROGRESS;
	}
	if (ret == -EINPROGRESS) {
		quarantine(page, order);
		return true;
	}
	cpu_zero(NULL, page, order);
	return false;
}

/**
 * quire_prezero_engine_name - the engine in use
 *
 * Context: any; takes no lock.
 * Return: its name; "cpu" if the chosen engine is dropped.
 */
const char *quire_prezero_engine_name(void)
{
	return READ_ONCE(engine_dropped) ? quire_prezero_cpu_engine.name : READ_ONCE(engine)->name;
}

static void change_engine(struct quire_zero_engine *to)
{
	struct quire_zero_engine *from = engine;

	quire_prezero_scrub_halt();
	WRITE_ONCE(engine, to);
	WRITE_ONCE(engine_dropped, false);
	atomic_set(&engine_failures, 0);
	quire_prezero_scrub_go_on();
	if (from->stop)
		from->stop(from);
}

/**
 * quire_prezero_engine_choose - use an engine from now on
 * @name: "cpu" or another engine's name
 *
 * Context: may sleep; takes engine_mutex, and halts scrubbing.
 * Return: 0, -EINVAL for an unknown name, or the error of the engine's start; after
 * that error the previous engine stays in use, or the CPU if it is the same engine.
 */
int quire_prezero_engine_choose(const char *name)
{
	struct quire_zero_engine *to = NULL;
	unsigned int i;
	int ret = 0;

	for (i = 0; i < ARRAY_SIZE(engines); i++)
		if (sysfs_streq(name, engines[i]->name))
			to = engines[i];
	if (!to)
		return -EINVAL;
	mutex_lock(&engine_mutex);
	if (to == engine && READ_ONCE(engine_dropped))
		change_engine(&quire_prezero_cpu_engine);
	if (to != engine) {
		ret = to->start ? to->start(to) : 0;
		if (!ret)
			change_engine(to);
	}
	mutex_unlock(&engine_mutex);
	return ret;
}
