// SPDX-License-Identifier: GPL-2.0
/*
 * What happens to shared page tables without a system call on them: processes that end in any
 * order, the OOM killer, bad memory, failing allocations, MMU notifiers, monitors, and the
 * worker that unshares tables in advance.
 */
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <linux/userfaultfd.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "harness.h"
#include "compat.h"
#include "fork_test.h"
#include "pagemap.h"

#define TABLES 4
#define PAGES (TABLES * SLOTS)
#define LEN (TABLES * TABLE)
#define KNOB FOLDER "background_tables_per_s"
#define TRACING "/sys/kernel/tracing/"

static void survive(int sig)
{
}

static long serve(char command, void *arg)
{
	char *area = arg;
	int fd;

	switch (command) {
	case 'r':
		return wrong(area, PAGES, 7);
	case 'W':
		fill(area, PAGES, 3);
		return wrong(area, PAGES, 3);
	case 's':
		return shared_tables(getpid());
	case 'n':
		fd = open("/sys/kernel/debug/quire/mmu_notifier", O_RDONLY);
		return fd < 0 ? -errno : fd;
	case 'p':
		/*
		 * Without a handler, a process that runs is killed when it is told of bad
		 * memory.
		 */
		signal(SIGBUS, survive);
		return madvise(area + TABLE + 5 * PAGE, PAGE, 100 /* MADV_HWPOISON */);
	case 'o':
		return madvise(area + TABLE + 5 * PAGE, PAGE, MADV_SOFT_OFFLINE);
	}
	return -1;
}

/* Waits until a value is reached; returns false after minutes. */
static bool wait_for(long (*value)(void *), void *arg, long want)
{
	int i;

	for (i = 0; i < 60000; i++) {
		if (value(arg) == want)
			return true;
		usleep(5000);
	}
	return false;
}

static long its_tables(void *arg)
{
	return shared_tables(*(pid_t *)arg);
}

FIXTURE(fork_life) {
	char *area;
	struct helper child;
};

FIXTURE_SETUP(fork_life)
{
	NEED_FORK_FEATURE();
	self->area = map_tables(TABLES);
	ASSERT_NE(NULL, self->area);
	fill(self->area, PAGES, 7);
	ASSERT_EQ(0, start_helper(&self->child, serve, self->area));
	ASSERT_LE(TABLES, shared_tables(getpid()));
}

FIXTURE_TEARDOWN(fork_life)
{
	write_word(KNOB, "0");
	write_word(NUMA, "0");
	EXPECT_EQ(0, stop_helper(&self->child));
	EXPECT_TRUE(tables_consistent());
}

/*
 * Three processes beside the parent end in every order, after one of them has written; the
 * others' data does not change.
 */
TEST_SLOW(fork_life, ends_in_any_order)
{
	static const int orders[6][3] = {
		{ 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 },
	};
	struct helper h[3];
	int o, i;

	for (o = 0; o < 6; o++) {
		for (i = 0; i < 3; i++)
			ASSERT_EQ(0, start_helper(&h[i], serve, self->area));
		/*
		 * One of the three, a different one each time, first writes and so gets tables
		 * of its own.
		 */
		EXPECT_EQ(0, ask(&h[o % 3], 'W'));
		for (i = 0; i < 3; i++) {
			/*
			 * The other helpers hold copies of the pipe's write end, so 'q' must
			 * end this one.
			 */
			EXPECT_EQ(1, write(h[orders[o][i]].to, "q", 1));
			EXPECT_EQ(0, stop_helper(&h[orders[o][i]]));
			if (i < 2 && orders[o][i + 1] != o % 3)
				EXPECT_EQ(0, ask(&h[orders[o][i + 1]], 'r'));
		}
		EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	}
	EXPECT_EQ(0, ask(&self->child, 'r'));
}

