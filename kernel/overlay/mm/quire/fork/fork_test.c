// SPDX-License-Identifier: GPL-2.0
/* KUnit tests of fork's pure functions: what may be shared, and how fast the worker goes. */
#include <kunit/test.h>
#include <linux/mm.h>

#include "fork.h"

static struct vm_area_struct *area(struct kunit *test, vm_flags_t flags)
{
	struct vm_area_struct *vma = kunit_kzalloc(test, sizeof(*vma), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, vma);
	vm_flags_init(vma, flags);
	return vma;
}

#define PLAIN (VM_READ | VM_WRITE | VM_MAYREAD | VM_MAYWRITE)

static void shareable(struct kunit *test)
{
	static const vm_flags_t never[] = {
		VM_SHARED, VM_MAYSHARE, VM_LOCKED, VM_PFNMAP, VM_MIXEDMAP, VM_IO, VM_HUGETLB,
		VM_LOCKONFAULT, VM_UFFD_MISSING, VM_UFFD_WP, VM_UFFD_MINOR, VM_MERGEABLE,
		VM_SHADOW_STACK, VM_DROPPABLE, VM_GROWSDOWN, VM_GROWSUP, VM_WIPEONFORK,
		VM_DONTCOPY,
	};
	static const struct vm_operations_struct file_ops;
	struct vm_area_struct *vma = area(test, PLAIN), *other;
	int i;

	KUNIT_EXPECT_TRUE(test, quire_fork_vma_shareable(vma, vma));
	for (i = 0; i < ARRAY_SIZE(never); i++) {
		/* Not every architecture has all of these flags. */
		if (never[i] == VM_NONE)
			continue;
		other = area(test, PLAIN | never[i]);
		KUNIT_EXPECT_FALSE_MSG(test, quire_fork_vma_shareable(other, other),
				       "flag %lx", never[i]);
		KUNIT_EXPECT_FALSE(test, quire_fork_vma_shareable(vma, other));
		KUNIT_EXPECT_FALSE(test, quire_fork_vma_shareable(other, vma));
	}
	other = area(test, PLAIN & ~VM_MAYWRITE);
	KUNIT_EXPECT_FALSE(test, quire_fork_vma_shareable(other, other));
	other = area(test, PLAIN);
	other->vm_ops = &file_ops;
	KUNIT_EXPECT_FALSE(test, quire_fork_vma_shareable(other, other));
}

static void budget(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, quire_background_budget(0), 1);
	KUNIT_EXPECT_EQ(test, quire_background_budget(1), 1);
	KUNIT_EXPECT_EQ(test, quire_background_budget(1U << 20),
			(unsigned int)((1ULL << 20) * max(HZ / 100, 1) / HZ));
	KUNIT_EXPECT_LE(test, quire_background_budget(10 * HZ), 10 * max(HZ / 100, 1));
}

static struct kunit_case fork_cases[] = {
	KUNIT_CASE(shareable),
	KUNIT_CASE(budget),
	{}
};

static struct kunit_suite fork_suite = {
	.name = "quire_fork",
	.test_cases = fork_cases,
};
kunit_test_suite(fork_suite);
