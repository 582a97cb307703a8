/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Shared by the programs of this benchmark: users of one memory on the first
 * CPUs, a bystander on the last CPU that has nothing to do with that memory, and
 * the interrupts of the bystander's CPU.
 *
 * The bystander is alone on its CPU and no user ever runs there, so an
 * interrupt for a flush or for a call that reaches that CPU was sent to all CPUs.
 * With one CPU there is no bystander, and its counts are 0.
 *
 * Swap is on and the group GROUP exists: the guest's script sets up both.
 */
#ifndef PRESSURE_H
#define PRESSURE_H

#include "bench.h"
#include <signal.h>
#include <sys/prctl.h>

#define GROUP "/sys/fs/cgroup/pressure"
#define LRU_GEN "/sys/kernel/mm/lru_gen/enabled"
#define MOST_USERS 1024
#define BYSTANDER_KB 1024

/* Interrupts of the last CPU and of all CPUs before it, and how far the bystander has come. */
struct meter {
	long calls;
	long tlb;
	long users_calls;
	long rounds;
	uint64_t ns;
	uint64_t cpu_ns;
};

static volatile long *bystander_rounds;
static double bystander_per_ns;
static pid_t started[MOST_USERS + 8];
static int n_started;

static inline int put(const char *path, const char *word)
{
	int fd = open(path, O_WRONLY), ret;

	if (fd < 0)
		return -1;
	ret = write(fd, word, strlen(word));
	close(fd);
	return ret < 0 ? -1 : 0;
}

static inline int last_cpu(void)
{
	return sysconf(_SC_NPROCESSORS_ONLN) - 1;
}

static inline void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

/* The CPU of a user: any but the bystander's. */
static inline void pin_user(long i)
{
	pin(last_cpu() ? i % last_cpu() : 0);
}

/* The sum of some CPUs' columns of the line "KIND:" of /proc/interrupts. */
static inline long interrupts(const char *kind, int first, int last)
{
	char line[4096], *p;
	long sum = 0, value;
	FILE *f = fopen("/proc/interrupts", "r");

	if (!f)
		die("/proc/interrupts");
	while (fgets(line, sizeof(line), f)) {
		p = line + strspn(line, " ");
		if (strncmp(p, kind, strlen(kind)) || p[strlen(kind)] != ':')
			continue;
		p += strlen(kind) + 1;
		for (int i = 0; i <= last; i++) {
			value = strtol(p, &p, 10);
			sum += i >= first ? value : 0;
		}
	}
	fclose(f);
	return sum;
}

static inline long first_number(const char *path)
{
	long value = 0;
	FILE *f = fopen(path, "r");

	if (f) {
		if (fscanf(f, "%li", &value) != 1)
			value = 0;
		fclose(f);
	}
	return value;
}

/* Selects one of Linux's two ways to age pages; returns which one was selected before. */
static inline long choose_lru(const char *name)
{
	long before = first_number(LRU_GEN);

	if (put(LRU_GEN, strcmp(name, "mglru") ? "0" : "7"))
		die(LRU_GEN);
	return before;
}

static inline void restore_lru(long before)
{
	char word[24];

	snprintf(word, sizeof(word), "%ld", before);
	put(LRU_GEN, word);
}

static inline long vm_event(const char *name)
{
	char line[128];
	long value = 0;
	FILE *f = fopen("/proc/vmstat", "r");

	if (!f)
		die("/proc/vmstat");
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ' ')
			value = atol(line + strlen(name));
	fclose(f);
	return value;
}

/* Starts a process that ends with this one; returns 0 in it, as fork() does. */
static inline pid_t start(void)
{
	pid_t pid;

	if (n_started == (int)LEN(started)) {
		errno = E2BIG;
		die("processes");
	}
	pid = fork();
	if (pid < 0)
		die("fork");
	if (!pid) {
		n_started = 0;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		return 0;
	}
	started[n_started++] = pid;
	return pid;
}

static inline void end_all(void)
{
	for (int i = 0; i < n_started; i++)
		kill(started[i], SIGKILL);
	for (int i = 0; i < n_started; i++)
		waitpid(started[i], NULL, 0);
	n_started = 0;
}

