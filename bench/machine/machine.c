// SPDX-License-Identifier: GPL-2.0
/*
 * The machine probe: what the primitives cost where the benchmarks run, so
 * that a reader can tell a slow kernel from a slow host.
 */
#include "bench.h"
#include <sys/syscall.h>

#define ROUNDS 7

/* A random cycle through all lines: each load waits for the one before. */
static void **make_cycle(char *mem, size_t lines)
{
	uint32_t *order = malloc(lines * sizeof(*order));
	uint64_t seed = 1;

	if (!order)
		die("malloc");
	for (size_t i = 0; i < lines; i++)
		order[i] = i;
	for (size_t i = lines - 1; i > 0; i--) {
		uint32_t tmp = order[i];
		size_t j;

		seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
		j = (seed >> 33) % (i + 1);
		order[i] = order[j];
		order[j] = tmp;
	}
	for (size_t i = 0; i < lines; i++)
		*(void **)(mem + order[i] * LINE) = mem + order[(i + 1) % lines] * LINE;
	free(order);
	return (void **)mem;
}

static double load_ns(size_t size, long loads)
{
	char *mem = map_small(size);
	void **p = make_cycle(mem, size / LINE);
	double t[ROUNDS];

	for (int r = 0; r < ROUNDS; r++) {
		uint64_t start = now_ns();

		for (long i = 0; i < loads; i++)
			p = *(void ** volatile *)p;
		t[r] = (double)(now_ns() - start) / loads;
	}
	munmap(mem, size);
	return typical(t, ROUNDS);
}

static void do_locked(char *mem, long i)
{
	(void)i;
	__atomic_fetch_add((long *)mem, 1, __ATOMIC_SEQ_CST);
}

static void do_clear(char *mem, long i)
{
	memset(mem + i * PAGE, 0, PAGE);
	asm volatile("" : : "r"(mem) : "memory");
}

static void do_copy(char *mem, long i)
{
	memcpy(mem + i * 2 * PAGE, mem + (i * 2 + 1) * PAGE, PAGE);
	asm volatile("" : : "r"(mem) : "memory");
}

static void do_syscall(char *mem, long i)
{
	(void)mem;
	(void)i;
	syscall(SYS_getppid);
}

/* A read fault maps the zero page: the fault path and nothing else. */
static void do_fault(char *mem, long i)
{
	(void)((volatile char *)mem)[i * PAGE];
}

/* ns for one call; spread = how many different places the calls visit. */
static double op_ns(void (*op)(char *, long), char *mem, long calls, long spread)
{
	double t[ROUNDS];

	for (int r = 0; r < ROUNDS; r++) {
		uint64_t start;

		if (op == do_fault)
			madvise(mem, calls * PAGE, MADV_DONTNEED);
		start = now_ns();
		for (long i = 0, at = 0; i < calls; i++) {
			op(mem, at);
			if (++at == spread)
				at = 0;
		}
		t[r] = (double)(now_ns() - start) / calls;
	}
	return typical(t, ROUNDS);
}

int main(int argc, char **argv)
{
	long max_kb = number(argc, argv, 1, 65536);
	long calls = number(argc, argv, 2, 2000);
	size_t size = 64UL << 20;
	char *mem;

	for (long kb = 16; kb <= max_kb; kb *= 4)
		row("probe=load size_kB=%ld | ns=%.2f", kb, load_ns(kb << 10, calls * 50));

	mem = map_small(size);
	row("probe=empty_fault | ns=%.1f", op_ns(do_fault, mem, calls, calls));
	touch(mem, size, PAGE);
	row("probe=locked_add | ns=%.2f", op_ns(do_locked, mem, calls * 50, 1));
	row("probe=clear_page_hot | ns=%.1f", op_ns(do_clear, mem, calls, 1));
	row("probe=clear_page_cold | ns=%.1f", op_ns(do_clear, mem, calls, size / PAGE));
	row("probe=copy_page_hot | ns=%.1f", op_ns(do_copy, mem, calls, 1));
	row("probe=copy_page_cold | ns=%.1f", op_ns(do_copy, mem, calls, size / PAGE / 2));
	row("probe=empty_syscall | ns=%.1f", op_ns(do_syscall, mem, calls, 1));
	return 0;
}
