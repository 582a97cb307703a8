# SPDX-License-Identifier: GPL-2.0
"""A whole Debian machine: our packages are installed there by apt, booted by GRUB, upgraded and purged.

make check-package runs the long test, and makes packages if there are none; the soak runs it if there are some.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from guest import apt_repo, boot, cli, debhelper, machine, paths

INSTALL = """
set -ex
update-grub
echo 'deb [trusted=yes] file:/mnt/files ./' >/etc/apt/sources.list.d/quire.list
apt-get -q update
DEBIAN_FRONTEND=noninteractive apt-get -qy install quire '^linux-headers-.*-quire$'
quirectl default
redis-cli set kept before
su postgres -c "psql -qc 'create table kept as select generate_series(1, 1000) as n'"
"""

CHOOSE = """
set -ex
quirectl default quire
"""

# Of a later kernel of Debian's, GRUB sees its files in /boot. A line that no kernel takes must not stop the others.
SWITCH = """
set -ex
quirectl enable all
quirectl knobs set fork mixed 1
quirectl save
echo 'fork.nonesuch = 1' >>/etc/quire.conf
systemctl is-enabled quire.service
systemctl enable --now quire-metrics.timer
stock=$(cd /boot && ls vmlinuz-*-cloud-amd64)
for name in vmlinuz initrd.img config; do
    cp "/boot/$name-${stock#vmlinuz-}" "/boot/$name-6.12.999-cloud-amd64"