TEST_SLOW(fork_life, killed_and_reaped)
{
	int i, status;

	for (i = 0; i < 5; i++) {
		struct helper victim;
		int pidfd, ret;

		ASSERT_EQ(0, start_helper(&victim, serve, self->area));
		EXPECT_EQ(0, ask(&victim, i & 1 ? 'W' : 'r'));
		pidfd = syscall(SYS_pidfd_open, victim.pid, 0);
		ASSERT_LE(0, pidfd);
		ASSERT_EQ(0, kill(victim.pid, SIGKILL));
		ret = syscall(448 /* process_mrelease */, pidfd, 0);
		EXPECT_TRUE(!ret || errno == ESRCH || errno == EINTR || errno == EAGAIN);
		ASSERT_EQ(victim.pid, waitpid(victim.pid, &status, 0));
		close(victim.to);
		close(victim.from);
		close(pidfd);
		EXPECT_EQ(0, wrong(self->area, PAGES, 7));
		EXPECT_TRUE(tables_consistent());
	}
	EXPECT_EQ(0, ask(&self->child, 'r'));
}

static long oom_score(pid_t pid)
{
	char path[64];
	long score = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/oom_score", pid);
	f = fopen(path, "r");
	if (!f)
		return -1;
	if (fscanf(f, "%ld", &score) != 1)
		score = -1;
	fclose(f);
	return score;
}

#define HEIR_TABLES 96
#define MOST_HEIRS 4

