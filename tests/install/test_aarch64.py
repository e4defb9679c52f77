"""The programs for 64-bit ARM: built by Debian's cross toolchain, and run by qemu-user.

Not all: docs/install.md says what stops the others.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from diskproof.process.start import run
from support.install_systems import System, start_root

ROOT = Path(__file__).parent.parent.parent
TARGET = "aarch64-unknown-linux-gnu"
TOOLCHAIN = (
    *("ca-certificates", "cargo-web", "gcc", "gcc-aarch64-linux-gnu", "libc6-dev"),
    *("libc6-dev-arm64-cross", "libstd-rust-web-dev:arm64", "qemu-user-static", "rustc-web"),
)
BUILT = {
    "diskproof-agent": ("diskproof-agent", "diskproof-poweroff"),
    "diskproof-confine": ("diskproof-confine",),
    "diskproof-ledger": ("diskproof-ledger",),
    "diskproof-monitor": ("diskproof-monitor",),
    "diskproof-recordfs": ("diskproof-recordfs",),
    "diskproof-states": ("diskproof-states",),
    "diskproof-switch": ("diskproof-bridge", "diskproof-switch"),
    "diskproof-sync-ways": ("diskproof-sync-ways", "diskproof-sync-ways-dynamic"),
    "diskproof-tree": ("diskproof-tree",),
}
"""By package of native/."""
SILENT = ("diskproof-agent", "diskproof-poweroff", "diskproof-sync-ways-dynamic")
"""They are started by ours, and explain nothing."""


@pytest.fixture(scope="module")
def arm() -> Iterator[System]:
    """Debian 12 with the compilers, and the programs."""
    with _root() as system:
        listing = run(["git", "ls-files", "-z", "native"], timeout=30, cwd=ROOT).text
        for name in filter(None, listing.split("\0")):
            place = system.root / "src" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, place)
        packages = " ".join(f"--package {each}" for each in BUILT)
        linker = f"CARGO_TARGET_{TARGET.upper().replace('-', '_')}_LINKER=aarch64-linux-gnu-gcc"
        build = f"cargo build --quiet --locked --bins --target {TARGET} {packages}"
        system.run("sh", "-c", f"cd /src/native && {linker} {build}")
        yield system


@contextmanager
def _root() -> Iterator[System]:
    with tempfile.TemporaryDirectory(prefix="diskproof-install-", dir="/var/tmp") as folder:
        words = ("--architectures=amd64,arm64", f"--include={','.join(TOOLCHAIN)}")
        with start_root("bookworm", Path(folder), *words) as root:
            yield System("bookworm", root)


def run_arm(arm: System, program: str, *arguments: str) -> str:
    place = f"/src/native/target/{TARGET}/debug/{program}"
    loader = ("-L", "/usr/aarch64-linux-gnu")  # for the one that is linked dynamically
    return arm.run("qemu-aarch64-static", *loader, place, *arguments)


def test_they_are_for_arm(arm: System) -> None:
    for program in (each for programs in BUILT.values() for each in programs):
        head = (arm.root / f"src/native/target/{TARGET}/debug/{program}").read_bytes()[:20]
        assert head[:4] == b"\x7fELF" and int.from_bytes(head[18:], "little") == 183  # EM_AARCH64
        if program not in SILENT:
            assert program in run_arm(arm, program, "--help")


def test_a_ledger_is_written_and_found_whole(arm: System) -> None:
    """As files: for disks it takes io_uring, which qemu-user does not know."""
    arm.run("mkdir", "ledger")
    acks = ("--acks", "acks", "ledger")
    run_arm(arm, "diskproof-ledger", "write-files", "--records", "64", *acks)
    found = json.loads(run_arm(arm, "diskproof-ledger", "verify-files", "--json", *acks))
    assert (found["acknowledged"], found["present"], found["lost"]) == (64, 64, 0)


def test_a_tree_is_made_and_read_back(arm: System) -> None:
    arm.run("mkdir", "tree")
    size = ("--files", "20", "--bytes", "100000")
    assert json.loads(run_arm(arm, "diskproof-tree", "make", "tree", *size))["files"] == 20
    assert json.loads(run_arm(arm, "diskproof-tree", "check", "tree", *size))["wrong"] == 0


def test_the_host_is_watched(arm: System) -> None:
    seen = run_arm(arm, "diskproof-monitor", "--json", "0.2", "2").splitlines()
    samples = [json.loads(line) for line in seen if '"type":"sample"' in line]
    assert len(samples) == 2 and all(sample["values"] for sample in samples)
