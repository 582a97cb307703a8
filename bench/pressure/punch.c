// SPDX-License-Identifier: GPL-2.0
/*
 * A process punches a hole of one page into a segment again and again, and writes
 * to the page in between. How often is a process interrupted that does not map the
 * segment?
 *
 *	punch USERS HOLES
 */
#include "pressure.h"

#define SEGMENT (32 * HUGE_PAGE)

int main(int argc, char **argv)
{
	long users = number(argc, argv, 1, 1), holes = number(argc, argv, 2, 2000);
	struct meter m;
	char *mem;
	int fd;

	if (users > MOST_USERS)
		return 2;
	with_bystander(holes >= 1000 ? 500 : 100);
	allow_sharing("1");
	fd = make_segment(SEGMENT);
	mem = map_segment(fd, SEGMENT, PROT_READ | PROT_WRITE);
	mem[PAGE] = 1;
	start_users(users, mem, 2 * PAGE, 1);
	m = meter_now();
	for (long i = 0; i < holes; i++) {
		mem[0] = 1;
		if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE))
			die("fallocate");
	}
	m = meter_since(m);
	row("case=punch users=%ld holes=%ld cpus=%d | us_per_hole=%.3f calls_per_hole=%.4f tlb_per_hole=%.4f bystander_speed=%.3f",
	    users, holes, last_cpu() + 1, m.ns / 1e3 / holes, (double)m.calls / holes, (double)m.tlb / holes,
	    bystander_speed(m));
	end_all();
	return 0;
}
