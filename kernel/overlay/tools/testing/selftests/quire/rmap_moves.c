// SPDX-License-Identifier: GPL-2.0
/*
 * Fork while another process moves the parent's pages from node to node: an entry that is
 * being replaced is empty for a moment, and the child must have its page all the same,
 * above all where fork looks whether a small area has any page at all.
 */
#define _GNU_SOURCE
#include <linux/mempolicy.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "harness.h"
#include "rmap_common.h"

#define AREAS 256
#define FORKS 400
#define MIGRATED "/proc/vmstat", "pgmigrate_success "

static char *base;

/* Until it is killed. */
static void move_for_ever(pid_t owner)
{
	static void *pages[AREAS];
	static int nodes[AREAS], status[AREAS];

	for (int node = 1;; node = !node) {
		for (int i = 0; i < AREAS; i++) {
			pages[i] = word(base, 2 * i + 1);
			nodes[i] = node;
		}
		syscall(SYS_move_pages, owner, AREAS, pages, nodes, status, MPOL_MF_MOVE_ALL);
	}
}

/* How many of the read-only pages have other content than they should have? */
static int wrong(void)
{
	int n = 0;

	for (int i = 1; i < 2 * AREAS; i += 2)
		n += *word(base, i) != 100UL + i;
	return n;
}

TEST(fork_while_pages_move)
{
	long enabled = read_number(RMAP "enabled"), before, status_of_all = 0;
	int status;
	pid_t mover;

	if (enabled < 0)
		SKIP(return, "no rmap feature in this kernel");
	if (access("/sys/devices/system/node/node1", F_OK))
		SKIP(return, "one node only");
	ASSERT_TRUE(rmap_begin());
	base = map(2 * AREAS);
	ASSERT_NE(MAP_FAILED, base);
	for (int i = 0; i < 2 * AREAS; i++)
		*word(base, i) = 100 + i;
	for (int i = 1; i < 2 * AREAS; i += 2)
		ASSERT_EQ(0, mprotect(base + i * PAGE, PAGE, PROT_READ));
	before = field(MIGRATED);
	mover = fork();
	ASSERT_LE(0, mover);
	if (!mover)
		move_for_ever(getppid());
	for (int i = 0; i < FORKS; i++) {
		pid_t pid = fork();

		if (!pid)
			_exit(wrong() ? 1 : 0);
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		status_of_all |= status;
	}
	EXPECT_EQ(0, status_of_all);
	EXPECT_LT(before + AREAS, field(MIGRATED));
	kill(mover, SIGKILL);
	ASSERT_EQ(mover, waitpid(mover, &status, 0));
	EXPECT_EQ(0, wrong());
	ASSERT_TRUE(rmap_end(enabled));
}

TEST_HARNESS_MAIN
