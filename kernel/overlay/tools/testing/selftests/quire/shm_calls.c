// SPDX-License-Identifier: GPL-2.0
/* System calls, reclaim and migration on memory whose page tables are shared. */
#define _GNU_SOURCE
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "harness.h"
#include "compat.h"
#include "pagemap.h"
#include "shm_test.h"

#define TABLES 4
#define PAGES (TABLES * SLOTS)
#define LEN (TABLES * TABLE)
#define HALF (TABLE / 2)

struct side {
	char *area;
	int fd;
};

/* Pages of a range that are not zero. */
static long nonzero(const char *area, unsigned long first, unsigned long count)
{
	long n = 0;

	for (unsigned long i = first; i < first + count; i++)
		n += *(const uint64_t *)(area + i * PAGE) != 0;
	return n;
}

/*
 * r, W, s as in shm_basic; R: pages that are not rewritten; b: signal of a read in
 * table 2; z: pages 100..199 that are not 0; l: loop
 */
static long serve(char command, void *arg)
{
	struct side *side = arg;
	long bad = 0;

	switch (command) {
	case 'r':
		return wrong(side->area, PAGES, 7);
	case 'R':
		return wrong(side->area, PAGES, 9);
	case 'W':
		fill(side->area, PAGES, 9);
		return 0;
	case 's':
		return file_tables(getpid());
	case 'b':
		return touch_signal(side->area + 2 * TABLE, false);
	case 'z':
		return nonzero(side->area, 100, 100);
	case 'l':
		for (int i = 0; i < 20; i++)
			bad += wrong(side->area, PAGES, 7);
		return bad;
	}
	return -1;
}

FIXTURE(calls) {
	struct side side;
	struct helper child;
	long tables;
	char *area;
};

FIXTURE_SETUP(calls)
{
	NEED_SHM_FEATURE();
	self->tables = shm_number("tables");
	self->side.fd = memfd_create("quire", 0);
	ASSERT_EQ(0, ftruncate(self->side.fd, LEN));
	self->area = self->side.area = map_file(self->side.fd, TABLES, PROT_READ | PROT_WRITE);
	ASSERT_NE(NULL, self->area);
	fill(self->area, PAGES, 7);
	ASSERT_EQ(0, start_helper(&self->child, serve, &self->side));
	ASSERT_EQ(0, ask(&self->child, 'r'));
	ASSERT_EQ(TABLES, file_tables(getpid()));
	ASSERT_EQ(TABLES, ask(&self->child, 's'));
	ASSERT_EQ(self->tables + TABLES, shm_number("tables"));
}

FIXTURE_TEARDOWN(calls)
{
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, stop_helper(&self->child));
	if (self->area)
		munmap(self->area, LEN);
	close(self->side.fd);
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(self->tables, shm_number("tables"));
}

TEST_SLOW(calls, truncate)
{
	ASSERT_EQ(0, ftruncate(self->side.fd, TABLE + 100 * PAGE));
	EXPECT_EQ(SIGBUS, touch_signal(self->area + 2 * TABLE, false));
	EXPECT_EQ(SIGBUS, touch_signal(self->area + TABLE + 100 * PAGE, false));
	EXPECT_EQ(SIGBUS, ask(&self->child, 'b'));
	EXPECT_EQ(0, wrong(self->area, SLOTS + 100, 7));
	EXPECT_TRUE(tables_consistent());
	ASSERT_EQ(0, ftruncate(self->side.fd, LEN));
	EXPECT_EQ(0, ask(&self->child, 'b'));
	EXPECT_EQ(0, nonzero(self->area, SLOTS + 100, PAGES - SLOTS - 100));
	EXPECT_EQ(0, wrong(self->area, SLOTS + 100, 7));
	/* No process had to leave its tables for it. */
	EXPECT_EQ(TABLES, file_tables(getpid()));
}

