# SPDX-License-Identifier: GPL-2.0
"""Find kernel splats in a console log: bugs, warnings, sanitizer reports, lockdep, stalls, leaks, panics."""

from __future__ import annotations

import re
from dataclasses import dataclass

# "[    1.234567]", with CONFIG_PRINTK_CALLER "[    1.234567][  T123]", and a log level where one is printed.
STAMP = re.compile(r"^(<\d+>)?\[ *\d+\.\d+\](\[ *[TC]\d+\])? ?")
NOISE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1bc|\r|\0")

# The patterns that start a splat, by kind, matched at the beginning of a message. The first match decides the kind.
STARTS: tuple[tuple[str, re.Pattern[str]], ...] = tuple((kind, re.compile(pattern)) for kind, pattern in (
    ("panic", r"Kernel panic - not syncing"),
    ("race", r"BUG: KCSAN:"),
    ("kasan", r"BUG: KASAN:|BUG: KFENCE:|BUG: KMSAN:|UBSAN:"),
    ("bad page", r"BUG: Bad (page|rss-counter)|BUG: non-zero pgtables_bytes|Bad page"),
    ("lockup", r"(watchdog: )?BUG: (soft|workqueue) lockup|(NMI )?watchdog: Watchdog detected hard LOCKUP"),
    ("bug", r"BUG: |kernel BUG at |list_(add|del) corruption"),
    ("oops", r"Oops: |Oops\b|general protection fault|Unable to handle kernel|double fault|PANIC: |"
             r"stack guard page was hit|invalid opcode: 0000|int3: 0000"),
    ("stall", r"(rcu: )?INFO: rcu\S* (self-)?(detected|expedited).*stall|rcu: INFO: \S+ (self-)?detected"),
    ("hung task", r"INFO: task .* blocked for more than|INFO: task .* blocked in I/O wait"),
    ("lockdep", r"WARNING: (possible|suspicious|inconsistent|bad unlock|bad contention|lock held|held lock|nested "
                r"lock|\S+ -> \S+ unsafe|HARDIRQ|SOFTIRQ|.*still has locks held|.*lock order|process .* still)|"
                r"INFO: (possible|trying to register non-static key|lockdep)|DEBUG_LOCKS_WARN_ON"),
    ("warning", r"WARNING: "),
    ("leak", r"kmemleak: \d+ new suspected memory leaks|unreferenced object 0x"),
    ("objects", r"ODEBUG: "),
))
END = re.compile(r"---\[ end (trace|Kernel panic)|^={20,}$")
# WARN() and BUG() print this line, then the caller's message, then the line that matches STARTS.
CUT = "------------[ cut here ]------------"
LONGEST = 120


@dataclass(frozen=True)
class Splat:
    """One report of the kernel: its kind, its first line, and all of its lines."""

    kind: str
    title: str
    text: str


def message(line: str) -> str:
    """Return a console line without its time stamp, escape sequences and line end."""
    return STAMP.sub("", NOISE.sub("", line)).strip()


def kind_of(line: str) -> str | None:
    """Return the kind of splat that a message starts, or None."""
    for kind, pattern in STARTS:
        if pattern.match(line):
            return kind
    return None


def find(console: str) -> list[Splat]:
    """Return the splats of a console log, in order, each once.

    A report extends to its end marker. A line within it that looks like the start of another report is part of it. The
    exception is a panic, which is always a report of its own, so that the reason why a kernel died is named.
    """
    found: list[Splat] = []
    lines = console.splitlines()
    at, cut = 0, -LONGEST
    while at < len(lines):
        title = message(lines[at])
        kind = kind_of(title)
        if kind is None:
            cut = at if title == CUT else cut
            at += 1
            continue
        words = [message(line) for line in lines[cut + 1:at]] if at - cut <= 8 else []
        body, at, cut = [*words, title], at + 1, -LONGEST
        while at < len(lines) and len(body) < LONGEST:
            line = message(lines[at])
            if kind != "panic" and kind_of(line) == "panic":
                break
            body.append(line)
            at += 1
            if END.search(line) and len(body) > 2:
                break
        splat = Splat(kind, title, "\n".join(body))
        if all(known.text != splat.text for known in found):
            found.append(splat)
    return found


def summary(splats: list[Splat], lines: int = 40) -> str:
    """Format splats for people: kind and text, each cut to `lines` lines."""
    parts = []
    for splat in splats:
        text = splat.text.splitlines()
        more = [f"... ({len(text) - lines} more lines)"] if len(text) > lines else []
        parts.append("\n".join([f"--- kernel {splat.kind}: {splat.title}", *text[:lines], *more]))
    return "\n".join(parts)
