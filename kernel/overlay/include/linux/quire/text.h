/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Program text on PMD pages: what Linux's own files call.
 *
 * While the feature is off each call only tests a static key, or follows a test
 * that Linux makes anyway. Compiled out, the calls are nothing at all.
 *
 * "Vanilla:" says what Linux does without the gate.
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
/* Enabled before quire_text_key is enabled for the first time, and never disabled. */
DECLARE_STATIC_KEY_FALSE(quire_text_batch_key);
DECLARE_PER_CPU(bool, quire_text_batching);

/*
 * A flag of an address_space: the file was queued. It is the highest that pagemap.h leaves
 * unused below the orders of folios.
 */
#define QUIRE_TEXT_AS_QUEUED	(AS_FOLIO_ORDER_MIN - 1)

/* For our functions in Linux's files: external here, dropped as unused without the feature. */
#define QUIRE_TEXT_HOOK

/* mm/khugepaged.c */
int quire_text_collapse_block(struct inode *inode, pgoff_t start);
void quire_text_retract_tables(struct address_space *mapping, pgoff_t start);

/**
 * quire_text_collapsing - is it our worker that collapses
 * @mm: as given to collapse_file(); our worker has none
 *
 * Our worker reads missing pages beforehand, because reading takes the invalidate_lock:
 * a truncation that holds it may wait for pages that collapse_file() has locked.
 *
 * Vanilla: collapse_file() reads missing pages.
 *
 * Context: any.
 * Return: true for our worker.
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
 * Text is collapsed far faster than khugepaged collapses. So for its huge pages the
 * worker takes what is free and wakes kswapd, but reclaims and compacts nothing itself.
 *
 * Vanilla: uses @gfp.
 *
 * Context: any.
 * Return: the flags to allocate with.
 */
static inline gfp_t quire_text_gfp(const struct mm_struct *mm, gfp_t gfp)
{
	return mm ? gfp : (gfp & ~__GFP_DIRECT_RECLAIM) | __GFP_KSWAPD_RECLAIM;
}

/**
 * quire_text_invalidate_lock - take the invalidate_lock while pages are locked
 * @mm: as given to collapse_file(); our worker has none
 * @mapping: the file's; the lock is taken for reading
 *
 * Pages must be locked after the invalidate_lock, as truncation does. So nobody waits for it once
 * there may be text to drop: quire_text_drop() waits for all pages of a file.
 *
 * Vanilla: waits for the lock with 512 pages locked, maybe forever.
 *
 * Context: page locks are held; may sleep if the feature was never on, or was drained.
 * Return: true if the lock was taken.
 */
static inline bool quire_text_invalidate_lock(const struct mm_struct *mm,
					      struct address_space *mapping)
{
	if (!mm || static_branch_unlikely(&quire_text_used_key))
		return filemap_invalidate_trylock_shared(mapping);
	filemap_invalidate_lock_shared(mapping);
	return true;
}

/* mm/quire/text/copy.c */
void __quire_text_copy_ahead(struct address_space *mapping, pgoff_t start, struct folio *new);
bool __quire_text_copied(const struct page *page);
void __quire_text_writer(const struct inode *inode);
void quire_text_copy_end(void);
bool __quire_text_unmap(struct address_space *mapping, pgoff_t start,
			const struct list_head *folios);

/**
 * quire_text_copy_ahead - copy a block's pages before they are locked and unmapped
 * @mm: as given to collapse_file(); our worker has none
 * @mapping: of the file
 * @start: first page of the block
 * @new: the folio that will replace the block
 *
 * Vanilla: copies all pages after they are unmapped.
 *
 * Context: may sleep; no lock is held but @new's.
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
 * Vanilla: copies every page here.
 *
 * Context: all pages of the block are locked, and nobody can write to them.
 * Return: true if collapse_file() need not copy the page.
 */
static inline bool quire_text_copied(const struct mm_struct *mm, const struct page *to)
{
	return quire_text_collapsing(mm) && __quire_text_copied(to);
}

/**
 * quire_text_refs - how many references to a folio are not from page tables
 * @mm: as given to collapse_file(); our worker has none
 * @folio: locked, unless only a guess is wanted
 *
 * Faults map no folio that is locked, but fork() and munmap() change its mappings. If that happens
 * meanwhile, it counts as one with too many references.
 *
 * Vanilla: all of them, because it has unmapped the folio.
 *
 * Context: any; the number may change at once.
 * Return: the number of references.
 */
