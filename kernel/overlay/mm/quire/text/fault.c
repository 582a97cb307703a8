// SPDX-License-Identifier: GPL-2.0
/*
 * Faults on program text: how much is read, and how much is mapped at once.
 *
 * Reading. If it is asked for, and a filesystem has large folios, a whole block of text
 * is read as one folio of PMD order, so that the first execution maps it by PMD and
 * there is nothing to collapse. This is off by default, because nobody knows at the first
 * fault how much of a block the program will use, and one that uses a page of each would
 * read all of them. The read takes a huge page that is free, or else base pages, as in
 * vanilla. But no read of base pages goes beyond its block, ahead of time or not, because
 * one page there keeps the next block from being read whole. The model is what Linux does
 * for VM_HUGEPAGE; the idea to do it for text, and not to stop for many misses, is in
 * postings of 2026 by Usama Arif.
 *
 * Mapping. Blocks that are not huge (yet), and the ends of the text, which are not
 * whole blocks, are mapped 16 pages a fault. The second fault in a page table maps more,
 * and the third all resident pages of the table, if these are half of it.
 *
 * Counting. Most of the work of mapping a page that is in the page cache is counting
 * it in NR_FILE_MAPPED of its memcg and its node. The pages of one fault mostly belong
 * to one memcg, so they are counted together. The batch is per CPU, and lasts no
 * longer than one hold of the page table lock: a task that wants to unmap a page that
 * is not counted yet waits for that lock.
 *
 * Locking: called under mmap_lock or the VMA lock; __quire_text_read() may drop it, as
 * Linux does wherever a fault reads. A batch is under the page table lock and RCU.
 *
 * Lifetime: nothing outlasts a fault except what it read and mapped.
 *
 * Undo: none. The huge folios stay: they are the filesystem's.
 */
#include <linux/fs.h>
#include <linux/log2.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/percpu.h>
#include <linux/quire/pt.h>
#include <linux/quire/text.h>
#include <linux/shmem_fs.h>

#include "../../internal.h"
#include "text.h"

/* So many windows of a page table are mapped after one fault, and after the second at most. */
#define TEXT_WINDOWS_FEW	4
#define TEXT_WINDOWS_ALL	8

/* A page table is mapped wide if half of so many pages, spread over it, are resident. */
#define TEXT_SAMPLES		4

unsigned int quire_text_readahead;
unsigned int quire_text_fault_around_kb = PMD_SIZE >> 10;

DEFINE_STATIC_KEY_FALSE(quire_text_batch_key);
DEFINE_PER_CPU(bool, quire_text_batching);

static DEFINE_PER_CPU(struct text_batch {
	struct lruvec *lruvec;
	int nr;
}, text_batch);

/*
 * In how many windows of @step pages of the VMA's part of this page table is the first page
 * mapped? Stops at TEXT_WINDOWS_ALL.
 */
static unsigned int text_windows_mapped(const struct vm_fault *vmf, unsigned long step)
{
	unsigned long addr = max(vmf->address & PMD_MASK, vmf->vma->vm_start);
	unsigned long end = min((vmf->address & PMD_MASK) + PMD_SIZE, vmf->vma->vm_end);
	unsigned int mapped = 0;
	pte_t *table;

	if (pmd_none(*vmf->pmd))
		return 0;
	table = pte_offset_map(vmf->pmd, addr);
	if (!table)
		return TEXT_WINDOWS_ALL;
	for (unsigned long i = 0;
	     addr + i * PAGE_SIZE < end && mapped < TEXT_WINDOWS_ALL; i += step)
		mapped += !pte_none(ptep_get(table + i));
	pte_unmap(table);
	return mapped;
}

/*
 * Is the page at @addr mapped, which is in the VMA's part of the table that @pmd maps? A
 * shared table counts as empty. The VMA has a part in the table and is locked, so the table
 * does not become shared meanwhile.
 */
static bool text_is_mapped(pmd_t *pmd, unsigned long addr)
{
	pmd_t value = pmdp_get_lockless(pmd);
	bool mapped;
	pte_t *pte;

	if (pmd_trans_huge(value))
		return true;
	if (pmd_none(value) || quire_pt_marked(&value))
		return false;
	pte = pte_offset_map(pmd, addr);
	if (!pte)
		return false;
	mapped = !pte_none(ptep_get(pte));
	pte_unmap(pte);
	return mapped;
}

/*
 * Are the page tables before and after the fault's mapped whole, as far as two of their pages
 * can tell: the one beside the fault's table, and one far from that? One of them would not
 * do: then each table that is mapped whole would have the next one mapped whole.
 */
