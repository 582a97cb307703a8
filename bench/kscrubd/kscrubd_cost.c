// SPDX-License-Identifier: GPL-2.0
/*
 * What the daemon that zeroes free memory costs others: its time, the wake-ups of an idle
 * machine, and how long zone->lock is held.
 *
 *	kscrubd_cost fill MB		a process uses so much memory, and kscrubd zeroes it
 *	kscrubd_cost idle SECONDS	nobody does anything
 *	kscrubd_cost locks MB		processes come and go while kscrubd works; needs lock events
 *
 * Without a kscrubd, its time and wake-ups are 0.
 */
#include "bench.h"
#include <ctype.h>
#include <dirent.h>

#define PREZERO "/sys/kernel/mm/quire/prezero/"
#define SCRUB_START "/proc/sys/vm/scrub_start"
#define SCRUB_STOP "/proc/sys/vm/scrub_stop"
#define TRACING "/sys/kernel/tracing/"
#define MOST_HOLDS (4 << 20)
#define MOST_CPUS 8
#define LIMIT_S 600

static long counter(const char *name)
{
	char path[128];
	long value = 0;
	FILE *f;

	snprintf(path, sizeof(path), PREZERO "stats/%s", name);
	f = fopen(path, "r");
	if (f) {
		if (fscanf(f, "%ld", &value) != 1)
			die(path);
		fclose(f);
	}
	return value;
}

/* What a task did: its time on a CPU in ns, and how often it slept. */
struct work {
	double ns;
	long sleeps;
	int tasks;
};

/* Adds what /proc/PID/sched says of a task, if it is a kscrubd. */
static void add_work(struct work *work, const char *pid)
{
	char path[300], line[256] = "";
	double value;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%s/sched", pid);
	f = fopen(path, "r");
	if (!f)
		return;
	if (fgets(line, sizeof(line), f) && !strncmp(line, "kscrubd/", 8)) {
		work->tasks++;
		while (fgets(line, sizeof(line), f)) {
			if (sscanf(line, "se.sum_exec_runtime : %lf", &value) == 1)
				work->ns += value * 1e6;
			else if (sscanf(line, "nr_voluntary_switches : %lf", &value) == 1)
				work->sleeps += value;
		}
	}
	fclose(f);
}

/* Is the feature on? */
static int is_on(void)
{
	FILE *f = fopen(PREZERO "state", "r");
	char state[16] = "";

	if (f) {
		fscanf(f, "%15s", state);
		fclose(f);
	}
	return !strcmp(state, "on");
}

static struct work kscrubd_work(void)
{
	struct work work = { 0 };
	DIR *proc = opendir("/proc");
	struct dirent *entry;

	if (!proc)
		die("/proc");
	while ((entry = readdir(proc)))
		if (isdigit(entry->d_name[0]))
			add_work(&work, entry->d_name);
	closedir(proc);
	if (is_on() && (!work.tasks || !work.ns)) {
		fprintf(stderr, "no kscrubd, or /proc/PID/sched does not say what it did\n");
		exit(1);
	}
	return work;
}

/* The number after a word at the start of a line of /proc/stat. */
static double machine_count(const char *word)
{
	FILE *f = fopen("/proc/stat", "r");
	char *line = NULL;
	double value = 0;
	size_t size = 0;

	if (!f)
		die("/proc/stat");
	while (getline(&line, &size, f) > 0)
		if (!strncmp(line, word, strlen(word)))
			value = atof(line + strlen(word));
	free(line);
	fclose(f);
	return value;
}

/* A process that writes to all pages of so much memory, and ends. */
static void use_memory(long mb, int small)
{
	size_t size = mb << 20;
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	if (!pid) {
		touch(small ? map_small(size) : map_aligned(size, MADV_HUGEPAGE), size, LINE);
		_exit(0);
	}
	reap(pid);
}

/* Waits until kscrubd has done nothing for a second. */
static void wait_for_kscrubd(void)
{
	uint64_t end = now_ns() + LIMIT_S * 1000000000ULL;
	long before, after = counter("scrubbed_pages");

	do {
		if (now_ns() > end) {
			fprintf(stderr, "kscrubd still works after %d seconds\n", LIMIT_S);
			exit(1);
		}
		before = after;
		sleep(1);
		after = counter("scrubbed_pages");
	} while (after != before);
}

static int fill(long mb)
{
	struct work before, after;
	long pages;
	double gb;

	wait_for_kscrubd();
	before = kscrubd_work();
	pages = counter("scrubbed_pages");
	use_memory(mb, 0);
	wait_for_kscrubd();
	after = kscrubd_work();
	gb = (counter("scrubbed_pages") - pages) * (double)PAGE / (1UL << 30);
	row("state=fill MB=%ld | zeroed_MB=%.0f kscrubd_us_per_GB=%.0f wakeups_per_GB=%.1f", mb,
	    gb * 1024, gb ? (after.ns - before.ns) / 1e3 / gb : 0,
	    gb ? (after.sleeps - before.sleeps) / gb : 0);
	return 0;
}

