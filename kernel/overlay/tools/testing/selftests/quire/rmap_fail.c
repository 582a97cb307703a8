// SPDX-License-Identifier: GPL-2.0
/* Borrowed anon_vmas when allocations fail. Needs CONFIG_FAILSLAB. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/wait.h>

#include "harness.h"
#include "rmap_common.h"

#define PAGES 16
#define FAILSLAB "/sys/kernel/debug/failslab/"
#define FAIL_THESE "/sys/kernel/slab/anon_vma/failslab"

/* Page i holds i, or i + more. */
static bool pages_hold(void *base, unsigned int first, unsigned int more)
{
	for (unsigned int i = first; i < PAGES; i++)
		if (*word(base, i) != i + more)
			return false;
	return true;
}

/* From here on every allocation of an anon_vma fails, in tasks that have asked for it. */
static int fail_anon_vmas(bool on)
{
	int err = write_text(FAIL_THESE, on ? "1" : "0");

	if (err)
		return err;
	write_text(FAILSLAB "cache-filter", "Y");
	write_text(FAILSLAB "ignore-gfp-wait", "N");
	write_text(FAILSLAB "task-filter", "Y");
	write_text(FAILSLAB "verbose", "0");
	write_text(FAILSLAB "times", "-1");
	return write_text(FAILSLAB "probability", on ? "100" : "0");
}

/* Runs in a borrower. Returns 0, or the number of the step that went wrong. */
static int write_without_memory(void *base)
{
	if (write_text("/proc/self/make-it-fail", "1"))
		return 1;
	for (unsigned int i = 0; i < PAGES; i++)
		*word(base, i) = 100 + i;
	/* Do nothing else while allocations may fail: a new area could not be written to. */
	if (write_text("/proc/self/make-it-fail", "0"))
		return 2;
	if (rmap_check(NULL))
		return 3;
	/* Now the upgrade succeeds; the area's pages are in both trees. */
	if (mprotect(base, PAGES / 2 * PAGE, PROT_NONE) ||
	    madvise(word(base, PAGES / 2), PAGE, MADV_DONTNEED))
		return 4;
	*word(base, PAGES / 2) = 5;
	if (rmap_check(NULL))
		return 5;
	return pages_hold(base, PAGES / 2 + 1, 100) ? 0 : 6;
}

/* If a borrower cannot be upgraded, its pages are attached to what it borrows, and all is well. */
TEST(upgrade_fails)
{
	long enabled = read_number(RMAP "enabled"), failed;
	void *base;
	int status;

	if (enabled < 0)
		SKIP(return, "no rmap feature in this kernel");
	mount_debugfs();
	if (access(FAILSLAB "probability", W_OK) || access(FAIL_THESE, W_OK))
		SKIP(return, "no failslab");
	ASSERT_EQ(0, write_text(RMAP "enabled", "1"));
	ASSERT_EQ(0, write_text(RMAP "defer_faults", "0"));
	base = map(PAGES);
	ASSERT_NE(MAP_FAILED, base);
	for (unsigned int i = 0; i < PAGES; i++)
		*word(base, i) = i;
	ASSERT_EQ(0, fail_anon_vmas(true));
	failed = rmap_counter("upgrade_nomem");
	if (!fork())
		_exit(write_without_memory(base));
	ASSERT_GT(wait(&status), 0);
	EXPECT_EQ(0, fail_anon_vmas(false));
	EXPECT_TRUE(WIFEXITED(status));
	EXPECT_EQ(0, WEXITSTATUS(status));
	EXPECT_GT(rmap_counter("upgrade_nomem"), failed);
	EXPECT_TRUE(pages_hold(base, 0, 0));
	EXPECT_EQ(0, rmap_check(NULL));
	EXPECT_EQ(0, write_text(RMAP "defer_faults", "32"));
	EXPECT_EQ(0, write_text(RMAP "enabled", enabled ? "1" : "0"));
}

/*
 * The child's stack, heap and data get new anonymous pages, which ends their borrowing. A write
 * to a page that they already have may not end it: if the parent has written first, the page is
 * the child's alone, and is used as it is.
 */
static void upgrade_all_else(void)
{
	static volatile char data[2 * PAGE];
	volatile char stack[16 * PAGE];
	volatile char *heap = sbrk(2 * PAGE);

	data[PAGE] = stack[0] = 1;
	heap[PAGE] = data[PAGE] + stack[0];
}

