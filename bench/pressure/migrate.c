// SPDX-License-Identifier: GPL-2.0
/*
 * Migration of memory that several processes use: what a page costs, and how it
 * affects a process that does not use the memory.
 *
 *	migrate fork|shm USERS MB
 *
 * move_pages() moves all of it to the second NUMA node and back. The users are idle.
 */
#include "pressure.h"
#include <sys/syscall.h>

#define BATCH 1024
#define MOVE_ALL 4	/* MPOL_MF_MOVE_ALL */

static long move_to(char *mem, size_t size, int node)
{
	static int nodes[BATCH], status[BATCH];
	static void *pages[BATCH];
	long moved = 0;
	int n;

	for (size_t at = 0; at < size; at += n * PAGE) {
		n = size - at < BATCH * PAGE ? (size - at) / PAGE : BATCH;
		for (int i = 0; i < n; i++) {
			pages[i] = mem + at + i * PAGE;
			nodes[i] = node;
			status[i] = -1;
		}
		if (syscall(SYS_move_pages, 0, n, pages, nodes, status, MOVE_ALL) < 0)
			die("move_pages");
		for (int i = 0; i < n; i++)
			moved += status[i] == node;
	}
	return moved;
}

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "fork";
	long users = number(argc, argv, 2, 2);
	size_t size = number(argc, argv, 3, 64) << 20;
	long goal = size / PAGE * 2, moved;
	struct meter m;
	char *mem;

	if (users > MOST_USERS)
		return 2;
	with_bystander(size >= 16 << 20 ? 500 : 100);
	mem = make_used(kind, users, size);
	m = meter_now();
	moved = move_to(mem, size, 1) + move_to(mem, size, 0);
	m = meter_since(m);
	if (moved < goal / 2) {
		fprintf(stderr, "migrate: only %ld pages of %ld moved\n", moved, goal);
		return 1;
	}
	row("case=migrate memory=%s users=%ld MB=%zu cpus=%d | cpu_us_per_page=%.3f us_per_page=%.3f calls_per_page=%.4f tlb_per_page=%.4f users_calls_per_page=%.4f pages_moved=%ld bystander_speed=%.3f",
	    kind, users, size >> 20, last_cpu() + 1, m.cpu_ns / 1e3 / moved, m.ns / 1e3 / moved,
	    (double)m.calls / moved, (double)m.tlb / moved, (double)m.users_calls / moved, moved, bystander_speed(m));
	end_all();
	return 0;
}
