/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Program text on PMD pages: what Linux's own files call.
 *
 * Every call is a static key's test while the feature is off, or comes after a
 * test of Linux's own, and is nothing at all where it is compiled out.
 */
#ifndef _LINUX_QUIRE_TEXT_H
#define _LINUX_QUIRE_TEXT_H

#include <linux/elf.h>
#include <linux/fs.h>
#include <linux/jump_label.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/percpu-defs.h>
#include <linux/vmstat.h>

#ifdef CONFIG_QUIRE_TEXT

DECLARE_STATIC_KEY_FALSE(quire_text_key);
DECLARE_STATIC_KEY_FALSE(quire_text_used_key);
/* On before quire_text_key is for the first time, and never off again. */
DECLARE_STATIC_KEY_FALSE(quire_text_batch_key);
DECLARE_PER_CPU(bool, quire_text_batching);

/* For a function of ours in another file: external here, dropped when unused. */
#define QUIRE_TEXT_HOOK

/* mm/khugepaged.c */
int quire_text_collapse_block(struct inode *inode, pgoff_t start);

/**
 * quire_text_collapsing - is it our worker that collapses
 * @mm: as given to collapse_file(); our worker has none
 *
 * It reads what is missing before, because reading takes the invalidate_lock:
 * a truncation that holds it may wait for pages that collapse_file() has locked.
 */
static inline bool quire_text_collapsing(const struct mm_struct *mm)
{
	return !mm;
}

/**
 * quire_text_gfp - how hard to try for a huge page
 * @mm: as given to alloc_charge_folio(); our worker has none
 * @gfp: what khugepaged would take
 *
 * Text is collapsed far faster than khugepaged collapses: for its huge pages it takes
 * what is free, wakes kswapd, and evicts and moves nothing of others itself.
 */
static inline gfp_t quire_text_gfp(const struct mm_struct *mm, gfp_t gfp)
{
	return mm ? gfp : (gfp & ~__GFP_DIRECT_RECLAIM) | __GFP_KSWAPD_RECLAIM;
}

/**
 * quire_text_invalidate_trylock - take the invalidate_lock while pages are locked
 * @mapping: whose; shared
 *
 * Pages are to be locked after it, as truncation does. Without quire
 * collapse_file() waits for it with 512 of them locked, and for ever.
 */
static inline bool quire_text_invalidate_trylock(struct address_space *mapping)
{
	return filemap_invalidate_trylock_shared(mapping);
}

/* mm/quire/text/copy.c */
void __quire_text_copy_ahead(struct address_space *mapping, pgoff_t start, struct folio *new);
bool __quire_text_copied(const struct page *page);
void __quire_text_writer(const struct inode *inode);
void quire_text_copy_end(void);

/**
 * quire_text_copy_ahead - copy a block's pages before they are locked and unmapped
 * @mm: as given to collapse_file(); our worker has none
 * @mapping: of the file
 * @start: first page of the block
 * @new: the folio that is to take its place
 *
 * May sleep; the caller holds no lock but @new's.
 */
static inline void quire_text_copy_ahead(const struct mm_struct *mm,
					 struct address_space *mapping, pgoff_t start,
					 struct folio *new)
{
	if (quire_text_collapsing(mm))
		__quire_text_copy_ahead(mapping, start, new);
}

/**
 * quire_text_copied - does a page of the new folio hold its copy already
 * @mm: as given to collapse_file(); our worker has none
 * @to: the page
 *
 * With all pages of the block locked, and nobody who can write to them.
 */
static inline bool quire_text_copied(const struct mm_struct *mm, const struct page *to)
{
	return quire_text_collapsing(mm) && __quire_text_copied(to);
}

/**
 * quire_text_writer - somebody can write to a file
 * @inode: the file; the caller has write access and has changed nothing so far
 *
 * Comes after the full barrier of get_write_access().
 */
static inline void quire_text_writer(const struct inode *inode)
{
	if (static_branch_unlikely(&quire_text_used_key))
		__quire_text_writer(inode);
}

/* mm/readahead.c */
int quire_text_read_block(struct readahead_control *ractl);

/* mm/quire/text/fault.c */
unsigned long __quire_text_fault_around(const struct vm_fault *vmf, unsigned long nr_pages);
bool __quire_text_reads(struct vm_area_struct *vma);
void __quire_text_read(struct vm_fault *vmf, struct file **fpin);
void __quire_text_batch_add(struct lruvec *lruvec, enum node_stat_item idx, int nr);
void __quire_text_batch_end(void);

/* mm/quire/text/text.c */
void __quire_text_mapped(struct vm_area_struct *vma);
void __quire_text_drop(struct address_space *mapping);
void __quire_text_shutdown(struct super_block *sb);

/* mm/quire/text/place.c */
unsigned long __quire_text_alignment(struct file *file, const struct elf64_phdr *phdrs,
				     int nr, unsigned long alignment);