/* More upper tables than the kernel looks at for the OOM killer. Returns false on failure. */
static bool become_sparse(void)
{
	const size_t len = 1100ul << 30, step = 1ul << 30;
	volatile char *area = mmap(NULL, len, PROT_READ,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (area == MAP_FAILED)
		return false;
	for (size_t at = 0; at < len; at += step)
		(void)area[at];
	return true;
}

/*
 * Forks an owner that fills the tables, forks @heirs children that all share them, and ends.
 * The first @sparse children have many other tables. Returns false on failure.
 */
static bool start_heirs(pid_t *heir, int heirs, int sparse, int *down)
{
	int up[2], status;
	pid_t pid;
	char byte;

	if (pipe(up) || pipe(down))
		return false;
	pid = fork();
	if (!pid) {
		char *big = map_tables(HEIR_TABLES);

		close(down[1]);
		fill(big, HEIR_TABLES * SLOTS, 1);
		for (int i = 0; i < heirs; i++) {
			pid = fork();
			if (pid < 0)
				_exit(1);
			if (pid)
				continue;
			pid = getpid();
			if (i < sparse && !become_sparse())
				pid = -1;
			if (write(up[1], &pid, sizeof(pid)) != sizeof(pid) ||
			    read(down[0], &byte, 1) != 1)
				_exit(1);
			_exit(!!wrong(big, HEIR_TABLES * SLOTS, 1));
		}
		_exit(0);
	}
	close(down[0]);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		return false;
	for (int i = 0; i < heirs; i++)
		if (read(up[0], &heir[i], sizeof(*heir)) != sizeof(*heir) || heir[i] < 0)
			return false;
	close(up[0]);
	close(up[1]);
	return true;
}

/* Lets them look at the memory, and end. Returns whether it is right. */
static bool end_heirs(const pid_t *heir, int heirs, const int *down)
{
	bool right = write(down[1], "xxxx", heirs) == heirs;
	int status;

	close(down[1]);
	for (int i = 0; i < heirs; i++)
		right &= waitpid(heir[i], &status, 0) == heir[i] && !status;
	return right;
}

/*
 * A process that inherits all memory of an ended process is a candidate for the OOM killer,
 * although it is not charged for that memory. Several heirs together have about as many points
 * as a single one.
 */
TEST_SLOW(fork_life, heirs_are_seen_by_oom_killer)
{
	long own = oom_score(getpid()), one = 0;

	ASSERT_EQ(0, prctl(PR_SET_CHILD_SUBREAPER, 1));
	for (int heirs = 1; heirs <= MOST_HEIRS; heirs *= 4) {
		pid_t heir[MOST_HEIRS];
		long points = 0;
		int down[2];

		ASSERT_TRUE(start_heirs(heir, heirs, 0, down));
		for (int i = 0; i < heirs; i++) {
			EXPECT_LT(proc_sum(heir[i], "status", "RssAnon"),
				  (long)(HEIR_TABLES * TABLE / 1024 / 4));
			points += oom_score(heir[i]) - own;
		}
		if (heirs == 1)
			one = points;
		EXPECT_LT(5 * heirs, points);
		EXPECT_LT(points, one * 5 / 4 + heirs);
		EXPECT_TRUE(end_heirs(heir, heirs, down));
	}
}

/* Tables are not searched without end: who has very many counts as the only heir. */
TEST_SLOW(fork_life, sparse_heir)
{
	long own = oom_score(getpid()), sparse, dense;
	pid_t heir[MOST_HEIRS];
	int down[2];

	ASSERT_EQ(0, prctl(PR_SET_CHILD_SUBREAPER, 1));
	ASSERT_TRUE(start_heirs(heir, MOST_HEIRS, 1, down));
	/* They start in any order: the one with the most points is the sparse one. */
	sparse = 0;
	dense = LONG_MAX;
	for (int i = 0; i < MOST_HEIRS; i++) {
		long points = oom_score(heir[i]) - own;

		sparse = points > sparse ? points : sparse;
		dense = points < dense ? points : dense;
	}
	EXPECT_GT(sparse, 2 * dense + 5);
	EXPECT_TRUE(end_heirs(heir, MOST_HEIRS, down));
}

static sigjmp_buf after_bus;

static void bus(int sig)
{
	siglongjmp(after_bus, 1);
}

static bool is_bad(char *page)
{
	if (sigsetjmp(after_bus, 1))
		return true;
	(void)*(volatile char *)page;
	return false;
}

/* A page that goes bad is bad for all processes, and no other page is bad. */
TEST_SLOW(fork_life, bad_memory)
{
	char *page = self->area + TABLE + 5 * PAGE;
	struct sigaction action = { .sa_handler = bus };
	unsigned long i, bad = 0;

	sigaction(SIGBUS, &action, NULL);
	if (ask(&self->child, 'p'))
		SKIP(return, "no MADV_HWPOISON");
	EXPECT_TRUE(is_bad(page));
	for (i = 0; i < PAGES; i++)
		if (self->area + i * PAGE != page)
			bad += *(uint64_t *)(self->area + i * PAGE) != word_for(i, 7);
	EXPECT_EQ(0, bad);
	EXPECT_TRUE(tables_consistent());
	EXPECT_FALSE(is_bad(page - PAGE));
	*(uint64_t *)(page - PAGE) = 1;
	EXPECT_TRUE(is_bad(page));
}

/* A page that may go bad is moved in place, for both processes, and the table stays shared. */
TEST_SLOW(fork_life, page_goes_offline)
{
	char *page = self->area + TABLE + 5 * PAGE;
	uint64_t was = pagemap_entry(page);

	if (ask(&self->child, 'o'))
		SKIP(return, "no MADV_SOFT_OFFLINE");
	EXPECT_NE(was, pagemap_entry(page));
	EXPECT_LE(TABLES, shared_tables(getpid()));
	EXPECT_LE(TABLES, ask(&self->child, 's'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
}

/*
 * Registering a notifier unshares the process's tables; from then on, the process does not
 * share.
 */
TEST_SLOW(fork_life, mmu_notifier)
{
	struct helper other;

	if (ask(&self->child, 'n') < 0)
		SKIP(return, "no MMU notifiers");
	EXPECT_EQ(0, ask(&self->child, 's'));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	ASSERT_EQ(0, start_helper(&other, serve, self->area));
	EXPECT_LE(TABLES, ask(&other, 's'));
	EXPECT_LE(0, ask(&other, 'n'));
	EXPECT_EQ(0, ask(&other, 's'));
	EXPECT_EQ(0, ask(&other, 'W'));
	EXPECT_EQ(1, write(other.to, "q", 1));
	EXPECT_EQ(0, stop_helper(&other));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
}

/* The same if the owner of tables that others use registers the notifier. */
TEST_SLOW(fork_life, mmu_notifier_of_owner)
{
	long refused = fork_stat("refused_notifier");
	struct helper other;
	int fd = serve('n', self->area);

	if (fd < 0)
		SKIP(return, "no MMU notifiers");
	EXPECT_EQ(0, shared_tables(getpid()));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_TRUE(tables_consistent());
	fill(self->area, PAGES, 5);
	EXPECT_EQ(0, ask(&self->child, 'r'));
	ASSERT_EQ(0, start_helper(&other, serve, self->area));
	EXPECT_LE(refused + TABLES, fork_stat("refused_notifier"));
	EXPECT_EQ(0, ask(&other, 's'));
	EXPECT_EQ(0, ask(&other, 'W'));
	close(fd);
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 5));
	/*
	 * This helper holds a copy of the write end of the other child's pipe, so it must end
	 * first.
	 */
	EXPECT_EQ(1, write(other.to, "q", 1));
	EXPECT_EQ(0, stop_helper(&other));
}

static void *idle(void *arg)
{
	pause();
	return NULL;
}

/* NUMA hinting skips shared tables, and tables that already have hints are shared. */
TEST_SLOW(fork_life, numa_hints)
{
	struct helper other;
	pthread_t thread;
	long hints;

	if (!numa_start())
		SKIP(return, "no NUMA balancing");
	/* In a process with a single thread, only pages on another node get hints. */
	ASSERT_EQ(0, pthread_create(&thread, NULL, idle, NULL));
	EXPECT_TRUE(spin_until(numa_scans_of, NULL, numa_scans() + 3, self->area, PAGES));
	EXPECT_LE(TABLES, shared_tables(getpid()));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	fill(self->area, PAGES, 5);
	hints = vm_event("numa_pte_updates");
	EXPECT_TRUE(spin_until(vm_event, "numa_pte_updates", hints + (long)(PAGES / 2), NULL, 0));
	ASSERT_EQ(0, start_helper(&other, serve, self->area));
	EXPECT_LE(TABLES, ask(&other, 's'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 5));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, ask(&other, 'W'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 5));
	write_word(NUMA, "0");
	EXPECT_EQ(0, ask(&self->child, 'r'));
	fill(self->area, PAGES, 7);
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_EQ(1, write(other.to, "q", 1));
	EXPECT_EQ(0, stop_helper(&other));
}

