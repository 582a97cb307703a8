// SPDX-License-Identifier: GPL-2.0
/*
 * Processes that map the same shared memory share its page tables: which kinds of memory, which
 * processes, and the accounts.
 */
#define _GNU_SOURCE
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/shm.h>
#include <sys/stat.h>

#include "harness.h"
#include "shm_test.h"

#define TABLES 4
#define PAGES (TABLES * SLOTS)
#define LEN (TABLES * TABLE)
#define MOUNT "/tmp/quire_shm"

enum kind { ANON, SYSV, POSIX, MEMFD, TMPFS };

struct segment {
	enum kind kind;
	int fd, id;
	char *area;
};

/* Maps the segment anew, as a process that does not descend from ours would. */
static char *attach(struct segment *s)
{
	char *area;

	if (s->kind == SYSV) {
		area = shmat(s->id, NULL, 0);
		return area == (char *)-1 ? NULL : area;
	}
	return map_file(s->fd, TABLES, PROT_READ | PROT_WRITE);
}

/* Maps it as a process that may only read it. */
static char *attach_reader(struct segment *s)
{
	char path[32], *area;
	int fd;

	if (s->kind == SYSV) {
		area = shmat(s->id, NULL, SHM_RDONLY);
		return area == (char *)-1 ? NULL : area;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", s->fd);
	fd = open(path, O_RDONLY);
	area = map_file(fd, TABLES, PROT_READ);
	close(fd);
	return area;
}

static int make(struct segment *s)
{
	s->fd = s->id = -1;
	switch (s->kind) {
	case ANON:
		s->area = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		return s->area == MAP_FAILED ? -1 : 0;
	case SYSV:
		s->id = shmget(IPC_PRIVATE, LEN, IPC_CREAT | 0600);
		break;
	case POSIX:
		mkdir("/dev/shm", 0777);
		mount("tmpfs", "/dev/shm", "tmpfs", 0, NULL);
		s->fd = shm_open("/quire_shm_basic", O_RDWR | O_CREAT, 0600);
		shm_unlink("/quire_shm_basic");
		break;
	case MEMFD:
		s->fd = memfd_create("quire", 0);
		break;
	case TMPFS:
		mkdir(MOUNT, 0755);
		if (mount("tmpfs", MOUNT, "tmpfs", 0, NULL))
			return -1;
		s->fd = open(MOUNT "/file", O_RDWR | O_CREAT, 0600);
		break;
	}
	if (s->kind != SYSV && ftruncate(s->fd, LEN))
		return -1;
	s->area = attach(s);
	return s->area ? 0 : -1;
}

static void destroy(struct segment *s)
{
	if (s->kind == SYSV) {
		shmdt(s->area);
		shmctl(s->id, IPC_RMID, NULL);
	} else {
		munmap(s->area, LEN);
		close(s->fd);
	}
	if (s->kind == TMPFS)
		umount(MOUNT);
}

/*
 * r: read all; f: faults that reading all takes; W: rewrite all; v: verify; s: tables; a:
 * attach anew
 */
static long serve(char command, void *arg)
{
	struct segment *s = arg;
	long before;

	switch (command) {
	case 'r':
		return wrong(s->area, PAGES, 7);
	case 'f':
		before = faults();
		return wrong(s->area, PAGES, 7) ? -1 : faults() - before;
	case 'W':
		fill(s->area, PAGES, 99);
		return 0;
	case 's':
		return file_tables(getpid());
	case 'a':
		s->area = attach(s);
		return s->area != NULL;
	case 'u':
		return setuid(1000);
	}
	return -1;
}

FIXTURE(kinds) {
	struct segment s;
	struct helper child;
	long tables;
};

FIXTURE_VARIANT(kinds) {
	enum kind kind;
};
FIXTURE_VARIANT_ADD(kinds, anonymous) { .kind = ANON };
FIXTURE_VARIANT_ADD(kinds, system_v) { .kind = SYSV };
FIXTURE_VARIANT_ADD(kinds, posix) { .kind = POSIX };
FIXTURE_VARIANT_ADD(kinds, memfd) { .kind = MEMFD };
FIXTURE_VARIANT_ADD(kinds, tmpfs) { .kind = TMPFS };

FIXTURE_SETUP(kinds)
{
	NEED_SHM_FEATURE();
	self->tables = shm_number("tables");
	self->s.kind = variant->kind;
	ASSERT_EQ(0, make(&self->s));
	fill(self->s.area, PAGES, 7);
}

FIXTURE_TEARDOWN(kinds)
{
	destroy(&self->s);
	EXPECT_TRUE(tables_consistent());
	/* No process uses the tables, so nothing is left of them. */
	EXPECT_EQ(self->tables, shm_number("tables"));
}

TEST_SLOW(kinds, shares)
{
	long shmem = proc_sum(getpid(), "status", "RssShmem");

	ASSERT_EQ(0, (unsigned long)self->s.area % TABLE);
	EXPECT_EQ(TABLES, file_tables(getpid()));
	EXPECT_EQ(self->tables + TABLES, shm_number("tables"));
	EXPECT_LE(LEN / 1024, shm_number("mapped_kb"));
	EXPECT_GT(LEN / 1024, shmem);
	ASSERT_EQ(0, start_helper(&self->child, serve, &self->s));
	if (variant->kind != ANON)
		EXPECT_EQ(1, ask(&self->child, 'a'));
	/* The child finds what the parent faulted in: one fault joins the child to a table. */
	EXPECT_GE(TABLES + 2, ask(&self->child, 'f'));
	EXPECT_EQ(TABLES, ask(&self->child, 's'));
	EXPECT_EQ(self->tables + TABLES, shm_number("tables"));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->s.area, PAGES, 99));
	EXPECT_TRUE(tables_consistent());
	/* smaps walks the tables and stays exact. */
	EXPECT_EQ(LEN / 1024, smaps_of(getpid(), self->s.area, "Rss"));
	EXPECT_EQ(0, smaps_of(getpid(), self->s.area, "Private_Dirty"));
	EXPECT_EQ(LEN / 2048, smaps_of(getpid(), self->s.area, "Pss"));
	EXPECT_EQ(0, stop_helper(&self->child));
	EXPECT_EQ(0, wrong(self->s.area, PAGES, 99));
}

