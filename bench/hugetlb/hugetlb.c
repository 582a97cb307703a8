// SPDX-License-Identifier: GPL-2.0
/*
 * A program that starts on huge pages of hugetlb's pool, and starts again: QEMU with
 * preallocated memory, or DPDK, writes once to each page before it does anything else.
 *
 *	hugetlb PAGE_KB PAGES TIMES
 *
 * The pool has PAGES pages of PAGE_KB. Each start is a process of its own that touches all of
 * them, checks that they are zero, writes to each of their lines, and exits. The first start
 * is followed by TIMES more. Each of those waits until the kernel has zeroed all free huge
 * pages, if it does that at all. Only the touching is measured.
 */
#include "bench.h"

/* tests/test_bench.py has folders of its own. */
#ifndef POOLS
#define POOLS "/sys/kernel/mm/hugepages"
#define PREZERO "/sys/kernel/mm/quire/prezero"
#define LIMIT_S 600
#endif

#define MOST_TIMES 64

static const long sizes_kb[] = { 2048, 1048576 };

static void fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

static long number_in(const char *path)
{
	FILE *f = fopen(path, "r");
	long value;

	if (!f || fscanf(f, "%ld", &value) != 1)
		die(path);
	fclose(f);
	return value;
}

static const char *pool_file(long page_kb, const char *what)
{
	static char path[256];

	snprintf(path, sizeof(path), POOLS "/hugepages-%ldkB/%s", page_kb, what);
	return path;
}

/* The kernel makes as many pages as it can, and does not say that these are fewer. */
static void set_pool(long page_kb, long pages)
{
	const char *path = pool_file(page_kb, "nr_hugepages");
	FILE *f = fopen(path, "w");

	if (!f || fprintf(f, "%ld", pages) < 0 || fclose(f))
		die(path);
}

static void make_pool(long page_kb, long pages)
{
	long free;

	set_pool(page_kb, pages);
	free = number_in(pool_file(page_kb, "free_hugepages"));
	if (free != pages)
		fail("%ld pages of %ld kB are free, not %ld", free, page_kb, pages);
}

/* In base pages, those of all sizes, as the kernel counts zeroed ones. */
static long free_pages(void)
{
	long pages = 0;

	for (size_t i = 0; i < LEN(sizes_kb); i++)
		if (!access(pool_file(sizes_kb[i], "free_hugepages"), F_OK))
			pages += number_in(pool_file(sizes_kb[i], "free_hugepages")) *
				 (sizes_kb[i] * 1024 / PAGE);
	return pages;
}

static int pools_are_zeroed(void)
{
	char state[16] = "";
	FILE *f = fopen(PREZERO "/state", "r");

	if (f) {
		fscanf(f, "%15s", state);
		fclose(f);
	}
	return strcmp(state, "on") == 0;
}

static void wait_for_zeroed_pool(void)
{
	uint64_t end = now_ns() + LIMIT_S * 1000000000ULL;

	if (!pools_are_zeroed())
		return;
	while (number_in(PREZERO "/stats/hugetlb_zeroed_pages") != free_pages()) {
		if (now_ns() > end)
			fail("after %d seconds not all free huge pages are zeroed", LIMIT_S);
		usleep(10000);
	}
}

/* The first byte of each page is 1, all others are 0. */
static void expect_zero(const char *mem, size_t size, size_t page)
{
	for (size_t at = 0; at < size; at += page) {
		const uint64_t *word = (const uint64_t *)(mem + at);
		uint64_t found = word[0] ^ 1;

		for (size_t i = 1; i < page / sizeof(*word); i++)
			found |= word[i];
		if (found)
			fail("huge page %zu was not zero", at / page);
	}
}

/* Returns the time of the touching, in ns. Leaves no line of the memory zero. */
static uint64_t start(size_t page, size_t size)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | __builtin_ctzl(page) << MAP_HUGE_SHIFT;
	char *mem = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
	uint64_t ns;

	if (mem == MAP_FAILED)
		die("mmap of huge pages");
	ns = now_ns();
	touch(mem, size, page);
	ns = now_ns() - ns;
	expect_zero(mem, size, page);
	touch(mem + LINE / 2, size - LINE / 2, LINE);
	return ns;
}

static double start_ns(size_t page, size_t size)
{
	uint64_t *ns = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	double result;
	pid_t pid;

	if (ns == MAP_FAILED)
		die("mmap");
	pid = fork();
	if (pid < 0)
		die("fork");
	if (!pid) {
		*ns = start(page, size);
		_exit(0);
	}
	reap(pid);
	result = *ns;
	munmap(ns, PAGE);
	return result;
}

int main(int argc, char **argv)
{
	long page_kb = number(argc, argv, 1, 2048), pages = number(argc, argv, 2, 16);
	long times = number(argc, argv, 3, 1), before;
	size_t page = page_kb << 10, size = page * pages;
	double first, again[MOST_TIMES], gb = size / (double)(1UL << 30);
	const char *name = page == HUGE_PAGE ? "2M" : "1G";

	if (times < 1 || times > MOST_TIMES)
		fail("TIMES is 1 to %d", MOST_TIMES);
	before = number_in(pool_file(page_kb, "nr_hugepages"));
	make_pool(page_kb, pages);
	first = start_ns(page, size);
	for (long i = 0; i < times; i++) {
		wait_for_zeroed_pool();
		again[i] = start_ns(page, size);
	}
	row("page=%s GB=%.3f touch=first | us_per_GB=%.2f", name, gb, first / 1e3 / gb);
	row("page=%s GB=%.3f touch=again | us_per_GB=%.2f", name, gb,
	    typical(again, times) / 1e3 / gb);
	set_pool(page_kb, before);
	return 0;
}
