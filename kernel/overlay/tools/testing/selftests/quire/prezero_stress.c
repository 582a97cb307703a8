// SPDX-License-Identifier: GPL-2.0
/*
 * prezero under load: threads take memory, check that it is zero, dirty it and give
 * it back in pieces, while another thread switches the feature, scrubs, compacts and
 * turns the knobs.
 *
 * prezero_stress [ROUNDS [SEED [THREADS]]]: a round is one operation of every
 * thread; the sequence of each thread's operations depends on SEED alone.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>

#include "prezero.h"

#define MAX_THREADS	16
#define SLOTS		8
#define MAX_SLOT	(16 * MB)

struct worker {
	pthread_t thread;
	uint64_t random;
	unsigned long rounds;
	unsigned long dirty;
};

static uint64_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void give_back(char **slot, size_t *size)
{
	if (*slot)
		munmap(*slot, *size);
	*slot = NULL;
}

static void *use_memory(void *data)
{
	struct worker *me = data;
	char *slot[SLOTS] = {};
	size_t size[SLOTS] = {}, hole;
	unsigned long round;
	int i;

	for (round = 0; round < me->rounds; round++) {
		uint64_t random = next(&me->random);

		i = random % SLOTS;
		give_back(&slot[i], &size[i]);
		size[i] = (1 + (random >> 8) % (MAX_SLOT / PAGE)) * PAGE;
		slot[i] = map(size[i], random & 0x100000000 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
		if (!slot[i])
			continue;
		me->dirty += !all_zero(slot[i], size[i]);
		memset(slot[i], 0xa5, size[i]);
		/* A hole splits huge pages, and must be zero when it is touched again. */
		hole = (random >> 36) % (size[i] / PAGE) * PAGE;
		madvise(slot[i] + hole, PAGE, MADV_DONTNEED);
		me->dirty += !all_zero(slot[i] + hole, PAGE);
	}
	for (i = 0; i < SLOTS; i++)
		give_back(&slot[i], &size[i]);
	return NULL;
}

static void *turn_knobs(void *data)
{
	static const struct {
		const char *path, *value;
	} turns[] = {
		{ FOLDER "scrub_now", "1" },
		{ FOLDER "scrub_now", "1" },
		{ FOLDER "scrub_now", "1" },
		{ FOLDER "enabled", "0" },
		{ FOLDER "enabled", "1" },
		{ FOLDER "enabled", "2" },
		{ FOLDER "enabled", "1" },
		{ FOLDER "scrub_order_min", "0" },
		{ FOLDER "scrub_order_min", "4" },
		{ FOLDER "scrub_order_min", "9" },
		{ FOLDER "scrub_unused", "0" },
		{ FOLDER "scrub_unused", "1" },
		{ SYSCTL "compact_memory", "1" },
		{ SYSCTL "scrub_start", "100" },
		{ SYSCTL "scrub_start", "0" },
		{ SYSCTL "nr_hugepages", "8" },
		{ SYSCTL "nr_hugepages", "0" },
	};
	struct worker *me = data;
	unsigned long round;

	for (round = 0; round < me->rounds; round++) {
		unsigned int i = next(&me->random) % (sizeof(turns) / sizeof(turns[0]));

		put(turns[i].path, turns[i].value);
		if (round % 8 == 0)
			me->dirty += checked("dirty_blocks") + checked("miscounted_pages");
	}
	return NULL;
}

static unsigned long argument(int argc, char **argv, int i, unsigned long otherwise)
{
	return i < argc ? strtoul(argv[i], NULL, 0) : otherwise;
}

int main(int argc, char **argv)
{
	unsigned long rounds = argument(argc, argv, 1, 40), seed = argument(argc, argv, 2, 1);
	unsigned long threads = argument(argc, argv, 3, 3), i, dirty = 0;
	struct worker workers[MAX_THREADS] = {};
	bool good;

	printf("TAP version 13\n1..1\n");
	if (access(FOLDER "enabled", W_OK)) {
		printf("ok 1 prezero_stress # SKIP no prezero, or not root\n");
		return 0;
	}
	if (!have_checker()) {
		printf("ok 1 prezero_stress # SKIP no checker (CONFIG_QUIRE_DEBUG), or no debugfs\n");
		return 0;
	}
	if (!fresh_start() || threads < 2 || threads > MAX_THREADS) {
		printf("not ok 1 prezero_stress\n");
		return 1;
	}
	for (i = 0; i < threads; i++) {
		workers[i].random = (seed << 8) + i + 1;
		workers[i].rounds = rounds;
		pthread_create(&workers[i].thread, NULL, i ? use_memory : turn_knobs, &workers[i]);
	}
	for (i = 0; i < threads; i++) {
		pthread_join(workers[i].thread, NULL);
		dirty += workers[i].dirty;
	}
	put(SYSCTL "nr_hugepages", "0");
	good = !dirty && !put(FOLDER "enabled", "2") && !stat_of("zeroed_pages") &&
	       reads(FOLDER "state", "off");
	if (dirty)
		printf("# %lu finds of memory that was not zero\n", dirty);
	printf("%s 1 prezero_stress\n", good ? "ok" : "not ok");
	return !good;
}
