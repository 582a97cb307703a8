# SPDX-License-Identifier: GPL-2.0
"""The compiler, alone and, as in the contest of 2002, beside loads of processes, I/O and memory."""

from bench.core import Aim, Benchmark, Figure, Options

LOADS = ("process", "io", "memory")
SOURCES = ("util", "menu", "preprocess")  # of the kernel's scripts/kconfig, which needs no configuration


def script(options: Options) -> str:
    """Return the guest's script: cc1, on ext4, compiles preprocessed sources of the kernel tree on all CPUs."""
    sources = SOURCES[: options.pick(2 if options.icount else 3, 2, 1)]
    loads = ("alone", *LOADS[: options.pick(3, 3, 1)])
    runs = options.pick(3, 2, 1)
    compiles = "\n".join(f"./timed {load} {runs} sh ./compile" for load in loads)
    return f"""truncate -s 448M image
mkfs.ext4 -q -F -m 0 -b 4096 image
mkdir -p mnt
mount -o loop image mnt
cp "$(gcc -print-prog-name=cc1)" mnt/cc1
for name in {" ".join(sources)}; do
    gcc -E -I"$BASE/scripts/include" -I"$BASE/scripts/kconfig" -o "$name.i" "$BASE/scripts/kconfig/$name.c"
done
cat >compile <<'END'
ls *.i | xargs -P "$(nproc)" -I NAME mnt/cc1 -quiet -O2 -fpreprocessed NAME -o /dev/null
END
export LOAD_FILE=mnt/load.data
{compiles}
rm -f "$LOAD_FILE"
umount mnt"""


BENCHMARK = Benchmark(
    name="compile",
    title="cc1 on sources of the kernel tree, alone and under load",
    features=("fork", "shm", "prezero", "text", "rmap"),
    programs=("timed",),
    script=script,
    shown=("cpu_s", "real_s", "loaded_s", "work_per_s"),
    by_clock=frozenset({"real_s"}),
    more_is_better=frozenset({"work_per_s"}),
    native=("real_s", "loaded_s", "user_s", "sys_s", "work_per_s"),
    icount_note="one CPU; under load it is never idle, so loaded_s counts instructions too, without waits for the host",
    main=({"load": "alone"}, "cpu_s"),
    boots=(("icount", 3), ("time", 3)),
    aims=(
        Aim("a compile, all features on", "cpu_s", {"load": "alone"}, 1.01, headline=True),
        Aim("off: a compile", "cpu_s", {"load": "alone"}, 1.01, column="off"),
        Aim("a compile beside processes, I/O, memory", "loaded_s", {"load": LOADS}, 1.01),
        Aim("what those got done meanwhile", "work_per_s", {"load": LOADS}, 0.99, more_is_better=True),
        Aim("a compile, by the clock", "real_s", {"load": "alone"}, 1.01, clock="time"),
        Aim("a compile under load, by the clock", "loaded_s", {"load": LOADS}, 1.01, clock="time"),
        Aim("what the loads got done, by the clock", "work_per_s", {"load": LOADS}, 0.99, clock="time",
            more_is_better=True),
    ),
    figures=(
        Figure("Miller, December 2004, sparc64", "make -j3 of a kernel with prezeroing, real", 513, 508, "s"),
    ),
)
