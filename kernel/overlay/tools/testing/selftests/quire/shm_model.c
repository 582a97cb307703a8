// SPDX-License-Identifier: GPL-2.0
/*
 * Random use of one shared segment by several processes, against a model. One
 * driver decides what happens and keeps what each page must hold. The processes
 * do one thing at a time, when told, so the seed decides everything. With "race"
 * they run by themselves at the same time, and the test compares only what holds
 * in any order: a page holds 0 or a word that belongs to it.
 *
 *	shm_model [SEED [ROUNDS [race]]]
 */
#define _GNU_SOURCE
#include <limits.h>

#include "harness.h"
#include "compat.h"
#include "shm_test.h"

#define TABLES 3
#define PAGES (TABLES * SLOTS)
#define LEN (TABLES * TABLE)
#define PROCS 4
#define STEPS 150
#define RACE_STEPS 400

static uint64_t seed = 1, state;
static unsigned int rounds = 2;
static bool race;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

struct order {
	char what;
	unsigned long first, count;
	uint64_t word;
};

struct worker {
	pid_t pid;
	int to, from;
};

static char *area;
static int fd;

static long remap(void)
{
	if (area)
		munmap(area, LEN);
	area = map_file(fd, TABLES, PROT_READ | PROT_WRITE);
	return area ? 0 : -1;
}

/* Obeys one order; returns the sum of what was read for 'r', else 0 or -1. */
static long obey(const struct order *o)
{
	char *at = area + o->first * PAGE;
	size_t len = o->count * PAGE;
	uint64_t sum = 0;

	switch (o->what) {
	case 'w':
		for (unsigned long i = 0; i < o->count; i++)
			*(volatile uint64_t *)(at + i * PAGE) = word_for(o->first + i, o->word);
		return 0;
	case 'r':
		for (unsigned long i = 0; i < o->count; i++)
			sum = sum * 31 + *(volatile uint64_t *)(at + i * PAGE);
		return sum & LONG_MAX;
	case 'd':
		return madvise(at, len, MADV_DONTNEED);
	case 'p':
		return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				 o->first * PAGE, len);
	case 'n':
		return mprotect(at, len, PROT_NONE) || mprotect(at, len, PROT_READ | PROT_WRITE);
	case 'l':
		return mlock(at, len) || munlock(at, len);
	case 'm':
		return remap();
	case 'c':
		/*
		 * This may fail because of what another process does, or for lack of a huge
		 * page.
		 */
		madvise(at, len, MADV_COLLAPSE);
		return 0;
	}
	return -1;
}

/* In a race a page holds 0 or a word with one of the seeds in use. */
static long race_read(const struct order *o)
{
	for (unsigned long i = o->first; i < o->first + o->count; i++) {
		uint64_t word = *(volatile uint64_t *)(area + i * PAGE);

		if (word && (word ^ word_for(i, 0)) >= 64)
			return 1;
	}
	return 0;
}

static void draw(struct order *o)
{
	static const char kinds[] = "wwwwrrrrrddppnnlmc";

	o->what = kinds[next() % (sizeof(kinds) - 1)];
	/* Collapse seldom: a huge page has no table to share until it is split. */
	if (o->what == 'c' && next() % 4)
		o->what = 'r';
	if (next() & 1 || o->what == 'c') {
		o->first = next() % TABLES * SLOTS;
		o->count = SLOTS;
	} else {
		o->first = next() % PAGES;
		o->count = next() % 30 + 1;
	}
	if (o->first + o->count > PAGES)
		o->count = PAGES - o->first;
	o->word = next() % 64;
}

static void work(int to, int from)
{
	struct order o;
	long answer;

	if (remap())
		_exit(3);
	while (read(to, &o, sizeof(o)) == sizeof(o)) {
		answer = obey(&o);
		if (write(from, &answer, sizeof(answer)) != sizeof(answer))
			_exit(2);
	}
	_exit(0);
}

