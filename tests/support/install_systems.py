"""Debian systems in folders, and what is run inside."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diskproof.guest.ours import packages
from diskproof.process.start import require_tool

DIST = Path(__file__).parent.parent.parent / "dist"
SUITES = {"bookworm": "3.11", "trixie": "3.13"}
"""Debian 12 and 13, with their Python."""
BROUGHT = ("ca-certificates", "pipx", "python3", "python3-venv")
"""What the one line that installs us needs; the rest is what ``doctor`` names."""
COMPILERS = ("cc", "gcc", "cargo", "rustc", "make", "git")
USER = 1000
MINUTES = 60
TRUSTED = Path("/etc/ssl/certs/ca-certificates.crt")
"""Whom this machine trusts to bring packages is its own affair; uv would not ask it."""
INSIDE = """
set -e
root=$1 dist=$2 as=$3; shift 3
mount --make-rprivate /
mount --bind "$root" "$root"
cd "$root"
for each in dev sys; do mount --rbind "/$each" "$each"; done
mount -t proc proc proc
[ -e mnt/fuse ] || mknod --mode=666 mnt/fuse c 10 229
mount --bind mnt/fuse dev/fuse
mkdir -p mnt/dist mnt/old
mount --bind -o ro "$dist" mnt/dist
pivot_root . mnt/old
umount --lazy mnt/old
exec setpriv --reuid "$as" --regid "$as" --clear-groups env -i "$@"
"""
"""Nothing that is mounted outlives it. FUSE is everybody's, as Debian has it; in a changed root the
kernel gives an ordinary user no namespace, so it becomes the root."""


@dataclass(frozen=True)
class System:
    """One of them: its suite, and the folder that holds it."""

    suite: str
    root: Path

    def run(
        self,
        *argv: str,
        user: int = 0,
        timeout: float = 30 * MINUTES,
        expected: Sequence[int] = (0,),
    ) -> str:
        """What a command says there; its exit code is among the expected."""
        home = "/root" if user == 0 else "/home/user"
        passed = [f"{name}={each}" for name, each in os.environ.items() if name.startswith("PIP_")]
        done = subprocess.run(
            [
                *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--"),
                *("bash", "-c", INSIDE, "inside", self.root, DIST, str(user)),
                *passed,
                f"SSL_CERT_FILE={TRUSTED}",
                # Others may be measuring on the host that this is a folder of.
                f"DISKPROOF_LOCK={home}/lock",
                f"HOME={home}",
                f"PATH={home}/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin",
                "LC_ALL=C.UTF-8",
                *("sh", "-c", 'cd "$HOME" && exec "$@"', "sh", *argv),
            ],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode in expected, (argv, done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr


@dataclass(frozen=True)
class Person:
    """Who installs us there: root by pipx, or an ordinary user by uv."""

    system: System
    user: int

    def __str__(self) -> str:
        return f"{self.system.suite}, {'user' if self.user else 'root'}"

    @property
    def home(self) -> Path:
        return self.system.root / ("home/user" if self.user else "root")

    def run(self, *argv: str, expected: Sequence[int] = (0,)) -> str:
        return self.system.run(*argv, user=self.user, expected=expected)

    def run_json(self, *argv: str, expected: Sequence[int] = (0,)) -> Any:
        """What it printed; notes on stderr come after that."""
        told, _ = json.JSONDecoder().raw_decode(self.run(*argv, expected=expected))
        return told

    def findings(self) -> dict[str, dict[str, str]]:
        """What ``doctor`` says, by name."""
        told = self.run_json("diskproof", "doctor", "--json", expected=(0, 3))
        return {each["name"]: each for each in told}


@contextmanager
def start_root(suite: str, folder: Path, *mmdebstrap: str) -> Iterator[Path]:
    """A root made from the suite's own packages; ``mmdebstrap`` are further words for it."""
    root = folder / suite
    argv = [
        *("unshare", "--mount", "--propagation", "private", "--pid", "--fork"),
        *("--kill-child", "--", require_tool("mmdebstrap", "mmdebstrap"), "--mode=root"),
        *("--variant=minbase", "--aptopt=APT::Install-Recommends false", *mmdebstrap),
        *(*packages.fetch_options(folder / "apt.conf"), suite, str(root)),
        f"deb {find_mirror()} {suite} main",
    ]
    env = packages.environment(os.environ)
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=30 * MINUTES)
    assert done.returncode == 0, done.stderr
    for path in (Path("/etc/hosts"), Path("/etc/resolv.conf"), TRUSTED):
        (root / str(path)[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / str(path)[1:])
    # As an installer does; fusermount3 reads it.
    (root / "etc" / "mtab").symlink_to("../proc/self/mounts")
    yield root


def newest(pattern: str) -> str:
    """The name of what was built last."""
    return max(DIST.glob(pattern), key=lambda path: path.stat().st_mtime).name


def find_mirror() -> str:
    """Where this host's apt gets Debian's packages from."""
    host = packages.require_suite()
    for entry in packages.find_sources(host):
        lines = Path(entry).read_text().split()
        found = next((each for each in lines if each.endswith(("/debian", "/debian/"))), None)
        if found:
            return found
    raise AssertionError("no source of Debian's packages is known to apt here")