static bool text_goes_on(const struct vm_fault *vmf)
{
	unsigned long start = vmf->address & PMD_MASK, end = start + PMD_SIZE;
	unsigned long index = pmd_index(vmf->address), far = PMD_SIZE / 2;

	return index > 0 && index < PTRS_PER_PMD - 1 &&
		start >= vmf->vma->vm_start + far && end + far < vmf->vma->vm_end &&
		text_is_mapped(vmf->pmd - 1, start - PAGE_SIZE) &&
		text_is_mapped(vmf->pmd + 1, end) &&
		text_is_mapped(vmf->pmd - 1, start - far) &&
		text_is_mapped(vmf->pmd + 1, end + far);
}

static bool text_is_resident(const struct vm_fault *vmf, pgoff_t index)
{
	void *entry = xa_load(&vmf->vma->vm_file->f_mapping->i_pages, index);

	return entry && !xa_is_value(entry);
}

/*
 * Is half of the VMA's part of the page table resident, as far as a few of its pages can tell?
 * While a program is being read, it is not: looking for what there is would take longer than it
 * saves.
 */
static bool text_is_half_resident(const struct vm_fault *vmf)
{
	unsigned long addr = max(vmf->address & PMD_MASK, vmf->vma->vm_start);
	unsigned long end = min((vmf->address & PMD_MASK) + PMD_SIZE, vmf->vma->vm_end);
	pgoff_t first = linear_page_index(vmf->vma, addr);
	unsigned long pages = (end - addr) >> PAGE_SHIFT;
	unsigned int resident = 0;

	for (unsigned int i = 0; i < TEXT_SAMPLES; i++)
		resident += text_is_resident(vmf, first + (2 * i + 1) * pages / (2 * TEXT_SAMPLES));
	return resident >= TEXT_SAMPLES / 2;
}

/**
 * __quire_text_fault_around - how many pages a fault on text may map
 * @vmf: a read fault in a VMA of a file
 * @nr_pages: what vanilla would map, a power of two
 *
 * The more faults a page table has had, the more each maps: @nr_pages at first, then four
 * times as many, then all pages of the table. So a program that uses a page here and there
 * maps no more than on vanilla, and one that uses much text has three faults for each table,
 * or one where the tables beside it are mapped whole. If more faults follow, the pages were
 * not resident: then each maps @nr_pages, since it would look again at what is mapped. So
 * does each while less than half of the table is resident.
 *
 * Context: mmap_lock or the VMA lock is held; does not sleep. Looks at page tables
 * under RCU only: the code that maps the pages looks again under its lock.
 * Return: @nr_pages or more; a power of two, at most PTRS_PER_PTE.
 */
unsigned long __quire_text_fault_around(const struct vm_fault *vmf, unsigned long nr_pages)
{
	unsigned long wide = READ_ONCE(quire_text_fault_around_kb) >> (PAGE_SHIFT - 10);
	unsigned int mapped;
	pgoff_t start, end;

	wide = rounddown_pow_of_two(wide);
	if (wide <= nr_pages || !text_blocks(vmf->vma, &start, &end) ||
	    shmem_file(vmf->vma->vm_file))
		return nr_pages;
	/* If the fault's page is not resident, little around it is. */
	if (!text_is_resident(vmf, vmf->pgoff))
		return nr_pages;
	mapped = text_windows_mapped(vmf, nr_pages);
	if (mapped >= TEXT_WINDOWS_ALL || (!mapped && !text_goes_on(vmf)) ||
	    !text_is_half_resident(vmf))
		return nr_pages;
	text_count(TEXT_WIDE_FAULTS, 1);
	return mapped && mapped < TEXT_WINDOWS_FEW ? min(4 * nr_pages, wide) : wide;
}

static void text_batch_flush(struct text_batch *batch)
{
	if (batch->nr)
		__mod_lruvec_state(batch->lruvec, NR_FILE_MAPPED, batch->nr);
	batch->nr = 0;
}

/**
 * __quire_text_batch_add - count what a fault maps, together with the pages before it
 * @lruvec: of the folio's memcg
 * @idx: the counter; all but NR_FILE_MAPPED are changed at once
 * @nr: by how much
 *
 * A task that unmaps a page that was just mapped waits for the page table lock, and RCU
 * keeps the memcg, so @lruvec may be used until the end of the batch. Counts made by an
 * interrupt are not delayed.
 *
 * Context: on the CPU that began the batch, under the page table lock and RCU.
 */
