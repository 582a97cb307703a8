# SPDX-License-Identifier: GPL-2.0
"""What the daemon that zeroes free memory costs: its time, the wake-ups of an idle machine, and holds of zone->lock."""

from bench.core import Aim, Benchmark, Options


def script(options: Options) -> str:
    """Return the guest's script; only kernels with lock events print the row of zone->lock.

    An idle guest switches tasks a few times a second, so it must be idle for long; counted, that takes no time.
    """
    return f"""[ -d /sys/kernel/tracing/events ] || mount -t tracefs tracefs /sys/kernel/tracing
./kscrubd_cost fill {options.pick(2048, 1024, 16)}
./kscrubd_cost idle {options.pick(600 if options.icount else 60, 5, 1)}
./kscrubd_cost locks {options.pick(256, 64, 4)}"""


BENCHMARK = Benchmark(
    name="kscrubd",
    title="what the daemon that zeroes free memory costs others",
    features=("prezero",),
    programs=("kscrubd_cost",),
    script=script,
    shown=("zeroed_MB", "kscrubd_us_per_GB", "wakeups_per_GB", "kscrubd_wakeups", "kscrubd_us", "switches_per_s",
           "interrupts_per_s", "scrubbed_MB", "holds", "held_ticks", "p99_ticks", "worst_ticks"),
    more_is_better=frozenset({"zeroed_MB", "scrubbed_MB"}),
    one_event=frozenset({"worst_ticks"}),
    lock_events=frozenset({"scrubbed_MB", "holds", "held_ticks", "p99_ticks", "worst_ticks"}),
    note="zone->lock has rows only where lock events are built in, as in the kernel debug: "
    "--column no_pool=debug --column pool=debug:quire=prezero; a hold then includes the kernel's checks, and by the "
    "clock, with several CPUs, the wait for the lock",
    icount_note="zone->lock has rows only where lock events are built in, as in the kernel debug: "
    "--column no_pool=debug --column pool=debug:quire=prezero; a hold then includes the kernel's checks; a rep stos "
    "counts one instruction for each iteration",
    main=({"state": "idle"}, "switches_per_s"),
    boots=(("icount", 1), ("time", 3)),
    aims=(
        Aim("an idle machine with a full pool, wake-ups of kscrubd", "kscrubd_wakeups", {"state": "idle"}, 0, "value",
            headline=True),
        Aim("an idle machine with a full pool, context switches", "switches_per_s", {"state": "idle"}, 1.05),
        Aim("an idle machine with a full pool, interrupts", "interrupts_per_s", {"state": "idle"}, 1.05),
    ),
)
