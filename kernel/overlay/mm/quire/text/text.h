/* SPDX-License-Identifier: GPL-2.0 */
/* What the files of the text feature share. */
#ifndef _MM_QUIRE_TEXT_H
#define _MM_QUIRE_TEXT_H

#include <linux/bitmap.h>
#include <linux/fs.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/page_owner.h>
#include <linux/percpu.h>
#include <linux/quire/text.h>

/* In the order of quire_text_counter_names. */
enum text_counter {
	TEXT_QUEUED,			/* a file was queued, or found queued */
	TEXT_SKIPPED_HUGE,		/* all blocks were huge already */
	TEXT_SKIPPED_POLICY,		/* THP is off: for all, the process or the mapping */
	TEXT_SKIPPED_FILE,		/* not a regular file of the page cache, or DAX */
	TEXT_SKIPPED_SMALL,		/* no whole block in the mapping */
	TEXT_SKIPPED_UNALIGNED,		/* address and offset are not congruent */
	TEXT_SKIPPED_BACKOFF,		/* memory was short a while ago */
	TEXT_SKIPPED_QUEUE_FULL,
	TEXT_GAVE_WAY,			/* the worker waited, as the file was being read */
	TEXT_COLLAPSED_BLOCKS,
	TEXT_COPIED_AHEAD,		/* blocks copied before they were unmapped */
	TEXT_COPIES_VOID,		/* opens for writing and truncations during a collapse */
	TEXT_PROMOTED_BLOCKS,		/* collapsed without a copy */
	TEXT_PROMOTE_BUSY,		/* not, as somebody used a page */
	TEXT_GATHERED_PAGES,		/* moved to their frames for it */
	TEXT_RESERVED_BLOCKS,		/* huge pages set aside for blocks that are being read */
	TEXT_RESERVE_NOMEM,		/* none was free */
	TEXT_RESERVE_UNFILLED,		/* given back, the block was not read whole */
	TEXT_FALLBACK_WRITER,		/* open for writing; counted by file */
	TEXT_FALLBACK_DIRTY,		/* was not written back in time; by file */
	TEXT_FALLBACK_COLD,		/* too few pages resident; by block, as below */
	TEXT_FALLBACK_NOMEM,
	TEXT_FALLBACK_LIMIT,		/* limit of the memcg or of khugepaged */
	TEXT_FALLBACK_SHARE,		/* huge file pages have their share of memory */
	TEXT_FALLBACK_BUSY,		/* pages locked, pinned or isolated by others */
	TEXT_FALLBACK_LOCKED,		/* somebody has locked the text in memory */
	TEXT_FALLBACK_REALTIME,		/* a real-time task has it mapped */
	TEXT_FALLBACK_MAPPINGS,		/* too many processes have it mapped */
	TEXT_FALLBACK_TRUNCATED,	/* the file ends before the block does */
	TEXT_FALLBACK_FIRST = TEXT_FALLBACK_WRITER,
	TEXT_FALLBACK_LAST = TEXT_FALLBACK_TRUNCATED,
	TEXT_FORGOTTEN,			/* files dropped from the queue: umount, switched off */
	TEXT_DROPPED_WRITER,		/* a writer or truncation emptied a page cache */
	TEXT_DRAINED_BLOCKS,		/* split by enabled=2 */
	TEXT_DROPPED_DRAIN,		/* dropped by enabled=2, as they did not split */
	TEXT_PLACED_PROGRAM,
	TEXT_PLACED_MAP,
	TEXT_PLACE_SMALL,		/* program without a whole block of text */
	TEXT_PLACE_ALIGN,		/* the program's own alignment forbids placing it */
	TEXT_PLACE_MAP_SMALL,		/* mapping without a whole block */
	TEXT_READ_BLOCKS,		/* read as one folio, by a fault */
	TEXT_READ_PARTIAL,		/* some of the block was resident: base pages, as below */
	TEXT_READ_NOMEM,
	TEXT_READ_SHARE,		/* huge file pages have their share of memory */
	TEXT_WIDE_FAULTS,		/* mapped more than vanilla would */
	TEXT_NR_COUNTERS,
};

DECLARE_PER_CPU(unsigned long [TEXT_NR_COUNTERS], quire_text_counts);

static inline void text_count(enum text_counter which, unsigned long nr)
{
	this_cpu_add(quire_text_counts[which], nr);
}

extern unsigned int quire_text_placement;

extern unsigned int quire_text_readahead;
extern unsigned int quire_text_fault_around_kb;

