#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Run quirectl's commands in children of one interpreter: in an emulated guest, starting one takes seconds.

quirectl_server.py FOLDER makes the program FOLDER/quirectl, which runs a command with its own standard files and in its
own folder, and exits with the command's status.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tool"))

from quirelib import cli  # noqa: E402

CLIENT = """#!/bin/bash
mkfifo {folder}/$$
IFS=$'\\x1f'
echo "$$$IFS$*" >{folder}/asked
read -r status <{folder}/$$
rm {folder}/$$
exit $status
"""


def serve(pid: str, args: list[str]) -> int:
    """Run one command for the process that asked."""
    for fd in range(3):
        os.dup2(os.open(f"/proc/{pid}/fd/{fd}", os.O_WRONLY if fd else os.O_RDONLY), fd)
    os.chdir(f"/proc/{pid}/cwd")
    try:
        return cli.main(args)
    except SystemExit as end:
        return int(end.code or 0)
    except Exception:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def main(folder: Path) -> None:
    """Serve until the guest ends."""
    # Forks of this process are not what anybody looks at.
    Path("/proc/self/quire").write_text("0", encoding="ascii")
    folder.mkdir()
    os.mkfifo(folder / "asked")
    (folder / "quirectl.new").write_text(CLIENT.format(folder=folder), encoding="utf-8")
    (folder / "quirectl.new").chmod(0o755)
    (folder / "quirectl.new").rename(folder / "quirectl")
    while True:
        with open(folder / "asked", encoding="utf-8") as asked:
            for line in asked:
                pid, *args = line.rstrip("\n").split("\x1f")
                if not os.fork():
                    status = serve(pid, args)
                    (folder / pid).write_text(f"{status}\n", encoding="ascii")
                    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
