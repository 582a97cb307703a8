// SPDX-License-Identifier: GPL-2.0
/*
 * Random operations on a family of processes against a model of their memory.
 *
 * Every process has the same 2 MiB of addresses and keeps, in memory of its own,
 * what each page of it must hold. A driver picks a process and an operation,
 * waits for the end of it, and now and then has the kernel check its reverse
 * map. One operation at a time and a fixed seed: every run is the same.
 *
 * Usage: rmap_model [STEPS [SEED [deep] [shared] [moved]]]
 *
 * With "deep" mostly the youngest process is picked, so that forks make a chain
 * of generations, some of which write, split and merge. With "shared" forks share
 * page tables, too. With "moved" another process moves the pages of all of them from node
 * to node meanwhile: what each must hold stays the same.
 */
#define _GNU_SOURCE
#include <linux/mempolicy.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "kselftest.h"
#include "rmap_common.h"

#define PAGES 512
#define REGION ((char *)0x600000000000UL)
#define PROCESSES 16
#define CHECK_EVERY 16

enum what { WRITE, VERIFY, PROTECT, PROTECT_FEW, ALLOW, MOVE, UNMAP, MAP, DISCARD, PAGEOUT,
	    MIGRATE, COLLAPSE, FORK, EXIT, NR_WHATS };

static const unsigned char weight[NR_WHATS] = {
	[WRITE] = 30, [VERIFY] = 10, [PROTECT] = 8, [PROTECT_FEW] = 12, [ALLOW] = 10,
	[MOVE] = 8, [UNMAP] = 3, [MAP] = 5, [DISCARD] = 3, [PAGEOUT] = 3, [MIGRATE] = 3,
	[COLLAPSE] = 1, [FORK] = 12, [EXIT] = 9,
};

struct order {
	enum what what;
	unsigned int first, count, to;
	uint64_t value;
};

/* The model: what this process must see. Copied by fork like all else. */
static struct {
	bool mapped, writable;
	uint64_t value;
} model[PAGES];

static int sockets[PROCESSES][2];
static pid_t *pids;	/* shared by all, for the process that moves their pages */
static uint64_t state;
static bool deep, shared, moved;
static int youngest;

