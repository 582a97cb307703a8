# SPDX-License-Identifier: GPL-2.0
"""Touching a pool of hugetlb's pages before use, as QEMU with preallocated memory and DPDK do."""

from bench.core import Aim, Benchmark, Options

UNUSED = ("the guest has scrub_unused=0, as virtual machines start: memory that nobody has used is not zeroed, so the "
          "first touch clears all of it")
# No memory counts as used now, and none is zeroed. What the guest did since its boot would show in the first touch.
FRESH = """prezero=/sys/kernel/mm/quire/prezero
if [ "$(cat $prezero/state 2>/dev/null)" = on ]; then
    echo 2 >$prezero/enabled
    echo 1 >$prezero/enabled
fi"""


def script(options: Options) -> str:
    """Return the guest's script.

    The page of 1 GiB comes first. It stays in its pool, while the pages of 2 MiB go back to free memory, which kscrubd
    then zeroes. At its smallest, the benchmark leaves the page of 1 GiB out, and needs no boot option.
    """
    times = 1 if options.icount else options.pick(5, 3, 1)
    gigantic = [] if options.tiny else [f"./hugetlb 1048576 1 {times}"]
    return "\n".join([FRESH, *gigantic, f"./hugetlb 2048 {options.pick(512, 64, 4)} {times}"])


BENCHMARK = Benchmark(
    name="hugetlb",
    title="touching a pool of hugetlb's pages, for the first time and again",
    features=("prezero",),
    programs=("hugetlb",),
    script=script,
    shown=("us_per_GB",),
    note=f"{UNUSED}; it also waits for the host to back the memory; under TCG a rep stos is emulated in steps, which "
    "overstates what zeroing costs",
    icount_note=f"{UNUSED}; a rep stos counts one instruction for each iteration, which overstates what zeroing costs",
    main=({"page": "2M", "touch": "again"}, "us_per_GB"),
    boots=(("icount", 1), ("time", 3)),
    knobs=("prezero/scrub_unused=0",),
    boot="hugepagesz=1G hugepages=1",
    aims=(
        Aim("touching a pool of hugetlb again, instructions, times fewer", "us_per_GB", {"touch": "again"}, 20, "times",
            headline=True),
        Aim("touching a pool of hugetlb again, by the clock, times faster", "us_per_GB", {"touch": "again"}, 5, "times",
            clock="time", headline=True),
        Aim("touching a pool of hugetlb for the first time, on against off", "us_per_GB", {"touch": "first"}, 1.01,
            against="off"),
        Aim("off: every row", "us_per_GB", {}, 1.01, column="off"),
    ),
)