TEST_SLOW(calls, punch)
{
	long flushes = shm_number("stats/flushes_truncation");

	ASSERT_EQ(0, fallocate(self->side.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			       100 * PAGE, 100 * PAGE));
	EXPECT_EQ(0, ask(&self->child, 'z'));
	EXPECT_EQ(0, nonzero(self->area, 100, 100));
	EXPECT_EQ(0, wrong(self->area, 100, 7));
	EXPECT_EQ(PAGES - 200, nonzero(self->area, 200, PAGES - 200));
	EXPECT_EQ(TABLES, file_tables(getpid()));
	EXPECT_LT(flushes, shm_number("stats/flushes_truncation"));
}

TEST_SLOW(calls, remove)
{
	ASSERT_EQ(0, madvise(self->area + 100 * PAGE, 100 * PAGE, MADV_REMOVE));
	EXPECT_EQ(0, ask(&self->child, 'z'));
	EXPECT_EQ(0, nonzero(self->area, 100, 100));
	EXPECT_EQ(0, wrong(self->area, 100, 7));
}

TEST_SLOW(calls, dontneed)
{
	long flushes = shm_number("stats/flushes_leave");

	ASSERT_EQ(0, madvise(self->area, LEN, MADV_DONTNEED));
	EXPECT_EQ(0, file_tables(getpid()));
	EXPECT_LE(flushes + TABLES, shm_number("stats/flushes_leave"));
	EXPECT_EQ(TABLES, ask(&self->child, 's'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_EQ(TABLES, file_tables(getpid()));
	ASSERT_EQ(0, madvise(self->area + HALF, TABLE, MADV_DONTNEED));
	EXPECT_EQ(TABLES - 2, file_tables(getpid()));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_EQ(0, ask(&self->child, 'r'));
}

TEST_SLOW(calls, mprotect)
{
	ASSERT_EQ(0, mprotect(self->area + HALF, TABLE, PROT_READ));
	EXPECT_EQ(SIGSEGV, touch_signal(self->area + TABLE, true));
	EXPECT_EQ(0, touch_signal(self->area, true));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 9));
	EXPECT_TRUE(tables_consistent());
	ASSERT_EQ(0, mprotect(self->area, LEN, PROT_NONE));
	EXPECT_EQ(SIGSEGV, touch_signal(self->area + 3 * TABLE, false));
	EXPECT_EQ(0, file_tables(getpid()));
	ASSERT_EQ(0, mprotect(self->area, LEN, PROT_READ | PROT_WRITE));
	fill(self->area, PAGES, 7);
	EXPECT_EQ(0, ask(&self->child, 'r'));
}

TEST_SLOW(calls, munmap_part)
{
	ASSERT_EQ(0, munmap(self->area + HALF, TABLE));
	EXPECT_EQ(SIGSEGV, touch_signal(self->area + TABLE, false));
	EXPECT_EQ(0, wrong(self->area, SLOTS / 2, 7));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area, SLOTS / 2, 9));
	EXPECT_EQ(0, touch_signal(self->area + TABLE + HALF, true));
}

TEST_SLOW(calls, mremap)
{
	char *to = mmap(NULL, LEN + TABLE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	to = (char *)(((unsigned long)to + TABLE - 1) & ~(TABLE - 1)) + PAGE;
	self->area = mremap(self->area, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	ASSERT_EQ(to, self->area);
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 9));
	/* A mapping at another offset has tables of its own. */
	EXPECT_TRUE(tables_consistent());
}

TEST_SLOW(calls, mlock)
{
	ASSERT_EQ(0, mlock(self->area + HALF, TABLE));
	EXPECT_EQ(TABLE / 1024, proc_sum(getpid(), "status", "VmLck"));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_EQ(TABLES - 2, file_tables(getpid()));
	EXPECT_EQ(TABLES, ask(&self->child, 's'));
	EXPECT_TRUE(tables_consistent());
	ASSERT_EQ(0, munlock(self->area, LEN));
	EXPECT_EQ(0, proc_sum(getpid(), "status", "VmLck"));
	EXPECT_EQ(0, ask(&self->child, 'r'));
}