TEST_SLOW(kinds, first_leaves_first)
{
	int to[2];
	pid_t pid;
	char c;
	int status;

	ASSERT_EQ(0, pipe(to));
	pid = fork();
	if (!pid) {
		unsigned long bad = wrong(self->s.area, PAGES, 7);

		close(to[1]);
		/* The parent has unmapped its own area when this returns. */
		(void)!read(to[0], &c, 1);
		bad += wrong(self->s.area, PAGES, 7);
		fill(self->s.area, PAGES, 8);
		bad += wrong(self->s.area, PAGES, 8);
		_exit(bad ? 1 : file_tables(getpid()) == TABLES ? 0 : 2);
	}
	while (shm_number("tables") < self->tables + TABLES)
		usleep(1000);
	ASSERT_EQ(0, munmap(self->s.area, LEN));
	close(to[1]);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	close(to[0]);
	if (variant->kind == ANON)
		self->s.area = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
				    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	else
		self->s.area = attach(&self->s);
	ASSERT_NE(NULL, self->s.area);
}

/* Linux clears VM_SHARED in such areas: they share with each other, and stay read-only. */
TEST_SLOW(kinds, readers_share)
{
	char *area, *other;
	int mem;

	/* Anonymous memory has neither a name nor a descriptor. */
	if (variant->kind == ANON)
		return;
	area = attach_reader(&self->s);
	other = attach_reader(&self->s);
	ASSERT_TRUE(area && other);
	EXPECT_EQ(0, wrong(area, PAGES, 7));
	EXPECT_EQ(0, wrong(other, PAGES, 7));
	EXPECT_EQ(3 * TABLES, file_tables(getpid()));
	EXPECT_EQ(self->tables + 2 * TABLES, shm_number("tables"));
	EXPECT_EQ(SIGSEGV, touch_signal(area, true));
	EXPECT_EQ(-1, mprotect(area, LEN, PROT_READ | PROT_WRITE));
	mem = open("/proc/self/mem", O_RDWR);
	EXPECT_EQ(-1, pwrite(mem, "x", 1, (off_t)area));
	close(mem);
	fill(self->s.area, PAGES, 8);
	EXPECT_EQ(0, wrong(other, PAGES, 8));
	/* Half of one mapping goes; the other mapping keeps its tables. */
	EXPECT_EQ(0, munmap(area, LEN / 2));
	EXPECT_EQ(0, mprotect(area + LEN / 2, LEN / 2, PROT_NONE));
	EXPECT_EQ(SIGSEGV, touch_signal(area + LEN / 2, false));
	EXPECT_EQ(2 * TABLES, file_tables(getpid()));
	EXPECT_EQ(0, wrong(other, PAGES, 8));
	EXPECT_TRUE(tables_consistent());
	munmap(area, LEN);
	munmap(other, LEN);
}

