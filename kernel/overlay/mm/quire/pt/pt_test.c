// SPDX-License-Identifier: GPL-2.0
/* KUnit tests of pt's pure functions: the mark, what entries are charged as, sanitized entries. */
#include <kunit/test.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/swap.h>
#include <linux/swapops.h>

#include "pt.h"

static struct page *test_page(void)
{
	return ZERO_PAGE(0);
}

/* Marking and unmarking loses no bit, and no walker takes either PMD for bad. */
static void mark(struct kunit *test)
{
	pmd_t pmd = __pmd(__pa(page_address(test_page())) | _PAGE_TABLE);
	pmd_t marked = quire_pmd_mark(pmd);

	KUNIT_EXPECT_FALSE(test, pmd_pt_cow(pmd));
	KUNIT_EXPECT_TRUE(test, pmd_pt_cow(marked));
	KUNIT_EXPECT_FALSE(test, pmd_bad(marked));
	KUNIT_EXPECT_TRUE(test, pmd_present(marked));
	KUNIT_EXPECT_FALSE(test, pmd_leaf(marked));
	KUNIT_EXPECT_EQ(test, pmd_pfn(marked), pmd_pfn(pmd));
	KUNIT_EXPECT_EQ(test, pmd_val(quire_pmd_unmark(marked)), pmd_val(pmd));
}

/* A PMD that points to no table is never taken for a shared one. */
static void not_marked(struct kunit *test)
{
	unsigned long pa = __pa(page_address(test_page()));
	swp_entry_t entry = swp_entry(1, 0x1234);

	KUNIT_EXPECT_FALSE(test, pmd_pt_cow(__pmd(0)));
	KUNIT_EXPECT_FALSE(test, pmd_pt_cow(__pmd(pa | _PAGE_TABLE | _PAGE_PT_MARKED)));
	KUNIT_EXPECT_FALSE(test, pmd_pt_cow(__pmd(pa | _PAGE_PRESENT | _PAGE_PSE |
						  _PAGE_PT_MARKED)));
	KUNIT_EXPECT_FALSE(test, pmd_pt_cow(swp_entry_to_pmd(entry)));
	KUNIT_EXPECT_TRUE(test, pmd_bad(__pmd(pa | _PAGE_PRESENT)));
}

static struct vm_area_struct *area(struct kunit *test, vm_flags_t flags)
{
	struct vm_area_struct *vma = kunit_kzalloc(test, sizeof(*vma), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, vma);
	vm_flags_init(vma, flags);
	return vma;
}

#define PLAIN (VM_READ | VM_WRITE | VM_MAYREAD | VM_MAYWRITE)

static void charges(struct kunit *test)
{
	struct vm_area_struct *vma = area(test, PLAIN);
	pte_t zero = pte_mkspecial(mk_pte(test_page(), PAGE_READONLY));
	pte_t swap = swp_entry_to_pte(swp_entry(1, 0x1234));
	pte_t moving = swp_entry_to_pte(make_readable_migration_entry(0x1234));
	pte_t poison = swp_entry_to_pte(swp_entry(SWP_HWPOISON, 0x1234));

	KUNIT_EXPECT_EQ(test, quire_pt_charged_as(vma, 0, __pte(0), false), -1);
	KUNIT_EXPECT_EQ(test, quire_pt_charged_as(vma, 0, zero, false), -1);
	KUNIT_EXPECT_EQ(test, quire_pt_charged_as(vma, 0, swap, false), (int)MM_SWAPENTS);
	KUNIT_EXPECT_EQ(test, quire_pt_charged_as(vma, 0, moving, false), (int)MM_ANONPAGES);
	KUNIT_EXPECT_EQ(test, quire_pt_charged_as(vma, 0, poison, false), -1);
}