static inline int quire_text_refs(const struct mm_struct *mm, const struct folio *folio)
{
	int refs = folio_ref_count(folio), mapped;

	if (!quire_text_collapsing(mm))
		return refs;
	smp_rmb();	/* a mapping adds to both counts: the references before and after must agree */
	mapped = folio_mapcount(folio);
	smp_rmb();	/* see above */
	return folio_ref_count(folio) == refs ? refs - mapped : INT_MAX;
}

/**
 * quire_text_unmap - unmap a block
 * @mm: as given to collapse_file(); our worker has none
 * @mapping: of the file
 * @start: first page of the block
 * @folios: the block's folios, locked and isolated from the LRU lists
 *
 * Vanilla: has nothing to do, as each folio is unmapped when it is locked.
 *
 * Context: may sleep; takes i_mmap_rwsem for reading.
 * Return: true if the folios are unmapped, and may be replaced.
 */
static inline bool quire_text_unmap(const struct mm_struct *mm, struct address_space *mapping,
				    pgoff_t start, const struct list_head *folios)
{
	return !quire_text_collapsing(mm) || __quire_text_unmap(mapping, start, folios);
}

/**
 * quire_text_keeps - does an entry without a page stay when a range of a file is unmapped
 * @details: of the zap
 * @pte: present, of no normal page
 *
 * KSM puts the zero page in the place of a private page that is zero (use_zero_pages), with a dirty
 * entry: is_ksm_zero_pte(), which needs CONFIG_KSM. That is the process's memory and not the file's,
 * which it would read if the entry went. No other entry of a zero page is dirty. This is so for the
 * files of all filesystems, whoever unmaps them: the worker, the first writer to a file with huge
 * text, or who punches a hole.
 *
 * Vanilla: drops it.
 *
 * Context: the page table lock is held.
 * Return: true if private pages are to stay, and it stands for one.
 */
static inline bool quire_text_keeps(const struct zap_details *details, pte_t pte)
{
	return static_branch_unlikely(&quire_text_used_key) && details && !details->even_cows &&
		is_zero_pfn(pte_pfn(pte)) && pte_dirty(pte);
}

/**
 * quire_text_writer - somebody can write to a file
 * @inode: the file; the caller has write access and has changed nothing so far
 *
 * Vanilla: does nothing here.
 *
 * Context: after the full barrier of get_write_access(); does not sleep.
 */
static inline void quire_text_writer(const struct inode *inode)
{
	if (static_branch_unlikely(&quire_text_used_key))
		__quire_text_writer(inode);
}

/* mm/readahead.c */
int quire_text_read_block(struct readahead_control *ractl);

/* mm/quire/text/reserve.c */
extern unsigned int quire_text_in_place;
extern unsigned int quire_text_places_used;
struct folio *__quire_text_reserved(struct address_space *mapping, pgoff_t index, gfp_t gfp);
void __quire_text_isolating(const struct page *page);

/* mm/quire/text/fault.c */
unsigned long __quire_text_fault_around(const struct vm_fault *vmf, unsigned long nr_pages);
bool __quire_text_reads(struct vm_area_struct *vma);
void __quire_text_read(struct vm_fault *vmf, struct file **fpin);
void __quire_text_batch_add(struct lruvec *lruvec, enum node_stat_item idx, int nr);
void __quire_text_batch_end(void);

/* mm/quire/text/text.c */
void __quire_text_mapped(struct vm_area_struct *vma);
void __quire_text_drop(struct address_space *mapping);

/* mm/quire/text/queue.c */
void __quire_text_evict(struct inode *inode);
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
 * Vanilla: leaves text to khugepaged, which scans address spaces.
 *
 * Context: mmap_lock is held for writing.
 */
static inline void quire_text_mapped(struct vm_area_struct *vma)
{
	if (static_branch_unlikely(&quire_text_key) && vma->vm_file &&
	    (vma->vm_flags & (VM_EXEC | VM_WRITE)) == VM_EXEC)
		__quire_text_mapped(vma);
}

/**
 * quire_text_fault_around - how many pages a fault may map
 * @vmf: a read fault in a VMA with ->map_pages
 * @nr_pages: what vanilla would map, a power of two
 *
 * Vanilla: maps up to @nr_pages.
 *
 * Context: mmap_lock or the VMA lock is held; does not sleep.
 * Return: a power of two, at most PTRS_PER_PTE.
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
 * quire_text_batch_begin - count the pages that a fault maps around it in one go
 * @vma: of the fault
 *
 * The page table lock keeps other tasks off this CPU's batch, and RCU keeps the memcg
 * that the batch is for.
 *
 * Vanilla: counts each folio on its own.
 *
 * Context: the page table lock and RCU are held until quire_text_batch_end().
 */
