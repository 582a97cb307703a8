# SPDX-License-Identifier: GPL-2.0
"""Uses a file of shared memory as a database does, so that syzkaller's programs find page tables to join.

suites/fuzz_init.sh runs it in the guest again and again: a program may cut the file short, which ends this process by
SIGBUS.
"""

import mmap
import os
import sys
import time

SIZE = 8 << 20
ROUNDS = 10


def main() -> None:
    """Map the file that the command line names, write each of its pages, and do so once a second for a while."""
    file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
    os.fchmod(file, 0o666)
    os.ftruncate(file, SIZE)
    with mmap.mmap(file, SIZE) as area:
        for number in range(ROUNDS):
            for start in range(0, SIZE, mmap.PAGESIZE):
                area[start] = number
            time.sleep(1)


if __name__ == "__main__":
    main()