unsigned long __quire_text_shift(const struct elf64_phdr *phdrs, int nr,
				 unsigned long load_bias);
bool __quire_text_place(struct file *file, unsigned long len, unsigned long pgoff,
			unsigned long flags, vm_flags_t vm_flags);

/**
 * quire_text_mapped - a mapping was made: have its text collapsed
 * @vma: the new or extended mapping
 *
 * Under the mmap lock, for write.
 */
static inline void quire_text_mapped(struct vm_area_struct *vma)
{
	if (static_branch_unlikely(&quire_text_key) && vma->vm_file &&
	    (vma->vm_flags & (VM_EXEC | VM_WRITE)) == VM_EXEC)
		__quire_text_mapped(vma);
}

/**
 * quire_text_fault_around - how many pages a fault may map
 * @vmf: a read fault of an area with ->map_pages, under its lock
 * @nr_pages: as Linux would, a power of two
 *
 * Returns a power of two, PTRS_PER_PTE at most.
 */
static inline unsigned long quire_text_fault_around(const struct vm_fault *vmf,
						    unsigned long nr_pages)
{
	if (static_branch_unlikely(&quire_text_key) && vmf->vma->vm_file &&
	    (vmf->vma->vm_flags & (VM_EXEC | VM_WRITE | VM_RAND_READ)) == VM_EXEC)
		return __quire_text_fault_around(vmf, nr_pages);
	return nr_pages;
}

/**
 * quire_text_batch_begin - count what a fault maps around it at once
 * @vma: of the fault
 *
 * Under the page table's lock and RCU, until quire_text_batch_end(): the lock keeps
 * others off this CPU's batch, and RCU keeps the memcg that it is for.
 */
static inline void quire_text_batch_begin(const struct vm_area_struct *vma)
{
	if (static_branch_unlikely(&quire_text_key) && vma->vm_flags & VM_EXEC &&
	    !IS_ENABLED(CONFIG_PREEMPT_RT))
		__this_cpu_write(quire_text_batching, true);
}

/* In place of __mod_lruvec_state(), for a folio's memcg. */
static inline void quire_text_mod_lruvec(struct lruvec *lruvec, enum node_stat_item idx, int nr)
{
	if (static_branch_unlikely(&quire_text_batch_key) &&
	    __this_cpu_read(quire_text_batching))
		__quire_text_batch_add(lruvec, idx, nr);
	else
		__mod_lruvec_state(lruvec, idx, nr);
}

static inline void quire_text_batch_end(void)
{
	if (static_branch_unlikely(&quire_text_batch_key) &&
	    __this_cpu_read(quire_text_batching))
		__quire_text_batch_end();
}

/**
 * quire_text_reads - is an area's text read block by block
 * @vma: of a file, under its lock
 *
 * Linux must then not read ahead of time what follows a page.
 */
static inline bool quire_text_reads(struct vm_area_struct *vma)
{
	return static_branch_unlikely(&quire_text_key) &&
		(vma->vm_flags & (VM_EXEC | VM_WRITE | VM_RAND_READ | VM_SEQ_READ)) == VM_EXEC &&
		__quire_text_reads(vma);
}

/**
 * quire_text_read - read the text around a page that is not in the page cache
 * @vmf: the fault
 * @fpin: gets the file, referenced, where the area's lock was dropped
 *
 * May sleep. Returns true where the reading has been begun, false (and the lock
 * is as it was) where Linux is to do it.
 */
static inline bool quire_text_read(struct vm_fault *vmf, struct file **fpin)
{
	if (!quire_text_reads(vmf->vma))
		return false;
	__quire_text_read(vmf, fpin);
	return true;
}

/**
 * quire_text_drop - empty a page cache with huge pages for a writer
 * @mapping: had huge pages a moment ago; the caller has write access to the inode,
 *	so that no new ones appear
 *
 * May sleep, takes the invalidate_lock. Linux does it when a file is opened for
 * writing, but does not look again under the lock: what it saw may have been a
 * collapse that then found a writer, and the pages that go may be that writer's,
 * not yet on disk. Does not depend on the feature being on.
 *
 * Returns true: it is done, and Linux need not.
 */
static inline bool quire_text_drop(struct address_space *mapping)
{
	__quire_text_drop(mapping);
	return true;
}

/**
 * quire_text_truncate - empty a page cache with huge pages before a truncation
 * @inode: its size is about to change; the caller has write access to it
 *
 * May sleep, takes the invalidate_lock. A truncation by path does not open the
 * file, so Linux leaves it to the splitting of huge pages; that fails where one
 * is in use, and the file's tail is then not zeroed in what is mapped.
 */
static inline void quire_text_truncate(struct inode *inode)
{
	quire_text_writer(inode);
	if (static_branch_unlikely(&quire_text_used_key) && filemap_nr_thps(inode->i_mapping))
		__quire_text_drop(inode->i_mapping);
}

