"""``diskproof audit`` on real QEMUs: what is found is what was set, whoever manages them.

Requires root and qemu-system-x86_64; the machines do not run a guest (``-S``).
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from diskproof.process.start import Completed, Process, run, start_process
from diskproof.records.verdicts import Verdict
from diskproof.store import open_store
from diskproof.study.factors import CACHE_MODES
from support.commands import let_everybody_in
from support.crashing import make_crash_run
from support.qemus import await_open
from support.simulate import SIMULATED_HOST
from support.simulated_stores import fill, simulated_cells

NOBODY = 65534


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[Process]:
    """A QEMU without a guest, which has opened its disks."""
    pid_file = folder / "pid"
    pid_file.unlink(missing_ok=True)
    argv = ["qemu-system-x86_64", "-S", "-nodefaults", "-display", "none", "-m", "16"]
    argv += ["-accel", "tcg", "-pidfile", str(pid_file), *arguments]
    with start_process(argv, name="qemu", log=folder / "log") as process:
        while not pid_file.exists():
            assert process.wait(0.02) is None, process.read_log().decode()
        images = [word.split(",")[0][5:] for word in arguments if word.startswith("file=")]
        for image in images:
            await_open(process, Path(image))
        yield process


def drive_args(image: Path, cache: str, aio: str = "threads") -> list[str]:
    drive = f"file={image},format=raw,if=none,id=d,cache={cache},aio={aio}"
    return ["-drive", drive, "-device", "virtio-blk-pci,drive=d,id=vda"]


def audit(folder: Path, *arguments: str, uid: int = 0) -> tuple[Completed, dict[str, Any]]:
    argv = [sys.executable, "-m", "diskproof", "audit", *arguments, "--json"]
    if uid:
        argv = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *argv]
    done = run(argv, timeout=300, cwd=folder, check=False)
    return done, json.loads(done.text) if done.text else {}


def disk_of(answer: dict[str, Any], process: Process) -> dict[str, Any]:
    (machine,) = [each for each in answer["machines"] if each["pid"] == process.pid]
    (disk,) = machine["disks"]
    assert isinstance(disk, dict)
    return disk


def make_image(path: Path) -> Path:
    path.touch()
    os.truncate(path, 1 << 20)
    return path


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return make_image(tmp_path / "a.raw")


def test_each_cache_mode_is_found_and_judged(tmp_path: Path) -> None:
    arguments = ["-name", "web"]
    for cache in CACHE_MODES:
        path = make_image(tmp_path / f"{cache}.raw")
        drive = f"file={path},format=raw,if=none,id=d{cache},cache={cache}"
        arguments += ["-drive", drive, "-device", f"virtio-blk-pci,drive=d{cache},id={cache}"]
    with started(tmp_path, *arguments) as process:
        done, answer = audit(tmp_path, str(process.pid))
    (machine,) = answer["machines"]
    assert done.returncode == 1 and "web unsafe" in answer["summary"]
    assert [disk["name"] for disk in machine["disks"]] == list(CACHE_MODES)
    for disk in machine["disks"]:
        cache = disk["name"]
        assert disk["layers"]["running"]["levels"]["cache"] == cache
        assert disk["layers"]["below"]["levels"], "the disk of the host is looked at"
        loses = CACHE_MODES[cache].no_flush
        assert (disk["verdict"], disk["certainty"]) == ("loses" if loses else "keeps", "by rule")
        changes = [each["change"]["text"] for each in disk["remarks"] if each["change"]]
        assert bool(changes) is loses
        if loses:
            assert "cache=unsafe" not in changes[0] and disk["image"] in changes[0]


def test_a_verdict_in_the_store_proves_it(tmp_path: Path, image: Path) -> None:
    cell = {"frontend": "guest", "accel": "tcg", "memory": "256M", "format": "raw"}
    cell |= {"cache": "none", "aio": "native", "discard": "ignore", "detect-zeroes": "off"}
    cell |= {"preallocation": "off", "bus": "virtio-blk"}
    verdict = Verdict("power", "keeps", states_checked=9, states_total=9)
    fill(tmp_path / "diskproof.sqlite", simulated_cells(), blocks=1)
    with open_store(str(tmp_path / "diskproof.sqlite")) as store:
        (study,) = store.studies()
        ids = {"study_id": study.id, "host_id": SIMULATED_HOST.id}
        store.add_crash_run(make_crash_run(1, verdict, **ids, **cell))
    with started(tmp_path, *drive_args(image, "none", "native")) as process:
        proved = disk_of(audit(tmp_path, str(process.pid))[1], process)
    assert (proved["verdict"], proved["certainty"]) == ("keeps", "proved"), proved["layers"]
    assert "all 9 states" in proved["what"] and "power" in proved["what"]
    with started(tmp_path, *drive_args(image, "writeback", "threads")) as process:
        other = disk_of(audit(tmp_path, str(process.pid))[1], process)
    assert (other["verdict"], other["certainty"]) == ("keeps", "by rule")


def test_a_name_a_pid_and_all(tmp_path: Path, image: Path) -> None:
    with started(tmp_path, "-name", "guest=shop", *drive_args(image, "unsafe")) as process:
        for wanted in (["shop"], [str(process.pid)], []):
            done, answer = audit(tmp_path, *wanted)
            assert disk_of(answer, process)["verdict"] == "loses"
            assert "shop vda" in answer["summary"] and done.returncode == 1
        done, _ = audit(tmp_path, "no-such-machine")
        assert done.returncode == 2 and "found here: " in done.error_text


def test_without_root_it_says_what_it_could_not_see(tmp_path: Path, image: Path) -> None:
    let_everybody_in(tmp_path)
    with started(tmp_path, "-name", "web", *drive_args(image, "unsafe")) as process:
        done, answer = audit(Path("/"), str(process.pid), uid=NOBODY)
    assert done.returncode == 1, done.error_text
    assert disk_of(answer, process)["verdict"] == "loses", "its command line says so"
    assert any("as root more is found" in each for each in answer["obstacles"])


def test_a_disk_in_memory_loses_whatever_is_set(tmp_path: Path) -> None:
    image = Path(f"/dev/shm/diskproof-audit-{os.getpid()}.raw")
    try:
        make_image(image)
        with started(tmp_path, *drive_args(image, "writeback")) as process:
            done, answer = audit(tmp_path, str(process.pid))
        disk = disk_of(answer, process)
        assert [r["rule"] for r in disk["remarks"] if r["effect"] == "loses"] == ["in-memory"]
        assert done.returncode == 1
    finally:
        image.unlink(missing_ok=True)
