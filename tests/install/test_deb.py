"""The Debian package on fresh systems: what it brings, whom it disturbs, what it leaves."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deb import RECOMMENDS, RELEASES
from help_text import TOOLS
from support.install_systems import DIST, USER, System, newest, start_root

ROOT = Path(__file__).parent.parent.parent
READERS = ("bash-completion", "fish", "man-db", "zsh")
LIBRARIES = ("libgcc-s1", "libstdc++6", "zlib1g")
APTS_OWN = (
    "var/cache/apt",
    "var/cache/debconf",
    "var/cache/ldconfig",
    "var/cache/man",
    "var/lib/apt",
    "var/lib/dpkg",
    "var/log",
)
"""Where apt, debconf, dpkg and man keep what they did."""
ELSEWHERE = ("dev", "home", "mnt", "proc", "root", "run", "sys", "tmp")


@dataclass(frozen=True)
class Packaged:
    """A system with the package, and all files that were there before."""

    system: System
    deb: Path
    before: frozenset[str]

    def run(self, *argv: str, **more: object) -> str:
        return self.system.run(*argv, **more)  # type: ignore[arg-type]


def list_files(root: Path) -> frozenset[str]:
    skipped = [word for name in ELSEWHERE for word in ("-path", f"./{name}/*", "-prune", "-o")]
    argv = ["find", ".", *skipped, "-print"]
    told = subprocess.run(argv, cwd=root, check=True, capture_output=True, text=True).stdout
    names = (line.removeprefix("./") for line in told.splitlines())
    return frozenset(name for name in names if not name.startswith(APTS_OWN))


@pytest.fixture(scope="session", params=RELEASES, ids=lambda each: each.name)
def packaged(request: pytest.FixtureRequest) -> Iterator[Packaged]:
    release = request.param
    included = (f"python{release.python}", *LIBRARIES, *READERS, *RECOMMENDS)
    with tempfile.TemporaryDirectory(prefix="diskproof-deb-", dir="/var/tmp") as folder:
        options = f"--include={','.join(included)}"
        with start_root(release.name, Path(folder), options) as root:
            system = System(release.name, root)
            (root / "home/user").mkdir()
            shutil.chown(root / "home/user", USER, USER)
            deb = DIST / newest(f"*~deb{release.number}_*.deb")
            before = list_files(root)
            system.run("apt-get", "install", "--yes", f"/mnt/dist/{deb.name}")
            yield Packaged(system, deb, before)


def test_lintian_finds_no_errors(packaged: Packaged) -> None:
    argv = ["lintian", "--allow-root", "--fail-on=error", packaged.deb]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("user", [0, USER], ids=["root", "user"])
def test_everything_starts(packaged: Packaged, user: int) -> None:
    assert packaged.run("/usr/bin/diskproof", "--version", user=user).startswith("diskproof ")
    told = packaged.run("diskproof", "doctor", user=user, expected=(0, 1, 3))
    assert "Traceback" not in told
    for tool in TOOLS:
        assert "Usage" in packaged.run(f"/usr/bin/{tool}", "--help", user=user)


def test_tools_do_their_main_job(packaged: Packaged) -> None:
    job = ("dd", "if=/dev/zero", "of=written", "bs=4k", "count=8", "oflag=dsync")
    for user in (0, USER):
        packaged.run("diskproof-sync-drop", "--", *job, user=user)
        packaged.run("diskproof", "nocache", "--", *job, user=user)
        assert "{" in packaged.run("diskproof-monitor", "--json", "0.1", "2", user=user)


def test_pages_of_the_manual_are_found(packaged: Packaged) -> None:
    for name in ("diskproof", *TOOLS):
        shown = packaged.run("man", "--pager=cat", name)
        assert name in shown and "SYNOPSIS" in re.sub(".\b", "", shown)


def test_shells_complete(packaged: Packaged) -> None:
    load = "source /usr/share/bash-completion/bash_completion; "
    load += "_comp_load diskproof 2>/dev/null || _completion_loader diskproof; "
    assert "_diskproof" in packaged.run("bash", "-c", f"{load} complete -p diskproof", user=USER)
    asked = (
        "autoload -Uz compinit; compinit -u -D; print $_comps[diskproof] $_comps[diskproof-states]"
    )
    told = packaged.run("zsh", "-c", asked, user=USER)
    assert told.split() == ["_diskproof", "_diskproof-states"]
    told = packaged.run("fish", "-c", "complete -C 'diskproof sync '", user=USER)
    assert {line.split("\t")[0] for line in told.splitlines()} >= {"drop", "trace"}


def test_what_is_left_out_is_told(packaged: Packaged) -> None:
    ask = "from diskproof.process.extras import require_extra as ask; "
    ask += "ask('report'); ask('postgres'); ask('parquet')"
    told = packaged.run("/opt/diskproof/bin/python3", "-c", ask, user=USER, expected=(1,))
    assert "pyarrow" in told and "Debian's package cannot" in told


def test_a_hypervisor_of_proxmox_stays(packaged: Packaged) -> None:
    """apt is asked what it would do where QEMU is Proxmox's, which conflicts with Debian's."""
    system = packaged.system
    system.run("apt-get", "update")
    status = (system.root / "var/lib/dpkg/status").read_text().split("\n\n")
    ours = re.compile(r"Package: (qemu-|diskproof$)", re.MULTILINE)
    names = "qemu-system-x86, qemu-system-common, qemu-system-data, qemu-utils"
    proxmox = (
        "Package: pve-qemu-kvm\nStatus: install ok installed\nPriority: optional\n"
        "Section: admin\nMaintainer: Nobody <nobody@localhost>\nArchitecture: amd64\n"
        f"Version: 11.0.0-1\nConflicts: {names}\nReplaces: {names}\nProvides: {names}\n"
        "Description: conflicts as the real one does"
    )
    kept = [each for each in status if each.strip() and not ours.search(each)]
    (system.root / "tmp/status").write_text("\n\n".join([*kept, proxmox]) + "\n")
    told = system.run(
        *("apt-get", "--simulate", "-o", "Dir::State::status=/tmp/status"),
        *("-o", "APT::Install-Recommends=true", "install", f"/mnt/dist/{packaged.deb.name}"),
    )
    assert "Inst diskproof" in told
    assert "Remv" not in told and "Inst qemu-system" not in told and "Inst qemu-utils" not in told


def test_it_goes_without_a_trace(packaged: Packaged) -> None:
    system = packaged.system
    with_it = list_files(system.root) - packaged.before
    assert "opt/diskproof/bin/diskproof" in with_it
    places = ("opt", "usr/bin/diskproof", "usr/share", "var/lib/diskproof")
    assert [name for name in with_it if not name.startswith(places)] == []
    (system.root / "var/lib/diskproof/spool").mkdir(parents=True, exist_ok=True)
    system.run("apt-get", "remove", "--yes", "diskproof")
    kept = {"var/lib/diskproof", "var/lib/diskproof/spool"}
    assert list_files(system.root) ^ packaged.before == kept
    system.run("apt-get", "purge", "--yes", "diskproof")
    assert list_files(system.root) ^ packaged.before == frozenset()
    assert system.run("dpkg-query", "--show", "diskproof", expected=(1,))


def test_what_others_have_in_opt_stays(packaged: Packaged) -> None:
    """Where /opt is a link to another disk, too: dpkg takes such links away with their owner."""
    root = packaged.system.root
    unpack = ("dpkg", "--force-unsafe-io", "--unpack", f"/mnt/dist/{packaged.deb.name}")
    packaged.run("sh", "-c", "mv /opt /srv/opt && ln -s srv/opt /opt && mkdir /opt/other")
    packaged.run(*unpack)
    assert {each.name for each in (root / "srv/opt").iterdir()} == {"diskproof", "other"}
    packaged.run("dpkg", "--purge", "diskproof")
    assert (root / "opt").readlink() == Path("srv/opt")
    assert list((root / "srv/opt").iterdir()) == [root / "srv/opt/other"]
    packaged.run("rm", "-r", "/opt", "/srv/opt")
    packaged.run(*unpack)
    packaged.run("dpkg", "--purge", "diskproof")
    assert (root / "opt").stat().st_mode == 0o40755 and not list((root / "opt").iterdir())


def test_the_same_sources_give_the_same_bytes(packaged: Packaged, tmp_path: Path) -> None:
    shutil.copy(max(DIST.glob("*.whl"), key=lambda path: path.stat().st_mtime), tmp_path)
    environment = os.environ | {"RELEASES": packaged.system.suite}
    argv = [sys.executable, ROOT / "setup/deb.py", tmp_path]
    subprocess.run(argv, check=True, env=environment)
    assert (tmp_path / packaged.deb.name).read_bytes() == packaged.deb.read_bytes()
