# SPDX-License-Identifier: GPL-2.0
"""Many processes over one shared segment."""

from bench.core import Aim, Benchmark, Figure, Options

KINDS = ("children", "sysv", "memfd", "tmpfs")


def script(options: Options) -> str:
    """Return the guest's script: every kind at a moderate size, and 200 processes with 512 MB."""
    mb, processes = options.pick(64, 32, 4), options.pick(40, 40, 3)
    lines = [f"./shm_table {kind} write {mb} 1 {processes}" for kind in KINDS]
    if not options.quick:
        lines.append("./shm_table memfd read 512 1 200")
    return "\n".join(lines)


MANY = {"kind": "memfd", "access": "read", "processes": "200"}

BENCHMARK = Benchmark(
    name="shm-table",
    title="page tables, faults and time of many processes over one shared segment",
    features=("shm",),
    programs=("shm_table",),
    script=script,
    shown=("pagetables_kB", "faults", "ms", "last_process_ms"),
    main=({"kind": "memfd", "processes": "40"}, "pagetables_kB"),
    aims=(
        Aim("page tables of 200 processes over 512 MB, against vanilla", "pagetables_kB", MANY, 0.1, headline=True),
        Aim("minor faults of the same", "faults", MANY, 0.1),
        Aim("time to map all of it in every process", "ms", MANY, 0.5, headline=True),
        Aim("page tables of 40 processes, every kind", "pagetables_kB", {"access": "write", "processes": "40"}, 0.5),
    ),
    figures=(
        Figure("McCracken, May 2006", "page tables under an OLTP load (27 % more throughput)", 1650, 51, "MB"),
        Figure("mshare, Wartak, June 2025", "PostgreSQL, connecting 16000 clients (50 to 70 s before)", 60, 6, "s"),
        Figure("mshare, Wartak, June 2025", "PostgreSQL, minor faults a second", 256000, 34000, "1/s"),
    ),
)