/* Locked memory is not shared, whether it is all that is mapped or all that will be. */
TEST_SLOW(calls, mlockall)
{
	char *other;

	ASSERT_EQ(0, mlockall(MCL_CURRENT));
	EXPECT_EQ(0, file_tables(getpid()));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_EQ(0, file_tables(getpid()));
	EXPECT_EQ(TABLES, ask(&self->child, 's'));
	EXPECT_TRUE(tables_consistent());
	ASSERT_EQ(0, mlockall(MCL_FUTURE));
	other = map_file(self->side.fd, TABLES, PROT_READ | PROT_WRITE);
	ASSERT_NE(NULL, other);
	EXPECT_EQ(0, wrong(other, PAGES, 7));
	EXPECT_EQ(0, file_tables(getpid()));
	ASSERT_EQ(0, munlockall());
	munmap(other, LEN);
	/* The area keeps the private tables that it got meanwhile for as long as it is mapped. */
	EXPECT_EQ(0, file_tables(getpid()));
	munmap(self->area, LEN);
	self->area = map_file(self->side.fd, TABLES, PROT_READ | PROT_WRITE);
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_EQ(TABLES, file_tables(getpid()));
	EXPECT_EQ(self->tables + TABLES, shm_number("tables"));
}

struct watcher {
	int fd;
	char *page;
	struct uffdio_range range;
	pthread_t thread;
};

static int watch(struct watcher *w, char *area, size_t len, uint64_t mode)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
	};
	struct uffdio_register reg = {
		.range = { .start = (unsigned long)area, .len = len },
		.mode = mode,
	};

	w->range = reg.range;
	w->fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	return w->fd < 0 ? -1 : ioctl(w->fd, UFFDIO_API, &api) ?:
	       ioctl(w->fd, UFFDIO_REGISTER, &reg);
}

static int unwatch(struct watcher *w)
{
	int ret = ioctl(w->fd, UFFDIO_UNREGISTER, &w->range);

	return close(w->fd) ?: ret;
}

static void *write_page(void *arg)
{
	struct watcher *w = arg;

	*(volatile uint64_t *)w->page = 1;
	return NULL;
}

/*
 * Has a thread write to @page, and sets w->page. Returns the flags of the fault that is
 * reported there.
 */
static int64_t fault_of_write(struct watcher *w, char *page)
{
	struct uffd_msg msg;

	w->page = page;
	if (pthread_create(&w->thread, NULL, write_page, w) ||
	    read(w->fd, &msg, sizeof(msg)) != sizeof(msg) || msg.event != UFFD_EVENT_PAGEFAULT ||
	    (msg.arg.pagefault.address & ~(PAGE - 1)) != (unsigned long)page)
		return -1;
	return msg.arg.pagefault.flags;
}

FIXTURE(uffd) {
	struct side side;
	struct helper child;
	struct watcher watcher;
	long tables;
	char *area;
};

FIXTURE_VARIANT(uffd) {
	uint64_t mode;
};
FIXTURE_VARIANT_ADD(uffd, missing) { .mode = UFFDIO_REGISTER_MODE_MISSING };
FIXTURE_VARIANT_ADD(uffd, minor) { .mode = UFFDIO_REGISTER_MODE_MINOR };
FIXTURE_VARIANT_ADD(uffd, wp) { .mode = UFFDIO_REGISTER_MODE_WP };

FIXTURE_SETUP(uffd)
{
	NEED_SHM_FEATURE();
	self->tables = shm_number("tables");
	self->side.fd = memfd_create("quire", 0);
	ASSERT_EQ(0, ftruncate(self->side.fd, LEN));
	self->area = self->side.area = map_file(self->side.fd, TABLES, PROT_READ | PROT_WRITE);
	ASSERT_NE(NULL, self->area);
	fill(self->area, PAGES, 7);
	ASSERT_EQ(0, start_helper(&self->child, serve, &self->side));
	ASSERT_EQ(0, ask(&self->child, 'r'));
	ASSERT_EQ(TABLES, file_tables(getpid()));
	ASSERT_EQ(TABLES, ask(&self->child, 's'));
}

FIXTURE_TEARDOWN(uffd)
{
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, stop_helper(&self->child));
	munmap(self->area, LEN);
	close(self->side.fd);
	EXPECT_EQ(self->tables, shm_number("tables"));
}