/* A profiler asks for the page size at each fault, with interrupts off. */
TEST_SLOW(fork_life, perf_samples)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE, .size = sizeof(attr),
		.config = PERF_COUNT_SW_PAGE_FAULTS, .sample_period = 1,
		.sample_type = PERF_SAMPLE_ADDR | PERF_SAMPLE_DATA_PAGE_SIZE,
		.exclude_kernel = 1, .wakeup_events = 1,
	};
	int fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
	struct perf_event_mmap_page *ring;

	if (fd < 0)
		SKIP(return, "no perf events");
	ring = mmap(NULL, 9 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ASSERT_NE(MAP_FAILED, (void *)ring);
	*(volatile uint64_t *)(self->area + TABLE) = word_for(SLOTS, 7);
	EXPECT_LT(0, ring->data_head);
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	close(fd);
}

/* DAMON reads a process's accessed bits in the tables that the process shares. */
TEST_SLOW(fork_life, damon)
{
	long walks = fork_stat("unshared_walk"), tables = shared_tables(self->child.pid);

	if (access(DAMON, F_OK))
		SKIP(return, "no DAMON");
	ASSERT_EQ(0, wrong(self->area, PAGES, 7));
	ASSERT_FALSE(any_idle(self->area, PAGES));
	ASSERT_TRUE(damon_start(self->child.pid));
	EXPECT_TRUE(damon_looks(self->area, PAGES));
	ASSERT_EQ(0, damon_stop());
	EXPECT_EQ(walks, fork_stat("unshared_walk"));
	EXPECT_EQ(tables, shared_tables(self->child.pid));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_EQ(0, ask(&self->child, 'r'));
}

