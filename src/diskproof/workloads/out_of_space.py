"""The host's file system fills up under a guest that writes: it must pause, not crash, and go on
when there is room.

The guest writes its whole disk; beside the image a ballast file has left room for half of it.
QEMU tells that a write failed for want of space and pauses the guest (``werror=enospc``, qemu(1)).
The ballast goes, the guest is continued, and every block that it wrote is read back and checked.
"""

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diskproof.drive import Drive, SteeredMachine
from diskproof.errors import DiskproofError, RunFailure
from diskproof.records import Artefact, Check, Metric, WorkloadSpec
from diskproof.workloads import WorkloadResult
from diskproof.workloads.fio_run import FIXED_OPTIONS, render_options, run_fio

BALLAST = "ballast"
SLOWEST = 2 << 20  # bytes/s that a guest writes, under emulation on a busy host
START_SECONDS = 60.0
EVENTS = ("BLOCK_IO_ERROR", "STOP", "SHUTDOWN", "RESET", "GUEST_PANICKED")
_CHUNK = 1 << 20
_ROOM_SHARE = 0.5
_VERIFY = {"bs": "64k", "iodepth": "4", "verify": "crc32c", "verify_fatal": "1"}


class OutOfSpace:
    """The kind ``out_of_space``."""

    def run(self, spec: WorkloadSpec, drive: Drive) -> WorkloadResult:
        """Raises RunFailure ``workload`` when the guest did not pause, did not go on, or lost
        data; with ``free = "off"`` the run ends with the pause."""
        machine = _require_machine(drive)
        with start_ballast(
            machine.image.path.parent, int(drive.facts.size * _ROOM_SHARE)
        ) as ballast:
            writer = _Writer(drive)
            with writer.started():
                paused = wait_pause(machine, writer)
                if spec.option("free") == "off":
                    writer.abandon(machine)
                    return WorkloadResult(_pause_metrics(paused), artefacts=(paused.artefact(),))
                ballast.unlink()
                resumed = resume(machine, writer)
        verified = verify(drive)
        metrics = (*_pause_metrics(paused), *resumed, verified)
        checks = (
            Check("guest", "paused when space ran out", paused.reason, "QMP BLOCK_IO_ERROR", True),
            Check("data", "what was written", "every block verified", "fio verify=crc32c", True),
        )
        return WorkloadResult(metrics, checks, artefacts=(paused.artefact(),))


WORKLOAD = OutOfSpace()


@dataclass(frozen=True)
class Paused:
    """The pause: seconds after the writer's start, what QEMU told, bytes that the guest had
    written by then."""

    seconds: float
    reason: str
    written: int
    events: tuple[Mapping[str, Any], ...]

    def artefact(self) -> Artefact:
        text = json.dumps(list(self.events), indent=1, default=str)
        return Artefact("qmp-events.json", "application/json", text.encode())


@dataclass
class _Writer:
    """fio in the guest, in a thread of its own: the guest may stand still."""

    drive: Drive
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    failure: Exception | None = None
    abandoned: bool = False

    @contextmanager
    def started(self) -> Iterator[None]:
        thread = threading.Thread(target=self._write, daemon=True)
        thread.start()
        yield
        thread.join()
        if self.failure and not self.abandoned:
            raise self.failure

    def abandon(self, machine: SteeredMachine) -> None:
        """End a guest that stands still; what becomes of its writer is of no interest."""
        self.abandoned = True
        with suppress(RunFailure):
            machine.monitor.execute("quit")

    @property
    def done(self) -> bool:
        return self.ended is not None

    def _write(self) -> None:
        try:
            run_fio(self.drive, _job(self.drive, "write", do_verify="0"), _seconds(self.drive), {})
        except (DiskproofError, OSError) as failure:
            self.failure = failure
        finally:
            self.ended = time.monotonic()


@contextmanager
def start_ballast(folder: Path, room: int) -> Iterator[Path]:
    """A file that leaves ``room`` bytes of the file system free. Raises OSError."""
    path = folder / BALLAST
    stat = os.statvfs(folder)
    size = stat.f_bavail * stat.f_frsize - room
    try:
        with path.open("xb") as stream:
            if size > 0:
                os.posix_fallocate(stream.fileno(), 0, size)
        yield path
    finally:
        path.unlink(missing_ok=True)


def wait_pause(machine: SteeredMachine, writer: _Writer) -> Paused:
    """Until QEMU says that it has stopped the guest for want of space."""
    events: list[Mapping[str, Any]] = []
    while not any(event["event"] == "STOP" for event in events):
        if event := machine.monitor.wait_event(EVENTS, 0.5):
            events.append(event)
        elif writer.done:
            raise writer.failure or RunFailure(
                "workload", "the guest wrote its whole disk, and space never ran out"
            )
    failed = [event["data"] for event in events if event["event"] == "BLOCK_IO_ERROR"]
    if not any(data.get("nospace") for data in failed):
        told = json.dumps(failed, default=str)[:500]
        raise RunFailure("workload", "the guest was stopped, but not for want of space", told)
    status = machine.monitor.execute("query-status")
    reason = f"{status.get('status')}: {failed[0].get('reason', 'no space')}"
    written = _written(machine)
    return Paused(time.monotonic() - writer.began, reason, written, tuple(events))


def resume(machine: SteeredMachine, writer: _Writer) -> tuple[Metric, ...]:
    """Continue the guest, again when a write that had failed before is reported late, and wait for
    the writer's end. The time until the first write succeeds, and until all is written."""
    began, before = time.monotonic(), _written(machine)
    machine.monitor.execute("cont")
    first: float | None = None
    while not writer.done:
        if machine.monitor.wait_event(("STOP",), 0.002):
            machine.monitor.execute("cont")
        with suppress(RunFailure):  # QEMU may have ended: the writer knows more
            if first is None and _written(machine) > before:
                first = time.monotonic() - began
    if writer.failure:
        raise writer.failure
    whole = time.monotonic() - began
    return (
        Metric("resume_seconds", "s", whole if first is None else first, False, primary=True),
        Metric("rest_seconds", "s", whole, higher_is_better=False),
    )


def verify(drive: Drive) -> Metric:
    """Read every block back and compare. Raises RunFailure ``workload`` that names the first
    block that is wrong."""
    run = run_fio(drive, _job(drive, "read"), _seconds(drive), {})
    count = sum(job.read.bytes for job in run.result.jobs)
    if count < drive.facts.size:
        raise RunFailure("workload", f"only {count} of {drive.facts.size} bytes could be verified")
    return Metric("verified", "MiB", count / (1 << 20), higher_is_better=True)


def _require_machine(drive: Drive) -> SteeredMachine:
    if drive.facts.machine is None:
        raise RunFailure("workload", "this workload needs a guest", "", 'frontend = "guest"')
    return drive.facts.machine


def _pause_metrics(paused: Paused) -> tuple[Metric, ...]:
    return (
        Metric("pause_seconds", "s", paused.seconds, higher_is_better=True),
        Metric("written_before", "MiB", paused.written / (1 << 20), higher_is_better=True),
    )


def _written(machine: SteeredMachine) -> int:
    """Bytes that QEMU has written for the guest."""
    answer = machine.monitor.execute("query-blockstats")
    return max((int(item["stats"]["wr_bytes"]) for item in answer), default=0)


def _job(drive: Drive, rw: str, **more: str) -> str:
    options = {"rw": rw, "size": str(drive.facts.size), **_VERIFY, **more}
    return render_options("data", {**drive.facts.fio, **FIXED_OPTIONS, **options})


def _seconds(drive: Drive) -> float:
    return START_SECONDS + drive.facts.size / SLOWEST
