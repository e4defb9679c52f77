"""Nothing is written on a device that nobody has given up: every verb, on real devices.

Requires root for loop devices; fio for the run that may write.
"""

import fcntl
import hashlib
import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import diskproof.cli
from diskproof.backings import NO_CONSENT, probe_backing, start_place
from diskproof.backings.consent import Consent, give_consent
from diskproof.errors import HostError
from diskproof.process.start import Completed, run
from diskproof.records import BackingSpec
from diskproof.study.backings import KINDS
from support.commands import diskproof as command
from support.commands import left_behind

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for loop devices"),
    pytest.mark.long,
]
LOOP_CTL_ADD, LOOP_CTL_REMOVE = 0x4C80, 0x4C81  # linux/loop.h
MIB = 1 << 20
SIZE = 352 * MIB
STUDY = """
name = "consent"
workloads = ["sync-write-4k"]
[backings.disk]
kind = "device"
path = "{device}"
[backings.files]
kind = "filesystem"
on = "disk"
[factors]
backing = "files"
frontend = "{frontend}"
[protocol]
blocks = 1
size = "16MiB"
runtime = "1s"
ramp = "0s"
[crash]
writers = ["ledger"]
size = "16MiB"
seconds = "1s"
explore_seconds = "1s"
[tiles]
counts = [1]
runs = 1
"""
VERBS = (["run"], ["crash"], ["crash", "flushes"], ["tiles"])


@contextmanager
def lent_device(file: Path, size: int = SIZE, device: str = "") -> Iterator[Path]:
    """A loop device, that one or any, with somebody's data, of no kind that wipefs(8) knows."""
    with file.open("wb") as stream:
        stream.write(os.urandom(4 * MIB))
        stream.truncate(size)
    where = [device] if device else ["--find", "--show"]
    device = run(["losetup", *where, str(file)], timeout=30).text.strip() or device
    try:
        yield Path(device)
    finally:
        run(["losetup", "--detach", device], timeout=30)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    with lent_device(tmp_path / "lent.img") as made:
        yield made


@pytest.fixture
def numbered(tmp_path: Path) -> Iterator[Path]:
    """One that nobody gets who asks for any: those have the lowest numbers."""
    number = 1000 + os.getpid() % 100_000
    with Path("/dev/loop-control").open("rb") as control:
        fcntl.ioctl(control, LOOP_CTL_ADD, number)
        with lent_device(tmp_path / "lent.img", device=f"/dev/loop{number}") as made:
            yield made
        fcntl.ioctl(control, LOOP_CTL_REMOVE, number)


def digest(device: Path) -> bytes:
    with device.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def write_study(folder: Path, device: Path, frontend: str = "host") -> Path:
    study = folder / "study.toml"
    study.write_text(STUDY.format(device=device, frontend=frontend))
    return study


def on_device(device: Path, folder: Path) -> BackingSpec:
    below = BackingSpec("images", "directory", (("path", str(folder)),), make=True)
    return BackingSpec("disk", "device", (("path", str(device)),), below)


def files_on(device: Path, folder: Path) -> BackingSpec:
    options = {key: each.default_text for key, each in KINDS["filesystem"].options.items()}
    return BackingSpec("files", "filesystem", tuple(options.items()), on_device(device, folder))


def make(spec: BackingSpec, consent: Consent) -> None:
    with start_place(spec, consent):
        pass


def said(done: Completed) -> list[str]:
    assert "Traceback" not in done.error_text
    return done.error_text.splitlines()


@pytest.mark.parametrize("verb", VERBS, ids="-".join)
def test_without_consent_nothing_is_written(tmp_path: Path, device: Path, verb: list[str]) -> None:
    study, before = write_study(tmp_path, device, "guest"), digest(device)
    done = command(*verb, study, "--json", cwd=tmp_path)
    lines = said(done)
    assert done.returncode == 2 and len(lines) == 3
    assert f"writes on {device}" in lines[0]
    typed = shlex.split(lines[2].partition("when that can go: ")[2])
    assert typed[: len(verb) + 1] == ["diskproof", *verb] and typed[-1] == "--destroy-data"
    assert str(study) in typed
    assert digest(device) == before
    assert left_behind(tmp_path) == [] and list(tmp_path.glob("*.sqlite")) == []