/* A mixed table has pages of several kinds. */
static void mixed_charges(struct kunit *test)
{
	struct vm_area_struct *vma = area(test, PLAIN);
	struct page *page = alloc_page(GFP_KERNEL);
	pte_t swap = swp_entry_to_pte(swp_entry(1, 0x1234));
	pte_t zero = pte_mkspecial(mk_pte(test_page(), PAGE_READONLY));
	pte_t present, moving;

	KUNIT_ASSERT_NOT_NULL(test, page);
	present = mk_pte(page, PAGE_READONLY);
	lock_page(page);
	moving = swp_entry_to_pte(make_readable_migration_entry(page_to_pfn(page)));
	KUNIT_EXPECT_EQ(test, quire_pt_charged_as(vma, 0, __pte(0), true), -1);
	KUNIT_EXPECT_EQ(test, quire_pt_charged_as(vma, 0, zero, true), -1);
	KUNIT_EXPECT_EQ(test, quire_pt_charged_as(vma, 0, swap, true), (int)MM_SWAPENTS);
	KUNIT_EXPECT_EQ(test, quire_pt_charged_as(vma, 0, present, true), (int)MM_FILEPAGES);
	KUNIT_EXPECT_EQ(test, quire_pt_charged_as(vma, 0, moving, true), (int)MM_FILEPAGES);
	unlock_page(page);
	__free_page(page);
}

/* Private VMAs of files, and only those that could be shared whole. */
static void mixable(struct kunit *test)
{
	static const struct vm_operations_struct cached = { .map_pages = filemap_map_pages };
	static const struct vm_operations_struct other;
	struct vm_area_struct *vma = area(test, PLAIN);

	KUNIT_EXPECT_TRUE(test, quire_pt_area_mixable(vma));
	vma->vm_ops = &cached;
	KUNIT_EXPECT_TRUE(test, quire_pt_area_mixable(vma));
	vma->vm_ops = &other;
	KUNIT_EXPECT_FALSE(test, quire_pt_area_mixable(vma));
	vma = area(test, PLAIN | VM_SHARED);
	vma->vm_ops = &cached;
	KUNIT_EXPECT_FALSE(test, quire_pt_area_mixable(vma));
	vma = area(test, PLAIN | VM_DONTCOPY);
	KUNIT_EXPECT_FALSE(test, quire_pt_area_mixable(vma));
	vma = area(test, PLAIN & ~VM_MAYWRITE);
	KUNIT_EXPECT_FALSE(test, quire_pt_area_mixable(vma));
}

/* No entry is exclusive or writable afterwards, and nothing else is lost. */
static void sanitized(struct kunit *test)
{
	pte_t swap = swp_entry_to_pte(swp_entry(1, 0x1234));
	pte_t readable = swp_entry_to_pte(make_readable_migration_entry(0x1234));
	pte_t writable = swp_entry_to_pte(make_writable_migration_entry(0x1234));
	pte_t exclusive = swp_entry_to_pte(make_readable_exclusive_migration_entry(0x1234));
	pte_t poison = swp_entry_to_pte(swp_entry(SWP_HWPOISON, 0x1234));
	pte_t dirty = pte_swp_mksoft_dirty(writable);

	KUNIT_EXPECT_TRUE(test, pte_same(quire_pt_sanitized(swap), swap));
	KUNIT_EXPECT_TRUE(test, pte_same(quire_pt_sanitized(pte_swp_mkexclusive(swap)), swap));
	KUNIT_EXPECT_TRUE(test, pte_same(quire_pt_sanitized(readable), readable));
	KUNIT_EXPECT_TRUE(test, pte_same(quire_pt_sanitized(writable), readable));
	KUNIT_EXPECT_TRUE(test, pte_same(quire_pt_sanitized(exclusive), readable));
	KUNIT_EXPECT_TRUE(test, pte_same(quire_pt_sanitized(poison), poison));
	KUNIT_EXPECT_EQ(test, pte_swp_soft_dirty(quire_pt_sanitized(dirty)),
			pte_swp_soft_dirty(dirty));
}

static struct kunit_case pt_cases[] = {
	KUNIT_CASE(mark),
	KUNIT_CASE(not_marked),
	KUNIT_CASE(charges),
	KUNIT_CASE(mixed_charges),
	KUNIT_CASE(mixable),
	KUNIT_CASE(sanitized),
	{}
};

static struct kunit_suite pt_suite = {
	.name = "quire_pt",
	.test_cases = pt_cases,
};
kunit_test_suite(pt_suite);