/*
 * Registered memory leaves its tables and does not join again; another mapping in the process
 * may share.
 */
TEST_SLOW(uffd, registered_while_shared)
{
	char *other;

	if (watch(&self->watcher, self->area, LEN, variant->mode))
		SKIP(return, "no userfaultfd");
	EXPECT_EQ(0, file_tables(getpid()));
	other = map_file(self->side.fd, TABLES, PROT_READ | PROT_WRITE);
	EXPECT_EQ(0, wrong(other, PAGES, 7));
	EXPECT_EQ(TABLES, file_tables(getpid()));
	munmap(other, LEN);
	/* All pages are in the page cache; in minor mode, a read would be reported. */
	if (variant->mode != UFFDIO_REGISTER_MODE_MINOR)
		EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_EQ(0, file_tables(getpid()));
	EXPECT_EQ(TABLES, ask(&self->child, 's'));
	EXPECT_TRUE(tables_consistent());
	ASSERT_EQ(0, unwatch(&self->watcher));
	/* Private tables that were made meanwhile stay until the area is unmapped. */
	munmap(self->area, LEN);
	self->area = map_file(self->side.fd, TABLES, PROT_READ | PROT_WRITE);
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_EQ(TABLES, file_tables(getpid()));
	EXPECT_EQ(0, ask(&self->child, 'r'));
}

/*
 * An area that is registered before its first fault shares nothing; only this process gets
 * events.
 */
TEST_SLOW(uffd, registered_before)
{
	struct uffdio_continue go = { .range.len = PAGE };
	struct uffdio_writeprotect wp = { .range.len = PAGE };
	char *page;

	ASSERT_EQ(0, munmap(self->area, LEN));
	self->area = map_file(self->side.fd, TABLES, PROT_READ | PROT_WRITE);
	if (watch(&self->watcher, self->area, LEN, variant->mode))
		SKIP(return, "no userfaultfd");
	page = self->area + TABLE + 7 * PAGE;
	go.range.start = wp.range.start = (unsigned long)page;
	if (variant->mode == UFFDIO_REGISTER_MODE_WP) {
		EXPECT_EQ(0, wrong(self->area, PAGES, 7));
		wp.mode = UFFDIO_WRITEPROTECT_MODE_WP;
		ASSERT_EQ(0, ioctl(self->watcher.fd, UFFDIO_WRITEPROTECT, &wp));
		/* The other process writes to its page, and this one still waits. */
		EXPECT_EQ(0, ask(&self->child, 'W'));
		EXPECT_LT(0, fault_of_write(&self->watcher, page) & UFFD_PAGEFAULT_FLAG_WP);
		EXPECT_EQ(word_for(SLOTS + 7, 9), *(volatile uint64_t *)page);
		wp.mode = 0;
		ASSERT_EQ(0, ioctl(self->watcher.fd, UFFDIO_WRITEPROTECT, &wp));
	} else if (variant->mode == UFFDIO_REGISTER_MODE_MINOR) {
		EXPECT_LT(0, fault_of_write(&self->watcher, page) & UFFD_PAGEFAULT_FLAG_MINOR);
		EXPECT_EQ(0, ask(&self->child, 'W'));
		ASSERT_EQ(0, ioctl(self->watcher.fd, UFFDIO_CONTINUE, &go));
	} else {
		EXPECT_EQ(0, wrong(self->area, PAGES, 7));
		EXPECT_EQ(0, ask(&self->child, 'W'));
		write_page(&(struct watcher){ .page = page });
	}
	if (self->watcher.page)
		ASSERT_EQ(0, pthread_join(self->watcher.thread, NULL));
	EXPECT_EQ(1, *(volatile uint64_t *)page);
	EXPECT_EQ(0, file_tables(getpid()));
	EXPECT_EQ(TABLES, ask(&self->child, 's'));
	EXPECT_EQ(1, ask(&self->child, 'R'));
	ASSERT_EQ(0, unwatch(&self->watcher));
}

