// SPDX-License-Identifier: GPL-2.0
/*
 * A process for gdb's checkpoints, each of which is a fork of it: five tables of private memory, and functions that gdb
 * calls in one or another of the processes.
 */
#include <stdio.h>
#include <sys/mman.h>

#define PAGES	(5 * 512UL)
#define STRIDE	(4096 / sizeof(unsigned long))

unsigned long *area;

/* Returns how many pages no longer hold what main() wrote. */
unsigned long changed(void)
{
	unsigned long count = 0;

	for (unsigned long page = 0; page < PAGES; page++)
		count += area[page * STRIDE] != page + 1;
	return count;
}

void change(unsigned long first, unsigned long pages)
{
	for (unsigned long page = first; page < first + pages; page++)
		area[page * STRIDE] = 0;
}

/* gdb stops here. */
void filled(void)
{
}

int main(void)
{
	area = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (area == MAP_FAILED)
		return 1;
	for (unsigned long page = 0; page < PAGES; page++)
		area[page * STRIDE] = page + 1;
	filled();
	printf("changed at the end: %lu\n", changed());
	return 0;
}