static inline void quire_text_batch_begin(const struct vm_area_struct *vma)
{
	if (static_branch_unlikely(&quire_text_key) && vma->vm_flags & VM_EXEC &&
	    !IS_ENABLED(CONFIG_PREEMPT_RT))
		__this_cpu_write(quire_text_batching, true);
}

/**
 * quire_text_mod_lruvec - change a counter of a lruvec, or add to the CPU's batch
 * @lruvec: of a folio's memcg
 * @idx: the counter
 * @nr: by how much
 *
 * Vanilla: __mod_lruvec_state().
 *
 * Context: RCU is held; as for __mod_lruvec_state().
 */
static inline void quire_text_mod_lruvec(struct lruvec *lruvec, enum node_stat_item idx, int nr)
{
	if (static_branch_unlikely(&quire_text_batch_key) &&
	    __this_cpu_read(quire_text_batching))
		__quire_text_batch_add(lruvec, idx, nr);
	else
		__mod_lruvec_state(lruvec, idx, nr);
}

/**
 * quire_text_batch_end - count what is left in the CPU's batch
 *
 * Vanilla: does nothing here.
 *
 * Context: in the hold of the page table lock in which the batch began.
 */
static inline void quire_text_batch_end(void)
{
	if (static_branch_unlikely(&quire_text_batch_key) &&
	    __this_cpu_read(quire_text_batching))
		__quire_text_batch_end();
}

/**
 * quire_text_reads - is the text of a VMA read block by block
 * @vma: of a file
 *
 * If so, Linux must not read ahead beyond the page.
 *
 * Vanilla: reads ahead when a fault meets a page with the readahead flag.
 *
 * Context: mmap_lock or the VMA lock is held; does not sleep.
 * Return: true if quire_text_read() reads for this VMA.
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
 * @fpin: gets the file, referenced, if the lock was dropped
 *
 * Vanilla: reads around the page, as the VMA's readahead state says.
 *
 * Context: mmap_lock or the VMA lock is held, and may be dropped; may sleep.
 * Return: true if reading has begun; false if Linux has to read, and the lock is still
 * held.
 */
static inline bool quire_text_read(struct vm_fault *vmf, struct file **fpin)
{
	if (!quire_text_reads(vmf->vma))
		return false;
	__quire_text_read(vmf, fpin);
	return true;
}

/* Whether memory is set aside for a block is decided at each page at a multiple of this. */
#define QUIRE_TEXT_STEP		32

/**
 * quire_text_reserved - the memory that was set aside for a page of text
 * @mapping: the file's
 * @index: the page's, about to be read
 * @gfp: how Linux would allocate the page
 *
 * Vanilla: allocates each page on its own.
 *
 * Context: the invalidate_lock is held; does not sleep.
 * Return: a folio of one page with one reference, or NULL.
 */
static inline struct folio *quire_text_reserved(struct address_space *mapping, pgoff_t index,
						gfp_t gfp)
{
	if (static_branch_unlikely(&quire_text_key) && READ_ONCE(quire_text_in_place) &&
	    (READ_ONCE(quire_text_places_used) || IS_ALIGNED(index, QUIRE_TEXT_STEP)) &&
	    test_bit(QUIRE_TEXT_AS_QUEUED, &mapping->flags))
		return __quire_text_reserved(mapping, index, gfp);
	return NULL;
}

/**
 * quire_text_isolating - somebody wants all of a pageblock
 * @page: in the pageblock
 *
 * What is set aside there is given back, because it cannot be migrated.
 *
 * Vanilla: does nothing here.
 *
 * Context: just before the pageblock is isolated, with no spinlock held; does not sleep.
 * Free memory there may be set aside again until it is isolated and pcp lists are drained.
 */
static inline void quire_text_isolating(const struct page *page)
{
	if (static_branch_unlikely(&quire_text_used_key))
		__quire_text_isolating(page);
}

