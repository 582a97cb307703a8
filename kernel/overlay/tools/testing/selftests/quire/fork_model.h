/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a process of fork_model does to its memory, and what each page must hold then. A step
 * returns 0, or a number that says what went wrong. Include after fork_test.h and compat.h.
 */
#ifndef FORK_MODEL_H
#define FORK_MODEL_H

#include <linux/mempolicy.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define TABLES 6
#define PAGES (TABLES * SLOTS)

/* This program's own file, which is on a filesystem other than tmpfs. */
static int file = -1;
static unsigned long file_pages;

/* Pages that all processes together have taken offline; they are lost until the next boot. */
static unsigned long *offline;
#define MOST_OFFLINE 200

/*
 * If swap is in memory, Linux itself loses pages that a read brought back from swap, if a child
 * frees them lazily after a fork (CAVEATS.md). Then no process frees lazily.
 */
static bool may_free_lazily;

struct model {
	char *area;
	uint64_t word[PAGES];
	uint64_t clean[PAGES];	/* contents if never written to, or discarded */
	bool mapped[PAGES], readonly[PAGES];
	bool given_up[PAGES];	/* may hold zero instead, until it is written to */
	uint64_t random;
};

static uint64_t next(struct model *m)
{
	m->random ^= m->random << 13;
	m->random ^= m->random >> 7;
	m->random ^= m->random << 17;
	return m->random;
}

static bool holds(struct model *m, unsigned long i)
{
	uint64_t word = *(volatile uint64_t *)(m->area + i * PAGE);

	return word == m->word[i] || (m->given_up[i] && word == m->clean[i]);
}

static unsigned long compare(struct model *m)
{
	unsigned long i, bad = 0;

	for (i = 0; i < PAGES; i++)
		bad += m->mapped[i] && !holds(m, i);
	return bad;
}

/* Picks a random range: some pages, or whole tables. */
static void range(struct model *m, unsigned long *first, unsigned long *count)
{
	if (next(m) & 1) {
		*first = next(m) % TABLES * SLOTS;
		*count = (next(m) % 2 + 1) * SLOTS;
	} else {
		*first = next(m) % PAGES;
		*count = next(m) % 40 + 1;
	}
	if (*first + *count > PAGES)
		*count = PAGES - *first;
}

static int map_at(struct model *m, unsigned long first, unsigned long count, bool of_file)
{
	unsigned long i, from = 0;

	if (of_file) {
		count = count < file_pages ? count : file_pages;
		from = next(m) % (file_pages - count + 1);
	}
	if (mmap(m->area + first * PAGE, count * PAGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_FIXED | (of_file ? 0 : MAP_ANONYMOUS), of_file ? file : -1,
		 from * PAGE) == MAP_FAILED)
		return 3;
	for (i = 0; i < count; i++) {
		m->mapped[first + i] = true;
		m->readonly[first + i] = m->given_up[first + i] = false;
		m->clean[first + i] = 0;
		if (of_file && pread(file, &m->clean[first + i], 8, (from + i) * PAGE) != 8)
			return 3;
		m->word[first + i] = m->clean[first + i];
	}
	return 0;
}

static bool all_mapped(struct model *m, unsigned long first, unsigned long count)
{
	for (unsigned long i = first; i < first + count; i++)
		if (!m->mapped[i])
			return false;
	return true;
}

static void note_move(struct model *m, unsigned long from, unsigned long to)
{
	m->mapped[to] = true;
	m->mapped[from] = false;
	m->readonly[to] = m->readonly[from];
	m->given_up[to] = m->given_up[from];
	m->word[to] = m->word[from];
	m->clean[to] = m->clean[from];
}

/* Moves one page, which always lies in one area. */
static int move(struct model *m, unsigned long from, unsigned long to)
{
	if (from == to || !m->mapped[from])
		return 0;
	if (mremap(m->area + from * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		   m->area + to * PAGE) == MAP_FAILED)
		return 6;
	note_move(m, from, to);
	return 0;
}

static bool is_unmapped(struct model *m, unsigned long page)
{
	unsigned char resident;

	return mincore(m->area + page * PAGE, PAGE, &resident) && errno == ENOMEM;
}

/*
 * Moves all that a table maps, or most of it, to the place of another table; the old area may
 * stay.
 */
static int move_table(struct model *m)
{
	unsigned long from = next(m) % TABLES * SLOTS, to = next(m) % TABLES * SLOTS, i;
	unsigned long count = next(m) & 1 ? SLOTS : SLOTS * 2 / 3;
	int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
	bool stays = next(m) % 3 == 0;

	if (from == to || !all_mapped(m, from, count))
		return 0;
	if (stays)
		flags |= MREMAP_DONTUNMAP;
	if (mremap(m->area + from * PAGE, count * PAGE, count * PAGE, flags,
		   m->area + to * PAGE) == MAP_FAILED) {
		/*
		 * The range spans several areas: what was at the destination is gone all the
		 * same.
		 */
		for (i = 0; is_unmapped(m, to) && i < count; i++)
			m->mapped[to + i] = false;
		return 0;
	}
	for (i = 0; i < count; i++) {
		note_move(m, from + i, to + i);
		m->mapped[from + i] = stays;
		m->word[from + i] = m->clean[from + i];
		m->given_up[from + i] = false;
	}
	return 0;
}

