# SPDX-License-Identifier: GPL-2.0
"""Many processes over one shared segment."""

from bench.core import Aim, Benchmark, Figure, Options

KINDS = ("children", "sysv", "memfd", "tmpfs")


def script(options: Options) -> str:
    """Return the guest's script: each kind at a moderate size, 200 processes over 512 MB, and many at the same time."""
    mb, processes = options.pick(64, 32, 4), options.pick(40, 40, 3)
    lines = [f"./shm_table {kind} write {mb} 1 {processes}" for kind in KINDS]
    if not options.quick:
        lines += [f"./shm_table {kind} read 512 1 200" for kind in ("memfd", "children")]
    lines.append(f"./shm_many table {options.pick(64, 64, 4)} {options.pick(1000, 100, 3)}")
    lines.append("echo 256M >/sys/block/zram0/disksize; mkswap /dev/zram0 >/dev/null")
    lines.append("swapon /dev/zram0")
    lines.append(f"./shm_many swap {options.pick(64, 32, 32)} {options.pick(100, 20, 3)}")
    lines.append("swapoff /dev/zram0; echo 1 >/sys/block/zram0/reset")
    return "\n".join(lines)


MANY = {"kind": "memfd", "access": "read", "processes": "200"}
EITHER: dict[str, str | tuple[str, ...]] = {**MANY, "kind": ("memfd", "children")}
FILL = {"case": "one_table_fill", "cpus": "2"}

BENCHMARK = Benchmark(
    name="shm-table",
    title="page tables, faults and time of many processes over one shared segment",
    features=("shm",),
    programs=("shm_table", "shm_many"),
    script=script,
    shown=("pagetables_kB", "shared_kB", "faults", "extra_faults", "ms", "last_process_ms", "touches_per_ms",
           "touch_faults", "fills_per_ms", "scaling", "swapped_kB", "left_kB", "wake_faults", "wake_ms"),
    more_is_better=frozenset({"touches_per_ms", "fills_per_ms", "scaling"}),
    main=({"kind": "memfd", "processes": "40"}, "pagetables_kB"),
    aims=(
        Aim("page tables of 200 processes over 512 MB, against vanilla", "pagetables_kB", MANY, 0.1, headline=True),
        Aim("the same against one process's, by the tables that map the segment alone", "shared_kB", EITHER, 1.1,
            other={"kind": "memfd", "processes": "1"}),
        Aim("minor faults of 200 processes over 512 MB", "faults", EITHER, 0.1),
        Aim("their faults beyond one process's and one for each table", "extra_faults", EITHER, 0, "value"),
        Aim("time to map all of it in every process", "ms", MANY, 0.5, headline=True),
        Aim("1,000 processes at once over one table, touches in a given time", "touches_per_ms", {"case": "one_table"},
            1.0, more_is_better=True),
        Aim("the same by the clock, on 2 CPUs", "touches_per_ms", {"case": "one_table"}, 1.0, clock="time",
            more_is_better=True),
        Aim("two of them at a time fill that table: fills in a given time, on 2 CPUs", "fills_per_ms", FILL, 1.0,
            clock="time", more_is_better=True),
        Aim("half-swapped: kB in swap after one child has touched each page", "left_kB", {"case": "half_swapped"}, 1024,
            "value"),
        Aim("half-swapped: faults of those touches", "wake_faults", {"case": "half_swapped"}, 1.0),
        Aim("page tables of 40 processes, every kind", "pagetables_kB", {"access": "write", "processes": "40"}, 0.5),
    ),
    boots=(("icount", 1), ("time", 1)),
    figures=(
        Figure("McCracken, May 2006", "page tables under an OLTP load (27 % more throughput)", 1650, 51, "MB"),
        Figure("mshare, Wartak, June 2025", "PostgreSQL, connecting 16000 clients (50 to 70 s before)", 60, 6, "s"),
        Figure("mshare, Wartak, June 2025", "PostgreSQL, minor faults a second", 256000, 34000, "1/s"),
    ),
)
