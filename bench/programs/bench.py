# SPDX-License-Identifier: GPL-2.0
"""Real programs with much text, if they are installed: a compiler, a database, a script engine, a code generator."""

from bench.core import Aim, Benchmark, Options

SOURCES = ("util", "menu", "preprocess")  # of the kernel's scripts/kconfig, which needs no configuration
NODE = "let s = 0; for (let i = 0; i < 30; i++) s += JSON.stringify([...Array(400)].map((_, k) => ({k}))).length"


def compiler(options: Options, runs: int) -> str:
    """Return the lines for cc1: one source, and all of them one after the other."""
    names = " ".join(SOURCES[: options.pick(3, 2, 0)])
    return f"""have cc1 "$(gcc -print-prog-name=cc1)"
echo 'int f(int x) {{ return x * x; }}' >util.i
for name in {names}; do
    gcc -E -I"$BASE/scripts/include" -I"$BASE/scripts/kconfig" -o "$name.i" "$BASE/scripts/kconfig/$name.c"
done
cat >loop <<'END'
for name in *.i; do mnt/cc1 -quiet -O2 -fpreprocessed "$name" -o /dev/null || exit 1; done
END
./run_program {runs} cc1 mnt/cc1 mnt/cc1 -quiet -O2 -fpreprocessed util.i -o /dev/null
again
./run_program {runs} cc1_loop - sh ./loop"""


def others(runs: int) -> str:
    """Return the lines for programs that this machine may not have; those that it lacks are left out."""
    return f"""if have postgres "$(ls /usr/lib/postgresql/*/bin/postgres | sort -V | tail -n 1)"; then
    ./run_program {runs} postgres mnt/postgres mnt/postgres --describe-config
fi
if have node "$(command -v node)"; then
    ./run_program {runs} node mnt/node mnt/node -e '{NODE}'
fi
llc=$(ls /usr/lib/llvm-*/bin/llc 2>/dev/null | sort -V | tail -n 1)
library=$(ldd "${{llc:-/bin/true}}" | awk '/libLLVM/ {{ print $3 }}')
if have llc "$llc" && have libLLVM "$library"; then
    for i in $(seq 60); do
        echo "define i32 @f$i(i32 %x) {{ %y = mul i32 %x, $i %z = add i32 %y, %x ret i32 %z }}"
    done >input.ll
    export LD_LIBRARY_PATH="$PWD/mnt"
    ./run_program {runs} libLLVM "mnt/${{library##*/}}" mnt/llc -O2 input.ll -o /dev/null
fi"""


def script(options: Options) -> str:
    """Return the guest's script: each program on ext4, with no page of it resident before its first run."""
    runs = options.pick(3, 2, 1)
    return f"""truncate -s 512M image
mkfs.ext4 -q -F -m 0 -b 4096 image
mkdir -p mnt
mount -o loop image mnt
again() {{
    umount mnt
    mount -o loop image mnt
    # udev reads a new device; that must not be counted.
    udevadm settle --timeout=60 2>/dev/null || sleep 1
}}
have() {{
    [ -n "$2" ] && [ -e "$2" ] || {{ echo "# no $1 here"; return 1; }}
    cp -L "$2" mnt
    again
}}
{compiler(options, runs)}
{"" if options.tiny else others(runs)}
umount mnt
rm image"""


BENCHMARK = Benchmark(
    name="programs",
    title="real programs with much text: cc1, postgres, node, libLLVM",
    features=("text",),
    programs=("run_program",),
    script=script,
    shown=("pmd_share", "of_mapped", "faults", "cpu_s", "real_s"),
    more_is_better=frozenset({"pmd_share", "of_mapped"}),
    by_clock=frozenset({"real_s"}),
    emulated_boot="clearcpuid=erms",
    note="blocks of which less than half is read stay small; under emulation all kernels copy by words, not bytes "
    "(clearcpuid=erms)",
    icount_note="instructions know no TLB, which is what huge text is for; all kernels copy by words, not bytes "
    "(clearcpuid=erms)",
    main=({"program": "cc1", "start": "after_1s"}, "faults"),
    boots=(("icount", 1), ("time", 1)),
    timeout=1200,
    aims=(
        Aim("page faults of real programs, executed again after a second", "faults", {"start": "after_1s"}, 1.0),
        Aim("instructions of real programs, executed again after a second", "cpu_s", {"start": "after_1s"}, 1.0),
        Aim("off: real programs, executed again after a second", "cpu_s", {"start": "after_1s"}, 1.01, column="off"),
    ),
)