static int idle(long seconds)
{
	double switches, interrupts;
	struct work before, after;

	wait_for_kscrubd();
	before = kscrubd_work();
	switches = machine_count("ctxt ");
	interrupts = machine_count("intr ");
	sleep(seconds);
	interrupts = machine_count("intr ") - interrupts;
	switches = machine_count("ctxt ") - switches;
	after = kscrubd_work();
	row("state=idle seconds=%ld | kscrubd_wakeups=%ld kscrubd_us=%.1f switches_per_s=%.1f interrupts_per_s=%.1f",
	    seconds, after.sleeps - before.sleeps, (after.ns - before.ns) / 1e3,
	    switches / seconds, interrupts / seconds);
	return 0;
}

/* ---- zone->lock ---- */

static void write_file(const char *path, const char *value)
{
	FILE *f = fopen(path, "w");

	if (!f || fprintf(f, "%s", value) < 0 || fclose(f))
		die(path);
}

static void trace_set(const char *file, const char *value)
{
	char path[128];

	snprintf(path, sizeof(path), TRACING "%s", file);
	write_file(path, value);
}

/* With a pool that is refilled at once, kscrubd works whenever somebody has taken from it. */
static void refill_at_once(void)
{
	char stop[16];
	FILE *f;

	if (!is_on())
		return;
	f = fopen(SCRUB_STOP, "r");
	if (!f || !fgets(stop, sizeof(stop), f))
		die(SCRUB_STOP);
	fclose(f);
	write_file(SCRUB_START, stop);
}

static void trace_locks(int on)
{
	static const char * const events[] = { "lock_acquire", "lock_release" };
	char path[64];

	for (size_t i = 0; i < LEN(events); i++) {
		snprintf(path, sizeof(path), "events/lock/%s/filter", events[i]);
		trace_set(path, "name == \"&zone->lock\"");
		snprintf(path, sizeof(path), "events/lock/%s/enable", events[i]);
		trace_set(path, on ? "1" : "0");
	}
	trace_set("tracing_on", on ? "1" : "0");
}

/*
 * Reads how long each hold took, in ticks of the time stamp counter. A line of the trace is
 * "TASK-PID [CPU] FLAGS TICKS: EVENT: ..."; a CPU holds one of these locks at a time.
 */
static long read_holds(double *holds)
{
	unsigned long long since[MOST_CPUS] = { 0 }, ticks;
	char *line = NULL, *at, event[32];
	FILE *f = fopen(TRACING "trace", "r");
	unsigned int cpu;
	size_t size = 0;
	long nr = 0;

	if (!f)
		die(TRACING "trace");
	while (getline(&line, &size, f) > 0 && nr < MOST_HOLDS) {
		at = strstr(line, " [");
		if (line[0] == '#' || !at ||
		    sscanf(at, " [%u] %*s %llu: %31[a-z_]:", &cpu, &ticks, event) != 3 ||
		    cpu >= MOST_CPUS)
			continue;
		if (!strcmp(event, "lock_acquire"))
			since[cpu] = ticks;
		else if (since[cpu])
			holds[nr++] = ticks - since[cpu];
		if (strcmp(event, "lock_acquire"))
			since[cpu] = 0;
	}
	free(line);
	fclose(f);
	return nr;
}

static int locks(long mb)
{
	double *holds = malloc(MOST_HOLDS * sizeof(*holds)), sum = 0;
	long nr, pages;

	if (!holds)
		die("malloc");
	if (access(TRACING "events/lock/lock_release", F_OK)) {
		fprintf(stderr, "# this kernel has no lock events: no row for zone->lock\n");
		return 0;
	}
	refill_at_once();
	wait_for_kscrubd();
	pages = counter("scrubbed_pages");
	trace_set("trace_clock", "x86-tsc");
	trace_set("buffer_size_kb", "131072");
	trace_set("trace", "");
	trace_locks(1);
	for (int i = 0; i < 4; i++) {
		use_memory(mb, i % 2);
		/* kscrubd works while nobody runs, and meets the next process. */
		usleep(300000);
	}
	trace_locks(0);
	pages = counter("scrubbed_pages") - pages;
	nr = read_holds(holds);
	if (!nr || (is_on() && !pages)) {
		fprintf(stderr, "nothing was traced, or kscrubd did nothing\n");
		return 1;
	}
	for (long i = 0; i < nr; i++)
		sum += holds[i];
	qsort(holds, nr, sizeof(*holds), by_value);
	row("lock=zone MB=%ld | scrubbed_MB=%.0f holds=%ld held_ticks=%.0f p99_ticks=%.0f worst_ticks=%.0f",
	    mb, pages * (double)PAGE / (1 << 20), nr, sum, holds[nr * 99 / 100], holds[nr - 1]);
	free(holds);
	return 0;
}

int main(int argc, char **argv)
{
	long value = number(argc, argv, 2, 10);

	if (argc > 1 && !strcmp(argv[1], "fill"))
		return fill(value);
	if (argc > 1 && !strcmp(argv[1], "idle"))
		return idle(value);
	if (argc > 1 && !strcmp(argv[1], "locks"))
		return locks(value);
	fprintf(stderr, "usage: kscrubd_cost fill MB | idle SECONDS | locks MB\n");
	return 2;
}
