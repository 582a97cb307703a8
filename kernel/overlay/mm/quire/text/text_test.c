// SPDX-License-Identifier: GPL-2.0
/* KUnit tests of the arithmetic of placement: which ranges, and how far down. */
#include <kunit/test.h>
#include <linux/elf.h>
#include <linux/mm.h>
#include <linux/quire/text.h>
#include <linux/sizes.h>

#include "text.h"

#define BIAS 0x555555400000UL		/* of a program, aligned to PMD_SIZE */

static void blocks_in_ranges(struct kunit *test)
{
	KUNIT_EXPECT_TRUE(test, quire_text_holds_block(0, SZ_2M));
	KUNIT_EXPECT_TRUE(test, quire_text_holds_block(SZ_4K, SZ_4M - SZ_4K));
	KUNIT_EXPECT_TRUE(test, quire_text_holds_block((loff_t)SZ_2M << 30, SZ_2M));
	KUNIT_EXPECT_FALSE(test, quire_text_holds_block(0, SZ_2M - SZ_4K));
	KUNIT_EXPECT_FALSE(test, quire_text_holds_block(SZ_4K, SZ_4M - 2 * SZ_4K));
	KUNIT_EXPECT_FALSE(test, quire_text_holds_block(0, 0));
	/* An end beyond the largest offset. */
	KUNIT_EXPECT_FALSE(test, quire_text_holds_block(LLONG_MAX - SZ_4K, SZ_4M));
	KUNIT_EXPECT_FALSE(test, quire_text_holds_block(SZ_4M, ~0UL));
}

/* A program of headers and one 4 MiB segment of text. */
static void make_program(struct elf64_phdr *p, u64 offset, u64 vaddr, u64 align)
{
	p[0] = (struct elf64_phdr){ .p_type = PT_LOAD, .p_flags = PF_R, .p_filesz = SZ_4K,
				    .p_memsz = SZ_4K, .p_align = align };
	p[1] = (struct elf64_phdr){ .p_type = PT_LOAD, .p_flags = PF_R | PF_X,
				    .p_offset = offset, .p_vaddr = vaddr, .p_filesz = SZ_4M,
				    .p_memsz = SZ_4M, .p_align = align };
}

static void shift_makes_text_congruent(struct kunit *test)
{
	static const struct {
		u64 offset, vaddr, shift;
	} cases[] = {
		{ SZ_4K, SZ_4K, 0 },
		{ SZ_4K, 3 * SZ_4K, 2 * SZ_4K },
		{ 3 * SZ_4K, SZ_4K, SZ_2M - 2 * SZ_4K },
		{ SZ_2M + SZ_4K, SZ_4K, 0 },
		{ 300 * SZ_4K, 1000 * SZ_4K, (700 - 512) * SZ_4K },
	};
	struct elf64_phdr p[2];
	unsigned long shift, at;
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		make_program(p, cases[i].offset, cases[i].vaddr, SZ_4K);
		shift = __quire_text_shift(p, 2, BIAS);
		at = BIAS - shift + cases[i].vaddr;
		KUNIT_EXPECT_EQ_MSG(test, shift, cases[i].shift, "case %d", i);
		KUNIT_EXPECT_TRUE_MSG(test, IS_ALIGNED(at - cases[i].offset, PMD_SIZE),
				      "case %d", i);
	}
	/* There is no room below, so it stays. */
	make_program(p, SZ_4K, 3 * SZ_4K, SZ_4K);
	KUNIT_EXPECT_EQ(test, __quire_text_shift(p, 2, SZ_4K), 0);
}

static void own_alignment_is_kept(struct kunit *test)
{
	struct elf64_phdr p[2];

	/* Multiples of the program's alignment are fine, other distances are not. */
	make_program(p, SZ_4K, SZ_4K + SZ_64K, SZ_64K);
	KUNIT_EXPECT_EQ(test, __quire_text_shift(p, 2, BIAS), SZ_64K);
	make_program(p, SZ_4K, 3 * SZ_4K, SZ_64K);
	KUNIT_EXPECT_EQ(test, __quire_text_shift(p, 2, BIAS), 0);
	/* An alignment above that of a block is not fine either. */
	make_program(p, SZ_4K, SZ_4K + SZ_2M, SZ_4M);
	KUNIT_EXPECT_EQ(test, __quire_text_shift(p, 2, BIAS), 0);
	/* An alignment that is not a power of two is ignored. */
	make_program(p, SZ_4K, 3 * SZ_4K, SZ_4K * 3);
	KUNIT_EXPECT_EQ(test, __quire_text_shift(p, 2, BIAS), 2 * SZ_4K);
}

static void only_text_counts(struct kunit *test)
{
	struct elf64_phdr p[2];

	make_program(p, SZ_4K, 3 * SZ_4K, SZ_4K);
	p[1].p_flags = PF_R;
	KUNIT_EXPECT_EQ(test, __quire_text_shift(p, 2, BIAS), 0);
	p[1].p_flags = PF_R | PF_W | PF_X;
	KUNIT_EXPECT_EQ(test, __quire_text_shift(p, 2, BIAS), 0);
	p[1].p_flags = PF_R | PF_X;
	p[1].p_type = PT_NOTE;
	KUNIT_EXPECT_EQ(test, __quire_text_shift(p, 2, BIAS), 0);
	p[1].p_type = PT_LOAD;
	p[1].p_filesz = SZ_2M;
	KUNIT_EXPECT_EQ(test, __quire_text_shift(p, 2, BIAS), 0);
	/* Headers may say anything. */
	p[1].p_filesz = ~0ULL;
	KUNIT_EXPECT_EQ(test, __quire_text_shift(p, 2, BIAS), 0);
	p[1].p_offset = ~0ULL - SZ_4K;
	KUNIT_EXPECT_EQ(test, __quire_text_shift(p, 2, BIAS), 0);
	KUNIT_EXPECT_EQ(test, __quire_text_shift(p, 0, BIAS), 0);
}

static struct kunit_case text_cases[] = {
	KUNIT_CASE(blocks_in_ranges),
	KUNIT_CASE(shift_makes_text_congruent),
	KUNIT_CASE(own_alignment_is_kept),
	KUNIT_CASE(only_text_counts),
	{}
};

static struct kunit_suite text_suite = {
	.name = "quire_text",
	.test_cases = text_cases,
};
kunit_test_suite(text_suite);
