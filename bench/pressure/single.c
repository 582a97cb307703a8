// SPDX-License-Identifier: GPL-2.0
/*
 * One process has shared memory that no other process maps: what does it pay for
 * calls that change its page tables? For each call, including a touch of all of the
 * memory after it: the time, the faults, the interrupts of another CPU, and the
 * pages that were reclaimed.
 *
 *	single MB ROUNDS
 *
 * Each call is measured with one thread, beside a bystander on the last CPU, and
 * with a second thread of the process on that CPU, which every flush must reach.
 */
#include "pressure.h"
#include <pthread.h>

enum call { MPROTECT, DONTNEED, PAGEOUT, MUNMAP, N_CALLS };

static const char * const names[N_CALLS] = {
	"mprotect", "dontneed", "pageout", "munmap",
};

static size_t size;
static char *mem;
static int fd;
static volatile int stop;

static void *spin(void *arg)
{
	pin(last_cpu());
	while (!stop)
		;
	return arg;
}

static long faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt + usage.ru_majflt;
}

static void do_call(enum call call)
{
	int failed = 0;

	if (call == MPROTECT)
		failed = mprotect(mem, size, PROT_READ) || mprotect(mem, size, PROT_READ | PROT_WRITE);
	if (call == DONTNEED)
		for (size_t i = 0; i < size; i += HUGE_PAGE)
			failed |= madvise(mem + i + HUGE_PAGE / 2, PAGE, MADV_DONTNEED);
	if (call == PAGEOUT)
		failed = madvise(mem, size, MADV_PAGEOUT);
	if (call == MUNMAP)
		failed = munmap(mem, size);
	if (failed)
		die(names[call]);
}

static void measure(enum call call, int threads, long rounds)
{
	long count = 0, out = 0;
	struct meter m, sum = {};

	/*
	 * One round: it takes long if a second thread is interrupted for each page that goes
	 * out.
	 */
	if (call == PAGEOUT)
		rounds = 1;

	for (long i = 0; i < rounds; i++) {
		touch(mem, size, PAGE);
		count -= faults();
		m = meter_now();
		do_call(call);
		if (call == PAGEOUT)
			out += size / PAGE - resident(mem, size);
		if (call != MUNMAP)
			touch(mem, size, PAGE);
		m = meter_since(m);
		count += faults();
		sum.ns += m.ns;
		sum.calls += m.calls;
		sum.tlb += m.tlb;
		if (call == MUNMAP)
			mem = map_segment(fd, size, PROT_READ | PROT_WRITE);
	}
	row("case=single call=%s threads=%d MB=%zu cpus=%d | ms=%.3f faults=%.1f calls=%.1f tlb=%.1f pages_out=%.1f",
	    names[call], threads, size >> 20, last_cpu() + 1, sum.ns / 1e6 / rounds, (double)count / rounds,
	    (double)sum.calls / rounds, (double)sum.tlb / rounds, (double)out / rounds);
}

int main(int argc, char **argv)
{
	long rounds = number(argc, argv, 2, 5);
	pthread_t thread;

	size = number(argc, argv, 1, 64) << 20;
	with_bystander(10);
	allow_sharing("1");
	fd = make_segment(size);
	mem = map_segment(fd, size, PROT_READ | PROT_WRITE);
	for (int i = 0; i < N_CALLS; i++)
		measure(i, 1, rounds);
	end_all();
	if (last_cpu() && pthread_create(&thread, NULL, spin, NULL))
		die("pthread_create");
	usleep(10000);
	for (int i = 0; i < N_CALLS && last_cpu(); i++)
		measure(i, 2, rounds);
	stop = 1;
	return 0;
}