/* Runs in a borrower. Returns 0, or the number of the step that went wrong. */
static int split_without_memory(char *base)
{
	long had = field("/proc/self/quire", "rmap_inside:"), inherited = rmap_counter("inherited");
	long has;
	char *to = map(1);
	int err;

	if (write_text("/proc/self/make-it-fail", "1"))
		return 1;
	err = mprotect(base + 5 * PAGE, PAGE, PROT_READ) ? 2 :
	      mremap(base + 9 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to ? 3 : 0;
	if (write_text("/proc/self/make-it-fail", "0") || err)
		return err ?: 4;
	/*
	 * One area has become five: before page 5, page 5, up to page 9, after that, and where
	 * page 9 is now.
	 */
	has = field("/proc/self/quire", "rmap_inside:");
	if (has != had + 4) {
		fprintf(stderr, "# %ld areas have their link inside, not %ld\n", has, had + 4);
		return 5;
	}
	if (rmap_counter("inherited") < inherited + 4)
		return 8;
	if (rmap_check(NULL))
		return 9;
	/* Each part has an anon_vma now, its own or a neighbour's. */
	*word(base, 0) = *word(base, 6) = *word(base, 12) = *word(to, 0) = 200;
	if (rmap_check(NULL))
		return 6;
	return *word(base, 5) == 5 && *word(base, 13) == 13 ? 0 : 7;
}

/* If an area is split or moved without an upgrade, its parts have links inside, too. */
TEST(split_borrows)
{
	long enabled = read_number(RMAP "enabled");
	char *base;
	int status;

	if (enabled < 0)
		SKIP(return, "no rmap feature in this kernel");
	mount_debugfs();
	if (access(FAILSLAB "probability", W_OK) || access(FAIL_THESE, W_OK))
		SKIP(return, "no failslab");
	ASSERT_EQ(0, write_text(RMAP "enabled", "1"));
	ASSERT_EQ(0, write_text(RMAP "defer_faults", "0"));
	base = map(PAGES);
	ASSERT_NE(MAP_FAILED, base);
	for (unsigned int i = 0; i < PAGES; i++)
		*word(base, i) = i;
	ASSERT_EQ(0, fail_anon_vmas(true));
	if (!fork()) {
		upgrade_all_else();
		_exit(split_without_memory(base));
	}
	ASSERT_GT(wait(&status), 0);
	EXPECT_EQ(0, fail_anon_vmas(false));
	EXPECT_EQ(0, status);
	EXPECT_TRUE(pages_hold(base, 0, 0));
	EXPECT_EQ(0, rmap_check(NULL));
	EXPECT_EQ(0, write_text(RMAP "defer_faults", "32"));
	EXPECT_EQ(0, write_text(RMAP "enabled", enabled ? "1" : "0"));
}

/*
 * Makes the @nth allocation from now on fail; 0: none. If @nth is negative, returns how many
 * are left.
 */
static int fail_nth(int nth)
{
	char text[16];

	if (nth < 0)
		return read_number("/proc/thread-self/fail-nth");
	snprintf(text, sizeof(text), "%d", nth);
	return write_text("/proc/thread-self/fail-nth", text);
}

/*
 * fork() with its allocation number @nth failing; the child, if there is one, checks its
 * memory. Returns whether fork() made so many allocations: then nothing is left to count down.
 */
static bool fork_without(struct __test_metadata *_metadata, void *base, int nth, int *failed)
{
	bool injected;
	int status;
	pid_t pid;

	ASSERT_EQ(0, fail_nth(nth));
	pid = fork();
	if (!pid)
		_exit(!pages_hold(base, 0, 0));
	injected = fail_nth(-1) == 0;
	fail_nth(0);
	*failed += pid < 0;
	if (pid > 0) {
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		ASSERT_EQ(0, status);
	}
	return injected;
}

/* Maps areas of one file, which wait at fork to be linked together, some of them until its end. */
static bool map_file_areas(void)
{
	int file = memfd_create("areas", 0);

	for (unsigned int i = 0; i < 13; i++)
		if (mmap(NULL, PAGE, PROT_READ, i % 2 ? MAP_SHARED : MAP_PRIVATE, file,
			 2 * i * PAGE) == MAP_FAILED)
			return false;
	return !close(file);
}

/* Makes each of fork()'s allocations fail in turn, until fork() needs no more of them. */
TEST(fork_fails_anywhere)
{
	long enabled = read_number(RMAP "enabled");
	int nth, failed = 0;
	void *base;

	if (enabled < 0)
		SKIP(return, "no rmap feature in this kernel");
	mount_debugfs();
	if (access(FAILSLAB "probability", W_OK) || access("/proc/thread-self/fail-nth", W_OK))
		SKIP(return, "no failslab");
	ASSERT_EQ(0, write_text(RMAP "enabled", "1"));
	write_text(FAILSLAB "cache-filter", "N");
	write_text(FAILSLAB "ignore-gfp-wait", "N");
	write_text(FAILSLAB "verbose", "0");
	ASSERT_TRUE(map_file_areas());
	base = map(PAGES);
	ASSERT_NE(MAP_FAILED, base);
	for (unsigned int i = 0; i < PAGES; i++) {
		*word(base, i) = i;
		ASSERT_EQ(0, i % 2 ? mprotect(word(base, i), PAGE, PROT_READ) : 0);
	}
	for (nth = 1; nth < 2000 && fork_without(_metadata, base, nth, &failed); nth++)
		if (nth % 16 == 0)
			ASSERT_EQ(0, rmap_check(NULL));
	/* The failures must have reached the areas and their links. */
	EXPECT_GT(failed, PAGES / 4);
	EXPECT_LT(nth, 2000);
	EXPECT_TRUE(pages_hold(base, 0, 0));
	EXPECT_EQ(0, rmap_check(NULL));
	EXPECT_EQ(0, write_text(RMAP "enabled", enabled ? "1" : "0"));
}

TEST_HARNESS_MAIN