done
update-grub
"""

# 60 MB of small values: Redis has no huge pages, and its save forks. The scripts of the package watch, which bpftrace
# compiles with the headers of the kernel.
USE = r"""
set -ex
cat /sys/kernel/mm/quire/*/state
systemctl is-active quire.service redis-server postgresql
journalctl --boot --unit quire.service | grep fork.nonesuch
systemctl start quire-metrics.service
python3 -c 'import urllib.request; print(urllib.request.urlopen("http://localhost:9100/metrics").read().decode())' \
    >/tmp/metrics
grep -m 1 '^quire_fork_tables_shared_total ' /tmp/metrics
for script in /usr/share/quire-tools/bpftrace/*.bt; do
    name=$(basename "$script")
    bpftrace "$script" >"/tmp/$name" 2>&1 &
    until grep Attaching "/tmp/$name"; do kill -0 $!; sleep 1; done
done
redis-cli eval 'for i = 1, 200000 do redis.call("set", "key" .. i, string.rep("x", 200)) end' 0
redis-cli save
redis-cli bgsave
while redis-cli info persistence | grep rdb_bgsave_in_progress:1; do sleep 1; done
redis-cli info persistence | grep rdb_last_bgsave_status:ok
su postgres -c 'pgbench -q -i -s 2 && pgbench -n -c 4 -t 100'
pkill -INT bpftrace
wait
grep -H -m 1 '^@shared: [1-9]' /tmp/quire-adopt.bt
grep -H -m 1 '^@joined\[' /tmp/quire-join.bt
if grep -H ERROR /tmp/quire-*.bt; then exit 1; fi
grep -H '[1-9]' /sys/kernel/mm/quire/{fork/stats/tables_shared,shm/stats/tables_joined,rmap/stats/borrowed}
"""

UPGRADE = """
set -ex
apt-get -q update
DEBIAN_FRONTEND=noninteractive apt-get -qy upgrade
"""

PURGE = """
set -ex
dpkg-query -Wf '${Package} ${Version}\\n' '*quire*'
cat /sys/kernel/mm/quire/*/state /sys/kernel/mm/quire/fork/mixed
quirectl default
rm /boot/*-6.12.999-cloud-amd64
DEBIAN_FRONTEND=noninteractive apt-get -qy purge quire quire-tools '^linux-(image|headers)-.*-quire$'
rm /etc/apt/sources.list.d/quire.list
set +x -o pipefail
find / -xdev -name '*quire*' ! -name '*[Rr]equire*' ! -path '/var/log/*' ! -path '/var/lib/apt/*' | sed 's/^/left: /'
"""

# What every boot says first, and what the servers say of their data.
LOOK = """
echo "release $(uname -r)"
systemctl --failed --no-legend --plain | sed 's/^/failed: /'
"""
INT3 = "[    0.5] Oops: int3: 0000 [#1] PREEMPT SMP NOPTI"
DATA = """
redis-cli --raw get kept
su postgres -c "psql -Atc 'select sum(n) from kept'"
"""


def newer(package: Path, to: Path) -> None:
    """Write a package with the same files and a higher version into a folder."""
    folder = to / "unpacked"
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(["dpkg-deb", "-R", str(package), str(folder)], check=True)
    control = folder / "DEBIAN/control"
    text = control.read_text(encoding="utf-8")
    # The package quire wants a kernel of its own version, or a newer one.
    text = re.sub(r"^(Version: .*|Depends: .*linux-image-[^)]*)(?=\)|$)", r"\1+1", text, flags=re.M)
    control.write_text(text, encoding="utf-8")
    subprocess.run(["dpkg-deb", "-b", "--root-owner-group", str(folder), str(to)], check=True,
                   stdout=subprocess.DEVNULL)
    shutil.rmtree(folder)


def repositories(folder: Path) -> tuple[Path, Path]:
    """Make a repository of the packages that were made last, and one of newer versions of them."""
    first, second = folder / "first", folder / "second"
    made = [sorted(debhelper.OUTPUT.glob(pattern), key=lambda path: path.stat().st_mtime)[-1]
            for pattern in ("linux-image-*.deb", "linux-headers-*.deb", "quire-tools_*.deb", "quire_*.deb")]
    for to in (first, second):
        to.mkdir()
    for package in made:
        shutil.copy2(package, first)
        newer(package, second)
    for to in (first, second):
        apt_repo.write_indices(to)
        apt_repo.write_release(to, "")
    return first, second


def lines(said: str, line: str) -> int:
    """Return how often a line was printed."""
    return said.splitlines().count(line)


class Installed(machine.Machine):
    """A machine whose kernel and units never complain."""

    def said(self, step: str, command: str, files: Path | None = None) -> str:
        """Boot, run a command that must succeed, and return what it printed."""
        cli.progress(f"installation: {step}")
        done = self.boot(LOOK + command, files, 1800)
        print(f"{step}: {done.seconds:.0f} s\n{done.output}")
        assert done.status == 0 and not done.splats, (step, done.splats, done.output[-3000:], done.console[-2000:])
        assert "failed: " not in done.output, done.output
        return done.output


@pytest.mark.soak
def test_install_use_upgrade_purge(tmp_path: Path) -> None:
    """The stock kernel stays the default until it is chosen otherwise, and is what is left."""
    if not list(debhelper.OUTPUT.glob("quire_*.deb")):
        pytest.skip("build/deb has no packages: make check-package")
    first, second = repositories(tmp_path)
    with machine.lock():
        machine.make_base()
    with tempfile.TemporaryDirectory(dir=machine.HOME) as folder:
        with machine.lock():
            debian = Installed(Path(folder))
        walk_through(debian, first, second)


def walk_through(debian: Installed, first: Path, second: Path) -> None:
    """Install from one repository, use, upgrade from the other, purge."""
    stock = re.search(r"^release (.*)$", debian.said("install", INSTALL, first), re.M)
    assert stock and "quire" not in stock[1]
    assert f"release {stock[1]}\n" in debian.said("reboot, choose quire", CHOOSE)
    said = debian.said("boot quire, switch all on", SWITCH)
    quire = re.search(r"^release (.*-quire)$", said, re.M)
    assert quire and "\nenabled\n" in said
    said = debian.said("use", USE + DATA)
    assert lines(said, "on") == 5 and lines(said, "before") == lines(said, "500500") == 1
    assert len(re.findall(r"/stats/\w+:\d+$", said, re.M)) == 3
    said = debian.said("upgrade", UPGRADE, second)
    said = debian.said("boot the upgrade, purge it", DATA + PURGE)
    assert f"release {quire[1]}\n" in said and said.count("+1\n") == 4 and lines(said, "on") == 5
    assert "left: " not in said, said
    said = debian.said("boot what is left", DATA)
    assert f"release {stock[1]}\n" in said and lines(said, "before") == lines(said, "500500") == 1


@pytest.fixture(name="folder")
def fixture_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the disk of a fresh machine, and a QEMU that prints what the command says, or hangs."""
    qemu = tmp_path / "qemu"
    qemu.write_text(f"""#!/bin/sh
cd {tmp_path}
printf 'booted\\r\\n' >console
echo boot >>boots
[ "$(wc -l <boots)" -gt "$(cat deaths 2>/dev/null || echo 0)" ] || {{ cat last_words >>console; exit 0; }}
debugfs -R 'cat command' job.img 2>/dev/null >command
printf '== the command begins\\r\\n' >>output
debugfs -R 'cat files/one' job.img 2>/dev/null >>output
. ./command
""", encoding="utf-8")
    qemu.chmod(0o755)
    (tmp_path / "base.img").write_text("a disk", encoding="utf-8")
    monkeypatch.setattr(machine, "BASE", tmp_path / "base.img")
    monkeypatch.setattr(machine, "make_base", lambda: None)
    monkeypatch.setattr(boot, "QEMU", str(qemu))
    return tmp_path


def test_result_of_a_boot(folder: Path) -> None:
    """The machine has the command and its files; the status, the output and the console come back, boot by boot."""
    (folder / "some").mkdir()
    (folder / "some/one").write_text("from a file\n", encoding="utf-8")
    one = machine.Machine(folder)
    assert one.disk.read_text(encoding="utf-8") == "a disk"
    done = one.boot("echo \"== the command's status is 3\" >>output", folder / "some")
    assert (done.status, done.output, done.console, done.splats) == (3, "from a file\n", "booted\n", [])
    done = one.boot("echo BUG: unable to handle page fault >console; echo \"== the command's status is 0\" >>output")
    assert done.status == 0 and [found.kind for found in done.splats] == ["bug"]


def test_machine_that_does_not_end(folder: Path) -> None:
    """Without a status, or still running at the limit, a boot is an error that has the end of the console."""
    one = machine.Machine(folder)
    with pytest.raises(machine.MachineError, match=r"did not end the command; its console ends: booted"):
        one.boot("true")
    with pytest.raises(machine.MachineError, match=r"did not power off within 1 s"):
        one.boot("echo \"== the command's status is 0\" >>output; exec sleep 600", timeout=1)


@pytest.mark.parametrize(("words", "deaths", "direct", "boots"),
                         [(INT3, 0, True, 1), (INT3, 2, True, 3), (INT3, 3, True, 3), (INT3, 1, False, 1),
                          ("[    0.5] Oops: general protection fault: 0000 [#1]", 1, True, 1)])
def test_kernel_that_dies_at_boot(folder: Path, monkeypatch: pytest.MonkeyPatch, words: str, deaths: int, direct: bool,
                                  boots: int) -> None:
    """If QEMU's breakpoint kills it, it is started up to three times, where the disk stays as it is, and that is noted.

    A late death and any other is an error.
    """
    noted: list[dict[str, object]] = []
    monkeypatch.setattr(paths, "note", lambda name, **what: noted.append(what))
    monkeypatch.setattr(machine.Machine, "_kernel", lambda *arguments: [])
    (folder / "deaths").write_text(str(deaths), encoding="utf-8")
    (folder / "last_words").write_text(f"{words}\n", encoding="utf-8")
    one, how = machine.Machine(folder), machine.Direct("6.12") if direct else None
    status = "echo \"== the command's status is 0\" >>output"
    if boots > deaths:
        done = one.boot(status, direct=how)
        assert (done.status, done.restarts) == (0, deaths)
        with pytest.raises(machine.MachineError, match="did not end the command"):
            one.boot("true", direct=how)
    else:
        with pytest.raises(machine.MachineError, match="did not end the command"):
            one.boot(status, direct=how)
    assert len((folder / "boots").read_text(encoding="utf-8").splitlines()) == boots + (boots > deaths)
    assert len(noted) == boots - 1


def test_disk_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the file with mmdebstrap's messages, and the next attempt begins anew."""
    for name in ("LOG", "STAMP", "BASE", "GRUB"):
        monkeypatch.setattr(machine, name, tmp_path / "m" / name)
    monkeypatch.setattr(machine, "HOME", tmp_path / "m")
    monkeypatch.setattr(machine.packages, "ensure", lambda group: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    mmdebstrap = tmp_path / "mmdebstrap"
    mmdebstrap.write_text("#!/bin/sh\necho no network\nexit 1\n", encoding="utf-8")
    mmdebstrap.chmod(0o755)
    for _ in range(2):
        with pytest.raises(machine.MachineError, match=r"mmdebstrap failed: see .*/m/LOG"), machine.lock():
            machine.make_base()
        assert (tmp_path / "m/LOG").read_text(encoding="utf-8") == "no network\n"
