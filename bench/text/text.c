// SPDX-License-Identifier: GPL-2.0
/*
 * A program with much text, called at random: page faults, time per call,
 * and how much of the text is mapped by 2 MiB pages when it ends.
 */
#include "bench.h"

extern char functions[], functions_end[];

#define STEP 256

int main(int argc, char **argv)
{
	const char *start_name = argc > 1 ? argv[1] : "first";
	long calls = number(argc, argv, 2, 1000000);
	long count = (functions_end - functions) / STEP, sum = 0;
	uint64_t seed = 1, start = now_ns(), touched, end;
	struct rusage use;

	/* Every function once in a random order of pages, then at random. */
	for (long i = 0; i < count; i++) {
		long at = (i * 7919L) % count;

		sum = ((long (*)(long))(functions + at * STEP))(sum);
	}
	touched = now_ns();
	for (long i = 0; i < calls; i++) {
		seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
		sum = ((long (*)(long))(functions + (seed >> 33) % count * STEP))(sum);
	}
	end = now_ns();
	if (sum != count + calls) {
		fprintf(stderr, "%ld calls counted, %ld made\n", sum, count + calls);
		return 1;
	}
	getrusage(RUSAGE_SELF, &use);
	row("start=%s text_MB=%ld | faults=%ld major=%ld touch_ms=%.2f ns_per_call=%.2f FilePmdMapped_kB=%ld",
	    start_name, (long)(functions_end - functions) >> 20,
	    use.ru_minflt + use.ru_majflt, use.ru_majflt, (touched - start) / 1e6,
	    calls ? (double)(end - touched) / calls : 0,
	    field_kb("/proc/self/smaps", "FilePmdMapped"));
	return 0;
}
