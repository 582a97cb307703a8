// SPDX-License-Identifier: GPL-2.0
/*
 * Many children of one process over memory that they share.
 *
 *	shm_many table MB PROCESSES
 *		All children at once touch the same 2 MiB, which one table maps,
 *		of a segment that is in memory: how long until the last is done,
 *		and how much time of all CPUs that takes. Then two at a time fill
 *		an empty table, each of them every other page: on two CPUs this
 *		shows all that the lock of a common table can cost, beside the
 *		same on one CPU.
 *	shm_many swap MB PROCESSES
 *		After the half-swapped test of 2002: the segment is half of the
 *		memory that its group may have, the children write to it at
 *		random, half of it is swapped out, and then one child touches each
 *		page. A page that is swapped in again must not stay in swap. The
 *		children run one after the other, so that the counts do not
 *		depend on who is first. Swap must be on, and a cgroup2 with the
 *		memory controller mounted.
 */
#include "bench.h"

#include <sys/stat.h>

#define TABLE (2UL << 20)
#define GROUP "/sys/fs/cgroup/bench_shm_many"
#define PUSHES 4000
#define PAIRS 100

struct report {
	long faults;
	double system_ns;
};

static char *mem;
static size_t size;
static long procs;
static pid_t *pids;
static int order[2], done[2];

static long swap_kb(void)
{
	return field_kb("/proc/meminfo", "SwapTotal") - field_kb("/proc/meminfo", "SwapFree");
}

static int put(const char *path, const char *word)
{
	int fd = open(path, O_WRONLY), ret;

	if (fd < 0)
		return -1;
	ret = write(fd, word, strlen(word));
	close(fd);
	return ret < 0 ? -1 : 0;
}

static struct report usage(void)
{
	struct rusage now;

	getrusage(RUSAGE_SELF, &now);
	return (struct report){ now.ru_minflt + now.ru_majflt,
				now.ru_stime.tv_sec * 1e9 + now.ru_stime.tv_usec * 1e3 };
}

static void write_at_random(long self)
{
	uint64_t x = self + 1;

	for (long i = 0; i < 200; i++) {
		x = x * 6364136223846793005ULL + 1442695040888963407ULL;
		mem[(x >> 33) % (size / PAGE) * PAGE] = i;
	}
}

/* Touches those of all pages that are this child's. */
static void touch_own(long self)
{
	for (size_t page = self; page < size / PAGE; page += procs)
		mem[page * PAGE]++;
}

/* Touches every other page of one table. */
static void fill_half(long self)
{
	for (size_t page = self & 1; page < TABLE / PAGE; page += 2)
		mem[page * PAGE] = 1;
}

/* A child: it does what each byte of its order says, and reports. */
static void serve(long self)
{
	struct report before, after;
	char what;

	close(order[1]);
	while (read(order[0], &what, 1) == 1 && what != 'q') {
		before = usage();
		if (what == 'r')
			write_at_random(self);
		else if (what == 'o')
			touch_own(self);
		else if (what == 'f')
			fill_half(self);
		else
			touch(mem, TABLE, PAGE);
		after = usage();
		after.faults -= before.faults;
		after.system_ns -= before.system_ns;
		if (write(done[1], &after, sizeof(after)) != sizeof(after))
			_exit(1);
	}
	_exit(0);
}

static int start(long self)
{
	if (pipe(order))
		die("pipe");
	pids[self] = fork();
	if (pids[self] < 0)
		die("fork");
	if (!pids[self])
		serve(self);
	close(order[0]);
	return order[1];
}

static void collect(struct report *sum)
{
	struct report r;

	if (read(done[0], &r, sizeof(r)) != sizeof(r))
		die("read");
	sum->faults += r.faults;
	sum->system_ns += r.system_ns;
}

/* Makes all children do it, at once or one by one; returns how long that took. */
static double all(const int *to, char what, int at_once, struct report *sum)
{
	uint64_t begin = now_ns();
	long i;

	*sum = (struct report){};
	for (i = 0; i < procs; i++) {
		if (write(to[i], &what, 1) != 1)
			die("write");
		if (!at_once)
			collect(sum);
	}
	for (i = 0; at_once && i < procs; i++)
		collect(sum);
	return now_ns() - begin;
}

