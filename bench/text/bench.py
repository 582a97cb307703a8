# SPDX-License-Identifier: GPL-2.0
"""A program with much text, on ext4."""

from bench.core import Benchmark, Options


def megabytes(options: Options) -> int:
    """Return the size of the generated program's text."""
    return options.pick(483, 64, 4)


def script(options: Options) -> str:
    """Return the guest's script: two starts, and one when the kernel has had two seconds."""
    mb = megabytes(options)
    calls = options.pick(4000000, 1000000, 1000)
    return f"""truncate -s {mb + 64}M image
mkfs.ext4 -q -F -m 0 -b 4096 image
mkdir -p mnt
mount -o loop image mnt
cp text{mb} mnt/program
rm text{mb}
umount mnt
mount -o loop image mnt
mnt/program first {calls}
mnt/program second {calls}
sleep 2
mnt/program after_2s {calls}
umount mnt"""


BENCHMARK = Benchmark(
    name="text",
    title="a program with much text, called at random",
    features=("text",),
    programs=("text{mb}",),
    script=script,
    shown=("faults", "touch_ms", "ns_per_call", "FilePmdMapped_kB"),
    more_is_better=frozenset({"FilePmdMapped_kB"}),
    text_mb=megabytes,
    icount_note="instructions know no TLB: ns_per_call shows no gain here",
    main=({"start": "after_2s"}, "faults"),
)
