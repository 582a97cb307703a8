// SPDX-License-Identifier: GPL-2.0
/*
 * What the reverse map of anonymous memory takes for many children of a process
 * with many mappings: children that do nothing, and children that called exec.
 * In objects in use, as the slab allocator tells.
 */
#include "bench.h"

static long objects(const char *cache, long *size)
{
	char path[128], line[64] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/sys/kernel/slab/%s/object_size", cache);
	f = fopen(path, "r");
	if (!f || fscanf(f, "%ld", size) != 1)
		die(path);
	fclose(f);
	/* "TOTAL N0=..."; those on CPU slabs count as in use. */
	snprintf(path, sizeof(path), "/sys/kernel/slab/%s/objects", cache);
	f = fopen(path, "r");
	if (!f || !fgets(line, sizeof(line), f))
		die(path);
	fclose(f);
	return atol(line);
}

static long kb(const char *cache)
{
	long size, nr = objects(cache, &size);

	return nr * size / 1024;
}

static void settle(void)
{
	/* anon_vmas are freed by RCU, a slab at a time. */
	for (int i = 0; i < 3; i++)
		usleep(200000);
}

static void many(char *self, long vmas, long children, int exec)
{
	long links, anon_vmas;
	int hold[2], ready[2];
	char c;

	if (pipe(hold) || pipe(ready))
		die("pipe");
	settle();
	links = kb("anon_vma_chain");
	anon_vmas = kb("anon_vma");
	for (long i = 0; i < children; i++) {
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (!pid) {
			char in[16], out[16];

			snprintf(in, sizeof(in), "%d", hold[0]);
			snprintf(out, sizeof(out), "%d", ready[1]);
			close(hold[1]);
			if (exec)
				execl(self, self, "wait", in, out, (char *)NULL);
			write(ready[1], "r", 1);
			read(hold[0], &c, 1);
			_exit(0);
		}
	}
	for (long i = 0; i < children; i++)
		if (read(ready[0], &c, 1) != 1)
			die("read");
	settle();
	row("vmas=%ld children=%ld kind=%s | links_kb=%ld anon_vma_kb=%ld sum_kb=%ld", vmas,
	    children, exec ? "exec" : "idle", kb("anon_vma_chain") - links,
	    kb("anon_vma") - anon_vmas,
	    kb("anon_vma_chain") - links + kb("anon_vma") - anon_vmas);
	close(hold[1]);
	while (wait(NULL) > 0)
		;
	close(hold[0]);
	close(ready[0]);
	close(ready[1]);
}

int main(int argc, char **argv)
{
	long vmas = number(argc, argv, 1, 1000), children = number(argc, argv, 2, 100);
	char *mem, c;

	if (argc > 3 && !strcmp(argv[1], "wait")) {
		write(atoi(argv[3]), "r", 1);
		read(atoi(argv[2]), &c, 1);
		return 0;
	}
	mem = map_small(vmas * PAGE);
	for (long i = 0; i < vmas / 2; i++) {
		mem[2 * i * PAGE] = 1;
		if (mprotect(mem + (2 * i + 1) * PAGE, PAGE, PROT_NONE))
			die("mprotect");
	}
	many(argv[0], vmas, children, 0);
	many(argv[0], vmas, children, 1);
	return 0;
}