/*
 * Moves one page by userfaultfd to the place of another; the page is then missing at its old
 * place.
 */
static int move_by_uffd(struct model *m, unsigned long from, unsigned long to)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_MOVE };
	struct uffdio_register reg = {
		.range = { .start = (unsigned long)m->area + to * PAGE, .len = PAGE },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	struct uffdio_move go = {
		.dst = (unsigned long)m->area + to * PAGE, .len = PAGE,
		.src = (unsigned long)m->area + from * PAGE,
	};
	int fd, ret = 0;

	if (from == to || !m->mapped[from] || m->readonly[from])
		return 0;
	fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api)) {
		close(fd);
		return 0;
	}
	ret = map_at(m, to, 1, false);
	/*
	 * The kernel refuses pages that are merged, pinned, of a file, or also another
	 * process's.
	 */
	if (!ret && !ioctl(fd, UFFDIO_REGISTER, &reg) && !ioctl(fd, UFFDIO_MOVE, &go)) {
		m->word[to] = m->word[from];
		m->given_up[to] = m->given_up[from];
		m->word[from] = m->clean[from];
		m->given_up[from] = false;
	}
	close(fd);
	return ret;
}

/* With @few, pages get one of a few words, so that KSM finds pages that are alike. */
static void write_pages(struct model *m, unsigned long first, unsigned long count, bool few)
{
	for (unsigned long i = first; i < first + count; i++) {
		if (!m->mapped[i] || m->readonly[i])
			continue;
		m->word[i] = few ? next(m) % 3 + 1 : next(m);
		*(uint64_t *)(m->area + i * PAGE) = m->word[i];
		m->given_up[i] = false;
	}
}

static int unmap(struct model *m, unsigned long first, unsigned long count)
{
	if (munmap(m->area + first * PAGE, count * PAGE))
		return 2;
	for (unsigned long i = first; i < first + count; i++)
		m->mapped[i] = false;
	return 0;
}

static int discard(struct model *m, unsigned long first, unsigned long count)
{
	if (!all_mapped(m, first, count))
		return 0;
	if (madvise(m->area + first * PAGE, count * PAGE, MADV_DONTNEED)) {
		/* An area is locked; what lies before it was discarded. */
		for (unsigned long i = first; i < first + count; i++)
			m->given_up[i] = true;
		return errno == EINVAL ? 0 : 4;
	}
	for (unsigned long i = first; i < first + count; i++) {
		m->word[i] = m->clean[i];
		m->given_up[i] = false;
	}
	return 0;
}

/* Makes pages read-only for a while, or writable again. */
static int protect(struct model *m, unsigned long first, unsigned long count, bool readonly)
{
	if (!all_mapped(m, first, count))
		return 0;
	if (mprotect(m->area + first * PAGE, count * PAGE,
		     PROT_READ | (readonly ? 0 : PROT_WRITE)))
		return 5;
	for (unsigned long i = first; i < first + count; i++)
		m->readonly[i] = readonly;
	return 0;
}

/* A page may keep its old contents; a page of a file may become the file's again. */
static void give_up(struct model *m, unsigned long first, unsigned long count)
{
	if (!may_free_lazily || !all_mapped(m, first, count))
		return;
	/* Areas of files refuse the advice, maybe after other areas have taken it. */
	madvise(m->area + first * PAGE, count * PAGE, MADV_FREE);
	for (unsigned long i = first; i < first + count; i++)
		m->given_up[i] = true;
}

static void migrate(struct model *m, unsigned long first, unsigned long count)
{
	int nodes[40], status[40], node = next(m) % 2;
	void *pages[40];

	count = count < 40 ? count : 40;
	for (unsigned long i = 0; i < count; i++) {
		pages[i] = m->area + (first + i) * PAGE;
		nodes[i] = node;
	}
	/* Pages that others map are moved, too. With one node, nothing is moved. */
	syscall(SYS_move_pages, 0, count, pages, nodes, status, MPOL_MF_MOVE_ALL);
}

static void take_offline(struct model *m, unsigned long page)
{
	if (m->mapped[page] && __atomic_fetch_add(offline, 1, __ATOMIC_RELAXED) < MOST_OFFLINE)
		madvise(m->area + page * PAGE, PAGE, MADV_SOFT_OFFLINE);
}

