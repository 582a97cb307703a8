/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Programs with large text for the tests of the text feature, made at run time,
 * so that each test decides how its program is laid out, and no linker does.
 *
 * A program reads a byte, calls a function on each page of its text, writes a
 * byte, and so on until its input ends. Text page 0 is that loop; page i, from 1
 * on, is a return instruction, a few zeroes, i, and a pattern.
 */
#ifndef TEXT_PROGRAM_H
#define TEXT_PROGRAM_H

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE		4096UL
#define BLOCK		(2UL << 20)
#define BLOCK_PAGES	(BLOCK / PAGE)
#define FEATURE		"/sys/kernel/mm/quire/text/"
#define HOLD		"/sys/kernel/debug/quire/text_hold"
#define EXEC_BUSY	126	/* exit status: a writer had the program open */
#define XFS_LEAST_MB	300	/* mkfs.xfs makes none that are smaller */
#define LIMIT_S		120	/* how long to wait for the worker; only a failure takes so long */

/* Each fixture begins with this. Include after harness.h. */
#define NEED_TEXT_FEATURE()						\
	do {								\
		if (access(FEATURE "enabled", W_OK))			\
			SKIP(return, "the kernel has no text feature");	\
	} while (0)

__asm__(".pushsection .rodata\n"
	".balign 16\n"
	"text_loop:\n"
	"1:	xorl	%eax, %eax\n"
	"	xorl	%edi, %edi\n"
	"	leaq	-64(%rsp), %rsi\n"
	"	movl	$1, %edx\n"
	"	syscall\n"
	"	cmpl	$1, %eax\n"
	"	jne	3f\n"
	"	leaq	text_loop+4096(%rip), %rbx\n"
	"	movl	text_loop_pages(%rip), %r12d\n"
	"2:	call	*%rbx\n"
	"	addq	$4096, %rbx\n"
	"	decl	%r12d\n"
	"	jnz	2b\n"
	"	movl	$1, %eax\n"
	"	movl	$1, %edi\n"
	"	leaq	-64(%rsp), %rsi\n"
	"	movl	$1, %edx\n"
	"	syscall\n"
	"	jmp	1b\n"
	"3:	movl	$60, %eax\n"
	"	xorl	%edi, %edi\n"
	"	syscall\n"
	"text_loop_pages: .long 0\n"
	"text_loop_end:\n"
	/* An interpreter that goes to the program's entry, AT_ENTRY. */
	"text_interp:\n"
	"	movq	(%rsp), %rax\n"
	"	leaq	16(%rsp,%rax,8), %rdi\n"
	"1:	cmpq	$0, (%rdi)\n"
	"	leaq	8(%rdi), %rdi\n"
	"	jne	1b\n"
	"2:	cmpq	$9, (%rdi)\n"
	"	je	3f\n"
	"	addq	$16, %rdi\n"
	"	jmp	2b\n"
	"3:	jmp	*8(%rdi)\n"
	"text_interp_end:\n"
	".popsection\n");
extern const char text_loop[], text_loop_pages[], text_loop_end[];
extern const char text_interp[], text_interp_end[];

/* Where a program's text is, and how the program is loaded. */
struct layout {
	unsigned long pages;		/* of text, the loop's page included */
	unsigned long offset;		/* of the text in the file */
	unsigned long address;		/* as linked; 0: equal to the offset */
	unsigned long align;		/* p_align; 0: a page */
	bool fixed;			/* ET_EXEC at 4 MiB, else position-independent */
	const char *interp;		/* PT_INTERP, or NULL */
};

struct program {
	pid_t pid;
	int in, out;			/* we write to in, and read from out */
};

static inline unsigned long text_blocks(const struct layout *l)
{
	unsigned long end = l->offset + l->pages * PAGE;
	unsigned long first = (l->offset + BLOCK - 1) / BLOCK;

	return end / BLOCK > first ? end / BLOCK - first : 0;
}

static inline void text_page(unsigned char *page, unsigned long i, unsigned long pages)
{
	uint32_t number = i ? i : pages - 1;

	memset(page, i ? 0x5a ^ (i & 0xff) : 0xf4, PAGE);
	if (i) {
		memset(page, 0, 16);
		page[0] = 0xc3;
		memcpy(page + 8, &number, 4);
	} else {
		memcpy(page, text_loop, text_loop_end - text_loop);
		memcpy(page + (text_loop_pages - text_loop), &number, 4);
	}
}

static inline Elf64_Ehdr text_ehdr(int type, unsigned long entry, int nr)
{
	Elf64_Ehdr e = {
		.e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
		.e_type = type, .e_machine = EM_X86_64, .e_version = EV_CURRENT,
		.e_entry = entry, .e_phoff = sizeof(e), .e_ehsize = sizeof(e),
		.e_phentsize = sizeof(Elf64_Phdr), .e_phnum = nr,
	};

	return e;
}

static inline int write_all(int fd, const void *data, size_t len, off_t at)
{
	return pwrite(fd, data, len, at) == (ssize_t)len ? 0 : -1;
}

