# SPDX-License-Identifier: GPL-2.0
"""quirectl on a real kernel: the table of knobs, save and apply, metrics, and who shares what."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import kernel_surface
from guest import boot, paths
from quirelib import cli, knobs
from test_monitoring import events
from test_reports import samples

# A process that runs quirectl while its child shares its page tables, and records the fork.
SHARE = """
import os, signal, subprocess
memory = bytearray(b'x') * (64 << 20)
recorder = subprocess.Popen(['tool/quirectl', 'record', '--seconds', '600', '--json', '--output', '/tmp/trace',
                             'fork_*'], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
recorder.stderr.readline()
child = os.fork()
if not child:
    signal.pause()
print('@top', subprocess.run(['tool/quirectl', 'top', '--json', '--lines', '2'], capture_output=True, text=True,
                             check=True).stdout.replace('\\n', ' '))
os.kill(child, signal.SIGKILL)
recorder.send_signal(signal.SIGINT)
print('@recorded', recorder.communicate()[0].replace('\\n', ' '))
"""
SCRIPT = r"""
cd {repo}
q=tool/quirectl
# Otherwise each start of quirectl compiles quirelib, for a second and more on an emulated processor.
export PYTHONPYCACHEPREFIX=/tmp/bytecode
/usr/bin/python3 -m compileall -q tool/quirelib
echo "@state $($q knobs list --json | tr -d '\n')"
$q save --output /tmp/off
$q enable all >/dev/null && $q knobs set fork mixed 1 && $q knobs set prezero scrub_stop 301
$q save --output /tmp/on
grep -q '^fork.enabled = 1' /tmp/on && grep -q '^prezero.scrub_stop = 301' /tmp/on && echo @changed
$q apply --strict /tmp/off && $q save --output /tmp/again && cmp /tmp/off /tmp/again && echo @applied off
$q apply --strict /tmp/on && $q save --output /tmp/again && cmp /tmp/on /tmp/again && echo @applied on
echo "@refused $($q knobs set fork min_tables 0 2>&1)"
echo "@gauge $($q knobs set shm tables 4 2>&1)"
python3 -c "{share}"
echo "@events $($q record --list | tr '\n' ' ')"
ls /sys/kernel/tracing/instances | sed 's/^/@left /'
grep -c ' fork_share: mm=' /tmp/trace | sed 's/^/@lines /'
$q metrics | sed 's/^/@metric /'
$q bugreport --output /tmp/r.tar.gz >/dev/null && tar xzOf /tmp/r.tar.gz --wildcards '*/dmesg.txt' | sed 's/^/@log /'
"""


def said(result: boot.Result, word: str) -> list[str]:
    """Return what follows a word on the lines that begin with it."""
    return [line.removeprefix(f"@{word}").removeprefix(" ") for line in result.output.splitlines()
            if line.split(" ")[0] == f"@{word}"]


def test_on_a_kernel(guest: Callable[..., boot.Result], tmp_path: Path) -> None:
    """All of this runs in one guest."""
    result = guest(SCRIPT.format(repo=paths.REPO, share=SHARE), append="quire=nonesuch", memory="2G")
    states = json.loads(said(result, "state")[0])
    for feature, values in states.items():
        assert set(values) == {knob.name for knob in knobs.KNOBS if knob.feature == feature}
        # A guest has a hypervisor, so scrub_unused does not start with the default of a bare machine.
        expected = {knob.name: knob.default for knob in knobs.KNOBS if knob.feature == feature} | \
            ({"verify": values["verify"], "scrub_unused": "0"} if feature == "prezero" else {})
        assert values == expected
    assert len(states) == 5 and said(result, "changed") == [""], result.output
    assert said(result, "applied") == ["off", "on"], result.output
    assert "It takes 1 to 1073741824" in said(result, "refused")[0]
    assert "read-only" in said(result, "gauge")[0]
    top = json.loads(said(result, "top")[0])
    assert [one["name"] for one in top] == ["python3", "python3"] and min(one["fork"] for one in top) >= 32 << 10
    recorded = json.loads(said(result, "recorded")[0])
    assert recorded["events"]["fork_share"] == int(said(result, "lines")[0]) >= 32 and recorded["lost"] == 0
    assert said(result, "events")[0].split() == sorted(events()) and not said(result, "left")
    odd = set(samples("\n".join(said(result, "metric")) + "\n")) ^ made_up(tmp_path)
    assert not odd, f"kernel and source differ: {', '.join(sorted(odd))}"
    assert any(re.search(r"quire: boot option .* 'nonesuch'", line) for line in said(result, "log"))


def made_up(folder: Path) -> set[str]:
    """Return the names of the metrics that a fake root of kernel_surface gives."""
    root = kernel_surface.make(folder / "root")
    assert cli.main(["--root", str(root), "metrics", "--output", str(folder / "metrics")]) == 0
    return set(samples((folder / "metrics").read_text(encoding="utf-8")))
