# SPDX-License-Identifier: GPL-2.0
"""quirectl default, in a root of its own: which kernel GRUB boots, and what stays as it was.

A script stands for update-grub. It reads the settings as grub-mkconfig does, and writes the menu in the form of
10_linux: the newest kernel first, then a submenu with all. GRUB 2.06 orders kernels as dpkg orders versions, 2.12 as
`sort -V` does, and puts GRUB_TOP_LEVEL first. Where GRUB is installed, or GRUB_MKCONFIG_LIB names its library of
functions, this library takes the place of the copies of its functions here.
"""

from __future__ import annotations

import os
import re
import signal
import struct
import subprocess
from pathlib import Path

import pytest

from guest import paths
from quirelib import bootdefault, cli

TEMPLATE = paths.REPO / "tool/grub/zz-quire-default.cfg"
LIBRARY = Path(os.environ.get("GRUB_MKCONFIG_LIB", "/usr/share/grub/grub-mkconfig_lib"))
STOCK, OURS = "6.1.0-40-amd64", "6.12.117-quire"
UPDATE = """\
#!/bin/sh
set -e
root={root}
grub_file_is_not_garbage () {{
	case $1 in *.dpkg-* | README* | */README* | *.sig) return 1 ;; esac
	test -f "$1"
}}
version_sort () {{ LC_ALL=C sort -V "$@"; }}
version_find_latest () {{
	latest=
	for one in "$@"; do
		if [ -z "$latest" ] || dpkg --compare-versions "${{one#*-}}" gt "${{latest#*-}}"; then latest=$one; fi
	done
	echo "$latest"
}}
if [ {grub} = 2.12 ]; then
	grub_move_to_front () {{ printf '%s\n' "$@" | grep -x "$1" | tail -n +2; printf '%s\n' "$@" | grep -vx "$1"; }}
fi
pkgdatadir=$root
if [ {library} ]; then . "{library}"; fi
grub_get_device_id () {{ echo "id-of-$1"; }}
PATH=$root/usr/sbin:$PATH
sorted () {{
	if command -v grub_move_to_front >/dev/null; then
		set -- $(printf '%s\n' "$@" | version_sort -r)
		if [ "${{GRUB_TOP_LEVEL-}}" ]; then set -- $(grub_move_to_front "$GRUB_TOP_LEVEL" "$@"); fi
		printf '%s\n' "$@"
		return
	fi
	all=$*
	while [ "$all" ]; do
		one=$(version_find_latest $all)
		echo "$one"
		all=$(echo $all | tr ' ' '\n' | grep -vx "$one" | tr '\n' ' ')
	done
}}
GRUB_DEVICE=/dev/vda1
for x in "$root/etc/default/grub" "$root"/etc/default/grub.d/*.cfg; do
	[ -e "$x" ] || continue
	sed "s,/boot/,$root/boot/,g; s,/etc/grub.d/,$root/etc/grub.d/,g; s,/sys/,$root/sys/,g" "$x" >"$root/sourced"
	. "$root/sourced"
done
set | grep '^quire_' >"$root/left" || :
GRUB_DEFAULT=${{GRUB_DEFAULT:-0}}
[ "$GRUB_DEFAULT" != saved ] || GRUB_DEFAULT='${{saved_entry}}'
id=$(grub_get_device_id "$GRUB_DEVICE")
entry () {{
	printf "menuentry 'Debian' \\$menuentry_id_option '%s' {{\\n" "$1"
	printf '\\tlinux\\t/vmlinuz-%s root=x\\n}}\\n' "$2"
}}
{{
	printf 'if [ "${{next_entry}}" ] ; then\\n   set default="${{next_entry}}"\\nelse\\n'
	printf '   set default="%s"\\nfi\\n' "$GRUB_DEFAULT"
	cat "$root/early"
	case ${{GRUB_DISABLE_SUBMENU-}} in true | yes | y) first= ;; *) first=true ;; esac
	list=
	for x in "$root"/boot/vmlinuz-*; do
		case $x in *.efi.signed) continue ;; esac
		if grub_file_is_not_garbage "$x"; then list="$list $x"; fi
	done
	for release in $(sorted $list | sed 's/.*vmlinuz-//'); do
		[ -z "$first" ] || entry "gnulinux-simple-$id" "$release"
		[ -z "$first" ] || echo "submenu 'Advanced' \\$menuentry_id_option 'gnulinux-advanced-$id' {{"
		first=
		entry "gnulinux-$release-advanced-$id" "$release"
	done
}} >"$root/boot/grub/grub.cfg"
"""


