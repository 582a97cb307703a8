// SPDX-License-Identifier: GPL-2.0
/*
 * Talks to a redis-server on a Unix socket: latencies of SET at rest and
 * while the server's child writes snapshots, and the fork times the server
 * itself reports.
 *
 *	redis_client SOCKET KEYS VALUE_BYTES [FILE]
 *	redis_client SOCKET KEYS VALUE_BYTES again PHASE
 *	redis_client SOCKET digest
 *
 * FILE gets the digest of the whole data set as it is when the snapshot begins. The
 * last form prints the digest of a server that has loaded the snapshot. The second
 * form finds the keys in place, and times the SETs of one more snapshot.
 */
#include "bench.h"
#include <sys/socket.h>
#include <sys/un.h>

#define MOST 2000000
#define SAVES 5

static int sock;
static char reply[1 << 16];
static double *lat;

static void connect_to(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	for (int tries = 0; tries < 600; tries++) {
		sock = socket(AF_UNIX, SOCK_STREAM, 0);
		if (!connect(sock, (struct sockaddr *)&addr, sizeof(addr)))
			return;
		close(sock);
		usleep(100000);
	}
	die(path);
}

/* Sends one inline command and reads one reply: a whole bulk string, or one line. */
static const char *ask(const char *fmt, ...)
{
	static char out[8192];
	size_t got = 0, want;
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(out, sizeof(out) - 2, fmt, ap);
	va_end(ap);
	memcpy(out + len, "\r\n", 2);
	if (write(sock, out, len + 2) != len + 2)
		die("write to redis");
	for (;;) {
		ssize_t n = read(sock, reply + got, sizeof(reply) - 1 - got);
		char *eol;

		if (n <= 0)
			die("read from redis");
		got += n;
		reply[got] = 0;
		eol = strstr(reply, "\r\n");
		if (!eol)
			continue;
		want = eol + 2 - reply;
		if (reply[0] == '$')
			want += atol(reply + 1) + 2;
		if (got >= want)
			break;
	}
	if (reply[0] == '-') {
		fprintf(stderr, "redis refused %s: %s", out, reply);
		exit(1);
	}
	return reply;
}

static long info(const char *section, const char *name)
{
	char key[128];
	const char *p;

	snprintf(key, sizeof(key), "\n%s:", name);
	p = strstr(ask("INFO %s", section), key);
	return p ? atol(p + strlen(key)) : -1;
}

static int saving(void)
{
	return info("persistence", "rdb_bgsave_in_progress") == 1;
}

/*
 * Times SETs, up to @limit or until the save ends, into lat[] from place n on; returns the
 * place after the last one.
 */
static long set_keys(long n, long keys, long bytes, long limit, int while_saving)
{
	static uint64_t seed = 1;
	static char value[4096];

	memset(value, 'v', sizeof(value) - 1);
	for (; n < limit && (!while_saving || n % 256 || saving()); n++) {
		uint64_t start;

		seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
		start = now_ns();
		ask("SET k:%ld %.*s", (long)((seed >> 33) % keys), (int)bytes, value);
		lat[n] = now_ns() - start;
	}
	return n;
}

static void print_sets(const char *phase, long keys, long n)
{
	double sum = 0;

	if (!n)
		return;
	for (long i = 0; i < n; i++)
		sum += lat[i];
	qsort(lat, n, sizeof(*lat), by_value);
	row("phase=%s keys=%ld | sets=%ld sets_per_s=%.1f mean_us=%.1f p50_us=%.1f p99_us=%.1f p99.9_us=%.1f max_us=%.1f",
	    phase, keys, n, n / (sum / 1e9), sum / n / 1e3, lat[n / 2] / 1e3, lat[n * 99 / 100] / 1e3,
	    lat[n * 999 / 1000] / 1e3, lat[n - 1] / 1e3);
}

/*
 * Saves several times, and times the SETs of all saves together: the first fork of a boot runs
 * code that the emulator has yet to translate, and one save has too few SETs for a 99.9th
 * percentile that repeats.
 */
static void save_all(long keys, long bytes, int saves)
{
	double forks[SAVES], replies[SAVES], first;
	long n = 0, cow = 0;

	for (int i = 0; i < saves; i++) {
		uint64_t start = now_ns();
		long kb;

		ask("BGSAVE");
		replies[i] = (now_ns() - start) / 1e3;
		forks[i] = info("stats", "latest_fork_usec");
		n = set_keys(n, keys, bytes, MOST, 1);
		while (saving())
			usleep(20000);
		kb = info("persistence", "rdb_last_cow_size") / 1024;
		cow = kb > cow ? kb : cow;
	}
	first = forks[0];
	qsort(forks, saves, sizeof(*forks), by_value);
	qsort(replies, saves, sizeof(*replies), by_value);
	row("phase=fork keys=%ld saves=%d | bgsave_reply_us=%.1f latest_fork_usec=%.0f first_fork_usec=%.0f worst_fork_usec=%.0f",
	    keys, saves, replies[saves / 2], forks[saves / 2], first, forks[saves - 1]);
	print_sets("saving", keys, n);
	row("phase=cow keys=%ld saves=%d | rdb_last_cow_kB=%ld", keys, saves, cow);
}

static void save_again(long keys, long bytes, const char *phase)
{
	long n;

	ask("BGSAVE");
	n = set_keys(0, keys, bytes, MOST, 1);
	while (saving())
		usleep(20000);
	print_sets(phase, keys, n);
}

int main(int argc, char **argv)
{
	long keys = number(argc, argv, 2, 100000), bytes = number(argc, argv, 3, 700);

	if (argc < 3)
		return 2;
	if (!strcmp(argv[2], "digest")) {
		connect_to(argv[1]);
		fputs(ask("DEBUG DIGEST"), stdout);
		return 0;
	}
	if (bytes > 4000)
		bytes = 4000;
	lat = calloc(MOST, sizeof(*lat));
	connect_to(argv[1]);
	if (argc > 5) {
		save_again(keys, bytes, argv[5]);
		return 0;
	}
	ask("DEBUG POPULATE %ld k %ld", keys, bytes);
	print_sets("rest", keys, set_keys(0, keys, bytes, keys / 4 < 10000 ? keys / 4 : 10000, 0));
	if (argc > 4) {
		FILE *f = fopen(argv[4], "w");

		if (!f || fputs(ask("DEBUG DIGEST"), f) < 0 || fclose(f))
			die(argv[4]);
	}
	save_all(keys, bytes, argc > 4 ? 1 : SAVES);
	return 0;
}
