// SPDX-License-Identifier: GPL-2.0
/* KUnit tests of prezero's arithmetic, and of its checks on engines. */
#include <kunit/test.h>
#include <linux/mm.h>
#include <linux/quire/prezero.h>
#include <linux/sizes.h>

#include "prezero.h"

static void share(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, prezero_share(1000000, 100), 100000UL);
	KUNIT_EXPECT_EQ(test, prezero_share(1000000, 0), 0UL);
	KUNIT_EXPECT_EQ(test, prezero_share(999, 1000), 999UL);
	KUNIT_EXPECT_EQ(test, prezero_share(1999, 500), 999UL);
	/* A zone of an exabyte does not overflow. */
	KUNIT_EXPECT_EQ(test, prezero_share(1UL << 48, 1000), 1UL << 48);
}

static void hysteresis(struct kunit *test)
{
	KUNIT_EXPECT_TRUE(test, prezero_active(false, 99, 1000, 100, 300));
	KUNIT_EXPECT_FALSE(test, prezero_active(false, 100, 1000, 100, 300));
	KUNIT_EXPECT_TRUE(test, prezero_active(true, 100, 1000, 100, 300));
	KUNIT_EXPECT_TRUE(test, prezero_active(true, 299, 1000, 100, 300));
	KUNIT_EXPECT_FALSE(test, prezero_active(true, 300, 1000, 100, 300));
	/* A stop below the start counts as the start. */
	KUNIT_EXPECT_TRUE(test, prezero_active(true, 99, 1000, 100, 0));
	KUNIT_EXPECT_FALSE(test, prezero_active(true, 100, 1000, 100, 0));
	/* A share of 0 switches kscrubd off. */
	KUNIT_EXPECT_FALSE(test, prezero_active(false, 0, 1000, 0, 0));
}

static void rate(struct kunit *test)
{
	const unsigned long pages = SZ_8M >> PAGE_SHIFT;

	KUNIT_EXPECT_EQ(test, prezero_pause_ms(pages, 0, 0), 0U);
	KUNIT_EXPECT_EQ(test, prezero_pause_ms(pages, 8, 0), 1000U);
	KUNIT_EXPECT_EQ(test, prezero_pause_ms(pages, 8, 400), 600U);
	KUNIT_EXPECT_EQ(test, prezero_pause_ms(pages, 8, 1400), 0U);
	KUNIT_EXPECT_EQ(test, prezero_pause_ms(0, 8, 0), 0U);
}

static void few_small_blocks(struct kunit *test)
{
	KUNIT_EXPECT_TRUE(test, prezero_may_split(0, 0));
	KUNIT_EXPECT_TRUE(test, prezero_may_split(0, 31));
	KUNIT_EXPECT_FALSE(test, prezero_may_split(1, 31));
	KUNIT_EXPECT_TRUE(test, prezero_may_split(1000, 32000));
	KUNIT_EXPECT_FALSE(test, prezero_may_split(1001, 32000));
}

static void is_zero(struct kunit *test)
{
	u8 *buf = kunit_kzalloc(test, PAGE_SIZE, GFP_KERNEL);
	size_t at;

	KUNIT_ASSERT_NOT_NULL(test, buf);
	KUNIT_EXPECT_TRUE(test, quire_prezero_is_zero(buf, PAGE_SIZE));
	for (at = 0; at < PAGE_SIZE; at += 257) {
		buf[at] = 1;
		KUNIT_EXPECT_FALSE(test, quire_prezero_is_zero(buf, PAGE_SIZE));
		buf[at] = 0;
	}
	buf[PAGE_SIZE - 1] = 0x80;
	KUNIT_EXPECT_FALSE(test, quire_prezero_is_zero(buf, PAGE_SIZE));
	KUNIT_EXPECT_TRUE(test, quire_prezero_is_zero(buf, PAGE_SIZE - sizeof(long)));
}

/* A fake engine: zeroes the first @zeroes bytes and returns @ret. */
struct fake_engine {
	struct quire_zero_engine engine;
	size_t zeroes;
	int ret;
};

static int fake_zero(struct quire_zero_engine *engine, struct page *page, unsigned int order)
{
	struct fake_engine *fake = container_of(engine, struct fake_engine, engine);

	memset(page_address(page), 0, fake->zeroes);
	return fake->ret;
}

static void engines_are_not_trusted(struct kunit *test)
{
	const size_t size = 4 * PAGE_SIZE;
	static const struct {
		size_t zeroes;
		int says, want;
	} cases[] = {
		{ size, 0, 0 },
		{ 0, 0, -EBADMSG },
		/* All but the last word; and all but the last transfer. */
		{ size - sizeof(long), 0, -EBADMSG },
		{ size - PAGE_SIZE, 0, -EBADMSG },
		{ size, -EIO, -EIO },
		{ 0, -EINPROGRESS, -EINPROGRESS },
	};
	struct fake_engine fake = {
		.engine = { .name = "fake", .transfer = PAGE_SIZE, .zero = fake_zero },
	};
	struct page *page = alloc_pages(GFP_KERNEL, 2);
	unsigned int i;

	KUNIT_ASSERT_NOT_NULL(test, page);
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		memset(page_address(page), 0xa5, size);
		fake.zeroes = cases[i].zeroes;
		fake.ret = cases[i].says;
		KUNIT_EXPECT_EQ(test, quire_prezero_engine_try(&fake.engine, page, 2),
				cases[i].want);
	}
	/* A block that is smaller than a transfer. */
	fake.engine.transfer = SZ_1M;
	fake.zeroes = size;
	fake.ret = 0;
	KUNIT_EXPECT_EQ(test, quire_prezero_engine_try(&fake.engine, page, 2), 0);
	__free_pages(page, 2);
}

