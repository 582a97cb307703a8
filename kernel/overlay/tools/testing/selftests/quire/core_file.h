/* SPDX-License-Identifier: GPL-2.0 */
/* Core dumps of child processes, as ELF files: see core(5) and elf(5). */
#ifndef CORE_FILE_H
#define CORE_FILE_H

#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define CORE_NAME	"/tmp/quire_core"
#define CORE_PATTERN	"/proc/sys/kernel/core_pattern"

/* In the child that will dump core: no limit, and these kinds of memory (see core(5)). */
static inline int core_wanted(const char *filter)
{
	struct rlimit none = { RLIM_INFINITY, RLIM_INFINITY };
	int fd = open("/proc/self/coredump_filter", O_WRONLY);
	int ret;

	if (fd < 0)
		return -1;
	ret = write(fd, filter, strlen(filter)) < 0 ? -1 : setrlimit(RLIMIT_CORE, &none);
	close(fd);
	return ret;
}

/* Has cores written to a file of a PID's own; a kernel without core dumps has no such setting. */
static inline int core_to_file(void)
{
	int fd = open(CORE_PATTERN, O_WRONLY);
	int ret;

	if (fd < 0)
		return -1;
	ret = write(fd, CORE_NAME ".%p", strlen(CORE_NAME ".%p")) < 0 ? -1 : 0;
	close(fd);
	return ret;
}

/* Waits for a child that a signal ends. Returns its core, which is deleted by then, or -1. */
static inline int core_of(pid_t pid)
{
	char name[64];
	int status, fd;

	if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status) || !WCOREDUMP(status)) {
		printf("# no core: status %x\n", status);
		return -1;
	}
	snprintf(name, sizeof(name), CORE_NAME ".%d", pid);
	fd = open(name, O_RDONLY);
	unlink(name);
	return fd;
}

/* Where a core has the memory at an address; 0 if it has not. */
static inline off_t core_offset(int fd, unsigned long address)
{
	Elf64_Ehdr head;
	Elf64_Phdr part;

	if (pread(fd, &head, sizeof(head), 0) != sizeof(head))
		return 0;
	for (int i = 0; i < head.e_phnum; i++) {
		off_t at = head.e_phoff + i * sizeof(part);

		if (pread(fd, &part, sizeof(part), at) != sizeof(part))
			return 0;
		if (part.p_type == PT_LOAD && address >= part.p_vaddr &&
		    address - part.p_vaddr < part.p_filesz)
			return part.p_offset + (address - part.p_vaddr);
	}
	return 0;
}

/* Reads memory from a core; returns 0, or -1 if the core has not all of it. */
static inline int core_read(int fd, const void *address, void *to, size_t len)
{
	off_t from = core_offset(fd, (unsigned long)address);
	off_t last = core_offset(fd, (unsigned long)address + len - 1);

	if (!from || last != from + (off_t)len - 1)
		return -1;
	return pread(fd, to, len, from) == (ssize_t)len ? 0 : -1;
}

#endif /* CORE_FILE_H */