FIXTURE(who) {
	struct segment s;
	struct helper child;
	long tables;
};

FIXTURE_SETUP(who)
{
	NEED_SHM_FEATURE();
	self->tables = shm_number("tables");
	self->s.kind = MEMFD;
	ASSERT_EQ(0, make(&self->s));
	fill(self->s.area, PAGES, 7);
}

FIXTURE_TEARDOWN(who)
{
	write_word(SHM_FOLDER "cross_user", "0");
	write_word(SHM_FOLDER "min_tables", "1");
	write_word(SHM_FOLDER "place", "1");
	write_word(SHM_FOLDER "enabled", "1");
	destroy(&self->s);
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(self->tables, shm_number("tables"));
}

TEST_SLOW(who, other_users_do_not)
{
	ASSERT_EQ(0, start_helper(&self->child, serve, &self->s));
	ASSERT_EQ(0, ask(&self->child, 'u'));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(self->tables + 2 * TABLES, shm_number("tables"));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, stop_helper(&self->child));
}

TEST_SLOW(who, other_users_may)
{
	ASSERT_EQ(0, munmap(self->s.area, LEN));
	ASSERT_EQ(0, write_word(SHM_FOLDER "cross_user", "1"));
	self->s.area = attach(&self->s);
	EXPECT_EQ(0, wrong(self->s.area, PAGES, 7));
	ASSERT_EQ(0, start_helper(&self->child, serve, &self->s));
	ASSERT_EQ(0, ask(&self->child, 'u'));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(self->tables + TABLES, shm_number("tables"));
	EXPECT_EQ(0, stop_helper(&self->child));
}

TEST_SLOW(who, read_only_has_its_own)
{
	char *area = map_file(self->s.fd, TABLES, PROT_READ);

	ASSERT_NE(NULL, area);
	EXPECT_EQ(0, wrong(area, PAGES, 7));
	EXPECT_EQ(2 * TABLES, file_tables(getpid()));
	EXPECT_EQ(SIGSEGV, touch_signal(area, true));
	fill(self->s.area, PAGES, 8);
	EXPECT_EQ(0, wrong(area, PAGES, 8));
	EXPECT_TRUE(tables_consistent());
	munmap(area, LEN);
}

TEST_SLOW(who, small_or_unwilling)
{
	char *area;

	ASSERT_EQ(0, write_word(SHM_FOLDER "min_tables", "5"));
	area = map_file(self->s.fd, TABLES, PROT_READ | PROT_WRITE);
	EXPECT_EQ(0, wrong(area, PAGES, 7));
	EXPECT_EQ(TABLES, file_tables(getpid()));
	munmap(area, LEN);
	ASSERT_EQ(0, write_word(SHM_FOLDER "min_tables", "4"));
	ASSERT_EQ(0, write_word("/proc/self/quire", "0"));
	area = map_file(self->s.fd, TABLES, PROT_READ | PROT_WRITE);
	EXPECT_EQ(0, wrong(area, PAGES, 7));
	EXPECT_EQ(TABLES, file_tables(getpid()));
	ASSERT_EQ(0, write_word("/proc/self/quire", "default"));
	munmap(area, LEN);
	/* Only whole tables are shared. */
	area = mmap(NULL, LEN - PAGE, PROT_READ, MAP_SHARED, self->s.fd, 0);
	EXPECT_EQ(0, wrong(area, PAGES - 1, 7));
	EXPECT_EQ(TABLES, file_tables(getpid()));
	munmap(area, LEN - PAGE);
}

TEST_SLOW(who, private_does_not)
{
	char *area = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE, self->s.fd, 0);

	EXPECT_EQ(0, wrong(area, PAGES, 7));
	fill(area, PAGES, 1);
	EXPECT_EQ(0, wrong(self->s.area, PAGES, 7));
	EXPECT_EQ(TABLES, file_tables(getpid()));
	EXPECT_TRUE(tables_consistent());
	munmap(area, LEN);
}