/* A page that a pipe holds keeps its contents. */
static int splice_page(struct model *m, unsigned long page)
{
	struct iovec there = { m->area + page * PAGE, sizeof(uint64_t) };
	uint64_t got;
	int ret = 0, p[2];

	if (!m->mapped[page] || m->given_up[page] || pipe(p))
		return 0;
	if (vmsplice(p[1], &there, 1, 0) == sizeof(got)) {
		madvise(m->area + page / SLOTS * TABLE, TABLE, next(m) & 1 ? MADV_COLD : MADV_PAGEOUT);
		if (read(p[0], &got, sizeof(got)) != sizeof(got) || got != m->word[page])
			ret = 7;
	}
	close(p[0]);
	close(p[1]);
	return ret;
}

/* Locks pages until some step unlocks them; at times, only pages that are touched from now on. */
static void lock(struct model *m, unsigned long first, unsigned long count)
{
	char *at = m->area + first * PAGE;

	if (next(m) & 1)
		munlock(m->area, PAGES * PAGE);
	else
		syscall(SYS_mlock2, at, count * PAGE, next(m) & 1 ? MLOCK_ONFAULT : 0);
}

/* Changes the size of pages: collapses a table, or gives advice about huge pages or merging. */
static void resize(struct model *m, unsigned long first, unsigned long count)
{
	static const int advice[] = {
		MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_MERGEABLE, MADV_UNMERGEABLE,
	};

	if (next(m) & 1)
		madvise(m->area + first / SLOTS * TABLE, TABLE, MADV_COLLAPSE);
	else
		madvise(m->area + first * PAGE, count * PAGE, advice[next(m) % 4]);
}

/* Changes where pages are and what is known of their use, but not what they hold. */
static void disturb(struct model *m, unsigned long first, unsigned long count)
{
	char *at = m->area + first * PAGE;

	switch (next(m) % 8) {
	case 0:
		madvise(at, count * PAGE, MADV_PAGEOUT);
		break;
	case 1:
		madvise(at, count * PAGE, MADV_COLD);
		break;
	case 2:
		write_word("/proc/self/clear_refs", next(m) & 1 ? "1" : "4");
		break;
	case 3:
		take_offline(m, first);
		break;
	case 4:
		lock(m, first, count);
		break;
	case 5:
		resize(m, first, count);
		break;
	case 6:
		madvise(at, count * PAGE, next(m) & 1 ? MADV_POPULATE_READ : MADV_POPULATE_WRITE);
		break;
	default:
		migrate(m, first, count);
	}
}

/* Notes in a child what it does not inherit: nothing is mapped there, or clean pages are. */
static void take_away(struct model *m, unsigned long first, unsigned long count, bool wiped)
{
	for (unsigned long i = first; i < first + count; i++) {
		m->mapped[i] = wiped;
		m->word[i] = m->clean[i];
		m->given_up[i] = false;
	}
}

/* As fork(), but at times the child does not get a range, or gets it wiped. */
static pid_t fork_some(struct model *m)
{
	bool wiped = next(m) & 1;
	int undo = wiped ? MADV_KEEPONFORK : MADV_DOFORK;
	unsigned long first, count;
	bool all = next(m) % 3;
	pid_t pid;
	char *at;

	range(m, &first, &count);
	at = m->area + first * PAGE;
	if (all || !all_mapped(m, first, count))
		return fork();
	/* Areas of files are not wiped. */
	if (madvise(at, count * PAGE, wiped ? MADV_WIPEONFORK : MADV_DONTFORK))
		return madvise(at, count * PAGE, undo) ? -1 : fork();
	pid = fork();
	if (!pid)
		take_away(m, first, count, wiped);
	if ((pid || wiped) && madvise(at, count * PAGE, undo))
		return -1;
	return pid;
}

static int read_pages(struct model *m, unsigned long first, unsigned long count)
{
	for (unsigned long i = first; i < first + count; i++)
		if (m->mapped[i] && !holds(m, i))
			return 1;
	return 0;
}

static int step(struct model *m)
{
	unsigned long first, count;
	int kind = next(m) % 30;

	range(m, &first, &count);
	switch (kind) {
	case 0 ... 7:
		write_pages(m, first, count < 64 ? count : 64, kind == 7);
		return 0;
	case 8 ... 9:
		return read_pages(m, first, count);
	case 10:
		return unmap(m, first, count);
	case 11:
		return map_at(m, first, count, next(m) & 1);
	case 12 ... 13:
		return discard(m, first, count);
	case 14 ... 15:
		return protect(m, first, count, true) ?: protect(m, first, count, false);
	case 16:
		return move(m, first, next(m) % PAGES);
	case 17 ... 18:
		return protect(m, first, count < 8 ? count : 1 + next(m) % 8, true);
	case 19:
		return protect(m, first, count, false);
	case 20:
		give_up(m, first, count);
		return 0;
	case 21:
		return splice_page(m, first);
	case 22:
		return move_by_uffd(m, first, next(m) % PAGES);
	case 23:
		return move_table(m);
	default:
		disturb(m, first, count);
		return 0;
	}
}

#endif /* FORK_MODEL_H */
