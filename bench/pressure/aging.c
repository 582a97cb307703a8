// SPDX-License-Identifier: GPL-2.0
/*
 * Does reclaim see which pages are in use if idle processes map them, too? One
 * process works on hot pages all the time, and a control group gives up memory,
 * of which enough is cold. A hot page that was reclaimed comes back by a major
 * fault of the worker.
 *
 *	aging fork own|shared classic|mglru MB
 *		A child of one process works on MB that it inherited, while its
 *		parent and three siblings idle. The cold memory is four times as
 *		much, and is the parent's alone. With own the child has first
 *		written to each 2 MiB, so it has page tables of its own, and the
 *		others have not.
 *	aging shm own|reader|same classic|mglru MB
 *		Two processes have written to all of a segment of twice MB and
 *		idle; a third one works on the segment's first half. It has a
 *		table of its own (own), maps the segment for reading only (reader),
 *		or maps it as they do (same).
 *
 * Reclaim asks for a megabyte at a time, until half of the cold memory is gone.
 * Between two requests the worker touches all hot pages twice, and another process
 * has its CPU, so that its TLB does not hide what it uses.
 */
#include "pressure.h"

#define MOST_REQUESTS 400
#define MOST_WAITS 20000

struct seen {
	volatile long rounds;
	volatile long faults;
};

static struct seen *seen;

static void work(char *hot, size_t size)
{
	struct rusage usage;
	long before;

	getrusage(RUSAGE_SELF, &usage);
	before = usage.ru_majflt;
	for (;;) {
		visit(hot, size, PAGE);
		getrusage(RUSAGE_SELF, &usage);
		seen->faults = usage.ru_majflt - before;
		seen->rounds++;
		sched_yield();
	}
}

static void await_rounds(long n)
{
	long goal = seen->rounds + n;

	for (int i = 0; seen->rounds < goal; i++) {
		if (i == MOST_WAITS) {
			errno = ETIME;
			die("the worker");
		}
		usleep(1000);
	}
}

/* Another address space on the worker's CPU. */
static void start_partner(void)
{
	if (start())
		return;
	pin(last_cpu());
	for (;;)
		sched_yield();
}

/* Returns the cold memory; the hot memory is older than it. */
static char *family(int own, size_t size)
{
	char *hot, *cold;

	allow_sharing("1");
	hot = map_small(size);
	fill(hot, size);
	cold = map_small(4 * size);
	if (madvise(cold, 4 * size, MADV_DONTFORK))
		die("madvise");
	fill(cold, 4 * size);
	start_users(4, hot, size, 0);
	if (!start()) {
		pin(last_cpu());
		if (own)
			touch(hot, size, HUGE_PAGE);
		work(hot, size);
	}
	return cold;
}

static char *segment(const char *how, size_t size)
{
	int fd = make_segment(2 * size), reader = !strcmp(how, "reader");
	char *mem;

	allow_sharing("1");
	mem = map_segment(fd, 2 * size, PROT_READ | PROT_WRITE);
	fill(mem, 2 * size);
	start_users(2, mem, 2 * size, 1);
	if (!start()) {
		pin(last_cpu());
		munmap(mem, 2 * size);
		if (!strcmp(how, "own"))
			allow_sharing("0");
		mem = map_segment(fd, 2 * size, PROT_READ | (reader ? 0 : PROT_WRITE));
		visit(mem, 2 * size, PAGE);
		work(mem, size);
	}
	return mem + size;
}

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "fork", *how = argc > 2 ? argv[2] : "own";
	const char *lru = argc > 3 ? argv[3] : "classic";
	size_t size = number(argc, argv, 4, 16) << 20, cold_size;
	int shm = !strcmp(kind, "shm"), requests = 0;
	long lru_before = choose_lru(lru), out = 0, goal;
	char *cold;

	seen = common(PAGE);
	start_partner();
	pin(0);
	join_group();
	cold = shm ? segment(how, size) : family(!strcmp(how, "own"), size);
	cold_size = shm ? size : 4 * size;
	goal = cold_size / PAGE / 2;
	await_rounds(2);
	while (out < goal && requests++ < MOST_REQUESTS) {
		put(GROUP "/memory.reclaim", "1M");
		await_rounds(2);
		out = cold_size / PAGE - resident(cold, cold_size);
	}
	row("case=aging memory=%s tables=%s lru=%s hot_MB=%zu cpus=%d | hot_faults=%ld cold_out=%ld requests=%d",
	    kind, how, lru, size >> 20, last_cpu() + 1, seen->faults, out, requests);
	end_all();
	restore_lru(lru_before);
	return 0;
}
