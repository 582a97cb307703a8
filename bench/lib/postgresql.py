# SPDX-License-Identifier: GPL-2.0
"""The shell lines with which the PostgreSQL benchmarks start in the guest."""

START = '"$bin/pg_ctl" -w -t 300 -D data -l log start >/dev/null'


def cluster(pool_mb: int, *settings: str) -> str:
    """Return the lines that make and enter the folder home, and make a cluster there with a pool of `pool_mb` MB.

    After these lines, $bin is the folder of the programs, as() runs a program as the server's user, and START starts
    the server.
    """
    more = "".join(f"{setting}\n" for setting in settings)
    return f"""bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
mkdir -p home
chown postgres: home
cd home
as() {{ setpriv --reuid postgres --regid postgres --init-groups env HOME="$PWD" "$@"; }}
as "$bin/initdb" --no-sync -A trust -D data >initdb.log 2>&1 || {{ cat initdb.log; exit 1; }}
cat >>data/postgresql.conf <<END
shared_buffers = {pool_mb}MB
huge_pages = off
fsync = off
wal_level = minimal
max_wal_senders = 0
autovacuum = off
jit = off
max_parallel_workers_per_gather = 0
{more}listen_addresses = ''
unix_socket_directories = '$PWD'
END"""