/* Numbers that all processes see. */
static inline void *common(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

/* Time on a CPU, without the time that the caller sleeps. */
static inline uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static inline struct meter meter_now(void)
{
	struct meter m = { interrupts("CAL", last_cpu(), last_cpu()),
			   interrupts("TLB", last_cpu(), last_cpu()),
			   interrupts("CAL", 0, last_cpu() - 1),
			   bystander_rounds ? *bystander_rounds : 0, now_ns(), cpu_ns() };

	return m;
}

static inline struct meter meter_since(struct meter then)
{
	struct meter now = meter_now();

	return (struct meter){ now.calls - then.calls, now.tlb - then.tlb,
			       now.users_calls - then.users_calls,
			       now.rounds - then.rounds, now.ns - then.ns,
			       now.cpu_ns - then.cpu_ns };
}

/*
 * The bystander's speed meanwhile, relative to its undisturbed speed; 1 if there is no
 * bystander.
 */
static inline double bystander_speed(struct meter m)
{
	return bystander_per_ns && m.ns ? m.rounds / (double)m.ns / bystander_per_ns : 1;
}

static inline void be_bystander(void)
{
	volatile char *own = map_small(BYSTANDER_KB << 10);

	pin(last_cpu());
	for (;;) {
		for (size_t i = 0; i < BYSTANDER_KB << 10; i += PAGE)
			own[i]++;
		(*bystander_rounds)++;
	}
}

/* Starts the bystander, pins this process elsewhere, and measures the bystander undisturbed. */
static inline void with_bystander(long quiet_ms)
{
	struct meter m;

	bystander_rounds = common(PAGE);
	if (last_cpu() && !start())
		be_bystander();
	pin(0);
	if (!last_cpu())
		return;
	while (!*bystander_rounds)
		usleep(1000);
	m = meter_now();
	usleep(quiet_ms * 1000);
	m = meter_since(m);
	bystander_per_ns = m.rounds / (double)m.ns;
}

static inline void join_group(void)
{
	if (put(GROUP "/cgroup.procs", "0"))
		die(GROUP);
}

/* Allows sharing below the features' thresholds, too; without quire there is no such file. */
static inline void allow_sharing(const char *word)
{
	put("/proc/self/quire", word);
}

/* Maps a segment, at the same address modulo 2 MiB in all processes. */
static inline char *map_segment(int fd, size_t size, int prot)
{
	char *raw = mmap(NULL, size + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *p;

	if (raw == MAP_FAILED)
		die("mmap");
	p = (char *)(((uintptr_t)raw + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
	p = mmap(p, size, prot, MAP_SHARED | MAP_FIXED, fd, 0);
	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static inline int make_segment(size_t size)
{
	int fd = memfd_create("segment", 0);

	if (fd < 0 || ftruncate(fd, size))
		die("memfd");
	return fd;
}

static inline void visit(volatile char *mem, size_t size, size_t step)
{
	for (size_t i = 0; i < size; i += step)
		(void)mem[i];
}

/* Fills pages with one repeated word, which zram notes without compressing anything. */
static inline void fill(char *mem, size_t size)
{
	memset(mem, 0x5a, size);
}

static inline long resident(char *mem, size_t size)
{
	unsigned char *vec = malloc(size / PAGE);
	long n = 0;

	if (!vec || mincore(mem, size, vec))
		die("mincore");
	for (size_t i = 0; i < size / PAGE; i++)
		n += vec[i] & 1;
	free(vec);
	return n;
}

/*
 * Starts users of memory that is already mapped here, until there are @users with this process.
 * They start one after the other, read all of the memory if each must map it, and wait.
 */
static inline void start_users(long users, char *mem, size_t size, int reads)
{
	int ready[2];
	char c = 0;

	if (pipe(ready))
		die("pipe");
	for (long i = 1; i < users; i++) {
		if (start()) {
			if (read(ready[0], &c, 1) != 1)
				die("a user");
			continue;
		}
		pin_user(i);
		if (reads)
			visit(mem, size, PAGE);
		write(ready[1], &c, 1);
		for (;;)
			pause();
	}
	close(ready[0]);
	close(ready[1]);
}

/*
 * Makes memory that @users processes use, including this one: private memory that all of them
 * have by fork, or a segment that each of them maps.
 */
static inline char *make_used(const char *kind, long users, size_t size)
{
	int shm = !strcmp(kind, "shm");
	char *mem;

	allow_sharing("1");
	mem = shm ? map_segment(make_segment(size), size, PROT_READ | PROT_WRITE) : map_small(size);
	fill(mem, size);
	start_users(users, mem, size, shm);
	return mem;
}

#endif
