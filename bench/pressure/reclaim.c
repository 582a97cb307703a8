// SPDX-License-Identifier: GPL-2.0
/*
 * Reclaim of memory that several processes use: what a page costs, and what
 * somebody who does not use it has of it.
 *
 *	reclaim fork|shm USERS MB classic|mglru
 *
 * A control group gives up three quarters of the memory, a megabyte at a time.
 * The users are idle. us_per_page is the time of these requests alone,
 * with what reclaim sleeps to be throttled, cpu_us_per_page the part on a CPU.
 */
#include "pressure.h"

#define MOST_REQUESTS 1000

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "fork";
	long users = number(argc, argv, 2, 2);
	size_t size = number(argc, argv, 3, 64) << 20;
	const char *lru = argc > 4 ? argv[4] : "classic";
	long goal = size / PAGE * 3 / 4, before, out = 0, lru_before;
	uint64_t ns = 0, cpu = 0;
	struct meter m;

	if (users > MOST_USERS)
		return 2;
	with_bystander(size >= 16 << 20 ? 500 : 100);
	lru_before = choose_lru(lru);
	join_group();
	make_used(kind, users, size);
	before = vm_event("pswpout");
	m = meter_now();
	for (int i = 0; i < MOST_REQUESTS && out < goal; i++) {
		ns -= now_ns();
		cpu -= cpu_ns();
		put(GROUP "/memory.reclaim", "1M");
		cpu += cpu_ns();
		ns += now_ns();
		out = vm_event("pswpout") - before;
	}
	m = meter_since(m);
	if (out < goal / 2) {
		fprintf(stderr, "reclaim: only %ld pages of %ld went\n", out, goal);
		return 1;
	}
	row("case=reclaim memory=%s lru=%s users=%ld MB=%zu cpus=%d | cpu_us_per_page=%.3f us_per_page=%.3f calls_per_page=%.4f tlb_per_page=%.4f users_calls_per_page=%.4f pages_out=%ld bystander_speed=%.3f",
	    kind, lru, users, size >> 20, last_cpu() + 1, cpu / 1e3 / out, ns / 1e3 / out, (double)m.calls / out,
	    (double)m.tlb / out, (double)m.users_calls / out, out, bystander_speed(m));
	end_all();
	restore_lru(lru_before);
	return 0;
}
