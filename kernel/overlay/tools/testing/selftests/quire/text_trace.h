/* SPDX-License-Identifier: GPL-2.0 */
/* What the trace says of the worker's attempts at a file. Include after text_huge.h. */
#ifndef TEXT_TRACE_H
#define TEXT_TRACE_H

#include <sys/sysmacros.h>

#define TRACING	"/sys/kernel/tracing/"
#define FALLBACK TRACING "events/quire/text_fallback/enable"
#define COLLAPSE TRACING "events/quire/text_collapse/enable"

/* Trace what the worker does to blocks, from now on. 0, or -1. */
static inline int trace_worker(void)
{
	int fd = open(TRACING "trace", O_WRONLY | O_TRUNC);

	if (fd < 0)
		return -1;
	close(fd);
	return write_file(FALLBACK, "1") || write_file(COLLAPSE, "1") ? -1 : 0;
}

static inline void trace_no_worker(void)
{
	write_file(FALLBACK, "0");
	write_file(COLLAPSE, "0");
}

/* How many lines of the trace are about a file and have @word; or -1. */
static inline int traced(const char *path, const char *word)
{
	char line[512], file[64];
	struct stat st;
	int found = 0;
	FILE *trace;

	if (stat(path, &st))
		return -1;
	snprintf(file, sizeof(file), "dev=%u:%u ino=%lu ", major(st.st_dev), minor(st.st_dev),
		 (unsigned long)st.st_ino);
	trace = fopen(TRACING "trace", "r");
	if (!trace)
		return -1;
	while (fgets(line, sizeof(line), trace))
		found += strstr(line, file) && strstr(line, word);
	fclose(trace);
	return found;
}

#endif /* TEXT_TRACE_H */