/*
 * Counts the pages of the area that are in the categories @need; also write-protects them if
 * @flags say so.
 */
static long scan(char *area, uint64_t need, uint64_t flags)
{
	int fd = open("/proc/self/pagemap", O_RDONLY), i, regions;
	struct page_region found[64];
	struct pm_scan_arg arg = {
		.size = sizeof(arg), .flags = flags,
		.start = (uintptr_t)area, .end = (uintptr_t)area + LEN,
		.vec = (uintptr_t)found, .vec_len = 64,
		.category_mask = need, .return_mask = need,
	};
	long pages = 0;

	regions = ioctl(fd, PAGEMAP_SCAN, &arg);
	close(fd);
	if (regions < 0)
		return -errno;
	for (i = 0; i < regions; i++)
		pages += (found[i].end - found[i].start) / PAGE;
	return pages;
}

TEST_SLOW(fork_life, pagemap_scan)
{
	uint64_t protect = PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC;
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_WP_ASYNC };
	struct uffdio_register reg = { .range = { (uintptr_t)self->area, LEN },
				       .mode = UFFDIO_REGISTER_MODE_WP };
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1);

	EXPECT_EQ(PAGES, scan(self->area, PAGE_IS_PRESENT, 0));
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api))
		SKIP(return, "no asynchronous write protection");
	ASSERT_EQ(0, ioctl(fd, UFFDIO_REGISTER, &reg));
	EXPECT_EQ(PAGES, scan(self->area, PAGE_IS_WRITTEN, protect));
	EXPECT_EQ(0, scan(self->area, PAGE_IS_WRITTEN, 0));
	*(volatile uint64_t *)(self->area + TABLE + 8 * PAGE) = word_for(SLOTS + 8, 7);
	*(volatile uint64_t *)(self->area + 3 * TABLE) = word_for(3 * SLOTS, 7);
	EXPECT_EQ(2, scan(self->area, PAGE_IS_WRITTEN, protect));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, scan(self->area, PAGE_IS_WRITTEN, 0));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	close(fd);
}

static long finished(void *arg)
{
	return fork_stat("background_done") > *(long *)arg;
}

/* The worker gives the child its own tables; the parent's writes then copy none. */
TEST_SLOW(fork_life, background)
{
	long copied, adopted, done = fork_stat("background_done");
	struct helper other;

	if (write_word(KNOB, "1048576"))
		SKIP(return, "no such policy");
	EXPECT_EQ(-EINVAL, write_word(KNOB, "1048577"));
	/* The fixture's child, which was forked earlier, still shares the tables. */
	EXPECT_EQ(0, ask(&self->child, 'W'));
	ASSERT_EQ(0, start_helper(&other, serve, self->area));
	/*
	 * The checker below also adopts tables: a walk that reads adopts tables that no other
	 * process uses.
	 */
	adopted = fork_stat("tables_adopted");
	EXPECT_TRUE(wait_for(its_tables, &other.pid, 0));
	EXPECT_TRUE(wait_for(finished, &done, 1));
	EXPECT_TRUE(tables_consistent());
	copied = fork_stat("tables_copied");
	fill(self->area, PAGES, 5);
	EXPECT_EQ(copied, fork_stat("tables_copied"));
	EXPECT_LE(adopted + TABLES, fork_stat("tables_adopted"));
	EXPECT_EQ(0, ask(&other, 'r'));
	EXPECT_EQ(1, write(other.to, "q", 1));
	EXPECT_EQ(0, stop_helper(&other));
	EXPECT_EQ(0, wrong(self->area, PAGES, 5));
}

