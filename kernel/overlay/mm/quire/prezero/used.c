// SPDX-License-Identifier: GPL-2.0
/*
 * What memory has been in use since the feature was switched on, and where kscrubd is to look.
 *
 * A hypervisor backs memory when it is first touched, so a guest that zeroes all free
 * memory makes its host spend memory that nobody needs. With the knob scrub_unused at 0,
 * kscrubd leaves out blocks that hold no memory that was freed since the switch-on. What
 * was used and freed before that counts as unused: the kernel keeps no record of it.
 *
 * Granularity: for each aligned block of the highest order, one bit says that memory was
 * freed in it, and one that this, or a put-back, was after kscrubd last looked. Free blocks do
 * not merge beyond that order, so every free block has one bit of each kind, and merging does
 * not change which. Bits are set when a page is freed into a block of at least
 * scrub_order_min, that is into one that kscrubd may take. So kscrubd touches at most the rest
 * of a 4 MB block of which some page was in use.
 *
 * The bits are kept on all machines, and whatever the knob says, so that a 0 that is
 * written later finds them. What was freed into smaller blocks is missing after
 * scrub_order_min was lowered. FPI_UNUSED says that memory that enters a free list was not in
 * use: after an isolation (page reporting, memory that did not go offline, kscrubd), and when
 * it goes online. Compaction gives back what it did not need as if it had used it, as a
 * balloon does: such memory is zeroed.
 *
 * hugetlb's pool: a folio that comes back to it after use sets the first of the two bits, for
 * all of its memory. The second is for the zones' free lists, where this memory is not; hugetlb.c
 * says where it looks.
 *
 * Looking again: memory may become dirty, or available, without being freed: when marks are
 * stripped, when a block changes its migrate type, when a knob changes. So all used memory is
 * looked at again after a strip, a change of a knob, an offlining that failed, at scrub_now,
 * and each time that kscrubd has slept for long.
 *
 * Size: up to the highest page that the firmware says memory may be plugged at. What is
 * beyond counts as unused, because it was plugged in by something that we know nothing of.
 *
 * Locking: bits are set under zone->lock, and those that kscrubd looked at are cleared under
 * it. Zones may share a word, and the rest is done without that lock, so all changes are
 * atomic. Where zones share a block, one may clear the other's bit; until that zone's next
 * free there, or until all memory is looked at again, the block is left out.
 *
 * Lifetime: the maps are allocated at boot and never freed; they are cleared at a start while
 * quire_prezero_marks_key is off, when no memory is noted. quire_prezero_look_again() may set
 * bits of the second kind at any time, which count for nothing without those of the first.
 */
#include <linux/bitmap.h>
#include <linux/bitops.h>
#include <linux/init.h>
#include <linux/memblock.h>
#include <linux/mm.h>
#include <linux/quire/prezero.h>
#include <linux/slab.h>
#include <asm/cpufeature.h>

#include "prezero.h"

static unsigned long *used_map __ro_after_init;		/* memory was freed */
static unsigned long *freed_map __ro_after_init;	/* and kscrubd has not looked since */
static unsigned long used_bits __ro_after_init;

/* Most are set already; others read the cache line. */
static void set_if_clear(unsigned long bit, unsigned long *map)
{
	if (!test_bit(bit, map))
		set_bit(bit, map);
}

static unsigned long next_used(unsigned long bits, unsigned long start)
{
	/* Bits of other zones may change meanwhile, and without zone->lock all may. */
	return data_race(find_next_bit(used_map, bits, start));
}

/**
 * quire_prezero_note_freed - a block that is not zero was put on a free list
 * @pfn: of a page in the block
 * @unused: whether what was put there was not in use
 *
 * Context: the zone->lock of the page is held.
 * Return: whether kscrubd may take the block also with scrub_unused at 0.
 */
bool quire_prezero_note_freed(unsigned long pfn, bool unused)
{
	unsigned long bit = pfn >> MAX_PAGE_ORDER;

	if (bit >= used_bits || (unused && !test_bit(bit, used_map)))
		return false;
	set_if_clear(bit, used_map);
	set_if_clear(bit, freed_map);
	return true;
}

/**
 * quire_prezero_note_used - a range of memory was in use that was not freed to a zone
 * @pfn: its first page
 * @pages: its size
 *
 * Context: any; takes no lock. quire_prezero_marks_key is on.
 */
void quire_prezero_note_used(unsigned long pfn, unsigned long pages)
{
	unsigned long bit = pfn >> MAX_PAGE_ORDER;
	unsigned long end = min(DIV_ROUND_UP(pfn + pages, MAX_ORDER_NR_PAGES), used_bits);

	for (; bit < end; bit++)
		set_if_clear(bit, used_map);
}

/**
 * quire_prezero_all_used - was all of a range of memory in use
 * @pfn: its first page
 * @pages: its size
 *
 * Context: any.
 * Return: whether each block of the highest order in it may hold memory that was.
 */