/* The interpreter for programs that name one. */
static inline int make_interp(const char *path)
{
	static unsigned char page[PAGE];
	Elf64_Ehdr e = text_ehdr(ET_DYN, 512, 1);
	Elf64_Phdr p = { .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = PAGE,
			 .p_memsz = PAGE, .p_align = PAGE };
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0755), ret;

	if (fd < 0)
		return -1;
	memcpy(page, &e, sizeof(e));
	memcpy(page + sizeof(e), &p, sizeof(p));
	memcpy(page + 512, text_interp, text_interp_end - text_interp);
	ret = write_all(fd, page, PAGE, 0);
	close(fd);
	return ret;
}

#define CHUNK_OF_TEXT	64	/* pages that are written at once */

/* Writes a program; on return it is on disk and out of the page cache. */
static inline int make_program(const char *path, const struct layout *l)
{
	unsigned long base = l->fixed ? 0x400000 : 0;
	unsigned long address = base + (l->address ? l->address : l->offset);
	unsigned long align = l->align ? l->align : PAGE;
	static unsigned char chunk[CHUNK_OF_TEXT * PAGE];
	unsigned char page[PAGE] = { 0 };
	Elf64_Ehdr e = text_ehdr(l->fixed ? ET_EXEC : ET_DYN, address, l->interp ? 3 : 2);
	Elf64_Phdr p[3] = {
		{ .p_type = PT_LOAD, .p_flags = PF_R, .p_vaddr = base, .p_paddr = base,
		  .p_filesz = PAGE, .p_memsz = PAGE, .p_align = align },
		{ .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_offset = l->offset,
		  .p_vaddr = address, .p_paddr = address, .p_filesz = l->pages * PAGE,
		  .p_memsz = l->pages * PAGE, .p_align = align },
		{ .p_type = PT_INTERP, .p_flags = PF_R, .p_offset = 1024, .p_align = 1 },
	};
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0755), ret;
	unsigned long i, n;

	if (fd < 0)
		return -1;
	memcpy(page, &e, sizeof(e));
	if (l->interp) {
		p[2].p_filesz = p[2].p_memsz = strlen(l->interp) + 1;
		strcpy((char *)page + 1024, l->interp);
	}
	memcpy(page + sizeof(e), p, sizeof(p));
	ret = write_all(fd, page, PAGE, 0);
	for (i = 0; i < l->pages && !ret; i += n) {
		for (n = 0; n < CHUNK_OF_TEXT && i + n < l->pages; n++)
			text_page(chunk + n * PAGE, i + n, l->pages);
		ret = write_all(fd, chunk, n * PAGE, l->offset + i * PAGE);
	}
	/* Sync first: dirty pages would stay in the page cache. */
	ret |= fsync(fd);
	ret |= posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
	return ret;
}

/* Starts a program; if `before` is set, the child calls it first. Returns 0, or -1. */
static inline int start(struct program *p, const char *path, void (*before)(void))
{
	int to[2], from[2];

	if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
		return -1;
	p->pid = fork();
	if (!p->pid) {
		if (before)
			before();
		dup2(to[0], 0);
		dup2(from[1], 1);
		execl(path, path, NULL);
		_exit(errno == ETXTBSY ? EXEC_BUSY : 127);
	}
	close(to[0]);
	close(from[1]);
	p->in = to[1];
	p->out = from[0];
	return p->pid < 0 ? -1 : 0;
}

/* Makes the program call all its functions; returns -1 if it is dead. */
static inline int touch(const struct program *p)
{
	char byte = 0;

	return write(p->in, &byte, 1) == 1 && read(p->out, &byte, 1) == 1 ? 0 : -1;
}

/* End the program; returns its minor faults, or -1 where it failed. */
static inline long stop(struct program *p)
{
	struct rusage usage;
	int status;

	close(p->in);
	close(p->out);
	if (wait4(p->pid, &status, 0, &usage) != p->pid || status)
		return -1;
	return usage.ru_minflt;
}

/*
 * Runs a program for some rounds. Returns 0, EXEC_BUSY if a writer had it open, or -1. The
 * caller ignores SIGPIPE.
 */
static inline int run_rounds(const char *path, int rounds)
{
	struct program p;
	int i, status;

	if (start(&p, path, NULL))
		return -1;
	for (i = 0; i < rounds && !touch(&p); i++)
		;
	close(p.in);
	close(p.out);
	if (waitpid(p.pid, &status, 0) != p.pid)
		return -1;
	if (i < rounds && WIFEXITED(status) && WEXITSTATUS(status) == EXEC_BUSY)
		return EXEC_BUSY;
	if (i < rounds || status)
		fprintf(stderr, "# status of a program: %x\n", status);
	return i < rounds || status ? -1 : 0;
}

