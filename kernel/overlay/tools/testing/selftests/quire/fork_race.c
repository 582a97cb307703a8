// SPDX-License-Identifier: GPL-2.0
/*
 * Everything at once: threads write to memory whose page tables are shared with
 * children that come and go, while pages are reclaimed, moved and swapped in.
 * Each thread knows what its own pages hold; each child's memory must not change
 * unless it writes. For the soak.
 *
 *	fork_race [SECONDS]
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

#include "harness.h"
#include "fork_test.h"

#define TABLES 6
#define PAGES (TABLES * SLOTS)
#define LEN (TABLES * TABLE)
#define THREADS 4	/* the last one pins its pages */
#define GROUP "/sys/fs/cgroup/quire_fork_race"

static unsigned int seconds = 20;
static volatile bool stop;
static char *area;
/* Of the driver, which pins for one process at a time. Children use the one that they inherit. */
static int gup_fd;

/* Counters that all processes share. */
static struct {
	unsigned long pins, bad, grandchildren;
} *all;

struct writer {
	pthread_t thread;
	unsigned int index;
	unsigned long bad;
	unsigned long pins;
};

static uint64_t next(uint64_t *random)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return *random;
}

/* Writes to every THREADS-th page, and checks what it wrote there before. */
static void *writer(void *arg)
{
	static uint64_t expected[PAGES];
	struct writer *w = arg;
	uint64_t random = w->index + 1;

	while (!stop) {
		unsigned long i = next(&random) % (PAGES / THREADS) * THREADS + w->index;
		volatile uint64_t *word = (uint64_t *)(area + i * PAGE);

		w->bad += *word != expected[i];
		*word = expected[i] = random;
	}
	return NULL;
}

/*
 * Pins a page for a number of writes, and checks that the pin shows what is written through the
 * page table. Returns -1 if another process's pages are pinned, or else what is wrong.
 */
static int pin_and_write(volatile uint64_t *word, uint64_t *random)
{
	uint64_t copy[PAGE / 8], to = (uintptr_t)copy;
	struct pin_longterm_test pin = {
		(uintptr_t)word, PAGE, *random >> 32 & (PIN_FLAG_WRITE | PIN_FLAG_FAST)
	};
	unsigned int n = *random >> 40 & 7;
	int bad = 0;

	if (ioctl(gup_fd, PIN_START, &pin))
		return -1;
	while (n--) {
		*word = next(random);
		if (*random & 1)
			usleep(*random >> 16 & 4095);
		bad += ioctl(gup_fd, PIN_READ, &to) || copy[0] != *word;
	}
	ioctl(gup_fd, PIN_STOP);
	return bad;
}

/* Pins its pages, one after the other, while the process goes on forking. */
static void *pinner(void *arg)
{
	struct writer *w = arg;
	uint64_t random = 4711;

	while (!stop && gup_fd >= 0) {
		unsigned long i = next(&random) % (PAGES / THREADS) * THREADS + w->index;
		int bad = pin_and_write((uint64_t *)(area + i * PAGE), &random);

		if (bad >= 0) {
			w->pins++;
			w->bad += bad;
		}
		/* Give the children a turn. */
		usleep(random >> 48 & 1023);
	}
	return NULL;
}

/* The same in a child, while its parent writes, forks, or ends. */
static int pin_in_child(uint64_t random)
{
	volatile uint64_t *word = (uint64_t *)(area + random % PAGES * PAGE);
	int bad = -1;

	for (int tries = 0; gup_fd >= 0 && bad < 0 && tries < 50; tries++) {
		bad = pin_and_write(word, &random);
		if (bad < 0)
			usleep(200);
	}
	if (bad < 0)
		return 0;
	__atomic_add_fetch(&all->pins, 1, __ATOMIC_RELAXED);
	return bad;
}

static uint64_t sum(void)
{
	uint64_t total = 0;

	for (unsigned long i = 0; i < PAGES; i++)
		total = total * 31 + *(uint64_t *)(area + i * PAGE);
	return total;
}

/* The grandchild shares a table with its parent, which is about to change the table or to end. */
static void fork_grandchild(uint64_t random, uint64_t before)
{
	pid_t pid;

	__atomic_add_fetch(&all->grandchildren, 1, __ATOMIC_RELAXED);
	pid = fork();
	if (pid > 0)
		return;
	if (!pid && (sum() != before || pin_in_child(next(&random))))
		__atomic_add_fetch(&all->bad, 1, __ATOMIC_RELAXED);
	__atomic_sub_fetch(&all->grandchildren, 1, __ATOMIC_RELAXED);
	if (!pid)
		_exit(0);
}

