// SPDX-License-Identifier: GPL-2.0
/*
 * Placement of program text: addresses at which a PMD can map it.
 *
 * A PMD maps a block of the page cache if address and file offset are equal modulo
 * PMD_SIZE. Programs are linked for 4 KiB pages and position-independent programs
 * start at a random page, so this is hardly ever the case. A program or mapping that
 * holds a whole file block of text is moved down to the next address that is
 * congruent; all others stay where Linux puts them. The price is nine of the
 * address's random bits, so programs that gain privileges are left alone. So is
 * everything that cannot have huge pages: processes with THP disabled, and tmpfs
 * mounted without huge pages.
 *
 * Locking: none; the functions only read their arguments.
 *
 * Lifetime: nothing is kept.
 *
 * Undo: none; a placed program stays where it is until it ends.
 */
#include <linux/elf.h>
#include <linux/fs.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/quire/text.h>
#include <linux/sched/coredump.h>
#include <linux/shmem_fs.h>

#include "text.h"

unsigned int quire_text_placement = 1;

/*
 * Can text of a file be huge in the current process, which runs or maps it? For tmpfs the
 * mount decides, and for a file without a name (memfd) too, although another switch governs
 * its faults.
 */
static bool text_worth_placing(struct file *file)
{
	if (!READ_ONCE(quire_text_placement) || !hugepage_global_enabled() ||
	    thp_disabled_by_hw())
		return false;
	/* A program's new mm inherits this from the mm that it replaces. */
	if (current->mm && test_bit(MMF_DISABLE_THP, &current->mm->flags))
		return false;
	return !shmem_file(file) ||
		shmem_allowable_huge_orders(file_inode(file), NULL, 0, 0, false);
}

/**
 * quire_text_holds_block - is there a whole block of the file in a range
 * @offset: in bytes, not negative
 * @len: bytes
 *
 * Context: any.
 * Return: true if there is; false for a range that ends beyond the largest offset.
 */
bool quire_text_holds_block(loff_t offset, unsigned long len)
{
	loff_t end = offset + len;

	return end > offset && round_up(offset, PMD_SIZE) + PMD_SIZE <= end;
}

/* Returns the first segment of read-only text that holds a whole file block, or NULL. */
static const struct elf64_phdr *text_segment(const struct elf64_phdr *phdrs, int nr)
{
	int i;

	for (i = 0; i < nr; i++) {
		const struct elf64_phdr *p = &phdrs[i];

		if (p->p_type == PT_LOAD && (p->p_flags & (PF_X | PF_W)) == PF_X &&
		    (loff_t)p->p_offset >= 0 && quire_text_holds_block(p->p_offset, p->p_filesz))
			return p;
	}
	return NULL;
}

/*
 * The program may be moved by any multiple of the alignment that its headers ask
 * for. That makes its text congruent only if the distance between the text's address
 * and offset is such a multiple, and the first segment's address as well, because the
 * loader aligns that address.
 */
static bool text_can_shift(const struct elf64_phdr *phdrs, int nr,
			   const struct elf64_phdr *text)
{
	unsigned long align = PAGE_SIZE, first = 0;
	bool found = false;
	int i;

	for (i = 0; i < nr; i++) {
		if (phdrs[i].p_type != PT_LOAD)
			continue;
		if (!found)
			first = PAGE_ALIGN_DOWN(phdrs[i].p_vaddr);
		found = true;
		if (is_power_of_2(phdrs[i].p_align))
			align = max_t(unsigned long, align, phdrs[i].p_align);
	}
	return align <= PMD_SIZE && IS_ALIGNED(first, align) &&
		IS_ALIGNED(text->p_vaddr - text->p_offset, align);
}

/**
 * __quire_text_alignment - alignment of a position-independent program
 * @file: the program's
 * @phdrs: program headers
 * @nr: how many
 * @alignment: what they ask for
 *
 * Counts the result.
 *
 * Context: any; takes no lock.
 * Return: PMD_SIZE if the text has a whole file block and can be made congruent, else
 * @alignment.
 */
unsigned long __quire_text_alignment(struct file *file, const struct elf64_phdr *phdrs,
				     int nr, unsigned long alignment)
{
	const struct elf64_phdr *text;

	if (!text_worth_placing(file))
		return alignment;
	text = text_segment(phdrs, nr);
	if (!text) {
		text_count(TEXT_PLACE_SMALL, 1);
		return alignment;
	}
	if (!text_can_shift(phdrs, nr, text)) {
		text_count(TEXT_PLACE_ALIGN, 1);
		return alignment;
	}
	text_count(TEXT_PLACED_PROGRAM, 1);
	return PMD_SIZE;
}

/**
 * __quire_text_shift - how far to lower a program to make its text congruent
 * @phdrs: program headers
 * @nr: how many
 * @load_bias: what is added to their addresses without the shift
 *
 * Context: any; takes no lock.
 * Return: bytes, less than PMD_SIZE; 0 if nothing is to be done or can be.
 */
unsigned long __quire_text_shift(const struct elf64_phdr *phdrs, int nr,
				 unsigned long load_bias)
{
	const struct elf64_phdr *text;
	unsigned long shift;

	text = text_segment(phdrs, nr);
	if (!text || !text_can_shift(phdrs, nr, text))
		return 0;
	shift = (load_bias + text->p_vaddr - text->p_offset) & ~PMD_MASK;
	return shift < load_bias ? shift : 0;
}

/**
 * __quire_text_place - should a file mapping be congruent with its PMD blocks
 * @file: the file
 * @len: bytes
 * @pgoff: offset in pages
 * @flags: of mmap
 * @vm_flags: of the mapping to come
 *
 * A library is mapped as a whole from its first byte, read-only, and its segments
 * are then mapped over that with MAP_FIXED. So the first mapping must be placed
 * although it is not executable.
 *
 * Counts mappings that are placed or too small.
 *
 * Context: any; takes no lock.
 * Return: true for read-only text with a whole block, or what may be a library with one.
 */
bool __quire_text_place(struct file *file, unsigned long len, unsigned long pgoff,
			unsigned long flags, vm_flags_t vm_flags)
{
	bool library = !pgoff && (flags & MAP_TYPE) == MAP_PRIVATE;

	if ((vm_flags & VM_WRITE) || !((vm_flags & VM_EXEC) || library))
		return false;
	if (!S_ISREG(file_inode(file)->i_mode) || !text_worth_placing(file))
		return false;
	if (!quire_text_holds_block((loff_t)pgoff << PAGE_SHIFT, len)) {
		text_count(TEXT_PLACE_MAP_SMALL, 1);
		return false;
	}
	text_count(TEXT_PLACED_MAP, 1);
	return true;
}
