// SPDX-License-Identifier: GPL-2.0
/* Tests which chains let a borrower join its neighbour's anon_vma, and what a walk finds. */
#include <kunit/test.h>
#include <linux/maple_tree.h>
#include <linux/mm_types.h>
#include <linux/quire/rmap_bulk.h>
#include <linux/rmap.h>

#define LINKS 4

/* A VMA and its chain, newest first, given by ids of anon_vmas in a table. */
struct area {
	struct vm_area_struct vma;
	struct anon_vma_chain links[LINKS];
};

static struct anon_vma *test_anon_vmas;

static struct vm_area_struct *make_area(struct kunit *test, const char *ids)
{
	struct area *area = kunit_kzalloc(test, sizeof(*area), GFP_KERNEL);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, area);
	INIT_LIST_HEAD(&area->vma.anon_vma_chain);
	for (i = 0; ids[i]; i++) {
		area->links[i].anon_vma = &test_anon_vmas[ids[i] - 'a'];
		list_add_tail(&area->links[i].same_vma, &area->vma.anon_vma_chain);
	}
	if (i)
		area->vma.anon_vma = area->links[0].anon_vma;
	return &area->vma;
}

static void extends_by_one(struct kunit *test)
{
	static const struct {
		const char *longer, *shorter;
		bool extends;
	} cases[] = {
		{ "ba", "a", true },
		{ "cba", "ba", true },
		{ "ca", "a", true },
		{ "a", "a", false },
		{ "cba", "a", false },
		{ "a", "ba", false },
		{ "cb", "a", false },
		{ "cab", "ba", false },
		{ "bac", "a", false },
		{ "", "a", false },
	};

	test_anon_vmas = kunit_kcalloc(test, 26, sizeof(*test_anon_vmas), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, test_anon_vmas);
	for (int i = 0; i < ARRAY_SIZE(cases); i++)
		KUNIT_EXPECT_EQ_MSG(test, cases[i].extends,
				    quire_rmap_extends(make_area(test, cases[i].longer),
						       make_area(test, cases[i].shorter)),
				    "'%s' and '%s'", cases[i].longer, cases[i].shorter);
}

/* The head is not the anon_vma that the VMA uses, because it adopted an older one. */
static void adopted_does_not_extend(struct kunit *test)
{
	struct vm_area_struct *longer, *shorter;

	test_anon_vmas = kunit_kcalloc(test, 26, sizeof(*test_anon_vmas), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, test_anon_vmas);
	longer = make_area(test, "ba");
	shorter = make_area(test, "a");
	longer->anon_vma = &test_anon_vmas[0];
	KUNIT_EXPECT_FALSE(test, quire_rmap_extends(longer, shorter));
}

/* Ranges of length one to four, with holes after some. Returns the last address. */
static unsigned long fill_tree(struct kunit *test, struct maple_tree *tree, unsigned int ranges)
{
	unsigned long at = 16;

	mt_init_flags(tree, MT_FLAGS_ALLOC_RANGE);
	for (unsigned int i = 0; i < ranges; i++) {
		unsigned long last = at + i * 7 % 4;

		KUNIT_ASSERT_EQ(test, 0, mtree_store_range(tree, at, last, xa_mk_value(i + 1),
							   GFP_KERNEL));
		at = last + 1 + (i * 5 % 3 ? 0 : 4);
	}
	return at;
}

/* Walk two equal trees in both ways, and clear every @clear-th range on the way. */
static void walk_both(struct kunit *test, unsigned int ranges, unsigned int clear,
		      unsigned int percent)
{
	struct maple_tree one, other;
	unsigned long max = fill_tree(test, &one, ranges) * percent / 100;
	MA_STATE(mas, &one, 0, 0);
	MA_STATE(fast, &other, 0, 0);
	unsigned int found = 0;
	void *entry;

	fill_tree(test, &other, ranges);
	/* One after the other: each walk may allocate, and drops its lock for that. */
	do {
		mtree_lock(&one);
		entry = mas_find(&mas, max);
		if (entry && clear && found % clear == 0)
			KUNIT_ASSERT_EQ(test, 0, mas_store_gfp(&mas, NULL, GFP_KERNEL));
		mtree_unlock(&one);

		mtree_lock(&other);
		KUNIT_ASSERT_PTR_EQ(test, entry, __quire_rmap_next(&fast, max));
		if (entry && clear && found % clear == 0)
			KUNIT_ASSERT_EQ(test, 0, mas_store_gfp(&fast, NULL, GFP_KERNEL));
		mtree_unlock(&other);
		KUNIT_ASSERT_EQ(test, mas.index, fast.index);
		KUNIT_ASSERT_EQ(test, mas.last, fast.last);
		found++;
	} while (entry);
	mtree_destroy(&one);
	mtree_destroy(&other);
}

static void next_is_mas_find(struct kunit *test)
{
	static const unsigned int ranges[] = { 0, 1, 2, 15, 16, 17, 40, 200 };
	static const unsigned int clear[] = { 0, 1, 3 };

	for (int i = 0; i < ARRAY_SIZE(ranges); i++)
		for (int j = 0; j < ARRAY_SIZE(clear); j++)
			for (unsigned int percent = 50; percent <= 110; percent += 60)
				walk_both(test, ranges[i], clear[j], percent);
}

static struct kunit_case rmap_cases[] = {
	KUNIT_CASE(extends_by_one),
	KUNIT_CASE(adopted_does_not_extend),
	KUNIT_CASE(next_is_mas_find),
	{}
};

static struct kunit_suite rmap_suite = {
	.name = "quire_rmap",
	.test_cases = rmap_cases,
};
kunit_test_suite(rmap_suite);