def test_plan_tells_what_it_did_not_look_at(tmp_path: Path, device: Path) -> None:
    study, before = write_study(tmp_path, device), digest(device)
    study.write_text(study.read_text().partition("[tiles]")[0])
    done = command("plan", study, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.error_text
    planned = json.loads(done.text)
    (warning,) = [text for text in planned["warnings"] if "not probed" in text]
    assert f"backing files is made on {device}" in warning
    assert "free space taken as its size, O_DIRECT not known" in warning
    assert (
        planned["cells"] and planned["estimated_seconds"] > 0 and planned["disk_bytes"] > 16 * MIB
    )
    assert digest(device) == before
    refused = command("plan", "--destroy-data", study, cwd=tmp_path)
    assert refused.returncode == 2 and digest(device) == before
    assert left_behind(tmp_path) == []


def test_plan_refuses_what_run_would_refuse(tmp_path: Path, device: Path) -> None:
    study = write_study(tmp_path, device)
    study.write_text(study.read_text().partition("[tiles]")[0])
    small = study.read_text().replace('size = "16MiB"\nruntime', 'size = "1GiB"\nruntime')
    study.write_text(small)
    done = command("plan", study, cwd=tmp_path)
    assert done.returncode == 3 and f"does not fit on {device}" in said(done)[0]
    run(["mkfs.ext4", "-q", "-F", "-L", "family", str(device)], timeout=60)
    before = digest(device)
    for verb in (["plan"], ["run", "--destroy-data"]):
        done = command(*verb, study, cwd=tmp_path)
        assert done.returncode != 0 and f"{device} is not empty" in said(done)[0]
        assert "ext4 family" in said(done)[1]
    assert digest(device) == before


def test_with_consent_a_run_writes_and_leaves_the_device_empty(
    tmp_path: Path, device: Path
) -> None:
    study = write_study(tmp_path, device)
    study.write_text(study.read_text().partition("[crash]")[0])
    for _ in range(2):  # the second has nothing left to do, and may look again
        done = command("run", study, "--destroy-data", cwd=tmp_path)
        assert done.returncode == 0, done.error_text
    rows = json.loads(command("show", "--json", cwd=tmp_path).text)
    assert rows
    assert run(["wipefs", "--noheadings", str(device)], timeout=30).text.strip() == ""
    assert left_behind(tmp_path) == []


def test_the_door_is_shut_without_consent(tmp_path: Path, device: Path) -> None:
    before, base = digest(device), tmp_path / "images"
    array = {key: each.default_text for key, each in KINDS["md"].options.items()}
    members = tuple({**array, "path": f"{device} {device}1"}.items())
    server = (("uri", "nbd://localhost/disk"),)
    for spec in (
        on_device(device, base),
        files_on(device, base),
        BackingSpec("array", "md", members, on_device(device, base).on),
        BackingSpec("server", "nbd", server, on_device(device, base).on),
    ):
        with pytest.raises(HostError, match="would destroy what is on"):
            make(spec, NO_CONSENT)
    assert digest(device) == before and not base.exists()
    facts = probe_backing(files_on(device, base), NO_CONSENT)
    assert facts.free_bytes == SIZE and facts.unprobed and not facts.device
    assert digest(device) == before


def test_consent_is_for_the_devices_that_were_named(tmp_path: Path, device: Path) -> None:
    with lent_device(tmp_path / "other.img") as other:
        before, spec = digest(device), on_device(device, tmp_path)
        with pytest.raises(HostError, match="would destroy what is on"):
            make(spec, give_consent([on_device(other, tmp_path)]))
        assert digest(device) == before


def test_a_link_that_points_elsewhere_at_the_second_look_is_refused(
    tmp_path: Path, device: Path
) -> None:
    link = Path("/dev") / f"diskproof-test-{os.getpid()}"
    with lent_device(tmp_path / "other.img") as other:
        before = digest(other)
        link.symlink_to(device)
        try:
            spec = files_on(link, tmp_path / "images")
            consent = give_consent([spec])
            with start_place(spec, consent) as place:
                assert str(device) in place.name
            link.unlink()
            link.symlink_to(other)
            with pytest.raises(HostError, match="is not what it was") as caught:
                make(spec, consent)
        finally:
            link.unlink()
        assert f"path was {device}, now {other}" in caught.value.why
        assert digest(other) == before


def test_a_device_of_another_size_is_refused(tmp_path: Path, device: Path) -> None:
    spec = on_device(device, tmp_path / "images")
    consent = give_consent([spec])
    os.truncate(tmp_path / "lent.img", SIZE + MIB)
    run(["losetup", "--set-capacity", str(device)], timeout=30)
    before = digest(device)
    with pytest.raises(HostError, match="is not what it was") as caught:
        make(spec, consent)
    assert f"size was {SIZE}, now {SIZE + MIB}" in caught.value.why
    assert digest(device) == before


def test_another_disk_behind_the_same_name_is_refused(tmp_path: Path, numbered: Path) -> None:
    device = numbered
    spec = on_device(device, tmp_path / "images")
    consent = give_consent([spec])
    (tmp_path / "new.img").write_bytes(os.urandom(MIB))
    os.truncate(tmp_path / "new.img", SIZE)
    run(["losetup", "--detach", str(device)], timeout=30)
    run(["losetup", str(device), str(tmp_path / "new.img")], timeout=30)
    before = digest(device)
    with pytest.raises(HostError, match="is not what it was") as caught:
        make(spec, consent)
    assert "loop/backing_file was" in caught.value.why
    assert digest(device) == before


def test_only_the_command_line_gives_consent() -> None:
    source = Path(diskproof.cli.__file__).parent.parent
    asks = [path for path in source.rglob("*.py") if "give_consent(" in path.read_text()]
    assert {path.parent.name for path in asks} == {"cli", "backings"}
    assert [path.name for path in asks if path.parent.name == "backings"] == ["consent.py"]