TEST_SLOW(calls, soft_dirty)
{
	ASSERT_EQ(0, write_word("/proc/self/clear_refs", "4"));
	EXPECT_EQ(0, file_tables(getpid()));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 9));
}

/* A process with an MMU notifier does not share; the others go on as before. */
TEST_SLOW(calls, mmu_notifier)
{
	int fd = open("/sys/kernel/debug/quire/mmu_notifier", O_RDONLY);

	if (fd < 0)
		SKIP(return, "no MMU notifiers");
	EXPECT_EQ(0, file_tables(getpid()));
	EXPECT_EQ(TABLES, ask(&self->child, 's'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_EQ(0, file_tables(getpid()));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 9));
	EXPECT_TRUE(tables_consistent());
	/* The pages are gone from the private and the shared tables. */
	ASSERT_EQ(0, ftruncate(self->side.fd, 2 * TABLE));
	EXPECT_EQ(SIGBUS, touch_signal(self->area + 2 * TABLE, false));
	EXPECT_EQ(SIGBUS, ask(&self->child, 'b'));
	close(fd);
}

/* DAMON reads the tables as they are. */
TEST_SLOW(calls, damon)
{
	if (access(DAMON, F_OK))
		SKIP(return, "no DAMON");
	ASSERT_EQ(0, wrong(self->area, PAGES, 7));
	ASSERT_FALSE(any_idle(self->area, PAGES));
	ASSERT_TRUE(damon_start(getpid()));
	EXPECT_TRUE(damon_looks(self->area, PAGES));
	ASSERT_EQ(0, damon_stop());
	EXPECT_EQ(TABLES, file_tables(getpid()));
	EXPECT_EQ(TABLES, ask(&self->child, 's'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 9));
}

/* NUMA hinting skips shared tables. */
TEST_SLOW(calls, numa_hints)
{
	if (!numa_start())
		SKIP(return, "no NUMA balancing");
	EXPECT_TRUE(spin_until(numa_scans_of, NULL, numa_scans() + 3, self->area, PAGES));
	write_word(NUMA, "0");
	EXPECT_EQ(TABLES, file_tables(getpid()));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	EXPECT_EQ(0, ask(&self->child, 'r'));
}

/* get_user_pages() of another process's memory, and GUP-fast by way of pipes. */
TEST_SLOW(calls, references)
{
	uint64_t words[4] = { 1, 2, 3, 4 }, got[4] = {};
	off_t at = (off_t)(unsigned long)self->area + TABLE + 64;
	struct iovec there = { self->area + 3 * TABLE, PAGE };
	char path[64];
	int fd, p[2];

	snprintf(path, sizeof(path), "/proc/%d/mem", self->child.pid);
	fd = open(path, O_RDWR);
	ASSERT_LE(0, fd);
	ASSERT_EQ(sizeof(words), pwrite(fd, words, sizeof(words), at));
	EXPECT_EQ(0, memcmp(self->area + TABLE + 64, words, sizeof(words)));
	ASSERT_EQ(sizeof(got), pread(fd, got, sizeof(got), at));
	EXPECT_EQ(0, memcmp(got, words, sizeof(words)));
	close(fd);
	ASSERT_EQ(0, pipe(p));
	ASSERT_EQ(PAGE, vmsplice(p[1], &there, 1, 0));
	/* The page itself is in the pipe, so the other process's write is seen there. */
	EXPECT_EQ(0, ask(&self->child, 'W'));
	ASSERT_EQ(sizeof(got[0]), read(p[0], got, sizeof(got[0])));
	EXPECT_EQ(word_for(3 * SLOTS, 9), got[0]);
	close(p[0]);
	close(p[1]);
	EXPECT_EQ(TABLES, file_tables(getpid()));
}

static void read_all(const char *path)
{
	static char text[65536];
	int fd = open(path, O_RDONLY);

	while (fd >= 0 && read(fd, text, sizeof(text)) > 0)
		;
	close(fd);
}

