#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Run real programs with much text from an ext4 file system, in a guest, with the text feature off and on.

For each program, an `@` line has the kB of text of its own file or library, the kB in whole blocks, and the most of it
that a PMD mapped at any time of a later run. It also has the page faults of a run with the feature off, and of the
first and the third run with it on. Programs that this machine does not have are named and left out.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(REPO / "tool"))

from quirelib import processes  # noqa: E402

FEATURE = Path("/sys/kernel/mm/quire/text")
NODE = "let s = 0; for (let i = 0; i < 30; i++) s += JSON.stringify([...Array(400)].map((_, k) => ({k}))).length;"


@dataclass(frozen=True)
class Program:
    """A program: the file whose text counts, the files it needs beside that, and its command; {dir} is their folder."""

    name: str
    file: str
    beside: tuple[str, ...]
    command: tuple[str, ...]


def programs(c: str, cxx: str, ir: str) -> list[Program]:
    """Return what to run; `c` and `cxx` are preprocessed sources, `ir` is LLVM's IR."""
    gcc = str(Path(subprocess.run(["gcc", "-print-prog-name=cc1"], stdout=subprocess.PIPE, text=True,
                                  check=True).stdout.strip()).parent)
    options = ("-quiet", "-O2", "-fpreprocessed", "-w")
    return [
        Program("cc1", f"{gcc}/cc1", (), ("{dir}/cc1", *options, "-std=gnu11", c, "-o", "/dev/null")),
        Program("cc1plus", f"{gcc}/cc1plus", (), ("{dir}/cc1plus", *options, cxx, "-o", "/dev/null")),
        Program("node", "/usr/bin/node", (), ("{dir}/node", "-e", NODE)),
        Program("postgres", "/usr/lib/postgresql/15/bin/postgres", (), ("{dir}/postgres", "--describe-config")),
        Program("libLLVM", "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1", ("/usr/lib/llvm-14/bin/llc",),
                ("{dir}/llc", "-O2", ir, "-o", "/dev/null")),
    ]


def switch(value: str) -> None:
    """Switch the feature."""
    (FEATURE / "enabled").write_text(value, encoding="ascii")


def stat(name: str) -> int:
    """Return one of the feature's counters."""
    return int((FEATURE / "stats" / name).read_text(encoding="ascii"))


def settle() -> None:
    """Wait until the worker has collapsed nothing for a second."""
    before = -1
    while stat("collapsed_blocks") != before:
        before = stat("collapsed_blocks")
        time.sleep(1)


def run(command: list[str], env: dict[str, str], file: str, look: bool) -> tuple[int, dict[str, int]]:
    """Run a command; return its page faults and, with `look`, the largest sizes of the file's text that were seen."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    most = {"text_kB": 0, "eligible_kB": 0, "pmd_kB": 0}
    with subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:
        while look and process.poll() is None:
            try:
                smaps = Path(f"/proc/{process.pid}/smaps").read_text(encoding="utf-8")
            except OSError:
                break
            for name, sizes in processes.text_of(smaps).items():
                if name == file:
                    most = {key: max(most[key], sizes[key]) for key in most}
        process.wait()
        if process.returncode:
            print(f"# {command[0]}: status {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt, most


def measure(program: Program, folder: Path) -> None:
    """Run one program off and on, and print its line."""
    missing = [f for f in (program.file, *program.beside) if not os.path.exists(f)]
    if missing:
        print(f"# {program.name}: no {', '.join(missing)}")
        return
    for file in (program.file, *program.beside):
        shutil.copy(file, folder)
    os.sync()
    env = os.environ | {"LD_LIBRARY_PATH": str(folder)}
    command = [word.replace("{dir}", str(folder)) for word in program.command]
    file = str(folder / Path(program.file).name)
    switch("0")
    run(command, env, file, False)
    off, _ = run(command, env, file, False)
    switch("1")
    blocks = stat("collapsed_blocks")
    first, _ = run(command, env, file, False)
    settle()
    _, sizes = run(command, env, file, True)
    settle()
    third, _ = run(command, env, file, False)
    share = 100 * sizes["pmd_kB"] / max(sizes["eligible_kB"], 1)
    print(f"@program={program.name} | text_kB={sizes['text_kB']} eligible_kB={sizes['eligible_kB']} "
          f"pmd_kB={sizes['pmd_kB']} pmd_percent={share:.1f} collapsed_blocks={stat('collapsed_blocks') - blocks} "
          f"faults_off={off} faults_first={first} faults_third={third}", flush=True)
    for name in (program.file, *program.beside):
        (folder / Path(name).name).unlink()


def main() -> int:
    """Command line; 0 if at least one program ran."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("c", help="preprocessed C for cc1")
    parser.add_argument("cxx", help="preprocessed C++ for cc1plus")
    parser.add_argument("ir", help="LLVM IR for llc")
    parser.add_argument("only", nargs="*", help="names of programs (default all)")
    args = parser.parse_args()
    image, folder = Path("/dev/shm/text.img"), Path("/tmp/text_programs")
    folder.mkdir()
    subprocess.run(["truncate", "-s", "300M", str(image)], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-b", "4096", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=True)
    for program in programs(args.c, args.cxx, args.ir):
        if not args.only or program.name in args.only:
            measure(program, folder)
    subprocess.run(["umount", str(folder)], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
