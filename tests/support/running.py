"""Runs of one cell through the real executor, for tests."""

import os
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from diskproof.backings.consent import give_consent
from diskproof.backings.mounting import enter_private_mounts, start_unmounting
from diskproof.lab.setup import LabSetup
from diskproof.measure.run import MeasureLab, start_lab
from diskproof.process.start import run, start_process
from diskproof.records import BackingSpec, Cell, PlannedRun, RunRecord, WorkloadSpec
from diskproof.study.load import parse_study


def make_spec(name: str, **protocol: str) -> WorkloadSpec:
    """A preset on a small disk, one second long."""
    chosen = {"size": "64MiB", "runtime": "1s", "ramp": "200ms", **protocol}
    lines = [f'{key} = "{value}"' for key, value in chosen.items()]
    return parse_study("\n".join([f'workloads = "{name}"', "[protocol]", *lines])).workloads[0]


def make_job_spec(folder: Path, text: str, runtime: str = "1s") -> WorkloadSpec:
    """A user's job file on a small disk."""
    (folder / "app.fio").write_text(text)
    study = f'[workloads.app]\njob = "app.fio"\n[protocol]\nsize = "64MiB"\nruntime = "{runtime}"\n'
    return parse_study(study, folder=folder).workloads[0]


@contextmanager
def start_executor(
    images: Path,
    timeout: float = 600.0,
    backing: BackingSpec | None = None,
    others: Sequence[BackingSpec] = (),
) -> Iterator[MeasureLab]:
    """An executor with ``images`` as its backing, or with another one that stands there."""
    folder = BackingSpec("here", "directory", (("path", str(images)),), make=True)
    backing = replace(backing, name="here", on=folder) if backing else folder
    backings = {each.name: each for each in (backing, *others)}
    consent = give_consent(backings.values())
    with start_lab(LabSetup("study", "host", backings, consent, "tcg", timeout)) as executor:
        yield executor


def plan_run(spec: WorkloadSpec, **levels: str) -> PlannedRun:
    """One run; ``_`` in a factor's name stands for ``-`` where the factor has that."""
    named = {"backing": "here", **levels}
    return PlannedRun(0, 0, Cell(tuple(sorted(named.items())), spec))


def execute(
    images: Path,
    spec: WorkloadSpec,
    timeout: float = 600.0,
    on: BackingSpec | None = None,
    others: Sequence[BackingSpec] = (),
    **levels: str,
) -> RunRecord:
    """One run; afterwards no process, no folder and no mapping of it is left."""
    with start_executor(images, timeout, on, others) as executor:
        record = executor.execute(plan_run(spec, **levels))
        assert find_offspring() == []
    assert_nothing_left(images)
    return record


def assert_nothing_left(images: Path) -> None:
    assert find_offspring() == []
    assert not images.exists() or list(images.glob("diskproof-*")) == []


def find_offspring(pid: int | None = None) -> list[str]:
    """Names of a process's descendants (ours, of none) that still live."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it ended between list and look
            found.append(child.name())
    return found


def artefacts(record: RunRecord) -> dict[str, bytes]:
    return {artefact.name: artefact.content for artefact in record.artefacts}


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    """A file system of its own at ``folder``; requires root. What it is for may give us mounts of
    our own, and would leave this one to all others: so they are ours before."""
    enter_private_mounts()
    folder.mkdir(exist_ok=True)
    run(["mount", *options, str(folder)], timeout=30)
    with start_unmounting(folder):
        yield folder


@contextmanager
def start_traced(pid: int, folder: Path, calls: str) -> Iterator[Path]:
    """System calls of a process, for the length of the block, in the file that this gives; requires
    strace, and is skipped where it may not trace."""
    told, log = folder / "strace.err", folder / "strace.out"
    os.mkfifo(told)
    ready = os.open(told, os.O_RDWR)
    argv = ["strace", "-f", "-e", f"trace={calls}", "-o", str(log), "-p", str(pid)]
    try:
        with start_process(argv, name="strace", log=told):
            _wait_attached(ready)
            yield log
    finally:
        os.close(ready)
        told.unlink()


def _wait_attached(ready: int) -> None:
    text = b""
    while b"attached" not in text:
        assert select.select([ready], [], [], 30)[0], "strace says nothing"
        text += os.read(ready, 4096)
        if b"Operation not permitted" in text:
            pytest.skip("may not trace processes here")


Children = dict[str, psutil.Process]


@contextmanager
def under_load(
    name: str,
    act: Callable[[psutil.Process], None],
    ready: Callable[[Children], bool] | None = None,
) -> Iterator[None]:
    """``act`` on our process of that name as soon as fio works (or as ``ready`` says)."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            children = _read_children()
            if name in children and (ready or has_fio_at_work)(children):
                act(children[name])
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def has_fio_at_work(children: Children) -> bool:
    """fio runs each job in a thread; a third of a second of CPU time is spent under load."""
    try:
        times = children["fio"].cpu_times()
        return children["fio"].num_threads() > 2 and times.user + times.system > 0.3
    except (KeyError, psutil.NoSuchProcess):
        return False


def has_written(images: Path, count: int) -> bool:
    """Whether a disk under test holds ``count`` bytes."""
    with suppress(FileNotFoundError):  # a run's folder that goes meanwhile
        disks = images.glob("diskproof-run-*/disk.*")
        return any(disk.stat().st_blocks * 512 >= count for disk in disks)
    return False


def _read_children() -> Children:
    found = {}
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found[child.name()] = child
    return found