static void same_table(const int *to)
{
	struct report sum;
	double ns = all(to, 't', 1, &sum);

	row("case=one_table segment_MB=%zu processes=%ld | touches_per_ms=%.1f touch_faults=%ld touch_system_ms=%.3f",
	    size >> 20, procs, procs * (TABLE / PAGE) / (ns / 1e6), sum.faults, sum.system_ns / 1e6);
}

/*
 * Makes one pair after the other fill an empty table on @cpus CPUs; returns fills per
 * millisecond.
 */
static double fill_by_pairs(const int *to, int cpus)
{
	struct report sum = {};
	uint64_t ns = 0, begin;
	cpu_set_t set;
	long i;

	CPU_ZERO(&set);
	for (i = 0; i < cpus; i++)
		CPU_SET(i, &set);
	for (i = 0; i + 1 < procs && i < 2 * PAIRS; i += 2) {
		if (sched_setaffinity(pids[i], sizeof(set), &set) || sched_setaffinity(pids[i + 1], sizeof(set), &set))
			die("sched_setaffinity");
		if (madvise(mem, TABLE, MADV_REMOVE))
			die("MADV_REMOVE");
		begin = now_ns();
		if (write(to[i], "f", 1) != 1 || write(to[i + 1], "f", 1) != 1)
			die("write");
		collect(&sum);
		collect(&sum);
		ns += now_ns() - begin;
	}
	return i / 2 * (TABLE / PAGE) / (ns / 1e6);
}

static void fill_one_table(const int *to)
{
	double one = fill_by_pairs(to, 1), two;

	row("case=one_table_fill segment_MB=%zu processes=%ld cpus=1 | fills_per_ms=%.1f", size >> 20, procs, one);
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return;
	two = fill_by_pairs(to, 2);
	row("case=one_table_fill segment_MB=%zu processes=%ld cpus=2 | fills_per_ms=%.1f scaling=%.3f", size >> 20, procs,
	    two, two / one);
}

/*
 * The same amount must be out on every kernel, however easily the kernel gives up memory: only
 * then are later touches comparable. Reclaim may find nothing until the group's statistics are
 * updated, which happens every other second. Returns how often reclaim was asked.
 */
static long push_out(long before, long want)
{
	long tries, last = -1, out = 0;

	for (tries = 0; tries < PUSHES && out < want; tries++) {
		if (out == last)
			usleep(10000);
		last = out;
		put(GROUP "/memory.reclaim", "1M");
		out = swap_kb() - before;
	}
	return tries;
}

static void half_swapped(const int *to)
{
	long kb = size >> 10, before = swap_kb(), out, pushes;
	struct report writing, waking;
	double ns;

	all(to, 'r', 0, &writing);
	pushes = push_out(before, kb / 2);
	out = swap_kb() - before;
	ns = all(to, 'o', 0, &waking);
	row("case=half_swapped segment_MB=%zu processes=%ld | swapped_kB=%ld pushes=%ld left_kB=%ld write_faults=%ld wake_faults=%ld wake_ms=%.3f",
	    size >> 20, procs, out, pushes, swap_kb() - before, writing.faults, waking.faults, ns / 1e6);
}

/* The segment is half of the memory that the group may have. */
static void join_group(void)
{
	char bytes[32];

	put("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	mkdir(GROUP, 0755);
	snprintf(bytes, sizeof(bytes), "%zu", 2 * size);
	if (put(GROUP "/memory.max", bytes) || put(GROUP "/cgroup.procs", "0"))
		die(GROUP);
}

int main(int argc, char **argv)
{
	int swap = argc > 1 && !strcmp(argv[1], "swap"), *to;
	struct rlimit files = { 4096, 4096 };

	size = number(argc, argv, 2, 64) << 20;
	procs = number(argc, argv, 3, 100);
	setrlimit(RLIMIT_NOFILE, &files);
	if (swap)
		join_group();
	mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	to = calloc(procs, sizeof(*to));
	pids = calloc(procs, sizeof(*pids));
	if (mem == MAP_FAILED || !to || !pids || pipe(done))
		die("memory");
	touch(mem, size, PAGE);
	for (long i = 0; i < procs; i++)
		to[i] = start(i);
	if (swap) {
		half_swapped(to);
	} else {
		same_table(to);
		fill_one_table(to);
	}
	for (long i = 0; i < procs; i++)
		if (write(to[i], "q", 1) != 1)
			die("write");
	while (wait(NULL) > 0)
		;
	if (swap) {
		put("/sys/fs/cgroup/cgroup.procs", "0");
		rmdir(GROUP);
	}
	return 0;
}
