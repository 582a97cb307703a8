// SPDX-License-Identifier: GPL-2.0
/*
 * Processes touch a segment for the first time while a process of the idle
 * class walks over its mappings: it punches holes into the file, and ordinary
 * tasks keep it off the CPUs for most of the time.
 *
 *	first_touch PROCESSES PAUSE_MS BUSY
 *
 * BUSY is the number of such tasks per CPU.
 *
 * Each process touches one page in each of 32 times 2 MiB. The time is from fork
 * to exit: of all processes, and of the slowest. shared is how many page tables a
 * process found that another one had made, 0 without the feature.
 */
#include "pressure.h"

#define TABLES 32
#define SEGMENT (TABLES * HUGE_PAGE)
#define JOINED "/sys/kernel/mm/quire/shm/stats/tables_joined"
#define HOLE (15 * HUGE_PAGE)
#define KEPT (8 * PAGE)

static void walk(int fd, char *mem)
{
	struct sched_param none = {};

	if (sched_setscheduler(0, SCHED_IDLE, &none))
		die("SCHED_IDLE");
	for (;;) {
		for (size_t i = 0; i + HOLE <= SEGMENT; i += 16 * PAGE) {
			mem[i] = 1;
			if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, i, HOLE))
				die("fallocate");
		}
	}
}

int main(int argc, char **argv)
{
	long processes = number(argc, argv, 1, 20), pause_ms = number(argc, argv, 2, 1000);
	long busy = number(argc, argv, 3, 1);
	uint64_t all = 0, worst = 0, ns;
	long joined;
	char *mem;
	int fd;

	allow_sharing("1");
	fd = make_segment(SEGMENT);
	mem = map_segment(fd, SEGMENT, PROT_READ | PROT_WRITE);
	touch(mem, SEGMENT, PAGE);
	if (!start())
		walk(fd, mem);
	for (long i = 0; i < busy * (last_cpu() + 1); i++) {
		if (!start()) {
			pin(i % (last_cpu() + 1));
			for (;;)
				;
		}
	}
	usleep(pause_ms * 1000);
	joined = first_number(JOINED);
	for (long i = 0; i < processes; i++) {
		pid_t pid;

		ns = now_ns();
		pid = fork();
		if (pid < 0)
			die("fork");
		if (!pid) {
			visit(mem + KEPT, SEGMENT - KEPT, HUGE_PAGE);
			_exit(0);
		}
		reap(pid);
		ns = now_ns() - ns;
		all += ns;
		worst = ns > worst ? ns : worst;
	}
	joined = first_number(JOINED) - joined;
	row("case=first_touch processes=%ld tables=%d busy=%ld cpus=%d | ms=%.3f worst_ms=%.3f shared=%.2f",
	    processes, TABLES, busy, last_cpu() + 1, all / 1e6 / processes, worst / 1e6, (double)joined / processes);
	end_all();
	return 0;
}
