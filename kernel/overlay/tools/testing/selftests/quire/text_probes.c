// SPDX-License-Identifier: GPL-2.0
/*
 * The text feature and code that changes the text of one process: uprobes, a debugger's
 * breakpoints, and writes to a private mapping, each before the text is collapsed
 * and after. The process whose text is changed loses huge pages; no other process does.
 * Needs root, ext4 on a loop device, and quire=text (or on).
 */
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>

#include "harness.h"
#include "text_huge.h"

#define IMAGE	"/tmp/text_probes.img"
#define FOLDER	"/tmp/text_probes"
#define PROGRAM	FOLDER "/program"
#define UPROBES	"/sys/bus/event_source/devices/uprobe/type"

/* A page of text in the second block, which is the first whole block of the program. */
#define WHERE	700
#define OFFSET	(PAGE + WHERE * PAGE)
#define ADDRESS	(0x400000 + OFFSET)

FIXTURE(probes) {
	struct program p, other;
};

FIXTURE_SETUP(probes)
{
	NEED_TEXT_FEATURE();
	ASSERT_EQ(0, fresh_program(PROGRAM));
}

FIXTURE_TEARDOWN(probes)
{
	defaults();
	unlink(PROGRAM);
}

/* Opens a uprobe on a function of the program, in one process; returns its descriptor. */
static int open_uprobe(pid_t pid)
{
	struct perf_event_attr attr = { .size = sizeof(attr), .uprobe_path = (unsigned long)PROGRAM,
					.probe_offset = OFFSET };
	FILE *f = fopen(UPROBES, "r");

	if (!f || fscanf(f, "%u", &attr.type) != 1)
		return -1;
	fclose(f);
	return syscall(SYS_perf_event_open, &attr, pid, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static long hits(int probe)
{
	uint64_t count;

	return read(probe, &count, sizeof(count)) == sizeof(count) ? (long)count : -1;
}

/* What the file holds at the probed place. */
static int byte_of_file(void)
{
	int fd = open(PROGRAM, O_RDONLY), ret;
	unsigned char byte;

	ret = pread(fd, &byte, 1, OFFSET) == 1 ? byte : -1;
	close(fd);
	return ret;
}

TEST_F_TIMEOUT(probes, uprobe_of_one_process, 600)
{
	int probe;

	if (access(UPROBES, R_OK))
		SKIP(return, "no uprobes by perf_event_open()");
	ASSERT_EQ(0, start_huge(&self->p, PROGRAM, &three_blocks, NULL));
	ASSERT_EQ(0, start_huge(&self->other, PROGRAM, &three_blocks, NULL));
	probe = open_uprobe(self->p.pid);
	ASSERT_GE(probe, 0);
	for (int i = 1; i <= 3; i++) {
		EXPECT_EQ(0, touch(&self->p));
		EXPECT_EQ(0, touch(&self->other));
		EXPECT_EQ(i, hits(probe));
	}
	EXPECT_EQ(2 * BLOCK_KB, pmd_mapped(self->p.pid, PROGRAM));
	EXPECT_EQ(3 * BLOCK_KB, pmd_mapped(self->other.pid, PROGRAM));
	EXPECT_EQ(0xc3, byte_of_file());
	close(probe);
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_EQ(0, touch(&self->other));
	/* Linux puts the huge page back when the last probe of a block is removed. */
	EXPECT_EQ(3 * BLOCK_KB, pmd_mapped(self->p.pid, PROGRAM));
	EXPECT_EQ(3 * BLOCK_KB, pmd_mapped(self->other.pid, PROGRAM));
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_GE(stop(&self->other), 0);
	/* A program that starts now finds all of its text huge. */
	ASSERT_EQ(0, start(&self->p, PROGRAM, NULL));
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_EQ(3 * BLOCK_KB, pmd_mapped(self->p.pid, PROGRAM));
	EXPECT_GE(stop(&self->p), 0);
}

/* The page with the breakpoint is the process's own; the block is collapsed without it. */
TEST_F_TIMEOUT(probes, uprobe_before_the_collapse, 600)
{
	long collapsed = stat_of("collapsed_blocks");
	int probe;

	if (access(UPROBES, R_OK))
		SKIP(return, "no uprobes by perf_event_open()");
	ASSERT_EQ(0, set("enabled", "0"));
	ASSERT_EQ(0, start(&self->p, PROGRAM, NULL));
	ASSERT_EQ(0, touch(&self->p));
	probe = open_uprobe(self->p.pid);
	ASSERT_GE(probe, 0);
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_EQ(1, hits(probe));

	ASSERT_EQ(0, set("enabled", "1"));
	ASSERT_EQ(0, start_huge(&self->other, PROGRAM, &three_blocks, NULL));
	EXPECT_TRUE(wait_stat("collapsed_blocks", collapsed + 3));
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_EQ(0, touch(&self->other));
	EXPECT_EQ(2, hits(probe));
	EXPECT_LE(pmd_mapped(self->p.pid, PROGRAM), 2 * BLOCK_KB);
	EXPECT_EQ(3 * BLOCK_KB, pmd_mapped(self->other.pid, PROGRAM));
	close(probe);
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_EQ(0, touch(&self->other));
	EXPECT_EQ(0xc3, byte_of_file());
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_GE(stop(&self->other), 0);
}

/*
 * Stops the program, sets a breakpoint and lets it go on; returns the word that was there, or
 * -1.
 */
static long set_breakpoint(pid_t pid)
{
	int status;
	long word;

	if (ptrace(PTRACE_ATTACH, pid, NULL, NULL) || waitpid(pid, &status, 0) != pid)
		return -1;
	word = ptrace(PTRACE_PEEKTEXT, pid, ADDRESS, NULL);
	if (ptrace(PTRACE_POKETEXT, pid, ADDRESS, (word & ~0xffL) | 0xcc) ||
	    ptrace(PTRACE_CONT, pid, NULL, NULL))
		return -1;
	return word;
}

/*
 * The program has reached its breakpoint: removes it and lets the program go on. Returns 0, or
 * -1.
 */
static int remove_breakpoint(pid_t pid, long word)
{
	struct user_regs_struct regs;
	int status;

	if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP ||
	    ptrace(PTRACE_GETREGS, pid, NULL, &regs) || regs.rip != ADDRESS + 1)
		return -1;
	regs.rip = ADDRESS;
	return ptrace(PTRACE_POKETEXT, pid, ADDRESS, word) ||
		ptrace(PTRACE_SETREGS, pid, NULL, &regs) ||
		ptrace(PTRACE_DETACH, pid, NULL, NULL) ? -1 : 0;
}

TEST_F_TIMEOUT(probes, breakpoint_before_the_collapse, 600)
{
	long collapsed = stat_of("collapsed_blocks"), word;
	char byte = 0;

	ASSERT_EQ(0, set("enabled", "0"));
	ASSERT_EQ(0, start(&self->p, PROGRAM, NULL));
	ASSERT_EQ(0, touch(&self->p));
	word = set_breakpoint(self->p.pid);
	ASSERT_EQ(0xc3, word & 0xff);
	ASSERT_EQ(0, set("enabled", "1"));
	ASSERT_EQ(0, start_huge(&self->other, PROGRAM, &three_blocks, NULL));
	EXPECT_TRUE(wait_stat("collapsed_blocks", collapsed + 3));
	/* The breakpoint is still there, and no other process reaches it. */
	ASSERT_EQ(1, write(self->p.in, &byte, 1));
	ASSERT_EQ(0, remove_breakpoint(self->p.pid, word));
	ASSERT_EQ(1, read(self->p.out, &byte, 1));
	EXPECT_EQ(0, touch(&self->p));
	EXPECT_EQ(0, touch(&self->other));
	EXPECT_LE(pmd_mapped(self->p.pid, PROGRAM), 2 * BLOCK_KB);
	EXPECT_EQ(3 * BLOCK_KB, pmd_mapped(self->other.pid, PROGRAM));
	EXPECT_EQ(0xc3, byte_of_file());
	EXPECT_GE(stop(&self->p), 0);
	EXPECT_GE(stop(&self->other), 0);
}

/* A library's text is written to, as by a relocation, before it is collapsed. */
TEST_F_TIMEOUT(probes, private_write_before_the_collapse, 600)
{
	long collapsed = stat_of("collapsed_blocks");
	unsigned char *map, *other;

	ASSERT_EQ(0, set("enabled", "0"));
	map = map_resident(PROGRAM);
	ASSERT_NE(NULL, map);
	ASSERT_EQ(0, mprotect(map + OFFSET, PAGE, PROT_READ | PROT_WRITE));
	memcpy(map + OFFSET, "private", 7);
	ASSERT_EQ(0, mprotect(map + OFFSET, PAGE, PROT_READ | PROT_EXEC));
	ASSERT_EQ(0, set("enabled", "1"));
	other = map_file(PROGRAM, FILE_SIZE);
	ASSERT_NE(NULL, other);
	read_pages(other, FILE_SIZE);
	EXPECT_TRUE(wait_stat("collapsed_blocks", collapsed + 4));
	read_pages(other, FILE_SIZE);
	/* All blocks of the other mapping, and none or some of the one that was written to. */
	EXPECT_GE(pmd_mapped(0, PROGRAM), 4 * BLOCK_KB);
	EXPECT_LE(pmd_mapped(0, PROGRAM), 7 * BLOCK_KB);
	EXPECT_EQ(0, memcmp(map + OFFSET, "private", 7));
	EXPECT_TRUE(text_is_right(map + PAGE, 0, WHERE));
	EXPECT_TRUE(text_is_right(map + PAGE, WHERE + 1, three_blocks.pages));
	EXPECT_TRUE(text_is_right(other + PAGE, 0, three_blocks.pages));
	munmap(map, FILE_SIZE);
	munmap(other, FILE_SIZE);
}

int main(int argc, char **argv)
{
	return test_on_ext4(argc, argv, IMAGE, FOLDER);
}