/**
 * quire_text_shutdown - let go of a filesystem
 * @sb: had its last active reference dropped; s_umount is held
 *
 * May sleep. On return none of its inodes is referenced by the collapse worker,
 * and none will be.
 */
static inline void quire_text_shutdown(struct super_block *sb)
{
	if (static_branch_unlikely(&quire_text_used_key))
		__quire_text_shutdown(sb);
}

/**
 * quire_text_alignment - alignment of a position-independent program
 * @file: the program's; one that can have no huge pages keeps its place
 * @class: ELFCLASS of @phdrs; 32-bit programs have no address bits to spare
 * @phdrs: program headers
 * @nr: how many
 * @secure: the program gains privileges: keep all of its randomness
 * @alignment: what its headers ask for
 *
 * Returns @alignment, or PMD_SIZE where the text has a whole file block.
 */
static inline unsigned long quire_text_alignment(struct file *file, int class,
						 const void *phdrs, int nr, bool secure,
						 unsigned long alignment)
{
	if (static_branch_unlikely(&quire_text_key) && class == ELFCLASS64 && !secure)
		return __quire_text_alignment(file, phdrs, nr, alignment);
	return alignment;
}

/**
 * quire_text_shift - how far to lower a program for its text to be congruent
 * @class: ELFCLASS of @phdrs
 * @phdrs: program headers
 * @nr: how many
 * @alignment: what quire_text_alignment() returned
 * @load_bias: where the program would be, at that alignment
 *
 * Returns a number of bytes below PMD_SIZE, 0 where nothing is to be done.
 */
static inline unsigned long quire_text_shift(int class, const void *phdrs, int nr,
					     unsigned long alignment,
					     unsigned long load_bias)
{
	if (static_branch_unlikely(&quire_text_key) && class == ELFCLASS64 &&
	    alignment == PMD_SIZE)
		return __quire_text_shift(phdrs, nr, load_bias);
	return 0;
}

/**
 * quire_text_place - is a file mapping to be congruent with its PMD blocks
 * @file: the file, or NULL
 * @len: bytes
 * @pgoff: offset in pages
 * @flags: of mmap
 * @vm_flags: of the mapping to come
 */
static inline bool quire_text_place(struct file *file, unsigned long len,
				    unsigned long pgoff, unsigned long flags,
				    vm_flags_t vm_flags)
{
	return static_branch_unlikely(&quire_text_key) && file && len >= PMD_SIZE &&
		__quire_text_place(file, len, pgoff, flags, vm_flags);
}

#else /* !CONFIG_QUIRE_TEXT */

#define QUIRE_TEXT_HOOK static inline

static inline bool quire_text_collapsing(const struct mm_struct *mm)
{
	return false;
}

static inline gfp_t quire_text_gfp(const struct mm_struct *mm, gfp_t gfp)
{
	return gfp;
}

static inline bool quire_text_invalidate_trylock(struct address_space *mapping)
{
	filemap_invalidate_lock_shared(mapping);
	return true;
}

static inline void quire_text_copy_ahead(const struct mm_struct *mm,
					 struct address_space *mapping, pgoff_t start,
					 struct folio *new)
{
}

static inline bool quire_text_copied(const struct mm_struct *mm, const struct page *to)
{
	return false;
}

static inline void quire_text_copy_end(void)
{
}

static inline void quire_text_writer(const struct inode *inode)
{
}

static inline void quire_text_mapped(struct vm_area_struct *vma)
{
}

static inline unsigned long quire_text_fault_around(const struct vm_fault *vmf,
						    unsigned long nr_pages)
{
	return nr_pages;
}

static inline void quire_text_batch_begin(const struct vm_area_struct *vma)
{
}

static inline void quire_text_mod_lruvec(struct lruvec *lruvec, enum node_stat_item idx, int nr)
{
	__mod_lruvec_state(lruvec, idx, nr);
}

static inline void quire_text_batch_end(void)
{
}

static inline bool quire_text_reads(struct vm_area_struct *vma)
{
	return false;
}

static inline bool quire_text_read(struct vm_fault *vmf, struct file **fpin)
{
	return false;
}

static inline bool quire_text_drop(struct address_space *mapping)
{
	return false;
}

static inline void quire_text_truncate(struct inode *inode)
{
}

static inline void quire_text_shutdown(struct super_block *sb)
{
}

/* Where it reads an argument the compiler arranges its caller differently. */
#define quire_text_alignment(file, class, phdrs, nr, secure, alignment)	(alignment)

static inline unsigned long quire_text_shift(int class, const void *phdrs, int nr,
					     unsigned long alignment,
					     unsigned long load_bias)
{
	return 0;
}

static inline bool quire_text_place(struct file *file, unsigned long len,
				    unsigned long pgoff, unsigned long flags,
				    vm_flags_t vm_flags)
{
	return false;
}

#endif /* CONFIG_QUIRE_TEXT */
#endif /* _LINUX_QUIRE_TEXT_H */