void __quire_text_batch_add(struct lruvec *lruvec, enum node_stat_item idx, int nr)
{
	struct text_batch *batch = this_cpu_ptr(&text_batch);

	if (idx != NR_FILE_MAPPED) {
		__mod_lruvec_state(lruvec, idx, nr);
		return;
	}
	if (lruvec != batch->lruvec)
		text_batch_flush(batch);
	batch->lruvec = lruvec;
	batch->nr += nr;
}

/**
 * __quire_text_batch_end - a fault has mapped its pages: count what is left
 *
 * Context: on the CPU that began the batch, in the same hold of the page table lock.
 */
void __quire_text_batch_end(void)
{
	text_batch_flush(this_cpu_ptr(&text_batch));
	__this_cpu_write(quire_text_batching, false);
}

/**
 * __quire_text_reads - is the text of a VMA read block by block
 * @vma: of a file, executable and not writable
 *
 * Context: mmap_lock or the VMA lock is held; does not sleep.
 * Return: true if the VMA has a whole block that a PMD can map, the file may have a folio
 * for it, and neither THP nor readahead is off.
 */
bool __quire_text_reads(struct vm_area_struct *vma)
{
	struct address_space *mapping = vma->vm_file->f_mapping;
	pgoff_t start, end;

	return READ_ONCE(quire_text_readahead) && text_blocks(vma, &start, &end) &&
		text_congruent(vma) && S_ISREG(mapping->host->i_mode) &&
		mapping_large_folio_support(mapping) &&
		mapping_max_folio_order(mapping) >= HPAGE_PMD_ORDER &&
		vma->vm_file->f_ra.ra_pages && hugepage_global_enabled() &&
		!thp_disabled_by_hw() && !vma_thp_disabled(vma, vma->vm_flags);
}

/* Is the page in a block that lies wholly in the VMA and in the file? */
static bool text_in_whole_block(const struct vm_fault *vmf)
{
	pgoff_t index = round_down(vmf->pgoff, HPAGE_PMD_NR), start, end;
	loff_t size = i_size_read(vmf->vma->vm_file->f_mapping->host);

	return text_blocks(vmf->vma, &start, &end) && index >= start && index < end &&
		index + HPAGE_PMD_NR <= size >> PAGE_SHIFT;
}

/* Read the block at @ractl's index as one folio, if none of it is resident. */
static bool text_read_block(struct readahead_control *ractl)
{
	struct address_space *mapping = ractl->mapping;
	pgoff_t start = readahead_index(ractl), first;
	enum text_counter why;
	int error;

	if (quire_text_resident(mapping, start, &first)) {
		why = TEXT_READ_PARTIAL;
	} else if (!quire_text_share_left(1)) {
		why = TEXT_READ_SHARE;
	} else {
		error = quire_text_read_block(ractl);
		why = !error ? TEXT_READ_BLOCKS :
			error == -EEXIST ? TEXT_READ_PARTIAL : TEXT_READ_NOMEM;
	}
	/* Another process may have read it first. */
	if (why == TEXT_READ_PARTIAL && quire_text_block_huge(mapping, start))
		return true;
	text_count(why, 1);
	return why == TEXT_READ_BLOCKS;
}

/* Read around a page as vanilla does, but only in its block and with nothing ahead of time. */
static void text_read_around(struct readahead_control *ractl, pgoff_t index)
{
	pgoff_t block = round_down(index, HPAGE_PMD_NR);
	struct file_ra_state *ra = ractl->ra;

	ra->start = max(block, index - min_t(pgoff_t, index, ra->ra_pages / 2));
	ra->size = min_t(pgoff_t, ra->ra_pages, block + HPAGE_PMD_NR - ra->start);
	ra->async_size = 0;
	ractl->_index = ra->start;
	page_cache_ra_order(ractl, ra, 0);
}

/**
 * __quire_text_read - read the text around a page that is not in the page cache
 * @vmf: the fault, in a VMA for which quire_text_reads() is true
 * @fpin: gets the file, referenced, if the lock was dropped
 *
 * Does not wait for the read and reports no error: the caller looks for the page, and
 * reads it if it is not there.
 *
 * Context: mmap_lock or the VMA lock is held; may sleep; takes the invalidate_lock for
 * reading.
 */
void __quire_text_read(struct vm_fault *vmf, struct file **fpin)
{
	struct file *file = vmf->vma->vm_file;
	pgoff_t block = round_down(vmf->pgoff, HPAGE_PMD_NR);
	bool whole = text_in_whole_block(vmf);
	DEFINE_READAHEAD(ractl, file, &file->f_ra, file->f_mapping, block);

	/* From here on the VMA may be gone; the file is not. */
	*fpin = maybe_unlock_mmap_for_io(vmf, *fpin);
	if (!whole || !text_read_block(&ractl))
		text_read_around(&ractl, vmf->pgoff);
}
