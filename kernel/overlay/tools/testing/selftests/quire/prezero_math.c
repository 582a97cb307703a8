// SPDX-License-Identifier: GPL-2.0
/*
 * prezero's arithmetic, as in the kernel, against the same arithmetic in 128 bits. It does not
 * need our kernel: it runs on the host.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define PAGE_SHIFT	12
#define max(a, b)	((a) > (b) ? (a) : (b))

#include "../../../../mm/quire/prezero/math.h"

#define ROUNDS		1000000

typedef unsigned __int128 wide;

static uint64_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Numbers of pages of all magnitudes, up to 2^48. */
static unsigned long some_pages(uint64_t *state)
{
	return next(state) >> (16 + next(state) % 48);
}

static bool share_is_right(uint64_t *state)
{
	unsigned long managed = some_pages(state);
	unsigned int permil = next(state) % 1001;

	return prezero_share(managed, permil) == (wide)managed * permil / 1000;
}

/* Never on above the upper bound, never off below the lower one, otherwise unchanged. */
static bool active_is_right(uint64_t *state)
{
	unsigned long managed = some_pages(state), zeroed = managed ? next(state) % managed : 0;
	unsigned int start = next(state) % 1001, stop = next(state) % 1001;
	bool was = next(state) & 1, is = prezero_active(was, zeroed, managed, start, stop);

	if (zeroed < (wide)managed * start / 1000)
		return is;
	if (zeroed >= (wide)managed * max(start, stop) / 1000)
		return !is;
	return is == was;
}

/* A batch and its rest take as long as the rate says, to the millisecond. */
static bool pause_is_right(uint64_t *state)
{
	unsigned long pages = next(state) % 4096;
	unsigned int rate = 1 + next(state) % 1000000, spent = next(state) % 1000;
	wide due = ((wide)pages << PAGE_SHIFT) * 1000 / (rate * (wide)1048576);
	unsigned int pause = prezero_pause_ms(pages, rate, spent);
	wide want = due > spent ? due - spent : 0;

	return pause <= want && want <= pause + (wide)1;
}

int main(void)
{
	static const struct {
		const char *name;
		bool (*is_right)(uint64_t *state);
	} tests[] = {
		{ "share", share_is_right },
		{ "active", active_is_right },
		{ "pause", pause_is_right },
	};
	uint64_t state = 88172645463325252;
	unsigned int i, round, failed = 0;

	printf("TAP version 13\n1..3\n");
	for (i = 0; i < 3; i++) {
		for (round = 0; round < ROUNDS && tests[i].is_right(&state); round++)
			;
		printf("%sok %u %s\n", round < ROUNDS ? "not " : "", i + 1, tests[i].name);
		failed += round < ROUNDS;
	}
	return !!failed;
}