/* What a child does with its memory; it returns 0 if nobody else changed it. */
static int child_life(uint64_t random)
{
	uint64_t before = sum();
	unsigned long i;

	if (random & 1)
		usleep(random % 5000);
	if (sum() != before)
		return 1;
	switch (random >> 8 & 7) {
	case 0:
		return munmap(area + (random >> 16) % PAGES / 2 * PAGE, LEN / 3) ? 2 : 0;
	case 1:
		return madvise(area + TABLE, 2 * TABLE, MADV_DONTNEED) ? 2 : 0;
	case 2:
		madvise(area + TABLE / 2, TABLE, MADV_DONTNEED);
		break;
	case 3:
		fork_grandchild(random, before);
		break;
	case 4:
		mprotect(area + TABLE + PAGE, TABLE, PROT_READ);
		return sum() != before ? 3 : 0;
	case 5:
		madvise(area, LEN, MADV_PAGEOUT);
		return sum() != before ? 4 : 0;
	case 6:
		/*
		 * This gives the child its own tables; the file stays open until the child
		 * ends.
		 */
		open("/sys/kernel/debug/quire/mmu_notifier", O_RDONLY);
		if (sum() != before)
			return 6;
		break;
	case 7:
		if (pin_in_child(random))
			return 7;
		break;
	}
	for (i = random % 7; i < PAGES; i += 7)
		*(uint64_t *)(area + i * PAGE) = i;
	for (i = random % 7; i < PAGES; i += 7)
		if (*(uint64_t *)(area + i * PAGE) != i)
			return 5;
	return 0;
}

static void *disturber(void *arg)
{
	unsigned int round;

	for (round = 0; !stop; round++) {
		write_word(GROUP "/memory.reclaim", "4M");
		if (round % 16 == 0)
			write_word("/proc/sys/vm/compact_memory", "1");
		usleep(2000);
	}
	return NULL;
}

FIXTURE(fork_race) {
	struct writer writers[THREADS];
	pthread_t disturber;
};

FIXTURE_SETUP(fork_race)
{
	unsigned int i;

	NEED_FORK_FEATURE();
	write_word("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	mkdir(GROUP, 0755);
	if (write_word(GROUP "/cgroup.procs", "0") || make_swap())
		SKIP(return, "no memory cgroup, or no swap on zram");
	area = map_tables(TABLES);
	ASSERT_NE(NULL, area);
	gup_fd = open(GUP_TEST, O_RDWR);
	all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)all);
	for (i = 0; i < THREADS; i++) {
		self->writers[i].index = i;
		ASSERT_EQ(0, pthread_create(&self->writers[i].thread, NULL,
					    i < THREADS - 1 ? writer : pinner,
					    &self->writers[i]));
	}
	ASSERT_EQ(0, pthread_create(&self->disturber, NULL, disturber, NULL));
}

FIXTURE_TEARDOWN(fork_race)
{
	EXPECT_EQ(0, swapoff(SWAP));
	EXPECT_TRUE(tables_consistent());
	write_word("/sys/fs/cgroup/cgroup.procs", "0");
	rmdir(GROUP);
}

TEST_F_TIMEOUT(fork_race, all_at_once, 7200)
{
	time_t end = time(NULL) + seconds;
	uint64_t random = 88172645463325252ull;
	unsigned long children = 0;
	unsigned int i;
	int status, alive = 0;

	while (time(NULL) < end) {
		uint64_t its = next(&random);
		pid_t pid = fork();

		ASSERT_LE(0, pid);
		if (!pid)
			_exit(child_life(its));
		children++;
		if (++alive < 4)
			continue;
		ASSERT_LT(0, wait(&status));
		EXPECT_EQ(0, status);
		alive--;
	}
	while (wait(&status) > 0)
		EXPECT_EQ(0, status);
	stop = true;
	pthread_join(self->disturber, NULL);
	for (i = 0; i < THREADS; i++) {
		pthread_join(self->writers[i].thread, NULL);
		EXPECT_EQ(0, self->writers[i].bad);
	}
	for (i = 0; i < 60000 && all->grandchildren; i++)
		usleep(1000);
	EXPECT_EQ(0, all->grandchildren);
	EXPECT_EQ(0, all->bad);
	if (gup_fd >= 0) {
		EXPECT_LT(0, self->writers[THREADS - 1].pins);
		EXPECT_LT(0, all->pins);
	}
	TH_LOG("%lu children, %lu pins, %lu of children", children,
	       self->writers[THREADS - 1].pins, all->pins);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seconds = strtoul(argv[1], NULL, 0);
	return test_harness_run(1, argv);
}
