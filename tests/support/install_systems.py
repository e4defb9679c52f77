"""Debian systems in folders, and what is run inside."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diskproof.guest.ours import packages

DIST = Path(__file__).parent.parent.parent / "dist"
SUITES = {"bookworm": "3.11", "trixie": "3.13"}
"""Debian 12 and 13, with their Python."""
BROUGHT = (
    *("ca-certificates", "fio", "mmdebstrap", "pipx", "python3", "python3-venv"),
    *("qemu-system-x86", "qemu-utils", "squashfs-tools", "zstd"),
)
"""What an administrator has, or is told by ``doctor`` to install."""
COMPILERS = ("cc", "gcc", "cargo", "rustc", "make", "git")
USER = 1000
INSIDE = """
set -e
root=$1 dist=$2 as=$3; shift 3
mount --make-rprivate /
mount --bind "$root" "$root"
for each in dev sys; do mount --rbind "/$each" "$root/$each"; done
mount -t proc proc "$root/proc"
mkdir -p "$root/mnt/dist"
mount --bind -o ro "$dist" "$root/mnt/dist"
exec chroot --userspec="$as" "$root" env -i "$@"
"""
"""Nothing that is mounted outlives it."""


@dataclass(frozen=True)
class System:
    """One of them: its suite, and the folder that holds it."""

    suite: str
    root: Path

    def run(
        self, *argv: str, user: int = 0, timeout: float = 300, expected: Sequence[int] = (0,)
    ) -> str:
        """What a command says there; its exit code is among the expected."""
        home = "/root" if user == 0 else "/home/user"
        passed = [f"{name}={each}" for name, each in os.environ.items() if name.startswith("PIP_")]
        done = subprocess.run(
            [
                *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--"),
                *("bash", "-c", INSIDE, "inside", self.root, DIST, f"{user}:{user}"),
                *passed,
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
        assert done.returncode in expected, (done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr


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