bool quire_prezero_all_used(unsigned long pfn, unsigned long pages)
{
	unsigned long end = DIV_ROUND_UP(pfn + pages, MAX_ORDER_NR_PAGES);

	if (end > used_bits)
		return false;
	/* As in next_used(). */
	return data_race(find_next_zero_bit(used_map, end, pfn >> MAX_PAGE_ORDER)) == end;
}

/**
 * quire_prezero_next_freed - find memory that was freed since kscrubd last looked
 * @pfn: where to begin
 * @end: where to end
 *
 * Context: any; zone->lock for an answer that does not change for its zone.
 * Return: the first page of a block of the highest order, which may contain @pfn; or @end.
 */
unsigned long quire_prezero_next_freed(unsigned long pfn, unsigned long end)
{
	unsigned long bits = min(DIV_ROUND_UP(end, MAX_ORDER_NR_PAGES), used_bits);
	unsigned long bit;

	/* Both: quire_prezero_look_again() may set a bit of memory that is forgotten meanwhile. */
	bit = data_race(find_next_and_bit(freed_map, used_map, bits, pfn >> MAX_PAGE_ORDER));
	return bit < bits ? bit << MAX_PAGE_ORDER : end;
}

/**
 * quire_prezero_next_used - find memory that was in use
 * @pfn: where to begin
 * @end: where to end
 *
 * Context: any.
 * Return: @pfn if its block of the highest order may hold memory that was in use, else the first
 * page of the next such block, or @end.
 */
unsigned long quire_prezero_next_used(unsigned long pfn, unsigned long end)
{
	unsigned long bits = min(DIV_ROUND_UP(end, MAX_ORDER_NR_PAGES), used_bits);
	unsigned long bit = next_used(bits, pfn >> MAX_PAGE_ORDER);

	return bit < bits ? max(pfn, bit << MAX_PAGE_ORDER) : end;
}

/**
 * quire_prezero_looked - there is nothing more to zero in a block of the highest order
 * @pfn: of a page in the block, which quire_prezero_next_freed() returned
 *
 * Context: zone->lock is held, and has been since the block was looked at.
 */
void quire_prezero_looked(unsigned long pfn)
{
	clear_bit(pfn >> MAX_PAGE_ORDER, freed_map);
}

/**
 * quire_prezero_look_again - kscrubd is to look at all used memory of the zones
 *
 * A scan that is under way may end with what it accepted before. A caller that changes this
 * halts scrubbing first.
 *
 * Context: any; takes no lock.
 */
void quire_prezero_look_again(void)
{
	unsigned long bit;

	/* What is used meanwhile is noted as freed, too, if there is anything to look at. */
	for (bit = next_used(used_bits, 0); bit < used_bits; bit = next_used(used_bits, bit + 1))
		set_if_clear(bit, freed_map);
}

/**
 * quire_prezero_forget_used - a range of memory counts as unused again
 * @pfn: its first page, at the start of a block of the highest order
 * @pages: its size
 *
 * Context: any; takes no lock. No page of the range may be freed meanwhile.
 */
void quire_prezero_forget_used(unsigned long pfn, unsigned long pages)
{
	unsigned long bit = pfn >> MAX_PAGE_ORDER;
	unsigned long end = min((pfn + pages) >> MAX_PAGE_ORDER, used_bits);

	for (; bit < end; bit++) {
		clear_bit(bit, used_map);
		clear_bit(bit, freed_map);
	}
}

/**
 * quire_prezero_forget_all_used - all memory counts as unused
 *
 * Context: quire_prezero_marks_key is off, so that no memory is noted.
 */
void quire_prezero_forget_all_used(void)
{
	bitmap_zero(used_map, used_bits);
	bitmap_zero(freed_map, used_bits);
}

static unsigned long *__init new_map(unsigned long bits)
{
	return kvcalloc(BITS_TO_LONGS(bits), sizeof(long), GFP_KERNEL);
}

/**
 * quire_prezero_used_init - allocate the maps; choose the knob's value for this machine
 *
 * Context: boot only.
 * Return: 0 or -ENOMEM; then there is no map and all memory counts as unused.
 */
int __init quire_prezero_used_init(void)
{
	unsigned long bits = DIV_ROUND_UP(max_t(u64, max_pfn, max_possible_pfn),
					  MAX_ORDER_NR_PAGES);

	used_map = new_map(bits);
	freed_map = new_map(bits);
	if (!used_map || !freed_map) {
		kvfree(used_map);
		kvfree(freed_map);
		return -ENOMEM;
	}
	/* Last: until it is set nobody looks at the maps. */
	used_bits = bits;
	quire_scrub_unused = !boot_cpu_has(X86_FEATURE_HYPERVISOR);
	return 0;
}
