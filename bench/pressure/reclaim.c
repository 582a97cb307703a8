// SPDX-License-Identifier: GPL-2.0
/*
 * Reclaim of memory that several processes use: what a page costs, and how it
 * affects a process that does not use the memory.
 *
 *	reclaim fork|shm USERS MB classic|mglru
 *
 * A control group gives up three quarters of the memory, a megabyte at a time.
 * The users are idle. us_per_page is the time of these requests alone, including
 * the time that reclaim sleeps because it is throttled; cpu_us_per_page is the part
 * on a CPU. full_flushes_per_page counts flushes of the whole TLB of the CPU that
 * reclaims. Only a tracepoint shows them, and the tracepoint takes time itself, so
 * they are counted while another eighth of the memory is reclaimed.
 */
#include "pressure.h"
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#define MOST_REQUESTS 1000
#define FLUSH_EVENT "/sys/kernel/tracing/events/tlb/tlb_flush/id"

struct taken {
	uint64_t ns;
	uint64_t cpu_ns;
	long out;
};

/* The counter is stopped at first. A flush of single pages is of 33 at most. */
static int count_full_flushes(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT,
		.size = sizeof(attr),
		.config = first_number(FLUSH_EVENT),
		.disabled = 1,
	};
	int fd = syscall(SYS_perf_event_open, &attr, -1, 0, -1, 0);

	if (fd < 0 || ioctl(fd, PERF_EVENT_IOC_SET_FILTER, "pages > 1000"))
		die(FLUSH_EVENT);
	return fd;
}

static struct taken reclaim(long goal)
{
	long before = vm_event("pswpout");
	struct taken taken = {};

	for (int i = 0; i < MOST_REQUESTS && taken.out < goal; i++) {
		taken.ns -= now_ns();
		taken.cpu_ns -= cpu_ns();
		put(GROUP "/memory.reclaim", "1M");
		taken.cpu_ns += cpu_ns();
		taken.ns += now_ns();
		taken.out = vm_event("pswpout") - before;
	}
	if (taken.out < goal / 2) {
		fprintf(stderr, "reclaim: only %ld pages of %ld went\n", taken.out, goal);
		exit(1);
	}
	return taken;
}

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "fork";
	long users = number(argc, argv, 2, 2);
	size_t size = number(argc, argv, 3, 64) << 20;
	const char *lru = argc > 4 ? argv[4] : "classic";
	long pages = size / PAGE, lru_before, out;
	struct taken timed, counted;
	uint64_t flushes = 0;
	struct meter m;
	int counter;

	if (users > MOST_USERS)
		return 2;
	with_bystander(size >= 16 << 20 ? 500 : 100);
	lru_before = choose_lru(lru);
	counter = count_full_flushes();
	join_group();
	make_used(kind, users, size);
	m = meter_now();
	timed = reclaim(pages * 3 / 4);
	ioctl(counter, PERF_EVENT_IOC_ENABLE, 0);
	counted = reclaim(pages / 8);
	ioctl(counter, PERF_EVENT_IOC_DISABLE, 0);
	m = meter_since(m);
	read(counter, &flushes, sizeof(flushes));
	out = timed.out + counted.out;
	row("case=reclaim memory=%s lru=%s users=%ld MB=%zu cpus=%d | cpu_us_per_page=%.3f us_per_page=%.3f full_flushes_per_page=%.4f calls_per_page=%.4f tlb_per_page=%.4f users_calls_per_page=%.4f pages_out=%ld bystander_speed=%.3f",
	    kind, lru, users, size >> 20, last_cpu() + 1, timed.cpu_ns / 1e3 / timed.out, timed.ns / 1e3 / timed.out,
	    (double)flushes / counted.out, (double)m.calls / out, (double)m.tlb / out, (double)m.users_calls / out, out,
	    bystander_speed(m));
	end_all();
	restore_lru(lru_before);
	return 0;
}
