/* SPDX-License-Identifier: GPL-2.0 */
/* What the files of the text feature share. */
#ifndef _MM_QUIRE_TEXT_H
#define _MM_QUIRE_TEXT_H

#include <linux/mm.h>
#include <linux/percpu.h>

struct super_block;

/* In the order of text_counter_names. */
enum text_counter {
	TEXT_QUEUED,			/* a file was queued, or found queued */
	TEXT_SKIPPED_HUGE,		/* all blocks were huge already */
	TEXT_SKIPPED_POLICY,		/* THP is off: for all, the process or the mapping */
	TEXT_SKIPPED_FILE,		/* not a regular file of the page cache, or DAX */
	TEXT_SKIPPED_SMALL,		/* no whole block in the mapping */
	TEXT_SKIPPED_UNALIGNED,		/* address and offset are not congruent */
	TEXT_SKIPPED_BACKOFF,		/* memory was short a while ago */
	TEXT_SKIPPED_QUEUE_FULL,
	TEXT_COLLAPSED_BLOCKS,
	TEXT_COPIED_AHEAD,		/* blocks copied before they were unmapped */
	TEXT_COPIES_VOID,		/* opens for writing and truncations during a collapse */
	TEXT_FALLBACK_WRITER,		/* open for writing; counted by file */
	TEXT_FALLBACK_DIRTY,		/* was not written back in time; by file */
	TEXT_FALLBACK_COLD,		/* too few pages resident; by block, as below */
	TEXT_FALLBACK_NOMEM,
	TEXT_FALLBACK_LIMIT,		/* limit of the memcg or of khugepaged */
	TEXT_FALLBACK_SHARE,		/* huge file pages have their share of memory */
	TEXT_FALLBACK_BUSY,		/* pages locked, pinned or isolated by others */
	TEXT_FALLBACK_TRUNCATED,	/* the file ends before the block does */
	TEXT_FALLBACK_FIRST = TEXT_FALLBACK_WRITER,
	TEXT_FALLBACK_LAST = TEXT_FALLBACK_TRUNCATED,
	TEXT_FORGOTTEN,			/* files dropped from the queue: umount, switched off */
	TEXT_DROPPED_WRITER,		/* a writer or truncation emptied a page cache */
	TEXT_DRAINED_BLOCKS,		/* split by enabled=2 */
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

/* text.c */
bool quire_text_block_huge(struct address_space *mapping, pgoff_t index);
unsigned int quire_text_resident(struct address_space *mapping, pgoff_t start, pgoff_t *first);
bool quire_text_share_left(void);
bool quire_text_uses(const struct super_block *sb);

/* drain.c */
int quire_text_drain(void);

/* place.c; for its unit tests, too */
bool quire_text_holds_block(loff_t offset, unsigned long len);

#endif /* _MM_QUIRE_TEXT_H */
