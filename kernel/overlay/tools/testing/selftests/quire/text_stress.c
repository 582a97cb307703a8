// SPDX-License-Identifier: GPL-2.0
/*
 * The text feature under everything at once: text_stress [SECONDS [SEED [xfs]]]
 *
 * Programs are run, mapped and compared with what their files must hold, while
 * other processes rewrite pages with their own contents, open files for writing,
 * switch the feature off, on and to draining, drop caches, compact memory, change the
 * knobs, read files in order, in parts, and mount and unmount a second filesystem that
 * programs were just run from. What
 * each process does next is drawn from the seed. The test checks contents, exit
 * codes and the unmounts, so the outcome does not depend on who comes first. The files are
 * on ext4, or on xfs, where writers find huge pages.
 */
#define _GNU_SOURCE
#include <sys/prctl.h>

#include "text_program.h"
#include "kselftest.h"

#define IMAGE	"/tmp/text_stress.img"
#define FOLDER	"/tmp/text_stress"
#define IMAGE2	"/tmp/text_stress_2.img"
#define FOLDER2	"/tmp/text_stress_2"
#define FILES	3

static const struct layout layouts[FILES] = {
	{ .pages = 1540, .offset = PAGE, .fixed = true },
	{ .pages = 1100, .offset = PAGE },
	{ .pages = 1040, .offset = 3 * PAGE, .address = 7 * PAGE },
};
static char names[FILES][64];
static double until;
static unsigned int seed;

static unsigned int draw(unsigned int below)
{
	return rand_r(&seed) % below;
}

static int fail(const char *what, int detail)
{
	fprintf(stderr, "# %s: %d (%s)\n", what, detail, strerror(errno));
	return 1;
}

/* Runs a program from @path for a few rounds, unless a writer prevents it. */
static int run_program(const char *path)
{
	return run_rounds(path, 1 + draw(4)) < 0;
}

static int runner(void)
{
	while (seconds() < until)
		if (run_program(names[draw(FILES)]))
			return 1;
	return 0;
}

/* Map a file as text and compare random pages. */
static int reader(void)
{
	unsigned char page[PAGE];

	while (seconds() < until) {
		int which = draw(FILES), fd = open(names[which], O_RDONLY), i;
		const struct layout *l = &layouts[which];
		size_t len = l->offset + l->pages * PAGE;
		unsigned char *map = mmap(NULL, len, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);

		if (map == MAP_FAILED)
			return fail("mmap", which);
		close(fd);
		for (i = 0; i < 200; i++) {
			unsigned long nr = draw(l->pages);

			text_page(page, nr, l->pages);
			if (memcmp(page, map + l->offset + nr * PAGE, PAGE))
				return fail("contents of page", nr);
		}
		munmap(map, len);
	}
	return 0;
}

/* Drops a file from the page cache, and reads it as a stream, which may stop in the middle. */
static int streamer(void)
{
	static unsigned char buf[16 * PAGE], page[PAGE];

	while (seconds() < until) {
		int which = draw(FILES), fd = open(names[which], O_RDONLY);
		const struct layout *l = &layouts[which];
		unsigned long nr, last = draw(2) ? l->pages / 16 : draw(l->pages / 16);

		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		for (nr = 0; nr < last; nr++) {
			unsigned long i = draw(16);

			if (pread(fd, buf, sizeof(buf), l->offset + nr * sizeof(buf)) < 0)
				return fail("read", which);
			text_page(page, nr * 16 + i, l->pages);
			if (memcmp(page, buf + i * PAGE, PAGE))
				return fail("contents read of page", nr * 16 + i);
		}
		close(fd);
		usleep(draw(50000));
	}
	return 0;
}

/* Rewrites pages with their own contents; ETXTBSY if a program is running. */
static int writer(void)
{
	unsigned char page[PAGE];

	while (seconds() < until) {
		int which = draw(FILES), fd = open(names[which], O_RDWR), i;
		const struct layout *l = &layouts[which];

		if (fd < 0 && errno != ETXTBSY)
			return fail("open for writing", which);
		for (i = draw(20); fd >= 0 && i; i--) {
			unsigned long nr = draw(l->pages);

			text_page(page, nr, l->pages);
			if (write_all(fd, page, PAGE, l->offset + nr * PAGE))
				return fail("write", which);
		}
		if (fd >= 0 && draw(2))
			fsync(fd);
		if (fd >= 0)
			close(fd);
		usleep(draw(100000));
	}
	return 0;
}

