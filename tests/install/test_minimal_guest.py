"""A guest on a host with neither fio, mmdebstrap nor a network: of its own kernel in /boot."""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from support.install_systems import BROUGHT, Person, System, newest, start_root

HAS = ("fuse3", "linux-image-amd64", "qemu-system-common", "qemu-system-x86", "qemu-utils")
STUDY = """name = "alone"
workloads = ["rand-read-4k-d32", "dd-write"]
[factors]
frontend = ["daemon", "guest"]
cache = ["writeback"]
[crash]
writers = ["ledger", "sqlite"]
faults = "power"
records = 16
states = 200
explore_seconds = "2s"
[protocol]
blocks = 1
size = "16MiB"
runtime = "1s"
ramp = "100ms"
"""
NO_NETWORK = ("unshare", "--net")
OTHER_WAYS = ("diskproof guest import FILE", "diskproof guest build --minimal")


@pytest.fixture(scope="module")
def person() -> Iterator[Person]:
    """Root of a Debian 12 with a kernel, which never boots itself: its initrd is not made."""
    with (
        tempfile.TemporaryDirectory(prefix="diskproof-install-", dir="/var/tmp") as folder,
        patch.dict(os.environ, INITRD="No"),
        start_root("bookworm", Path(folder), f"--include={','.join((*BROUGHT, *HAS))}") as root,
    ):
        person = Person(System("bookworm", root), 0)
        person.run("pipx", "install", f"/mnt/dist/{newest('*.whl')}")
        (person.home / "alone.toml").write_text(STUDY)
        yield person


def alone(person: Person, *words: str, expected: tuple[int, ...]) -> str:
    return person.run(*NO_NETWORK, "diskproof", *words, expected=expected)


def test_whoever_cannot_build_a_guest_is_told_the_other_ways(person: Person) -> None:
    for words in (
        ("guest", "build"),
        ("run", "alone.toml"),
        ("crash", "study", "alone.toml"),
        ("quick", "--budget", "10m", "."),
    ):
        told = alone(person, *words, expected=(3,))
        assert all(way in told for way in OTHER_WAYS), (words, told)


def test_one_is_made_of_the_kernel_in_boot_and_says_what_it_lacks(person: Person) -> None:
    told = alone(person, "guest", "build", "--minimal", expected=(0,))
    assert "it lacks fio (workloads of fio)" in told and "lacks dd" not in told
    found = person.findings()["guest"]
    assert found["ok"] == "limited" and "lacks fio" in found["what"]


def test_what_it_can_is_measured_and_the_rest_left_out_with_the_reason(person: Person) -> None:
    told = alone(person, "run", "alone.toml", expected=(0, 1))
    assert "the minimal guest lacks fio" in told and "fio is not installed" in told
    assert "1 runs, none failed" in told or "1 run, none failed" in told
    assert "guest" in person.run("diskproof", "rank")


@pytest.mark.parametrize("packed", [False, True], ids=["unpacked", "bzImage"])
def test_a_crash_in_it_is_judged(person: Person, packed: bool) -> None:
    """Also by a kernel that cannot be entered unpacked and unpacks itself."""
    (guest,) = (person.home / ".cache/diskproof/guest").glob("minimal-*")
    if packed:
        (image,) = (person.system.root / "boot").glob("vmlinuz-*")
        assert image.read_bytes()[0x202:0x206] == b"HdrS"
        (guest / "kernel").write_bytes(image.read_bytes())
    else:
        assert (guest / "kernel").read_bytes().startswith(b"\x7fELF")
    asked = ("crash", "study", "alone.toml", "--quiet", "--json", "--store", f"{packed}.sqlite")
    told = alone(person, *asked, expected=(0, 1))
    found, _ = json.JSONDecoder().raw_decode(told)
    assert [(each["cell"]["frontend"], each["verdict"]) for each in found] == [("guest", "keeps")]
    assert "the writer sqlite needs the whole guest" in told