/**
 * quire_text_drop - empty a page cache with huge pages for a writer
 * @mapping: had huge pages a moment ago; the caller has write access to the inode,
 *	so that no new ones appear
 *
 * Works whether the feature is on or off.
 *
 * Vanilla: does the same when a file is opened for writing, but does not check again
 * under the lock: what it saw may have been a collapse that then found a writer, and
 * the pages it drops may be that writer's, not yet on disk. Nor does it keep the file
 * marked while it drops pages: when the last huge one has gone, another writer does not
 * wait, and what that one writes may be dropped, too.
 *
 * Context: may sleep; takes the invalidate_lock for writing.
 * Return: true: it is done, and Linux need not do it.
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
 * Vanilla: a truncation by path does not open the file, so it relies on splitting the
 * huge pages; that fails if one is in use, and then the file's tail is not zeroed in
 * what is mapped.
 *
 * Context: i_rwsem is held; may sleep; takes the invalidate_lock for writing.
 */
static inline void quire_text_truncate(struct inode *inode)
{
	quire_text_writer(inode);
	if (static_branch_unlikely(&quire_text_used_key) && filemap_nr_thps(inode->i_mapping))
		__quire_text_drop(inode->i_mapping);
}

/**
 * quire_text_evict - forget an inode
 * @inode: has I_FREEING
 *
 * The queue holds no reference to the inodes of waiting files. On return it has no
 * pointer to this one.
 *
 * Vanilla: does nothing here.
 *
 * Context: no lock is held.
 */
static inline void quire_text_evict(struct inode *inode)
{
	if (static_branch_unlikely(&quire_text_used_key) &&
	    test_bit(QUIRE_TEXT_AS_QUEUED, &inode->i_data.flags))
		__quire_text_evict(inode);
}

/**
 * quire_text_shutdown - let go of a filesystem
 * @sb: its last active reference was dropped
 *
 * On return the collapse worker has no reference to its inodes and takes none.
 *
 * Vanilla: does nothing here.
 *
 * Context: s_umount is held for writing; may sleep.
 */
static inline void quire_text_shutdown(struct super_block *sb)
{
	if (static_branch_unlikely(&quire_text_used_key))
		__quire_text_shutdown(sb);
}

/**
 * quire_text_alignment - alignment of a position-independent program
 * @file: the program's; if it cannot have huge pages it keeps its place
 * @class: ELFCLASS of @phdrs; 32-bit programs have no address bits to spare
 * @phdrs: program headers
 * @nr: how many
 * @secure: the program gains privileges, so it keeps all of its randomness
 * @alignment: what its headers ask for
 *
 * Vanilla: uses @alignment.
 *
 * Context: any; takes no lock.
 * Return: @alignment, or PMD_SIZE if the text has a whole file block.
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
 * quire_text_shift - how far to lower a program to make its text congruent
 * @class: ELFCLASS of @phdrs
 * @phdrs: program headers
 * @nr: how many
 * @alignment: what quire_text_alignment() returned
 * @load_bias: where the program would be, at that alignment
 *
 * Vanilla: keeps @load_bias.
 *
 * Context: any; takes no lock.
 * Return: bytes, less than PMD_SIZE; 0 if nothing is to be done.
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
 * quire_text_place - should a file mapping be congruent with its PMD blocks
 * @file: the file, or NULL
 * @len: bytes
 * @pgoff: offset in pages
 * @flags: of mmap
 * @vm_flags: of the mapping to come
 *
 * Vanilla: aligns mappings only if their length is a multiple of PMD_SIZE.
 *
 * Context: any; takes no lock.
 * Return: true if the mapping should be aligned.
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

static inline bool quire_text_invalidate_lock(const struct mm_struct *mm,
					      struct address_space *mapping)
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

static inline int quire_text_refs(const struct mm_struct *mm, const struct folio *folio)
{
	return folio_ref_count(folio);
}

static inline bool quire_text_unmap(const struct mm_struct *mm, struct address_space *mapping,
				    pgoff_t start, const struct list_head *folios)
{
	return true;
}

static inline bool quire_text_keeps(const struct zap_details *details, pte_t pte)
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

static inline struct folio *quire_text_reserved(struct address_space *mapping, pgoff_t index,
						gfp_t gfp)
{
	return NULL;
}

/* A macro, because a function made the compiler arrange its caller's stack in another order. */
#define quire_text_isolating(page)	do { } while (0)

static inline bool quire_text_drop(struct address_space *mapping)
{
	return false;
}

static inline void quire_text_truncate(struct inode *inode)
{
}

static inline void quire_text_evict(struct inode *inode)
{
}

static inline void quire_text_shutdown(struct super_block *sb)
{
}

/* A macro: if it read its other arguments, the compiler would generate another caller. */
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