/* The whole blocks of the file in a VMA: from @start up to, not including, @end. May be none. */
static inline bool text_blocks(struct vm_area_struct *vma, pgoff_t *start, pgoff_t *end)
{
	*start = round_up(vma->vm_pgoff, HPAGE_PMD_NR);
	*end = round_down(vma->vm_pgoff + vma_pages(vma), HPAGE_PMD_NR);
	return *start < *end;
}

/* Are its addresses congruent, so that a PMD can map its blocks? */
static inline bool text_congruent(struct vm_area_struct *vma)
{
	return IS_ALIGNED((vma->vm_start >> PAGE_SHIFT) - vma->vm_pgoff, HPAGE_PMD_NR);
}

/* Does nobody refer to a folio but page tables, the page cache and the caller? A guess if unlocked. */
static inline bool text_unreferenced(const struct folio *folio)
{
	return quire_text_refs(NULL, folio) ==
		folio_nr_pages(folio) + folio_test_private(folio) + 1;
}

/* The delay doubles with each attempt: 3.1 s from the first to the last. */
#define TEXT_TRIES		6

/*
 * The worker's budget: a look at a block costs 1, collapsing or reading it this much. Emptying the
 * LRU batches disturbs all CPUs. The first time in a run does not shorten the run, so that a program
 * that starts has huge pages as soon as it can, but the next run waits for it. By default the
 * batches are emptied at most 32 times a second.
 */
#define TEXT_COST_BLOCK		32
#define TEXT_COST_DRAIN		(8 * TEXT_COST_BLOCK)

enum text_slot_state {
	TEXT_FREE,
	TEXT_WAITING,		/* queued; due at @due */
	TEXT_BUSY,		/* the worker is at it */
};

/**
 * struct text_pass - one attempt at a file, which may take several runs
 * @start: first page of the range
 * @next: first page of the block to do next
 * @end: page after the range
 * @resident: how many of the blocks' pages are in the page cache
 * @left: how many blocks were not collapsed, by reason (TEXT_FALLBACK_...)
 * @unfinished: the run's budget is spent, or the worker gave way
 * @gave_way: as the file is being read, and something else wants the CPU
 * @drained: the per-CPU LRU batches were emptied just before the worker took the file
 * @undrained: a block waits for that
 * @pays: blocks of which only a part is used are worth reading whole
 */
struct text_pass {
	pgoff_t start, next, end;
	unsigned long resident;
	unsigned int left[TEXT_NR_COUNTERS];
	bool unfinished;
	bool gave_way;
	bool drained;
	bool undrained;
	bool pays;
};

/**
 * struct text_slot - a file whose text is to be collapsed
 * @state: (L) what the worker does with it
 * @inode: (C) referenced while TEXT_BUSY; the file's own inode, not overlayfs's
 * @sb: (C) of @inode; only compared
 * @start: (L) first page of the range, at the start of a block
 * @end: (L) page after the range
 * @due: (A) when to work on it, or to go on, in jiffies
 * @patience: (L) for how long it may still be put off if it is mapped again, in jiffies
 * @tries: (L) attempts so far that left blocks to do, at most TEXT_TRIES - 1
 * @dirty_tries: (L) attempts so far that found the file dirty
 * @resident: (L) the most pages that one of them found in the page cache
 * @cached: (W) how many pages the file had there when it was queued, or the worker gave way last or
 *	was alone on its CPU
 * @maps: (L) how often it was mapped again; half of that after each attempt
 * @pass: (W) the current attempt
 * @known: (L) the inode was queued before, or was mapped more than once
 * @again: (L) mapped again since the attempt began
 * @forget: (F) to be dropped at once
 *
 * Key: L text_lock; C set under text_lock when queued, constant until TEXT_FREE;
 * W the worker alone while TEXT_BUSY, else text_lock; A written under text_lock, the worker
 * reads it without; F only ever set, under text_lock
 * or by the worker, which reads it without the lock.
 */
struct text_slot {
	enum text_slot_state state;
	struct inode *inode;
	const struct super_block *sb;
	pgoff_t start, end;
	unsigned long due, patience;
	unsigned int tries, dirty_tries;
	unsigned long resident, cached;
	unsigned int maps;
	struct text_pass pass;
	bool known;
	bool again;
	bool forget;
};

/**
 * struct text_piece - a huge page whose frames are taken one by one
 * @head: the first frame; aligned
 * @left: how many frames were not taken; each has one reference
 * @free: which ones
 */
struct text_piece {
	struct page *head;
	unsigned int left;
	DECLARE_BITMAP(free, HPAGE_PMD_NR);
};