/* Addresses agree with offsets, whatever the setting of huge pages is. */
TEST_SLOW(who, placed)
{
	static const char * const words[] = { "never", "deny" };
	char *odd, *area;
	unsigned int i;

	for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (write_word("/sys/kernel/mm/transparent_hugepage/shmem_enabled", words[i]))
			SKIP(return, "no huge pages");
		/* Too large for the gap that alignment left above the first mapping. */
		odd = mmap(NULL, TABLE + 3 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		area = map_file(self->s.fd, TABLES, PROT_READ | PROT_WRITE);
		EXPECT_EQ(0, (unsigned long)area % TABLE);
		EXPECT_EQ(0, wrong(area, PAGES, 7));
		EXPECT_EQ(2 * TABLES, file_tables(getpid()));
		munmap(area, LEN);
		munmap(odd, TABLE + 3 * PAGE);
	}
	write_word("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "never");
}

/* Without placement, addresses do not agree with offsets, and no tables are shared. */
TEST_SLOW(who, not_placed)
{
	long joined = shm_number("stats/tables_joined");
	char *odd, *area;

	write_word("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "never");
	ASSERT_EQ(0, write_word(SHM_FOLDER "place", "0"));
	odd = mmap(NULL, TABLE + 3 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	area = map_file(self->s.fd, TABLES, PROT_READ | PROT_WRITE);
	ASSERT_NE(0, (unsigned long)area % TABLE);
	EXPECT_EQ(0, wrong(area, PAGES, 7));
	/* This mapping has one whole table less, and shares none with the other. */
	EXPECT_EQ(2 * TABLES - 1, file_tables(getpid()));
	EXPECT_EQ(self->tables + 2 * TABLES - 1, shm_number("tables"));
	EXPECT_EQ(joined, shm_number("stats/tables_joined"));
	fill(area, PAGES, 8);
	EXPECT_EQ(0, wrong(self->s.area, PAGES, 8));
	EXPECT_TRUE(tables_consistent());
	/* A mapping at a requested address that agrees joins the tables that exist. */
	munmap(area, LEN);
	area = (char *)(((unsigned long)odd + TABLE - 1) & ~(TABLE - 1)) - 16 * TABLE;
	area = mmap(area, LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE,
		    self->s.fd, 0);
	ASSERT_NE(MAP_FAILED, (void *)area);
	EXPECT_EQ(0, wrong(area, PAGES, 8));
	EXPECT_EQ(joined + TABLES, shm_number("stats/tables_joined"));
	munmap(area, LEN);
	munmap(odd, TABLE + 3 * PAGE);
}

TEST_SLOW(who, drain)
{
	ASSERT_EQ(0, start_helper(&self->child, serve, &self->s));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	ASSERT_EQ(0, write_word(SHM_FOLDER "enabled", "2"));
	EXPECT_EQ(0, shm_number("tables"));
	EXPECT_EQ(0, shm_number("mapped_kb"));
	EXPECT_EQ(0, file_tables(getpid()));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, wrong(self->s.area, PAGES, 7));
	EXPECT_EQ(0, file_tables(getpid()));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, stop_helper(&self->child));
}

/* With the feature off, no process joins any more, and what is shared stays shared. */
TEST_SLOW(who, off_keeps)
{
	ASSERT_EQ(0, write_word(SHM_FOLDER "enabled", "0"));
	ASSERT_EQ(0, start_helper(&self->child, serve, &self->s));
	EXPECT_EQ(0, ask(&self->child, 'r'));
	EXPECT_EQ(0, ask(&self->child, 's'));
	EXPECT_EQ(TABLES, file_tables(getpid()));
	EXPECT_EQ(0, ask(&self->child, 'W'));
	EXPECT_EQ(0, wrong(self->s.area, PAGES, 99));
	EXPECT_TRUE(tables_consistent());
	EXPECT_EQ(0, stop_helper(&self->child));
}

TEST(knobs)
{
	static const char * const bad[] = { "0", "x", "-1", "" };

	if (shm_number("enabled") != 1)
		SKIP(return, "the shm feature is off");
	for (int i = 0; i < 3; i++)
		EXPECT_EQ(-EINVAL, write_word(SHM_FOLDER "min_tables", bad[i]));
	EXPECT_EQ(-EINVAL, write_word(SHM_FOLDER "cross_user", "2"));
	EXPECT_EQ(-EINVAL, write_word(SHM_FOLDER "place", "2"));
	EXPECT_EQ(0, shm_number("cross_user"));
	EXPECT_EQ(1, shm_number("place"));
}

TEST_HARNESS_MAIN