static int start(struct worker *w)
{
	int to[2], from[2];

	if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
		return -1;
	w->pid = fork();
	if (!w->pid) {
		close(to[1]);
		close(from[0]);
		area = NULL;
		work(to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	w->to = to[1];
	w->from = from[0];
	return w->pid < 0 ? -1 : 0;
}

static int stop(struct worker *w)
{
	int status;

	close(w->to);
	close(w->from);
	kill(w->pid, SIGKILL);
	return waitpid(w->pid, &status, 0) == w->pid ? 0 : -1;
}

/* Applies the order to the model; returns the answer to expect. */
static long expect(uint64_t *model, const struct order *o)
{
	uint64_t sum = 0;

	for (unsigned long i = o->first; i < o->first + o->count; i++) {
		if (o->what == 'w')
			model[i] = word_for(i, o->word);
		else if (o->what == 'p')
			model[i] = 0;
		else if (o->what == 'r')
			sum = sum * 31 + model[i];
	}
	return sum & LONG_MAX;
}

static int model_round(uint64_t *model)
{
	struct worker workers[PROCS];
	int bad = 0;

	memset(model, 0, PAGES * sizeof(*model));
	if (ftruncate(fd, 0) || ftruncate(fd, LEN))
		return 1;
	for (int i = 0; i < PROCS; i++)
		if (start(&workers[i]))
			return 1;
	for (int step = 0; step < STEPS && !bad; step++) {
		struct worker *w = &workers[next() % PROCS];
		struct order o;
		long answer = -1;

		if (next() % 16 == 0) {
			/* A process ends while its tables are in use, and another one starts. */
			bad |= stop(w) || start(w);
		} else if (next() % 16 == 0) {
			unsigned long keep = next() % PAGES;

			bad |= ftruncate(fd, keep * PAGE) || ftruncate(fd, LEN);
			memset(model + keep, 0, (PAGES - keep) * sizeof(*model));
		}
		draw(&o);
		if (write(w->to, &o, sizeof(o)) != sizeof(o) ||
		    read(w->from, &answer, sizeof(answer)) != sizeof(answer))
			answer = -2;
		if (answer != expect(model, &o)) {
			printf("# step %d: '%c' of %lu pages at %lu: got %ld\n",
			       step, o.what, o.count, o.first, answer);
			bad = 1;
		}
	}
	bad |= !tables_consistent();
	for (int i = 0; i < PROCS; i++)
		bad |= stop(&workers[i]);
	return bad;
}

static void racer(int number)
{
	struct order o;

	state = seed * 7919 + number + 1;
	area = NULL;
	if (remap())
		_exit(3);
	for (int step = 0; step < RACE_STEPS; step++) {
		draw(&o);
		if (o.what == 'r' ? race_read(&o) : o.what == 'w' ? obey(&o) < 0 : obey(&o)) {
			printf("# racer %d step %d: '%c' of %lu pages at %lu\n",
			       number, step, o.what, o.count, o.first);
			fflush(stdout);
			_exit(1);
		}
	}
	_exit(0);
}

static int race_round(void)
{
	pid_t pids[PROCS];
	int status, bad = 0;

	if (ftruncate(fd, 0) || ftruncate(fd, LEN))
		return 1;
	fflush(stdout);
	for (int i = 0; i < PROCS; i++) {
		pids[i] = fork();
		if (!pids[i])
			racer(i);
	}
	for (int i = 0; i < PROCS; i++)
		bad |= waitpid(pids[i], &status, 0) != pids[i] || status;
	return bad | !tables_consistent();
}

TEST(random_use)
{
	static uint64_t model[PAGES];
	long tables, joined, collapsed;

	if (shm_number("enabled") != 1)
		SKIP(return, "the shm feature is off");
	ASSERT_EQ(0, write_word(SHM_FOLDER "min_tables", "1"));
	tables = shm_number("tables");
	joined = shm_number("stats/tables_joined");
	collapsed = vm_event("thp_collapse_alloc");
	fd = memfd_create("quire", 0);
	ASSERT_LE(0, fd);
	for (unsigned int i = 0; i < rounds; i++, seed++) {
		state = seed * 0x9E3779B97F4A7C15ull | 1;
		ASSERT_EQ(0, race ? race_round() : model_round(model))
			TH_LOG("seed %lu", (unsigned long)seed);
	}
	close(fd);
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(tables, shm_number("tables"));
	EXPECT_LT(joined, shm_number("stats/tables_joined"));
	printf("# %ld huge pages were made\n", vm_event("thp_collapse_alloc") - collapsed);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoul(argv[1], NULL, 10);
	if (argc > 2)
		rounds = strtoul(argv[2], NULL, 10);
	race = argc > 3 && !strcmp(argv[3], "race");
	return test_harness_run(1, argv);
}