/* Code that only reads sees what is there and unshares nothing. */
TEST_SLOW(calls, readers)
{
	struct page_region region;
	struct pm_scan_arg scan = {
		.size = sizeof(scan),
		.start = (unsigned long)self->area,
		.end = (unsigned long)self->area + LEN,
		.vec = (unsigned long)&region,
		.vec_len = 1,
		.category_mask = PAGE_IS_PRESENT,
		.return_mask = PAGE_IS_PRESENT,
	};
	int fd = open("/proc/self/pagemap", O_RDONLY);
	uint64_t entry;

	ASSERT_LE(0, fd);
	ASSERT_EQ(1, ioctl(fd, PAGEMAP_SCAN, &scan));
	EXPECT_EQ(scan.start, region.start);
	EXPECT_EQ(scan.end, region.end);
	ASSERT_EQ(sizeof(entry), pread(fd, &entry, sizeof(entry),
				       (unsigned long)self->area / PAGE * sizeof(entry)));
	EXPECT_EQ(1, entry >> 63);
	/* Other processes map the page, too. */
	EXPECT_EQ(0, entry >> 56 & 1);
	close(fd);
	read_all("/proc/self/numa_maps");
	read_all("/proc/self/smaps");
	read_all("/proc/self/smaps_rollup");
	EXPECT_EQ(TABLES, file_tables(getpid()));
	EXPECT_EQ(TABLES, ask(&self->child, 's'));
}

TEST_SLOW(calls, grandchildren)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		pid = fork();
		if (!pid)
			_exit(wrong(self->area, PAGES, 7) || file_tables(getpid()) != TABLES);
		waitpid(pid, &status, 0);
		_exit(status || wrong(self->area, PAGES, 7));
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(0, ask(&self->child, 'r'));
}

TEST_SLOW(calls, exec)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		if (wrong(self->area, PAGES, 7))
			_exit(1);
		execl("/bin/true", "true", NULL);
		_exit(2);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(0, ask(&self->child, 'r'));
}

#define GROUP "/sys/fs/cgroup/quire_shm_calls"

TEST_SLOW(calls, swap)
{
	struct side side = { .fd = memfd_create("swapped", 0) };
	struct helper child;

	ASSERT_EQ(0, make_swap());
	write_word("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	mkdir(GROUP, 0755);
	ASSERT_EQ(0, write_word(GROUP "/cgroup.procs", "0"));
	ASSERT_EQ(0, ftruncate(side.fd, LEN));
	side.area = map_file(side.fd, TABLES, PROT_READ | PROT_WRITE);
	fill(side.area, PAGES, 7);
	ASSERT_EQ(0, start_helper(&child, serve, &side));
	EXPECT_EQ(0, ask(&child, 'r'));
	for (int round = 0; round < 2; round++) {
		EXPECT_TRUE(push_out(GROUP "/memory.reclaim", side.area, PAGES, PAGES / 4));
		EXPECT_TRUE(tables_consistent());
		EXPECT_EQ(0, ask(&child, 'r'));
		EXPECT_EQ(0, wrong(side.area, PAGES, 7));
	}
	/* A page that one process swaps in is in for all of them. */
	EXPECT_EQ(TABLES, ask(&child, 's'));
	EXPECT_TRUE(push_out(GROUP "/memory.reclaim", side.area, PAGES, PAGES / 4));
	EXPECT_EQ(0, swapoff(SWAP));
	EXPECT_EQ(0, wrong(side.area, PAGES, 7));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, stop_helper(&child));
	munmap(side.area, LEN);
	close(side.fd);
	write_word("/sys/fs/cgroup/cgroup.procs", "0");
	rmdir(GROUP);
	write_word("/sys/block/zram0/reset", "1");
}

/*
 * A segment is shared whether it is locked or not; reclaim leaves it alone or takes it, for
 * all.
 */