static uint64_t chance(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

static char *at(unsigned int page)
{
	return REGION + page * PAGE;
}

static bool all_mapped(unsigned int first, unsigned int count)
{
	for (unsigned int i = first; i < first + count; i++)
		if (!model[i].mapped)
			return false;
	return true;
}

static void model_set(unsigned int first, unsigned int count, bool mapped)
{
	for (unsigned int i = first; i < first + count; i++) {
		model[i].mapped = model[i].writable = mapped;
		model[i].value = 0;
	}
}

static bool verify(void)
{
	for (unsigned int i = 0; i < PAGES; i++) {
		uint64_t seen;

		if (!model[i].mapped)
			continue;
		seen = *(volatile uint64_t *)at(i);
		if (seen != model[i].value) {
			printf("# page %u holds %lx, not %lx\n", i, seen, model[i].value);
			return false;
		}
	}
	return true;
}

static bool protect(const struct order *order, bool writable)
{
	if (!all_mapped(order->first, order->count))
		return true;
	if (mprotect(at(order->first), order->count * PAGE,
		     PROT_READ | (writable ? PROT_WRITE : 0)))
		return errno == ENOMEM;
	for (unsigned int i = order->first; i < order->first + order->count; i++)
		model[i].writable = writable;
	return true;
}

static bool move(const struct order *order)
{
	unsigned int first = order->first, to = order->to, count = order->count;
	bool overlap = first < to + count && to < first + count;

	if (overlap || !all_mapped(first, count))
		return true;
	/* At the borders of areas, the target may be unmapped although the move fails. */
	munmap(at(to), count * PAGE);
	model_set(to, count, false);
	if (mremap(at(first), count * PAGE, count * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		   at(to)) == MAP_FAILED)
		return true;
	memcpy(&model[to], &model[first], count * sizeof(model[0]));
	model_set(first, count, false);
	return true;
}

static bool map_pages(unsigned int first, unsigned int count)
{
	if (mmap(at(first), count * PAGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		return false;
	model_set(first, count, true);
	return true;
}

static void discard(const struct order *order)
{
	if (!all_mapped(order->first, order->count) ||
	    madvise(at(order->first), order->count * PAGE, MADV_DONTNEED))
		return;
	for (unsigned int i = order->first; i < order->first + order->count; i++)
		model[i].value = 0;
}

/* Moves pages of a process to a node; @pid 0 is this process. */
static void migrate(pid_t pid, unsigned int first, unsigned int count, int node)
{
	static int nodes[PAGES], status[PAGES];
	static void *pages[PAGES];

	for (unsigned int i = 0; i < count; i++) {
		pages[i] = at(first + i);
		nodes[i] = node;
	}
	syscall(SYS_move_pages, pid, count, pages, nodes, status, MPOL_MF_MOVE_ALL);
}

static bool obey(const struct order *order)
{
	unsigned int first = order->first;

	switch (order->what) {
	case WRITE:
		if (model[first].mapped && model[first].writable) {
			*(volatile uint64_t *)at(first) = order->value;
			model[first].value = order->value;
		}
		return true;
	case VERIFY:
		return verify();
	case PROTECT:
	case PROTECT_FEW:
		return protect(order, false);
	case ALLOW:
		return protect(order, true);
	case MOVE:
		return move(order);
	case UNMAP:
		munmap(at(first), order->count * PAGE);
		model_set(first, order->count, false);
		return true;
	case MAP:
		return map_pages(first, order->count);
	case DISCARD:
		discard(order);
		return true;
	case PAGEOUT:
		madvise(at(first), order->count * PAGE, MADV_PAGEOUT);
		return true;
	case MIGRATE:
		migrate(0, first, order->count, order->value % 2);
		return true;
	case COLLAPSE:
		madvise(REGION, PAGES * PAGE, MADV_COLLAPSE);
		return true;
	default:
		return false;
	}
}

/* A process: it obeys until it is told to exit or the driver is gone. */
static void live(int self)
{
	struct order order;

	while (read(sockets[self][1], &order, sizeof(order)) == sizeof(order)) {
		char fine;

		if (order.what == EXIT)
			_exit(!verify());
		if (order.what == FORK) {
			pid_t pid = fork();

			if (!pid) {
				self = order.to;
				continue;
			}
			/* The answer is the child's pid. */
			if (write(sockets[self][1], &pid, sizeof(pid)) != sizeof(pid))
				_exit(2);
			continue;
		}
		fine = obey(&order);
		if (write(sockets[self][1], &fine, 1) != 1)
			_exit(2);
	}
	_exit(0);
}

static bool tell(int process, const struct order *order)
{
	char fine = 0;

	return write(sockets[process][0], order, sizeof(*order)) == sizeof(*order) &&
	       read(sockets[process][0], &fine, 1) == 1 && fine;
}

static bool tell_to_fork(int process, struct order *order)
{
	pid_t pid = -1;

	for (order->to = 0; order->to < PROCESSES && pids[order->to]; order->to++)
		;
	if (order->to == PROCESSES)
		return true;
	if (write(sockets[process][0], order, sizeof(*order)) != sizeof(*order) ||
	    read(sockets[process][0], &pid, sizeof(pid)) != sizeof(pid) || pid < 0)
		return false;
	pids[order->to] = pid;
	youngest = order->to;
	return true;
}

/* Waits until the process's memory is gone. If its parent lives, it stays a zombie. */
static bool tell_to_exit(int process, const struct order *order)
{
	pid_t pid = pids[process];
	char path[32], name[64];
	char status = 0;
	int code = 0;

	if (write(sockets[process][0], order, sizeof(*order)) != sizeof(*order))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	for (;;) {
		FILE *file = fopen(path, "r");
		int n = file ? fscanf(file, "%*d %63s %c", name, &status) : 0;
		unsigned int exit_code = 0;

		/* The last field of stat is the exit code, in the format of wait(). */
		while (n == 2 && fscanf(file, "%u", &exit_code) == 1)
			code = exit_code;
		if (file)
			fclose(file);
		if (n != 2 || status == 'Z' || status == 'X')
			break;
		usleep(500);
	}
	pids[process] = 0;
	return !code;
}

static enum what pick(void)
{
	unsigned int sum = 0, chosen, what;

	for (what = 0; what < NR_WHATS; what++)
		sum += weight[what];
	chosen = chance(sum);
	for (what = 0; chosen >= weight[what]; what++)
		chosen -= weight[what];
	return what;
}

static bool one_step(void)
{
	struct order order = { .what = pick(), .value = chance(~0UL) };
	int living = 0, process;

	for (int i = 0; i < PROCESSES; i++)
		living += !!pids[i];
	for (process = chance(PROCESSES); !pids[process]; process = (process + 1) % PROCESSES)
		;
	if (deep && pids[youngest] && chance(4))
		process = youngest;
	order.count = 1 + chance(order.what == WRITE ? 1 : order.what == PROTECT_FEW ? 8 : 64);
	order.first = chance(PAGES - order.count + 1);
	order.to = chance(PAGES - order.count + 1);
	if (order.what == FORK)
		return tell_to_fork(process, &order);
	/* The oldest one exits first, or a chain would not last. */
	if (order.what == EXIT && deep)
		for (process = (youngest + 1) % PROCESSES; !pids[process];)
			process = (process + 1) % PROCESSES;
	if (order.what == EXIT)
		return living == 1 || tell_to_exit(process, &order);
	return tell(process, &order);
}

static int run(unsigned long steps)
{
	struct order order = { .what = EXIT };

	for (unsigned long i = 1; i <= steps; i++) {
		if (!one_step()) {
			ksft_print_msg("step %lu failed\n", i);
			return 1;
		}
		if ((i % CHECK_EVERY == 0 || i == steps) && rmap_check(NULL)) {
			ksft_print_msg("the reverse map is wrong after step %lu\n", i);
			return 1;
		}
	}
	for (int i = 0; i < PROCESSES; i++)
		if (pids[i] && !tell_to_exit(i, &order)) {
			ksft_print_msg("process %d does not hold what it must\n", i);
			return 1;
		}
	return rmap_check(NULL) != 0;
}

/*
 * Moves some pages of one process, then some of another, until it is killed. It moves a few at
 * a time, because all of them are without an entry until the last one has been copied.
 */
static void move_for_ever(void)
{
	for (unsigned long i = 0;; i++) {
		pid_t pid = pids[chance(PROCESSES)];

		if (pid)
			migrate(pid, chance(PAGES - 8), 8, i % 2);
		usleep(500);
	}
}

static void begin(void)
{
	pid_t first;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	pids = mmap(NULL, PROCESSES * sizeof(*pids), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (pids == MAP_FAILED)
		ksft_exit_fail_perror("mmap");
	for (int i = 0; i < PROCESSES; i++)
		if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets[i]))
			ksft_exit_fail_perror("socketpair");
	first = fork();
	if (!first) {
		if (!map_pages(0, PAGES))
			_exit(3);
		live(0);
	}
	pids[0] = first;
}

int main(int argc, char **argv)
{
	unsigned long steps = argc > 1 ? strtoul(argv[1], NULL, 0) : 1500;
	long enabled = read_number(RMAP "enabled"), tables = 0;
	long borrowed = rmap_counter("borrowed");
	pid_t mover = 0;
	int failed;

	state = argc > 2 ? strtoul(argv[2], NULL, 0) : 20020808;
	for (int i = 3; i < argc; i++) {
		deep |= !strcmp(argv[i], "deep");
		shared |= !strcmp(argv[i], "shared");
		moved |= !strcmp(argv[i], "moved");
	}
	ksft_print_header();
	if (enabled < 0)
		ksft_exit_skip("no rmap feature in this kernel\n");
	ksft_set_plan(1);
	mount_debugfs();
	if (!have_swap())
		ksft_print_msg("no swap: MADV_PAGEOUT does nothing\n");
	if (write_text(RMAP "enabled", "1"))
		ksft_exit_fail_msg("cannot switch the feature on\n");
	ksft_print_msg("%lu steps, seed %lu\n", steps, state);
	if (shared)
		tables = share_tables();
	begin();
	if (moved)
		mover = fork();
	if (moved && !mover)
		move_for_ever();
	failed = run(steps);
	if (moved && (mover < 0 || kill(mover, SIGKILL) || waitpid(mover, NULL, 0) != mover))
		failed = 1;
	if (shared)
		failed |= !shared_tables_since(tables);
	failed |= rmap_counter("borrowed") <= borrowed;
	ksft_print_msg("borrowed %ld, inherited %ld, upgraded %ld, adopted %ld, joined %ld\n",
		       rmap_counter("borrowed"), rmap_counter("inherited"),
		       rmap_counter("upgraded"), rmap_counter("adopted"), rmap_counter("joined"));
	write_text(RMAP "enabled", enabled ? "1" : "0");
	ksft_test_result(!failed, "model\n");
	ksft_finished();
}