static long given_up(void *arg)
{
	return fork_stat("background_exited") > *(long *)arg;
}

/* The worker gives up a child that ends, and all children when the policy is switched off. */
TEST_SLOW(fork_life, background_gives_up)
{
	long exited = fork_stat("background_exited");
	struct helper other;
	int i, status;

	if (write_word(KNOB, "1"))
		SKIP(return, "no such policy");
	for (i = 0; i < 5; i++) {
		pid_t pid = fork();

		ASSERT_LE(0, pid);
		if (!pid)
			_exit(0);
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
	}
	/* All of them, so that none is left for the next case. */
	exited += 4;
	EXPECT_TRUE(wait_for(given_up, &exited, 1));
	exited = fork_stat("background_exited");
	ASSERT_EQ(0, start_helper(&other, serve, self->area));
	ASSERT_EQ(0, write_word(KNOB, "0"));
	EXPECT_TRUE(wait_for(given_up, &exited, 1));
	EXPECT_EQ(0, ask(&other, 'r'));
	EXPECT_EQ(1, write(other.to, "q", 1));
	EXPECT_EQ(0, stop_helper(&other));
}

/* How many children the worker is done with. */
static long dealt_with(void)
{
	return fork_stat("background_done") + fork_stat("background_exited") +
		fork_stat("background_no_memory");
}

static long enough(void *arg)
{
	return dealt_with() >= *(long *)arg;
}

#define ROUNDS 20

/* Forks children that end at once. */
static long fork_rounds(char command, void *arg)
{
	int i, status;

	for (i = 0; i < ROUNDS; i++) {
		pid_t pid = fork();

		if (!pid)
			_exit(0);
		if (pid < 0 || waitpid(pid, &status, 0) != pid)
			return -1;
	}
	return 0;
}

/* Two processes fork at once: the worker has each child once, not once for each table. */
TEST_SLOW(fork_life, background_has_a_child_once)
{
	char *area = map_tables(SLOTS / 4);
	struct helper parents[2], last;
	long children;
	unsigned int i;

	if (write_word(KNOB, "0"))
		SKIP(return, "no such policy");
	ASSERT_NE(NULL, area);
	for (i = 0; i < SLOTS / 4; i++)
		area[i * TABLE] = 1;
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, start_helper(&parents[i], fork_rounds, NULL));
	/* With the last one, below. */
	children = dealt_with() + 2 * ROUNDS + 1;
	ASSERT_EQ(0, write_word(KNOB, "1048576"));
	for (i = 0; i < 2; i++)
		EXPECT_TRUE(tell(&parents[i], 'f'));
	for (i = 0; i < 2; i++)
		EXPECT_EQ(0, its_answer(&parents[i]));
	/* The worker begins with the oldest. */
	ASSERT_EQ(0, start_helper(&last, serve, self->area));
	EXPECT_TRUE(wait_for(its_tables, &last.pid, 0));
	EXPECT_TRUE(wait_for(enough, &children, 1));
	EXPECT_EQ(children, dealt_with());
	EXPECT_EQ(0, finish(&last));
	for (i = 0; i < 2; i++)
		EXPECT_EQ(0, finish(&parents[i]));
}

/*
 * Allocations fail in fork and when tables are copied: this may delay a process but does no
 * other harm.
 */
TEST_SLOW(fork_life, allocations_fail)
{
	int i, forks = 0;

	if (inject("fail_page_alloc", "7") || inject("failslab", "2"))
		SKIP(return, "no fault injection");
	ASSERT_EQ(0, write_word("/proc/self/make-it-fail", "1"));
	/* Some forks must succeed, however many allocations fail. */
	for (i = 0; i < 40 || (!forks && i < 4000); i++) {
		pid_t pid = fork();

		if (pid < 0)
			continue;
		if (!pid) {
			unsigned long p;

			for (p = i % 97; p < PAGES; p += 97)
				*(uint64_t *)(self->area + p * PAGE) = p;
			madvise(self->area + TABLE / 2, TABLE, MADV_DONTNEED);
			for (p = i % 97; p < SLOTS / 2; p += 97)
				if (*(uint64_t *)(self->area + p * PAGE) != p)
					_exit(1);
			_exit(0);
		}
		forks++;
		EXPECT_EQ(0, wait_under_injection(pid));
	}
	inject_nothing();
	EXPECT_LT(0, forks);
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_EQ(0, ask(&self->child, 'r'));
}