static int switcher(void)
{
	static const char * const delays[] = { "0", "1", "20", "100" };
	static const char * const residents[] = { "1", "256", "512" };
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);
	int compact = open("/proc/sys/vm/compact_memory", O_WRONLY);

	while (seconds() < until) {
		int error = 0;

		switch (draw(8)) {
		case 0:
			error = set("enabled", "0");
			break;
		case 1:
			/* EBUSY is allowed: a folio was in use all the time. */
			error = set("enabled", "2");
			error = error == EBUSY ? 0 : error;
			break;
		case 2:
			error = write(fd, "1", 1) == 1 ? 0 : errno;
			break;
		case 3:
			error = set("delay_ms", delays[draw(4)]);
			break;
		case 4:
			error = set("min_resident_pages", residents[draw(3)]);
			break;
		case 5:
			error = set("in_place", draw(4) ? "1" : "0");
			break;
		case 6:
			/* The kernel may have no compaction. */
			if (compact >= 0 && write(compact, "1", 1) != 1)
				error = errno;
			break;
		default:
			error = set("enabled", "1");
		}
		if (error)
			return fail("switch", error);
		usleep(draw(200000));
		set("enabled", "1");
		usleep(draw(200000));
	}
	close(fd);
	close(compact);
	return 0;
}

/* After a program has ended, nothing of ours may keep its filesystem busy. */
static int mounter(void)
{
	const char *path = FOLDER2 "/program";

	while (seconds() < until) {
		if (system("mount -o loop " IMAGE2 " " FOLDER2))
			return fail("mount", 0);
		if (run_program(path))
			return 1;
		usleep(draw(100000));
		if (umount2(FOLDER2, 0))
			return fail("unmount", errno);
	}
	return 0;
}

static int (* const roles[])(void) = {
	runner, runner, reader, reader, streamer, writer, switcher, mounter
};
static const char * const role_names[] = {
	"runner", "runner 2", "reader", "reader 2", "streamer", "writer", "switcher", "mounter"
};
#define ROLES ((int)(sizeof(roles) / sizeof(roles[0])))

static int prepare(void)
{
	int i;

	if (make_fs(IMAGE, FOLDER, 64) || make_fs(IMAGE2, FOLDER2, 32))
		return -1;
	for (i = 0; i < FILES; i++) {
		snprintf(names[i], sizeof(names[i]), FOLDER "/program%d", i);
		if (make_program(names[i], &layouts[i]))
			return -1;
	}
	if (make_program(FOLDER2 "/program", &layouts[0]))
		return -1;
	return umount2(FOLDER2, 0) | set("enabled", "0") | defaults();
}

int main(int argc, char **argv)
{
	double length = argc > 1 ? atof(argv[1]) : 10;
	unsigned int first = argc > 2 ? atoi(argv[2]) : 1;
	long collapsed, promoted;
	pid_t pids[ROLES];
	int i, status;

	on_xfs = argc > 3 && !strcmp(argv[3], "xfs");
	signal(SIGPIPE, SIG_IGN);
	ksft_print_header();
	if (access(FEATURE "enabled", W_OK))
		ksft_exit_skip("the kernel has no text feature\n");
	ksft_set_plan(ROLES);
	ksft_print_msg("%.0f seconds, seed %u\n", length, first);
	if (prepare())
		ksft_exit_fail_msg("cannot prepare the filesystems\n");
	collapsed = stat_of("collapsed_blocks");
	promoted = stat_of("promoted_blocks");
	until = seconds() + length;
	for (i = 0; i < ROLES; i++) {
		pids[i] = fork();
		if (!pids[i]) {
			seed = first * 100 + i;
			_exit(roles[i]());
		}
	}
	for (i = 0; i < ROLES; i++) {
		bool good = waitpid(pids[i], &status, 0) == pids[i] && !status;

		ksft_test_result(good, "%s\n", role_names[i]);
	}
	ksft_print_msg("%ld blocks collapsed, %ld of them without a copy\n",
		       stat_of("collapsed_blocks") - collapsed,
		       stat_of("promoted_blocks") - promoted);
	defaults();
	remove_fs(IMAGE2, FOLDER2);
	remove_fs(IMAGE, FOLDER);
	ksft_finished();
}
