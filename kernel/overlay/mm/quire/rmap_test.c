// SPDX-License-Identifier: GPL-2.0
/* Which chains let a borrower join its neighbour's anon_vma. */
#include <kunit/test.h>
#include <linux/mm_types.h>
#include <linux/quire_rmap.h>
#include <linux/rmap.h>

#define LINKS 4

/* An area and its chain, newest first, of @ids into a table of anon_vmas. */
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

/* A head that is not what the area uses: it adopted an older one. */
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

static struct kunit_case rmap_cases[] = {
	KUNIT_CASE(extends_by_one),
	KUNIT_CASE(adopted_does_not_extend),
	{}
};

static struct kunit_suite rmap_suite = {
	.name = "quire_rmap",
	.test_cases = rmap_cases,
};
kunit_test_suite(rmap_suite);