/* The task that stands for a process, under RCU, and at what a memcg begins to reclaim. */
#ifdef CONFIG_MEMCG
static inline struct task_struct *text_owner(const struct mm_struct *mm)
{
	return rcu_dereference(mm->owner);
}

static inline unsigned long text_memcg_limit(const struct mem_cgroup *memcg)
{
	return min(READ_ONCE(memcg->memory.max), READ_ONCE(memcg->memory.high));
}

/* A frozen folio becomes part of another: the charge goes over, the reference is put later. */
static inline void text_forget_memcg(struct folio *folio)
{
	folio->memcg_data = 0;
}

static inline void text_put_memcg(struct mem_cgroup *memcg, unsigned int nr)
{
	if (memcg)
		css_put_many(&memcg->css, nr);
}
#else
static inline struct task_struct *text_owner(const struct mm_struct *mm)
{
	return NULL;
}

static inline unsigned long text_memcg_limit(const struct mem_cgroup *memcg)
{
	return ULONG_MAX;
}

static inline void text_forget_memcg(struct folio *folio)
{
}

static inline void text_put_memcg(struct mem_cgroup *memcg, unsigned int nr)
{
}
#endif

/* Does a task take its memory from where a policy says? */
#ifdef CONFIG_NUMA
static inline bool text_has_policy(const struct task_struct *task)
{
	return task->mempolicy;
}
#else
static inline bool text_has_policy(const struct task_struct *task)
{
	return false;
}
#endif

/*
 * Is each allocation recorded with its order? Then a large folio would be freed that was never
 * allocated.
 */
#ifdef CONFIG_PAGE_OWNER
static inline bool text_allocations_recorded(void)
{
	return static_branch_unlikely(&page_owner_inited) ||
		IS_ENABLED(CONFIG_MEM_ALLOC_PROFILING);
}
#else
static inline bool text_allocations_recorded(void)
{
	return IS_ENABLED(CONFIG_MEM_ALLOC_PROFILING);
}
#endif

/* text.c */
extern const char * const quire_text_counter_names[];
bool quire_text_block_huge(struct address_space *mapping, pgoff_t index);

/* queue.c */
extern unsigned int quire_text_delay_ms;
extern unsigned int quire_text_backoff_ms;
extern unsigned int quire_text_blocks_per_s;

enum text_counter quire_text_enqueue(struct inode *inode, pgoff_t start, pgoff_t end);
bool quire_text_queued(const struct inode *inode, pgoff_t start);
bool quire_text_wanted(const struct text_slot *slot);
bool quire_text_gives_way(const struct text_slot *slot);
bool quire_text_uses(const struct super_block *sb);
void quire_text_open_queue(void);
void quire_text_close_queue(void);
int quire_text_make_worker(void);

/* worker.c */
extern unsigned int quire_text_min_resident;
extern unsigned int quire_text_max_permil;

unsigned int quire_text_resident(struct address_space *mapping, pgoff_t start, pgoff_t *first);
unsigned long quire_text_room(struct mem_cgroup *memcg);
bool quire_text_share_left(unsigned int blocks);
enum text_counter quire_text_stays_mapped(struct address_space *mapping, pgoff_t start,
					  unsigned int most);
void quire_text_set_nice(int nice);
void quire_text_do_file(struct text_slot *slot, int *budget);

/*
 * copy.c; where a test can hold: a block was copied, or a file is about to be emptied. The number
 * after each says that somebody waits there. And what a test can hold back: that places expire.
 */
#define TEXT_HOLD_COPIED	1
#define TEXT_HOLD_DROP		3
#define TEXT_HOLD_EXPIRY	5

void quire_text_hold(u32 place);
bool quire_text_held_back(u32 what);

/* drain.c */
int quire_text_drain(void);

/* promote.c */
int quire_text_promote_block(struct inode *inode, pgoff_t start);

/* reserve.c */
/* With more frames left than this, pages are not moved, and memory goes back after a second. */
#define TEXT_MUCH_LEFT		(HPAGE_PMD_NR / 4)

int quire_text_make_places(void);
void quire_text_open_places(void);
void quire_text_close_places(void);
void quire_text_unreserve(const struct address_space *mapping);
bool quire_text_claim_piece(const struct address_space *mapping, pgoff_t start,
			    struct text_piece *piece);
void quire_text_free_piece(const struct text_piece *piece);

/* place.c; for its unit tests, too */
bool quire_text_holds_block(loff_t offset, unsigned long len);

#endif /* _MM_QUIRE_TEXT_H */
