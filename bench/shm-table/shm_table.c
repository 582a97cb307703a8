// SPDX-License-Identifier: GPL-2.0
/*
 * Processes over one shared segment: the memory of the page tables that map it,
 * and the faults and time it takes to fill them. The processes start one after
 * the other and all stay, so that the counts do not depend on who is first.
 *
 *	shm_table KIND read|write MB PROCESSES...
 *
 * KIND is children (of one process that has mapped and filled the segment
 * before it forks), or how unrelated processes attach to the segment,
 * each where the kernel puts it: sysv, memfd, tmpfs.
 *
 * shared_kB leaves out what no two processes can have in common: each process first
 * touches the first and the last page of the segment, which makes the upper levels.
 * Then it visits all pages, and the tables that this adds are counted. extra_faults
 * are those beyond one process's and one for each table in every other process.
 */
#include "bench.h"
#include <sys/ipc.h>
#include <sys/shm.h>

#define TMPFS_FILE "/dev/shm/bench-segment"

struct report {
	long faults;
	long shared_kb;
	double ns;
};

static const char *kind;
static int fd = -1, id = -1, leave[2], writes;
static char *inherited;

static char *attach(size_t size)
{
	char *p;

	if (inherited)
		return inherited;
	if (id >= 0) {
		p = shmat(id, NULL, 0);
		if (p == (void *)-1)
			die("shmat");
		return p;
	}
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static void visit(volatile char *mem, size_t size)
{
	for (size_t i = 0; i < size; i += PAGE) {
		if (writes)
			mem[i] = 1;
		else
			(void)mem[i];
	}
}

static void make_segment(size_t size)
{
	char *mem;

	if (!strcmp(kind, "sysv")) {
		id = shmget(IPC_PRIVATE, size, IPC_CREAT | 0600);
		if (id < 0)
			die("shmget");
	} else if (!strcmp(kind, "tmpfs")) {
		fd = open(TMPFS_FILE, O_RDWR | O_CREAT | O_TRUNC, 0600);
	} else {
		fd = memfd_create("segment", 0);
	}
	if (id < 0 && (fd < 0 || ftruncate(fd, size)))
		die("segment");
	mem = attach(size);
	touch(mem, size, PAGE);
	if (!strcmp(kind, "children"))
		inherited = mem;
	else if (id >= 0)
		shmdt(mem);
	else
		munmap(mem, size);
}

static void remove_segment(void)
{
	if (id >= 0)
		shmctl(id, IPC_RMID, NULL);
	if (!strcmp(kind, "tmpfs"))
		unlink(TMPFS_FILE);
}

static long faults_so_far(void)
{
	struct rusage now;

	getrusage(RUSAGE_SELF, &now);
	return now.ru_minflt;
}

/* Leaves out the faults and the time of reading the counters. */
static struct report measure(size_t size)
{
	static char own[PAGE];
	struct report r = {};
	char *mem;

	/*
	 * The first calls fault in what they need: code, the clock's pages, a place for the
	 * counts.
	 */
	(void)pagetables_kb();
	(void)faults_so_far();
	(void)now_ns();
	visit(own, PAGE);
	r.faults -= faults_so_far();
	r.ns -= now_ns();
	mem = attach(size);
	visit(mem, PAGE);
	visit(mem + size - PAGE, PAGE);
	r.ns += now_ns();
	r.faults += faults_so_far();
	r.shared_kb = -pagetables_kb();
	r.faults -= faults_so_far();
	r.ns -= now_ns();
	visit(mem, size);
	r.ns += now_ns();
	r.faults += faults_so_far();
	r.shared_kb += pagetables_kb();
	return r;
}

static void process(size_t size, int up)
{
	struct report r;
	char c;

	close(leave[1]);
	r = measure(size);
	write(up, &r, sizeof(r));
	read(leave[0], &c, 1);
	_exit(0);
}

static void run(size_t size, long procs)
{
	long before, kb, shared_kb = 0, faults = 0, enough = 0;
	double ns = 0, last = 0;
	int up[2];

	if (pipe(up) || pipe(leave))
		die("pipe");
	before = pagetables_kb();
	for (long i = 0; i < procs; i++) {
		struct report r;
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (!pid)
			process(size, up[1]);
		if (read(up[0], &r, sizeof(r)) != sizeof(r))
			die("read");
		faults += r.faults;
		enough += i ? (long)(size / HUGE_PAGE) : r.faults;
		shared_kb += r.shared_kb;
		ns += r.ns;
		last = r.ns;
	}
	kb = pagetables_kb() - before;
	row("kind=%s access=%s segment_MB=%zu processes=%ld | pagetables_kB=%ld shared_kB=%ld faults=%ld extra_faults=%ld ms=%.3f last_process_ms=%.3f",
	    kind, writes ? "write" : "read", size >> 20, procs, kb, shared_kb, faults, faults - enough, ns / 1e6,
	    last / 1e6);
	close(leave[1]);
	while (wait(NULL) > 0)
		;
	close(leave[0]);
	close(up[0]);
	close(up[1]);
}

int main(int argc, char **argv)
{
	size_t size = number(argc, argv, 3, 64) << 20;

	kind = argc > 1 ? argv[1] : "memfd";
	writes = argc > 2 && !strcmp(argv[2], "write");
	make_segment(size);
	for (int i = 4; i < argc; i++)
		run(size, atol(argv[i]));
	remove_segment();
	return 0;
}
