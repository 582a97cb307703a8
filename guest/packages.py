# SPDX-License-Identifier: GPL-2.0
"""Install what is missing: Debian packages (with sudo when not root), and the Python packages in build/venv.

Both steps name what they fetch before they fetch it. If nothing is missing, nothing is fetched or changed.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys

from guest import cli, paths, tree

# Alternatives are separated by a bar; the first that apt offers is installed.
PACKAGES: dict[str, tuple[str, ...]] = {
    "to build": ("build-essential", "flex", "bison", "bc", "libelf-dev", "libssl-dev", "cpio", "kmod", "rsync",
                 "xz-utils", "lz4", "patch", "ccache", "python3-venv"),
    "to boot": ("qemu-system-x86", "udev", "busybox-static"),
    "to be configured like Debian's kernel": ("linux-config-6.12",),
    "to lint": ("perl", "sparse"),
    "for selftests": ("libcap-dev", "libnuma-dev", "liburing-dev", "liburcu-dev"),
    "file systems": ("e2fsprogs", "erofs-utils", "util-linux"),
    "workloads": ("redis-server", "redis-tools", "postgresql-15|postgresql", "stress-ng", "squashfs-tools", "xfsprogs",
                  "criu", "gdb"),
    "to test the tools": ("prometheus", "prometheus-node-exporter", "zsh"),
}

# The groups that a goal needs. Only the tests and all the benchmarks need servers such as Redis and PostgreSQL.
GOALS: dict[str, tuple[str, ...]] = {
    "all": tuple(PACKAGES),
    "demo": ("to build", "to boot", "file systems"),
    "deb": ("to build", "to be configured like Debian's kernel"),
}

# Packages that only one command needs.
LATER: dict[str, tuple[str, ...]] = {
    "to package": ("debhelper",),
    "to fuzz": ("dropbear-bin", "openssh-client"),
    "to build test suites": ("git", "autoconf", "automake", "m4", "pkg-config|pkgconf", "libcap-dev", "libnuma-dev",
                             "libpopt-dev"),
    "to build xfstests": ("git", "autoconf", "automake", "libtool-bin", "m4", "pkg-config|pkgconf", "acl", "attr", "bc",
                          "fio", "gawk", "libacl1-dev", "libaio-dev", "libattr1-dev", "libcap-dev", "libgdbm-dev",
                          "liburing-dev", "psmisc", "uuid-dev", "xfslibs-dev", "xfsprogs"),
    "for a machine": ("mmdebstrap", "e2fsprogs"),
    "for an apt repository": ("apt-utils", "dpkg-dev", "gpg", "gpg-agent"),
}


def installed(package: str) -> bool:
    """Say whether dpkg has a package installed."""
    done = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status}", package], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.stdout == "installed"


def offered(package: str) -> bool:
    """Say whether apt can install a package."""
    done = subprocess.run(["apt-cache", "policy", package], text=True, check=False, stdout=subprocess.PIPE)
    return "Candidate:" in done.stdout and "Candidate: (none)" not in done.stdout


def upstream(version: str) -> str:
    """Return the kernel version in a package's version: 6.12.94-1~bpo12+1 packages Linux 6.12.94."""
    return version.split("-", 1)[0]


def base_to_install(package: str, verified: list[str]) -> str:
    """Return the base for apt to install: the newest verified version on offer, else apt's newest, with a note."""
    done = subprocess.run(["apt-cache", "madison", package], text=True, check=False, stdout=subprocess.PIPE)
    offers = [line.split("|")[1].strip() for line in done.stdout.splitlines() if line.count("|") == 2]
    good = [offer for offer in offers if upstream(offer) in verified]
    if good:
        newest = max(good, key=lambda offer: [int(number) for number in upstream(offer).split(".")])
        return f"{package}={newest}"
    if offers:
        print(f"note: apt offers {package} {', '.join(offers)}, none of which base.conf lists as verified "
              f"({', '.join(verified)}); installing the newest", file=sys.stderr, flush=True)
    return package


def missing(goal: str = "all") -> list[str]:
    """Return the packages that a goal needs and that are not installed."""
    wanted = [package for group in GOALS[goal] for package in PACKAGES[group]]
    if not os.environ.get("LINUX"):
        wanted.append(tree.read_base_conf()["package"])
    return [package for package in wanted if not any(map(installed, package.split("|")))]


def install(wanted: list[str]) -> None:
    """Install packages with apt, by name; take a verified version of the kernel's base if apt offers one."""
    conf = tree.read_base_conf()
    # sudo passes no variable on by itself.
    root = [*([] if os.geteuid() == 0 else ["sudo"]), "env", "DEBIAN_FRONTEND=noninteractive"]
    print(f"installing the Debian packages {' '.join(wanted)}", file=sys.stderr, flush=True)
    subprocess.run([*root, "apt-get", "update", "-qq"], check=True, stdout=sys.stderr)
    names = [next(filter(offered, package.split("|")), package.split("|")[0]) for package in wanted]
    names = [base_to_install(name, conf["verified"].split()) if name == conf["package"] else name for name in names]
    subprocess.run([*root, "apt-get", "install", "-y", "-qq", "--no-install-recommends", *names], check=True,
                   stdout=sys.stderr)


def ensure(group: str) -> None:
    """Install the missing packages of a group that not everybody needs."""
    wanted = [package for package in LATER[group] if not any(map(installed, package.split("|")))]
    if wanted:
        install(wanted)


def make_venv() -> None:
    """Make build/venv with the packages that requirements.txt pins, unless it is up to date.

    Packages are in a folder that is named after the version of Python: another one finds none of them.
    """
    requirements = paths.REPO / "requirements.txt"
    stamp = paths.VENV / "requirements.hash"
    digest = "{} {}.{}".format(hashlib.sha256(requirements.read_bytes()).hexdigest(), *sys.version_info)
    if stamp.exists() and stamp.read_text(encoding="utf-8") == digest:
        return
    names = requirements.read_text(encoding="utf-8").split()
    print(f"installing the Python packages {' '.join(names)} in build/venv", file=sys.stderr, flush=True)
    if paths.VENV.is_symlink():
        paths.VENV.unlink()
    elif paths.VENV.exists():
        shutil.rmtree(paths.VENV)
    paths.BUILD.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", str(paths.VENV)], check=True)
    subprocess.run([str(paths.VENV / "bin" / "pip"), "install", "-q", "--disable-pip-version-check", "-r",
                    str(requirements)], check=True, stdout=sys.stderr)
    stamp.write_text(digest, encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.Parser(prog="python3 -m guest.packages", description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="only name what is missing")
    parser.add_argument("--for", dest="goal", choices=list(GOALS), default="all",
                        help="install only what `make demo` or `make deb` needs (default: what any goal needs)")
    args = parser.parse_args(argv)
    try:
        wanted = missing(args.goal)
        if args.list:
            print("\n".join(wanted))
            return 0
        if wanted:
            install(wanted)
        with paths.build_lock():
            make_venv()
    except subprocess.CalledProcessError as error:
        print(f"error: `{shlex.join(map(str, error.cmd))}` failed (its messages are above): fix that and run "
              "`make packages` again", file=sys.stderr)
        return 1
    except FileNotFoundError as error:
        print(f"error: {error}: this needs Debian 12 or 13, and sudo unless you are root", file=sys.stderr)
        return 1
    except (OSError, MemoryError) as error:
        print(f"error: {cli.explain(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
