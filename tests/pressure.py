# SPDX-License-Identifier: GPL-2.0
"""Run a program repeatedly while its pages are reclaimed, compacted and swapped in, one by one and all at once."""

from __future__ import annotations

from guest import boot


def script(command: str, seconds: int, limit: str = "max", seed: int = 1, beside: str = "true") -> str:
    """Return a guest script that repeats a command until `seconds` have passed; $seed starts at `seed` and grows.

    The command runs in a control group with its own limit (memory.high). `beside` is a further command for those that
    put pressure on it.
    """
    return f"""set -e
echo 256M >/sys/block/zram0/disksize
mkswap /dev/zram0 >/dev/null
swapon /dev/zram0
cd /sys/fs/cgroup
echo +memory >cgroup.subtree_control
mkdir little
echo {limit} >little/memory.high
(set +e
while sleep 0.1; do
    for i in 1 2 3 4 5; do echo 4M >little/memory.reclaim; done
    echo 1 >/proc/sys/vm/compact_memory
    swapoff /dev/zram0 && swapon /dev/zram0
    {beside}
done) 2>/dev/null &
pressure=$!
echo 0 >little/cgroup.procs
seed={seed}
while [ $SECONDS -lt {seconds} ]; do
    echo seed $seed
    {command}
    seed=$((seed + 1000))
done
kill $pressure
grep -E 'pswp(in|out)' /proc/vmstat"""


def assert_swapped(result: boot.Result) -> None:
    """Assert that the command succeeded, and that pages were swapped in and out meanwhile."""
    assert result.status == 0, result.output[-4000:]
    assert all(int(line.split()[1]) > 0 for line in result.output.splitlines()[-2:]), result.output[-4000:]