def versions() -> list[tuple[str, str]]:
    """Return the versions of GRUB to test, each with the file of its functions, "" for ours."""
    found = [("2.06", ""), ("2.12", "")]
    if LIBRARY.is_file():
        new = "grub_move_to_front" in LIBRARY.read_text(encoding="utf-8")
        found.append(("2.12" if new else "2.06", str(LIBRARY)))
    return found


@pytest.fixture(name="flavour", params=versions(), ids=lambda one: f"{one[0]}{'-real' if one[1] else ''}")
def fixture_flavour(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A version of GRUB and the file of its functions."""
    version, library = request.param
    return str(version), str(library)


@pytest.fixture(name="grub")
def fixture_grub(flavour: tuple[str, str]) -> str:
    """A version of GRUB."""
    return flavour[0]


@pytest.fixture(name="root")
def fixture_root(tmp_path: Path, flavour: tuple[str, str]) -> Path:
    """A root with GRUB, the settings that Debian has, a stock kernel and a newer one of ours."""
    for name in ("etc/default/grub.d", "etc/grub.d", "boot/grub", "usr/sbin"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "etc/default/grub").write_text("GRUB_DEFAULT=0\n", encoding="utf-8")
    for name in ("00_header", "05_debian_theme", "10_linux"):
        (tmp_path / "etc/grub.d" / name).touch(0o755)
    for name in ("early", "grubenv"):
        (tmp_path / name).touch()
    add(tmp_path, STOCK, OURS)
    script(tmp_path, f"#!/bin/sh\ncat {tmp_path}/grubenv\n", "usr/sbin/grub-editenv")
    script(tmp_path, UPDATE.format(root=tmp_path, grub=flavour[0], library=flavour[1]))
    update(tmp_path)
    return tmp_path


def add(root: Path, *releases: str) -> None:
    """Install kernels."""
    for release in releases:
        (root / f"boot/vmlinuz-{release}").write_bytes(image(False))


def remove(root: Path, release: str) -> None:
    """Remove a kernel."""
    (root / f"boot/vmlinuz-{release}").unlink()


def image(is_signed: bool) -> bytes:
    """Return the head of a kernel image with or without a signature."""
    data = bytearray(0x400)
    struct.pack_into("<I", data, 0x3c, 0x80)
    data[0x80:0x84] = b"PE\0\0"
    struct.pack_into("<II", data, 0x80 + 24 + 112 + 32, 0x300, 0x100 if is_signed else 0)
    return bytes(data)


def script(root: Path, text: str, name: str = bootdefault.UPDATE) -> None:
    """Write the script that stands for update-grub, or another one."""
    path = root / name
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def made(root: Path) -> tuple[str, str]:
    """Make the menu, as the package of a kernel does; return the menu, and what the file of ours says."""
    done = subprocess.run([str(root / bootdefault.UPDATE)], check=True, text=True, stderr=subprocess.PIPE)
    # Where /boot is a folder below another, dpkg warns of what it takes for the version.
    said = "".join(re.findall(r"^(?!dpkg: warning).*\n", done.stderr, re.M))
    return (root / bootdefault.MENU).read_text(encoding="utf-8"), said


def update(root: Path) -> str:
    """Make the menu; return the release that GRUB boots by default, or the entry."""
    menu, said = made(root)
    assert not said
    return bootdefault.booted_by_default(menu) or bootdefault.menu_default(menu)


def top(menu: str) -> str:
    """Return the release of the first kernel in the menu, which all names of the newest mean."""
    return str(re.findall(r"^\s*linux\s+/vmlinuz-(\S+)", menu, re.M)[0])


def run(root: Path, *words: str) -> int:
    """Run quirectl default on a root, and return its exit status."""
    return cli.main(["--root", str(root), "default", *words])


def install_tools(root: Path) -> None:
    """Do what the package of the tools does."""
    (root / bootdefault.CONF).write_bytes(TEMPLATE.read_bytes())


def settings(root: Path, text: str) -> None:
    """Replace the settings of GRUB."""
    (root / "etc/default/grub").write_text(text, encoding="utf-8")


def test_packages_alone_change_nothing(root: Path) -> None:
    """GRUB would boot a newer kernel of ours. With the package's file it boots the stock kernel, through upgrades."""
    assert update(root) == OURS, "this test needs a kernel that GRUB prefers"
    install_tools(root)
    assert update(root) == STOCK
    add(root, "6.1.0-41-amd64", "6.1.0-99-amd64.old", "6.12.118-quire")
    assert update(root) == "6.1.0-41-amd64"
    add(root, "6.16.3-1-amd64")
    assert update(root) == "6.16.3-1-amd64"
    remove(root, "6.16.3-1-amd64")
    # Which of these GRUB takes for the newest depends on its version.
    add(root, "6.16.3+deb13-amd64", "6.16.3-quire")
    assert update(root) == "6.16.3+deb13-amd64"
    assert not (root / "left").read_text(encoding="utf-8"), "variables stay behind"


def test_order_of_stock_kernels(root: Path, grub: str) -> None:
    """Of the stock kernels, the default is the one that this version of GRUB would boot without ours."""
    remove(root, OURS)
    add(root, "6.16.3-amd64", "6.16.3+deb13-amd64")
    expected = update(root)
    assert expected == {"2.06": "6.16.3+deb13-amd64", "2.12": "6.16.3-amd64"}[grub], "this test needs them to differ"
    before = made(root)[0]
    install_tools(root)
    assert update(root) == expected
    assert made(root)[0] == before, "the file does something on a machine without our kernel"
    add(root, "6.16.4-quire")
    assert update(root) == expected


def test_chosen(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The newest of our kernels is booted, through upgrades; without one GRUB decides; the way back is printed."""
    install_tools(root)
    assert run(root, "quire") == 0
    assert capsys.readouterr().out == (
        f"default: stock -> quire; GRUB boots {OURS}   (back: quirectl default stock)\n")
    add(root, "6.12.118-quire", "6.16.3-1-amd64")
    assert update(root) == "6.12.118-quire"
    remove(root, OURS)
    remove(root, "6.12.118-quire")
    assert update(root) == "6.16.3-1-amd64"
    add(root, OURS)
    assert run(root, "stock") == 0
    assert capsys.readouterr().out == "default: quire -> stock; GRUB boots 6.16.3-1-amd64\n"
    assert (root / bootdefault.CONF).read_bytes() == TEMPLATE.read_bytes()
    assert run(root) == 0
    assert capsys.readouterr().out == "default: stock; GRUB boots 6.16.3-1-amd64\n"


def test_without_the_package(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a clone the command works, too: it makes the file and its folder."""
    (root / "etc/default/grub.d").rmdir()
    assert run(root) == 0 and run(root, "quire") == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"default: unset; GRUB boots {OURS}"
    assert second.startswith(f"default: unset -> quire; GRUB boots {OURS} ")


@pytest.mark.parametrize("said, old, new", [
    ("GRUB_DEFAULT=2", "2", "2"),
    ("GRUB_DEFAULT='1>0'", "1>0", "1>0"),
    ("GRUB_DEFAULT='osprober-efi-1234'", "osprober-efi-1234", "osprober-efi-1234"),
    ("GRUB_DEFAULT=gnulinux-simple-id-of-/dev/vda1", STOCK, STOCK),
    ("GRUB_DISTRIBUTOR=Debian GRUB_DEFAULT='Debian GNU/Linux'", STOCK, "Debian GNU/Linux"),
    ("", STOCK, STOCK),
    ("GRUB_DISABLE_SUBMENU=y", STOCK, STOCK),
])
def test_stock_leaves_decisions_alone(root: Path, grub: str, said: str, old: str, new: str) -> None:
    """What somebody has set stays, unless it means the newest kernel; the choice of our kernel goes before all.

    With GRUB 2.12 the stock kernel takes the place of the newest one, whatever names that.
    """
    settings(root, f"{said}\n")
    install_tools(root)
    assert update(root) == {"2.06": old, "2.12": new}[grub]
    menu = made(root)[0]
    if grub == "2.12":
        name = re.search("GRUB_DEFAULT='?([^']+)", said)
        assert top(menu) == STOCK and bootdefault.menu_default(menu) == (name.group(1) if name else "0")
    elif old == STOCK:
        assert (">" in bootdefault.menu_default(menu)) == ("SUBMENU" not in said), menu
    assert run(root, "quire") == 0 and update(root) == OURS


def test_a_kernel_that_somebody_put_first(root: Path, grub: str) -> None:
    """GRUB_TOP_LEVEL, which 2.12 knows, stays what somebody has set; 2.06 knows nothing of it."""
    add(root, "6.1.0-39-amd64")
    settings(root, "GRUB_TOP_LEVEL=/boot/vmlinuz-6.1.0-39-amd64\n")
    install_tools(root)
    assert update(root) == {"2.06": STOCK, "2.12": "6.1.0-39-amd64"}[grub]
    assert run(root, "quire") == 0 and update(root) == OURS


@pytest.mark.parametrize("saved, first", [("", True), ("saved_entry=0\n", True),
                                          ("x=y\nsaved_entry=gnulinux-simple-id\n", True),
                                          ("saved_entry=osprober-efi-1234\n", False)])
def test_saved_entry(root: Path, grub: str, saved: str, first: bool, capfd: pytest.CaptureFixture[str]) -> None:
    """An entry that is saved stays. GRUB 2.06 has no way to make the first entry another one, so a line warns."""
    settings(root, "GRUB_DEFAULT=saved\n")
    (root / "grubenv").write_text(saved, encoding="utf-8")
    install_tools(root)
    menu, said = made(root)
    assert bootdefault.menu_default(menu) == "${saved_entry}"
    assert ("set GRUB_DEFAULT=0" in said) == (first and grub == "2.06")
    if grub == "2.12":
        assert top(menu) == STOCK
    assert run(root, "quire") == 0 and update(root) == OURS
    remove(root, OURS)
    install_tools(root)
    assert update(root) == "${saved_entry}" and not capfd.readouterr().err


def test_copies_are_no_stock_kernels(root: Path) -> None:
    """A kernel of ours that somebody signed or kept under another name is not taken for a stock kernel, nor is .old.

    The command counts the same kernels as the file.
    """
    install_tools(root)
    copies = [f"{OURS}{end}" for end in (".signed", ".bak", ".unsigned", ".efi.signed", ".old", ".dpkg-new")]
    add(root, *copies, "6.1.0-99-amd64.efi.signed", "6.1.0-99-amd64.old", "6.1.0-99-amd64.dpkg-tmp")
    assert update(root) == STOCK
    assert bootdefault.others(root) == [STOCK] and bootdefault.kernels(root) == [OURS]
    add(root, "6.1.0-98-mine")
    assert update(root) == "6.1.0-98-mine" and sorted(bootdefault.others(root)) == [STOCK, "6.1.0-98-mine"]
    assert run(root, "quire") == 0 and update(root) == OURS


@pytest.mark.parametrize("name, text, mode, before", [
    ("09_other", "#!/bin/sh\necho \"menuentry 'x' {}\"\n", 0o755, True),
    ("09_other", "#!/bin/sh\necho \"submenu 'x' {}\"\n", 0o755, True),
    ("09_other", "#!/bin/sh\necho \"menuentry 'x' {}\"\n", 0o644, False),
    ("09_other~", "#!/bin/sh\necho \"menuentry 'x' {}\"\n", 0o755, False),
    ("09_other.dpkg-dist", "#!/bin/sh\necho \"menuentry 'x' {}\"\n", 0o755, False),
    ("11_other", "#!/bin/sh\necho \"menuentry 'x' {}\"\n", 0o755, False),
    ("01_password", "#!/bin/sh\necho menuentry_id_option; echo 'set superusers=root'\n", 0o755, False)])
def test_entries_before_the_kernels(root: Path, grub: str, name: str, text: str, mode: int, before: bool) -> None:
    """If a script puts entries before the kernels, the first entry is none of ours, and stays the default."""
    install_tools(root)
    path = root / "etc/grub.d" / name
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    if before:
        (root / "early").write_text("menuentry 'x' {\n}\n", encoding="utf-8")
    menu = made(root)[0]
    assert (bootdefault.menu_default(menu) == "0") == (before or grub == "2.12")
    assert bootdefault.booted_by_default(menu) == ("" if before else STOCK)
    assert grub == "2.06" or top(menu) == STOCK
    assert run(root, "quire") == 0 and update(root) == OURS


@pytest.mark.parametrize("where", ["etc/grub.d/01_password", "boot/grub/custom.cfg"])
@pytest.mark.parametrize("which", ["stock", "quire"])
def test_password(root: Path, where: str, which: str) -> None:
    """With a password of GRUB, the default is an entry of the first level: a submenu asks for it at each boot."""
    assert run(root, which) == 0
    (root / where).write_text('set superusers="root"\n', encoding="utf-8")
    menu = made(root)[0]
    assert ">" not in bootdefault.menu_default(menu)
    first_level = menu.split("submenu ")[0]
    entry = bootdefault.menu_default(menu)
    assert entry == "0" or f"'{entry}'" in first_level
    assert update(root) == (STOCK if which == "stock" else OURS)


def test_our_kernel_alone(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A machine that has no other kernel boots ours; that is no error."""
    remove(root, STOCK)
    assert run(root, "stock") == 0
    assert capsys.readouterr().out == f"default: unset -> stock; GRUB boots {OURS}\n"


def test_a_later_file_wins(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If GRUB boots something else than was chosen, the command says so and fails. Earlier files do not matter."""
    later = root / "etc/default/grub.d/zzz.cfg"
    later.write_text("GRUB_DEFAULT=0 GRUB_TOP_LEVEL=\n", encoding="utf-8")
    assert run(root, "stock") == 1
    assert f"says stock, but GRUB boots {OURS}: look for GRUB_DEFAULT" in capsys.readouterr().err
    later.write_text("GRUB_DEFAULT=saved\n", encoding="utf-8")
    assert run(root, "quire") == 1
    assert "says quire, but GRUB boots the entry that was saved last" in capsys.readouterr().err
    gone = "gnulinux-6.12.99-quire-advanced-other"
    later.write_text(f"GRUB_DEFAULT={gone}\n", encoding="utf-8")
    assert run(root, "quire") == 1
    assert f"says quire, but GRUB boots its entry {gone}:" in capsys.readouterr().err
    later.rename(later.with_name("xen.cfg"))
    assert run(root, "quire") == 0 and update(root) == OURS


def tree(root: Path) -> dict[str, bytes]:
    """Return all files with their content."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_dry_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing changes, and what would is printed; what would be refused is refused."""
    before = tree(root)
    assert run(root, "quire", "--dry-run") == 0
    assert capsys.readouterr().out == (f"would write quire_boots=quire to {root / bootdefault.CONF} (now: unset) and "
                                       f"run {root / bootdefault.UPDATE}\n")
    assert tree(root) == before
    remove(root, OURS)
    assert run(root, "quire", "--dry-run") == 1


@pytest.mark.parametrize("installed", [False, True])
def test_update_that_fails(root: Path, capsys: pytest.CaptureFixture[str], installed: bool) -> None:
    """The file is as it was, and the message has what update-grub said."""
    if installed:
        install_tools(root)
    script(root, "#!/bin/sh\necho no device\nexit 1\n")
    before = tree(root)
    assert run(root, "quire") == 1
    error = capsys.readouterr().err
    assert "update-grub failed" in error and error.endswith("It says:\nno device\n") and tree(root) == before
    (root / bootdefault.UPDATE).chmod(0o644)
    assert run(root, "quire") == 1
    assert capsys.readouterr().err.endswith("It says:\nPermission denied\n") and tree(root) == before


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit])
def test_update_that_is_interrupted(root: Path, monkeypatch: pytest.MonkeyPatch, ending: type[BaseException]) -> None:
    """If the command is ended while GRUB makes its menu, the file is as it was: no later menu may choose our kernel."""
    def interrupt(_root: Path) -> str:
        if ending is KeyboardInterrupt:
            raise KeyboardInterrupt
        assert callable(signal.getsignal(signal.SIGTERM)), "it would end the tests"
        signal.raise_signal(signal.SIGTERM)
        return ""

    handler = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    before = tree(root)
    monkeypatch.setattr(bootdefault, "update_grub", interrupt)
    try:
        with pytest.raises(ending):
            bootdefault.update(root, "quire")
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert tree(root) == before


def test_no_kernel(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a kernel of ours there is nothing to choose; the message says how to install one."""
    remove(root, OURS)
    before = tree(root)
    assert run(root, "quire") == 1
    assert "there is no quire kernel in" in (error := capsys.readouterr().err) and "apt install quire" in error
    assert tree(root) == before


@pytest.mark.parametrize("gone", [bootdefault.UPDATE, bootdefault.MENU])
def test_no_grub(root: Path, capsys: pytest.CaptureFixture[str], gone: str) -> None:
    """Without GRUB, or with a GRUB that is installed and not used, the message says so."""
    (root / gone).unlink()
    assert run(root) == run(root, "quire") == run(root, "stock") == 1
    assert capsys.readouterr().err.count("error: GRUB does not boot this machine") == 3
    assert not (root / bootdefault.CONF).exists()


def test_systemd_boot(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With systemd-boot the message has its command, also if GRUB is installed beside it."""
    info = root / bootdefault.LOADER_INFO
    info.parent.mkdir(parents=True)
    info.write_bytes(b"\6\0\0\0" + "GRUB 2.12\0".encode("utf-16-le"))
    assert run(root) == 0
    info.write_bytes(b"\6\0\0\0" + "systemd-boot 252\0".encode("utf-16-le"))
    assert run(root, "quire") == run(root, "stock") == 1
    error = capsys.readouterr().err
    assert "bootctl set-default '*-quire.conf'" in error and "bootctl set-default '*-amd64.conf'" in error
    info.unlink()
    (root / bootdefault.MENU).unlink()
    (root / "boot/efi/loader").mkdir(parents=True)
    (root / "boot/efi/loader/loader.conf").touch()
    assert run(root, "quire") == 1 and "bootctl" in capsys.readouterr().err


def test_secure_boot(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With Secure Boot only a signed kernel of ours becomes the default: the newest, by number."""
    variable = root / bootdefault.SECURE_BOOT
    variable.parent.mkdir(parents=True)
    variable.write_bytes(b"\6\0\0\0\1")
    (root / "boot/vmlinuz-6.12.9-quire").write_bytes(image(True))
    assert run(root, "quire") == 1
    assert f"vmlinuz-{OURS} has no signature" in (error := capsys.readouterr().err) and "sbsign" in error
    (root / f"boot/vmlinuz-{OURS}").write_bytes(image(True))
    assert run(root, "quire") == 0
    for broken in (b"", b"MZ", image(True)[:0x90]):
        (root / f"boot/vmlinuz-{OURS}").write_bytes(broken)
        assert run(root, "quire") == 1
    variable.write_bytes(b"\6\0\0\0\0")
    assert run(root, "quire") == 0


def test_secure_boot_after_an_upgrade(root: Path) -> None:
    """A kernel without a signature that an upgrade brings does not become the default: the newest signed one stays."""
    variable = root / bootdefault.SECURE_BOOT
    variable.parent.mkdir(parents=True)
    variable.write_bytes(b"\6\0\0\0\1")
    (root / f"boot/vmlinuz-{OURS}").write_bytes(image(True))
    assert run(root, "quire") == 0 and update(root) == OURS
    add(root, "6.12.118-quire")
    menu, said = made(root)
    assert bootdefault.booted_by_default(menu) == OURS
    assert said == f"quire: {root}/boot/vmlinuz-6.12.118-quire is not signed, and Secure Boot is on: not the default\n"
    for broken in (image(False), b"", b"MZ", image(True)[:0x90]):
        (root / f"boot/vmlinuz-{OURS}").write_bytes(broken)
        menu, said = made(root)
        assert bootdefault.booted_by_default(menu) == STOCK and said.count("not signed") == 2
    variable.write_bytes(b"\6\0\0\0\0")
    assert update(root) == "6.12.118-quire"


def test_only_root(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may not write is told to use sudo, and nothing runs."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    before = tree(root)
    assert run(root, "quire") == 1
    assert "with sudo" in capsys.readouterr().err and tree(root) == before


def test_root_may_not_write(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Root is told what the system says, such as that the file system is read-only, and not to become root."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (root / "etc/default/grub.d").rmdir()
    (root / "etc/default/grub.d").touch()
    assert run(root, "quire") == 1
    error = capsys.readouterr().err
    assert "grub.d: cannot be made: File exists" in error and "sudo" not in error


@pytest.mark.parametrize("closed, gone", [("boot", ""), ("boot/efi", bootdefault.UPDATE), ("boot/grub", "")])
def test_closed_folder(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, closed: str,
                       gone: str) -> None:
    """Who may not look into a folder is told to use sudo; no error of Python's, and no wrong answer."""
    (root / closed).mkdir(exist_ok=True)
    if gone:
        (root / gone).unlink()
    # The folders above need not be open to the other user if the root is the working directory.
    monkeypatch.chdir(root)
    root.chmod(0o755)
    (root / closed).chmod(0)
    before = os.geteuid()
    try:
        if before == 0:
            os.seteuid(65534)
        status = run(Path("."), "quire")
    finally:
        os.seteuid(before)
        (root / closed).chmod(0o755)
    assert status == 1 and "this user may not read" in (error := capsys.readouterr().err) and "with sudo" in error


def test_wrong_word(root: Path) -> None:
    """A word that is neither is refused as a wrong command line."""
    with pytest.raises(SystemExit) as stop:
        run(root, "vanilla")
    assert stop.value.code == 2


def test_template() -> None:
    """The file has one line with the choice, which is stock."""
    assert re.findall(r"^quire_boots=.*$", TEMPLATE.read_text(encoding="utf-8"), re.M) == ["quire_boots=stock"]


@pytest.mark.parametrize("kernels", [(), (STOCK, OURS)])
@pytest.mark.parametrize("which", ["stock", "quire"])
def test_read_without_the_library(tmp_path: Path, kernels: tuple[str, ...], which: str) -> None:
    """Other programs read GRUB's settings without its functions: the file does nothing then, and fails at nothing."""
    (tmp_path / "boot").mkdir()
    add(tmp_path, *kernels)
    text = TEMPLATE.read_text(encoding="utf-8").replace("/boot/", f"{tmp_path}/boot/")
    copy = tmp_path / "copy"
    copy.write_text(text.replace("quire_boots=stock", f"quire_boots={which}"), encoding="utf-8")
    done = subprocess.run(["sh", "-euc", f". {copy}; set | grep -e ^quire -e ^GRUB_ || echo nothing"], check=True,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={"PATH": os.environ["PATH"]})
    assert done.stdout == "nothing\n"


def test_strict_shell(root: Path, flavour: tuple[str, str]) -> None:
    """No command of the file fails, and no variable is unset, with an empty /boot or with kernels."""
    if flavour[1]:
        pytest.skip("GRUB's own functions have variables that are unset")
    script(root, (root / bootdefault.UPDATE).read_text(encoding="utf-8").replace(
        '. "$root/sourced"', 'set -u\n. "$root/sourced"\nset +u'))
    assert run(root, "quire") == 0 and run(root, "stock") == 0
    remove(root, STOCK)
    assert update(root) == OURS
    remove(root, OURS)
    made(root)
    assert (root / "left").read_text(encoding="utf-8") == ""
