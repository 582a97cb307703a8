# SPDX-License-Identifier: GPL-2.0
"""A program with much text, on ext4 and on erofs, and programs with little."""

from bench.core import Aim, Benchmark, Figure, Options


def sizes(options: Options) -> tuple[int, ...]:
    """Return how many megabytes of text the generated programs have; only the last program runs in all cases."""
    full = (483, 64) if options.icount else (483,)
    return (4,) if options.tiny else (64,) if options.quick else full


def programs(options: Options) -> tuple[str, ...]:
    """Return the programs that the guest needs."""
    return (*(f"text{mb}" for mb in sizes(options)), "small")


def starts(mb: int, calls: int) -> str:
    """Return the lines for the starts on ext4: two, one a second later, and two that load the text without calls."""
    return f"""truncate -s {mb + 64}M image
mkfs.ext4 -q -F -m 0 -b 4096 image
mount -o loop image mnt
cp text{mb} mnt/program
for name in true cat sh; do cp /bin/busybox mnt/$name; done
rm text{mb}
again
mnt/program first {calls}
mnt/program second {calls}
sleep 1
mnt/program after_1s {calls}
again
mnt/program load_first 0 load
mnt/program load_second 0 load"""


READAHEAD = "/sys/kernel/mm/quire/text/readahead"


def script(options: Options) -> str:
    """Return the guest's script: starts on ext4, many at once, small programs.

    Then starts on erofs, whose page cache has large folios from the first read on: first one that uses a page of each 2
    MiB, as on ext4, then two with the knob that has blocks read whole.
    """
    calls = options.pick(100000 if options.icount else 4000000, 100000, 1000)
    lines = "\numount mnt\nrm image\n".join(starts(mb, calls) for mb in sizes(options))
    return f"""mkdir -p mnt
# udev reads a new device; that must not be counted.
settle() {{ udevadm settle --timeout=60 2>/dev/null || sleep 1; }}
again() {{
    umount mnt
    mount -o loop image mnt
    settle
}}
{lines}
again
mnt/program together 1
again
mnt/program together 8
./small mnt {options.pick(200, 50, 2)}
again
mnt/program sparse sparse
mkdir tree
cp mnt/program tree/program
umount mnt
rm image
mkfs.erofs erofs tree >mkfs.log 2>&1 || {{ cat mkfs.log; exit 1; }}
rm -r tree
mount_erofs() {{
    mount -t erofs -o loop,ro erofs mnt
    settle
}}
mount_erofs
mnt/program erofs_sparse sparse
umount mnt
[ ! -e {READAHEAD} ] || echo 1 >{READAHEAD}
mount_erofs
mnt/program erofs_first {calls}
mnt/program erofs_second {calls}
umount mnt"""


BENCHMARK = Benchmark(
    name="text",
    title="a program with much text, called at random",
    features=("text",),
    programs=programs,
    script=script,
    shown=("faults", "touch_ms", "user_ms", "system_ms", "ns_per_call", "itlb_misses", "pmd_share", "memory_kB",
           "read_kB", "us_per_exec"),
    more_is_better=frozenset({"pmd_share"}),
    by_clock=frozenset({"user_ms", "system_ms", "ns_per_call", "itlb_misses"}),
    hardware=frozenset({"itlb_misses"}),
    emulated_boot="clearcpuid=erms",
    note="iTLB misses are a column where the CPU counts them (perf_event_open), which an emulated one does not; under "
    "emulation all kernels copy by words, not bytes (clearcpuid=erms)",
    icount_note="instructions know no TLB, so what a call costs is not shown, and an emulated CPU counts no iTLB "
    "misses; all kernels copy by words, not bytes (clearcpuid=erms)",
    main=({"start": "second"}, "faults"),
    boots=(("icount", 3), ("time", 5)),
    aims=(
        Aim("page faults of 483 MB text, executed again after a second, times fewer", "faults", {"start": "after_1s"},
            12.9, "times", clock="time", headline=True),
        Aim("start-up of 483 MB, first execution, system time", "system_ms", {"start": "first"}, 1.0, clock="time",
            headline=True),
        Aim("start-up of 483 MB, second execution at once, system time", "system_ms", {"start": "second"}, 0.8,
            clock="time"),
        Aim("start-up of 483 MB, executed again after a second, system time", "system_ms", {"start": "after_1s"}, 0.45,
            clock="time"),
        Aim("start-up of 483 MB by reading its text, first execution, system time", "system_ms",
            {"start": "load_first"}, 1.0, clock="time"),
        Aim("start-up of 483 MB by reading its text, second execution at once, system time", "system_ms",
            {"start": "load_second"}, 0.8, clock="time"),
        Aim("page faults of 64 and 483 MB text, executed again after a second, times fewer", "faults",
            {"start": "after_1s"}, 12.9, "times"),
        Aim("share of the whole 2 MiB blocks that is PMD-mapped within a second", "pmd_share", {"start": "after_1s"},
            0.95, "value", more_is_better=True, headline=True),
        Aim("share of the whole 2 MiB blocks that is PMD-mapped at the end of the first execution, on 2 CPUs",
            "pmd_share", {"start": "first"}, 0.95, "value", more_is_better=True, clock="time", headline=True),
        Aim("start-up of 64 and 483 MB, first execution", "touch_ms", {"start": "first"}, 1.0, headline=True),
        Aim("start-up of 64 and 483 MB by reading the text, first execution", "touch_ms", {"start": "load_first"}, 1.0),
        Aim("start-up of 64 and 483 MB, second execution at once", "touch_ms", {"start": "second"}, 0.8),
        Aim("start-up of 64 and 483 MB, executed again after a second", "touch_ms", {"start": "after_1s"}, 0.45,
            headline=True),
        Aim("start-up on erofs, first execution", "touch_ms", {"start": "erofs_first"}, 1.05),
        Aim("start-up on erofs, second execution at once", "touch_ms", {"start": "erofs_second"}, 0.8),
        Aim("one page of each 2 MiB used, text read for it, on ext4", "read_kB", {"start": "sparse"}, 1.02),
        Aim("one page of each 2 MiB used, text read for it, on erofs", "read_kB", {"start": "erofs_sparse"}, 1.02),
        Aim("one page of each 2 MiB used, start-up on ext4", "touch_ms", {"start": "sparse"}, 1.02),
        Aim("one page of each 2 MiB used, start-up on erofs", "touch_ms", {"start": "erofs_sparse"}, 1.02),
        Aim("memory of 8 executions at once, against one", "memory_kB", {"together": "8"}, 1.05, against="on",
            other={"together": "1"}),
        Aim("fork+exec+exit of true, cat, sh", "us_per_exec", {}, 1.01),
        Aim("off: start-up", "touch_ms", {}, 1.01, column="off"),
    ),
    figures=(
        Figure("Wang Rui (Loongson), March 2026", "building Cargo, iTLB misses", 9.71, 2.70, "10^9"),
        Figure("Wang Rui (Loongson), March 2026", "building Linux with clang, wall time", 1022, 893, "s"),
    ),
)