TEST_SLOW(calls, shm_lock)
{
	int id = shmget(IPC_PRIVATE, LEN, IPC_CREAT | 0600);
	struct side side = { .area = shmat(id, NULL, 0) };
	struct helper child;

	ASSERT_NE((char *)-1, side.area);
	ASSERT_EQ(0, make_swap());
	write_word("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	mkdir(GROUP, 0755);
	ASSERT_EQ(0, write_word(GROUP "/cgroup.procs", "0"));
	fill(side.area, PAGES, 7);
	ASSERT_EQ(0, start_helper(&child, serve, &side));
	EXPECT_EQ(0, ask(&child, 'r'));
	ASSERT_EQ(0, shmctl(id, SHM_LOCK, NULL));
	for (int i = 0; i < 5; i++)
		write_word(GROUP "/memory.reclaim", "8M");
	EXPECT_EQ((long)PAGES, resident(side.area, PAGES));
	EXPECT_EQ(2 * TABLES, file_tables(getpid()));
	EXPECT_EQ(0, ask(&child, 'W'));
	EXPECT_EQ(0, wrong(side.area, PAGES, 9));
	ASSERT_EQ(0, shmctl(id, SHM_UNLOCK, NULL));
	EXPECT_TRUE(push_out(GROUP "/memory.reclaim", side.area, PAGES, PAGES / 4));
	EXPECT_EQ(0, wrong(side.area, PAGES, 9));
	EXPECT_EQ(0, ask(&child, 'R'));
	EXPECT_EQ(TABLES, ask(&child, 's'));
	EXPECT_EQ(0, stop_helper(&child));
	EXPECT_EQ(0, shmdt(side.area));
	shmctl(id, IPC_RMID, NULL);
	EXPECT_EQ(0, swapoff(SWAP));
	write_word("/sys/fs/cgroup/cgroup.procs", "0");
	rmdir(GROUP);
	write_word("/sys/block/zram0/reset", "1");
}

/* Reclaim without swap finds nothing to take, but looks at the accessed bits. */
TEST_SLOW(calls, cold)
{
	ASSERT_EQ(0, madvise(self->area, LEN, MADV_COLD));
	ASSERT_EQ(0, madvise(self->area, LEN, MADV_PAGEOUT));
	EXPECT_EQ(TABLES, file_tables(getpid()));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 7));
}

TEST_SLOW(calls, compaction)
{
	char loop = 'l';
	long answer = -1;

	ASSERT_EQ(1, write(self->child.to, &loop, 1));
	for (int i = 0; i < 5; i++) {
		write_word("/proc/sys/vm/compact_memory", "1");
		EXPECT_EQ(0, wrong(self->area, PAGES, 7));
	}
	ASSERT_EQ(sizeof(answer), read(self->child.from, &answer, sizeof(answer)));
	EXPECT_EQ(0, answer);
}

TEST_SLOW(calls, move_pages)
{
	int nodes[64], status[64];
	void *pages[64];

	for (int i = 0; i < 64; i++) {
		pages[i] = self->area + i * 17 * PAGE;
		nodes[i] = 0;
		status[i] = -1;
	}
	/* Asking where the pages are only reads: it leaves no table, and finds all pages. */
	ASSERT_EQ(0, syscall(SYS_move_pages, 0, 64, pages, NULL, status, 0));
	for (int i = 0; i < 64; i++)
		EXPECT_LE(0, status[i]);
	EXPECT_LE(0, syscall(SYS_move_pages, 0, 64, pages, nodes, status, 1 << 2));
	EXPECT_EQ(TABLES, file_tables(getpid()));
	EXPECT_EQ(0, ask(&self->child, 'r'));
}

/* A core has shared memory unless its process asks for less; nobody leaves a table for it. */
TEST_SLOW(calls, core_dump)
{
	pid_t pid;
	int core;

	if (core_to_file())
		SKIP(return, "no core dumps");
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		/* Without a read it would have no table to dump from. */
		if (core_wanted("0x33") || wrong(self->area, PAGES, 7))
			_exit(1);
		abort();
	}
	core = core_of(pid);
	ASSERT_LE(0, core);
	EXPECT_EQ(0, wrong_in_core(core, self->area, 0, PAGES, 7));
	close(core);
	EXPECT_EQ(TABLES, file_tables(getpid()));
	EXPECT_EQ(TABLES, ask(&self->child, 's'));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->area, PAGES, 9));
}

TEST_HARNESS_MAIN