static void the_cpu_zeroes(struct kunit *test)
{
	struct page *page = alloc_pages(GFP_KERNEL, 3);

	KUNIT_ASSERT_NOT_NULL(test, page);
	memset(page_address(page), 0xa5, PAGE_SIZE << 3);
	KUNIT_EXPECT_EQ(test, quire_prezero_cpu_engine.zero(&quire_prezero_cpu_engine, page, 3), 0);
	KUNIT_EXPECT_TRUE(test, quire_prezero_is_zero(page_address(page), PAGE_SIZE << 3));
	__free_pages(page, 3);
}

/* No one else frees memory of a block of the highest order that the test holds. */
static void used_blocks(struct kunit *test)
{
	const unsigned long beyond = 1UL << (BITS_PER_LONG - 1);
	struct page *page = alloc_pages(GFP_KERNEL, MAX_PAGE_ORDER);
	unsigned long pfn, last;

	KUNIT_ASSERT_NOT_NULL(test, page);
	pfn = page_to_pfn(page);
	last = pfn + MAX_ORDER_NR_PAGES - 1;
	quire_prezero_note_freed(last, false);
	KUNIT_EXPECT_TRUE(test, quire_prezero_all_used(pfn, 1));
	quire_prezero_forget_used(pfn, MAX_ORDER_NR_PAGES);
	KUNIT_EXPECT_FALSE(test, quire_prezero_all_used(pfn, 1));
	KUNIT_EXPECT_FALSE(test, quire_prezero_all_used(last, 1));
	/* Only what was freed counts, not what was put back. */
	KUNIT_EXPECT_FALSE(test, quire_prezero_note_freed(pfn, true));
	KUNIT_EXPECT_FALSE(test, quire_prezero_all_used(pfn, 1));
	KUNIT_EXPECT_TRUE(test, quire_prezero_note_freed(pfn, false));
	KUNIT_EXPECT_TRUE(test, quire_prezero_all_used(last, 1));
	/* A range that ends before the block, and one that is beyond all memory. */
	quire_prezero_forget_used(pfn - MAX_ORDER_NR_PAGES, MAX_ORDER_NR_PAGES);
	quire_prezero_forget_used(beyond, MAX_ORDER_NR_PAGES);
	KUNIT_EXPECT_TRUE(test, quire_prezero_all_used(pfn, 1));
	KUNIT_EXPECT_FALSE(test, quire_prezero_note_freed(beyond, false));
	KUNIT_EXPECT_FALSE(test, quire_prezero_all_used(beyond, 1));
	__free_pages(page, MAX_PAGE_ORDER);
}

/* Returns the number of the first step that is wrong, or 0. zone->lock is held. */
static int wrong_step(unsigned long pfn)
{
	unsigned long end = pfn + MAX_ORDER_NR_PAGES;

	quire_prezero_forget_used(pfn, MAX_ORDER_NR_PAGES);
	/* What is put back is looked at only if it was used before. */
	if (quire_prezero_note_freed(pfn, true) || quire_prezero_next_freed(pfn, end) != end)
		return 1;
	if (!quire_prezero_note_freed(pfn + 1, false) ||
	    quire_prezero_next_freed(pfn + 2, end) != pfn)
		return 2;
	quire_prezero_looked(pfn);
	if (quire_prezero_next_freed(pfn, end) != end)
		return 3;
	if (!quire_prezero_note_freed(pfn, true) || quire_prezero_next_freed(pfn, end) != pfn)
		return 4;
	quire_prezero_looked(pfn);
	quire_prezero_look_again();
	if (quire_prezero_next_freed(pfn, end) != pfn)
		return 5;
	return quire_prezero_next_freed(end, end) == end ? 0 : 6;
}

/* The lock keeps off a kscrubd that would look first. */
static void blocks_to_look_at(struct kunit *test)
{
	struct page *page = alloc_pages(GFP_KERNEL, MAX_PAGE_ORDER);
	int wrong;

	KUNIT_ASSERT_NOT_NULL(test, page);
	spin_lock_irq(&page_zone(page)->lock);
	wrong = wrong_step(page_to_pfn(page));
	spin_unlock_irq(&page_zone(page)->lock);
	KUNIT_EXPECT_EQ(test, wrong, 0);
	__free_pages(page, MAX_PAGE_ORDER);
}

static struct kunit_case prezero_cases[] = {
	KUNIT_CASE(share),
	KUNIT_CASE(hysteresis),
	KUNIT_CASE(rate),
	KUNIT_CASE(few_small_blocks),
	KUNIT_CASE(is_zero),
	KUNIT_CASE(used_blocks),
	KUNIT_CASE(blocks_to_look_at),
	KUNIT_CASE(engines_are_not_trusted),
	KUNIT_CASE(the_cpu_zeroes),
	{}
};

static struct kunit_suite prezero_suite = {
	.name = "quire_prezero",
	.test_cases = prezero_cases,
};
kunit_test_suite(prezero_suite);