static int stay(void *unused)
{
	for (;;)
		pause();
	return 0;
}

static void *stay_thread(void *unused)
{
	stay(NULL);
	return NULL;
}

/*
 * Starts a process whose first thread exits and leaves other threads running, and a second
 * process that uses the first one's memory. Returns the first process's pid when all are
 * running, and the second one's in @other.
 */
static pid_t start_crowd(pid_t *other)
{
	static char stack[65536] __attribute__((aligned(16)));
	pthread_t thread;
	int said[2], i;
	pid_t pid;

	if (pipe(said))
		return -1;
	pid = fork();
	if (pid) {
		close(said[1]);
		i = pid > 0 && read(said[0], other, sizeof(*other)) == (ssize_t)sizeof(*other);
		close(said[0]);
		return i ? pid : -1;
	}
	for (i = 0; i < 5; i++)
		if (pthread_create(&thread, NULL, stay_thread, NULL))
			_exit(1);
	pid = clone(stay, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL);
	if (write(said[1], &pid, sizeof(pid)) != (ssize_t)sizeof(pid))
		_exit(1);
	syscall(SYS_exit, 0);
	return -1;
}

/* Counts how often a walk over all address spaces visited the one that the two processes use. */
static int visits(pid_t one, pid_t other)
{
	FILE *trace = fopen(TRACING "trace", "r");
	char line[512], *at;
	int nr = 0, pid;

	while (trace && fgets(line, sizeof(line), trace)) {
		at = strstr(line, " mm_visit: ");
		at = at ? strstr(at, "process=") : NULL;
		pid = at ? atoi(at + 8) : 0;
		nr += pid && (pid == one || pid == other);
	}
	if (trace)
		fclose(trace);
	return nr;
}

static long first_thread_is_gone(void *pid)
{
	char path[32], state = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", *(pid_t *)pid);
	f = fopen(path, "r");
	if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	if (f)
		fclose(f);
	return state == 'Z';
}

static long is_gone(void *pid)
{
	return kill(*(pid_t *)pid, 0) && errno == ESRCH;
}

/* The drain finds the memory of such processes, and visits it once per pass. */
TEST_SLOW(fork_life, drain_visits_memory_once)
{
	pid_t other, pid;

	if (access(TRACING "trace", F_OK))
		SKIP(return, "no tracing");
	pid = start_crowd(&other);
	ASSERT_LT(0, pid);
	ASSERT_TRUE(wait_for(first_thread_is_gone, &pid, 1));
	EXPECT_LE(TABLES, shared_tables(other));
	close(open(TRACING "trace", O_WRONLY | O_TRUNC));
	EXPECT_EQ(0, write_word(TRACING "events/quire/mm_visit/enable", "1"));
	EXPECT_EQ(0, write_word(FOLDER "enabled", "2"));
	write_word(TRACING "events/quire/mm_visit/enable", "0");
	EXPECT_EQ(0, shared_tables(other));
	/* As often as the test's own memory: once in each pass of the drain. */
	EXPECT_LT(0, visits(pid, other));
	EXPECT_EQ(visits(getpid(), 0), visits(pid, other));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, write_word(FOLDER "enabled", "1"));
	kill(other, SIGKILL);
	kill(pid, SIGKILL);
	EXPECT_EQ(pid, waitpid(pid, NULL, 0));
	EXPECT_TRUE(wait_for(is_gone, &other, 1));
}

TEST_HARNESS_MAIN