/* How many kB a process (0: this one) maps by PMD from the file at `path`; -1 on errors. */
static inline long pmd_mapped(pid_t pid, const char *path)
{
	char name[64], line[512], *colon;
	unsigned long from, to, kb;
	bool ours = false;
	long sum = 0;
	FILE *f;

	snprintf(name, sizeof(name), pid ? "/proc/%d/smaps" : "/proc/self/smaps", pid);
	f = fopen(name, "r");
	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f)) {
		colon = strchr(line, ':');
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2 && colon)
			ours = strstr(line, path);
		else if (ours && sscanf(line, "FilePmdMapped: %lu", &kb) == 1)
			sum += kb;
	}
	fclose(f);
	return sum;
}

/* Address of the executable mapping of the file at `path`, 0 where there is none. */
static inline unsigned long text_address(pid_t pid, const char *path)
{
	char name[64], line[512], rights[8];
	unsigned long from, to, found = 0;
	FILE *f;

	snprintf(name, sizeof(name), "/proc/%d/maps", pid);
	f = fopen(name, "r");
	if (!f)
		return 0;
	while (!found && fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 &&
		    rights[2] == 'x' && strstr(line, path))
			found = from;
	fclose(f);
	return found;
}

/* Write a number to a file of the feature; 0, or the error. */
static inline int set(const char *name, const char *value)
{
	char path[128];
	int fd, ret;

	snprintf(path, sizeof(path), FEATURE "%s", name);
	fd = open(path, O_WRONLY);
	if (fd < 0)
		return errno;
	ret = write(fd, value, strlen(value)) < 0 ? errno : 0;
	close(fd);
	return ret;
}

static inline int get_string(const char *name, char *buf, size_t len)
{
	char path[128];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), FEATURE "%s", name);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return -1;
	n = read(fd, buf, len - 1);
	close(fd);
	if (n <= 0)
		return -1;
	buf[n - (buf[n - 1] == '\n')] = 0;
	return 0;
}

static inline long get(const char *name)
{
	char buf[64];

	return get_string(name, buf, sizeof(buf)) ? -1 : atol(buf);
}

static inline long stat_of(const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "stats/%s", name);
	return get(path);
}

static inline double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* Say what the feature has counted, for the log of a test that fails. */
static inline void print_counters(void)
{
	fflush(stdout);
	if (system("cd " FEATURE "stats && grep -v '^0$' * | sed 's/^/# /'"))
		printf("# no counters\n");
}

/* Wait until a counter is at least `want`. */
static inline bool wait_stat(const char *name, long want)
{
	double end = seconds() + LIMIT_S;

	while (stat_of(name) < want && seconds() < end)
		usleep(20000);
	if (stat_of(name) >= want)
		return true;
	printf("# %s did not become %ld:\n", name, want);
	print_counters();
	return false;
}

/* Switches the feature on, with its defaults except for a short delay. */
static inline int defaults(void)
{
	return set("enabled", "1") | set("placement", "1") | set("delay_ms", "20") |
		set("min_resident_pages", "256") | set("max_permil", "250") |
		set("backoff_ms", "10000") | set("blocks_per_second", "256") |
		set("readahead", "0") | set("fault_around_kb", "2048") |
		set("in_place", "1");
}

/*
 * Runs a program, or a script with it as interpreter, until all its blocks are mapped by PMD.
 * Starts it anew if the worker gave up, which it may do on a machine with other work. Returns how
 * often it was started, or -1.
 */
static inline int start_until_huge(struct program *p, const char *script, const char *path,
				   const struct layout *l, void (*before)(void))
{
	long want = text_blocks(l) * (BLOCK / 1024);
	double end = seconds() + LIMIT_S;
	int starts = 0;

	do {
		double round = seconds() + LIMIT_S / 8;

		if (start(p, script, before))
			return -1;
		starts++;
		do {
			if (touch(p))
				return -1;
			if (pmd_mapped(p->pid, path) == want)
				return starts;
			usleep(20000);
		} while (seconds() < round);
		stop(p);
	} while (seconds() < end);
	return -1;
}

/* The same for a program; returns 0, or -1. */
static inline int start_huge(struct program *p, const char *path, const struct layout *l,
			     void (*before)(void))
{
	return start_until_huge(p, path, path, l, before) < 0 ? -1 : 0;
}

/* Are the files to be on xfs, which has large folios and can be written to, and not on ext4? */
static bool on_xfs;

/* A file system on a loop device, in a folder of its own. xfs is larger, but mostly holes. */
static inline int make_fs(const char *image, const char *folder, int megabytes)
{
	const char *mkfs = on_xfs ? "mkfs.xfs -q -f" : "mkfs.ext4 -q -F -b 4096";
	char command[512];

	snprintf(command, sizeof(command),
		 "rm -f %s && truncate -s %dM %s && %s %s && mkdir -p %s && mount -o loop %s %s",
		 image, on_xfs ? XFS_LEAST_MB : megabytes, image, mkfs, image, folder, image,
		 folder);
	return system(command) ? -1 : 0;
}

static inline void remove_fs(const char *image, const char *folder)
{
	umount2(folder, MNT_DETACH);
	unlink(image);
	rmdir(folder);
}

#endif /* TEXT_PROGRAM_H */
