# SPDX-License-Identifier: GPL-2.0
"""What shared page tables cost while memory is reclaimed, moved, aged and given back."""

from bench.core import Aim, Benchmark, Options

USERS = {"fork": (2, 8, 50), "shm": (2, 8, 50, 200)}
AGING = {"fork": ("own", "shared"), "shm": ("own", "reader", "same")}
PREPARE = """echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/pressure
echo 512M >/sys/block/zram0/disksize; mkswap /dev/zram0 >/dev/null
swapon /dev/zram0"""
CLEAN = """swapoff /dev/zram0; echo 1 >/sys/block/zram0/reset
rmdir /sys/fs/cgroup/pressure"""


def script(options: Options) -> str:
    """Return the guest's script: each case at a moderate size; many users only at full size."""
    mb, most = options.pick(64, 16, 4), options.pick(200, 50, 2)
    lines = [PREPARE]
    for case in ("reclaim", "migrate"):
        for kind, counts in USERS.items():
            lines += [f"./{case} {kind} {users} {mb}" for users in counts if users <= most]
    lines += [f"./reclaim {kind} {min(8, most)} {mb} mglru" for kind in USERS]
    for lru in ("classic", "mglru"):
        for kind, tables in AGING.items():
            lines += [f"./aging {kind} {how} {lru} {options.pick(16, 16, 4)}" for how in tables]
    lines.append(f"./single {options.pick(64, 64, 4)} {options.pick(5, 3, 1)}")
    lines += [f"./punch {users} {options.pick(4000, 1000, 50)}" for users in (1, 2)]
    busy = 0 if options.icount else options.pick(1, 1, 0)  # a single CPU would have no time left for the walker
    lines.append(f"./first_touch {options.pick(20, 10, 2)} {options.pick(1000, 500, 50)} {busy}")
    return "\n".join([*lines, CLEAN])


def per_page(case: str, kind: str, what: str) -> tuple[Aim, ...]:
    """Return the aims for reclaim or migration of one kind of memory: interrupts, instructions and time."""
    where = {"case": case, "memory": kind}
    full = Aim(f"{what}: flushes of the whole TLB of the CPU that reclaims, a page, fewer", "full_flushes_per_page",
               where, -0.05, "less")
    return (
        Aim(f"{what}: call interrupts a page on a CPU that runs no user", "calls_per_page", where, 0.05, "value",
            clock="time"),
        Aim(f"{what}: instructions a page", "cpu_us_per_page", where, 1.05),
        *((full,) if case == "reclaim" else ()),
        Aim(f"{what}: time a page", "us_per_page", where, 1.25, clock="time"),
    )


INTERRUPTS = frozenset({"calls_per_page", "tlb_per_page", "users_calls_per_page", "calls", "tlb", "calls_per_hole",
                        "tlb_per_hole"})
SINGLE = {"case": "single"}

BENCHMARK = Benchmark(
    name="pressure",
    title="what shared page tables cost while memory is reclaimed, moved, aged and given back",
    features=("fork", "shm", "rmap"),
    programs=("reclaim", "migrate", "aging", "single", "punch", "first_touch"),
    script=script,
    shown=("cpu_us_per_page", "us_per_page", "full_flushes_per_page", "calls_per_page", "tlb_per_page",
           "users_calls_per_page", "pages_moved", "hot_faults", "cold_out", "requests", "ms", "faults", "calls",
           "tlb", "pages_out", "us_per_hole", "calls_per_hole", "tlb_per_hole", "worst_ms", "shared",
           "bystander_speed"),
    more_is_better=frozenset({"pages_moved", "cold_out", "pages_out", "shared", "bystander_speed"}),
    by_clock=INTERRUPTS | {"us_per_page", "bystander_speed"},
    one_event=INTERRUPTS | {"full_flushes_per_page", "hot_faults", "requests", "worst_ms", "bystander_speed"},
    numa=2,
    timeout=3600,
    note="an emulated CPU is interrupted by its host's thread, which takes far longer than hardware does: the "
    "interrupts' number says more than the time",
    icount_note="one CPU interrupts nobody: interrupts and what they cost are by the clock only; cpu_us_per_page is "
    "thousands of instructions a page, without what reclaim sleeps",
    main=({"case": "reclaim", "memory": "fork", "users": "8"}, "cpu_us_per_page"),
    boots=(("icount", 1), ("time", 3)),
    aims=(
        *per_page("reclaim", "fork", "reclaim of what fork shares"),
        *per_page("reclaim", "shm", "reclaim of shared memory"),
        *per_page("migrate", "fork", "migration of what fork shares"),
        *per_page("migrate", "shm", "migration of shared memory"),
        Aim("reclaim beside idle users: faults of 4,096 hot pages, fewer", "hot_faults", {"case": "aging"}, -512,
            "less", clock="time"),
        Aim("a single user, mprotect and back: faults, fewer", "faults", {**SINGLE, "call": "mprotect"}, -64, "less",
            clock="time"),
        Aim("a single user, MADV_DONTNEED of 4 KB in each 2 MiB: faults, fewer", "faults",
            {**SINGLE, "call": "dontneed"}, -64, "less", clock="time"),
        Aim("a single user, MADV_PAGEOUT: pages that went", "pages_out", {**SINGLE, "call": "pageout"}, 0.95,
            clock="time", more_is_better=True),
        Aim("a single user with two threads, munmap: call interrupts, fewer", "calls",
            {**SINGLE, "call": "munmap", "threads": "2"}, -8, "less", clock="time"),
        Aim("a hole punched by one of two users: call interrupts on a CPU that runs no user", "calls_per_hole",
            {"case": "punch"}, 0.05, "value", clock="time"),
        Aim("first touch beside a walker of the idle class: tables shared of 32", "shared", {"case": "first_touch"}, 31,
            "value", clock="time", more_is_better=True),
        Aim("first touch beside a walker of the idle class: time", "ms", {"case": "first_touch"}, 1.0, clock="time"),
    ),
)
