"""Run one cell for real: image, cache, frontend, proof of the configuration, load, teardown."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from diskproof.backings import Place, start_place
from diskproof.backings.place import find_device, start_run_dir
from diskproof.backings.server import start_watch
from diskproof.drive import DiskImage, RunContext
from diskproof.errors import RunFailure, tells_no_space
from diskproof.frontends import Frontend, find_frontend
from diskproof.guest.debian.system import build_system, require_system
from diskproof.host.cache import drop_cache
from diskproof.host.memory_limit import check_resident, start_memory_limit
from diskproof.host.sampler import start_sampler
from diskproof.lab.deadline import BoundedDrive, Deadline
from diskproof.lab.disk_errors import require_sound_disk
from diskproof.lab.notes import RunNotes
from diskproof.lab.setup import FULL_BYTES, START_SECONDS, LabSetup
from diskproof.process.start import write_back
from diskproof.qemu import images
from diskproof.records import BackingSpec, Cell, Metric, PlannedRun, RunRecord, WorkloadSpec
from diskproof.study.guest import FRONTEND as OWN_GUEST
from diskproof.study.programs import SECOND_DISK_ON, has_own_system
from diskproof.study.workloads import CACHE_LIMIT
from diskproof.workloads import WorkloadResult, load_workload

BUILD_SECONDS = 3600.0
"""What the system of boots may take to be built, with its packages fetched."""


@contextmanager
def start_lab(setup: LabSetup) -> Iterator[MeasureLab]:
    """A lab that keeps its places, and the data that disks are filled with, until the end."""
    with ExitStack() as stack:
        yield MeasureLab(setup, stack)


class MeasureLab:
    """The real maker of runs."""

    def __init__(self, setup: LabSetup, stack: ExitStack) -> None:
        self.setup, self._stack = setup, stack
        self._places: dict[str, Place] = {}
        self._fill_folders: dict[str, Path] = {}

    def execute(self, planned: PlannedRun) -> RunRecord:
        """One run; what goes wrong in it is its result. Raises only for Ctrl-C and defects."""
        notes, cell = RunNotes(), planned.cell
        with notes.whole_run(self.setup.run_timeout) as deadline:
            if has_own_system(cell.workload.kind):
                with deadline.apart(BUILD_SECONDS), notes.phase("base image"):  # once
                    build_system(cell.workload)
            self._run_cell(cell, deadline, notes)
        result, failure = notes.result or WorkloadResult(()), notes.failure
        return RunRecord(
            id=notes.id,
            study_id=self.setup.study_id,
            cell=cell,
            block=planned.block,
            position=planned.position,
            started=notes.started,
            ended=notes.ended,
            status="failed" if failure else "ok",
            host_id=self.setup.host_id,
            failure=failure,
            checks=tuple(notes.checks),
            metrics=() if failure else (*result.metrics, *notes.metrics),
            series=(*result.series, *notes.series),
            histograms=() if failure else result.histograms,
            artefacts=tuple(notes.artefacts.values()),
            phases=tuple(notes.phases),
        )

    def _run_cell(self, cell: Cell, deadline: Deadline, notes: RunNotes) -> None:
        """A fresh image in a folder of its own, its pages dropped, in service, under load."""
        backing = self.setup.backings[cell.level("backing")]
        with ExitStack() as stack:
            with notes.phase("folder"):
                place = self._ensure_place(backing)
                run_dir = stack.enter_context(start_run_dir(place))
            image = self._put_disk(stack, run_dir, place, cell, deadline, notes)
            second = self._put_second_disk(stack, cell, deadline, notes)
            if cell.workload.option("fill") == "on":
                self._fill(image, backing, deadline, notes)
            with notes.phase("drop"):
                drops = [drop_cache(path) for path in (*image.local, *place.below)]
                notes.require([drop.as_check() for drop in drops])
            accel = cell.level("accel", "auto")
            context = RunContext(
                cell=cell,
                image=image,
                run_dir=run_dir,
                accel=self.setup.accel if accel == "auto" else accel,
                deadline_seconds=min(self._start_seconds(cell), deadline.left()),
                own_guest=self.setup.own_guest,
                second_disk=second,
            )
            # A file system in memory has no cache to bound, and a server's is not ours.
            limit = int(cell.workload.option(CACHE_LIMIT, "0"))
            if not limit or image.network or any(drop.medium for drop in drops):
                self._put_in_service(context, deadline, notes)
            else:
                with start_memory_limit(limit):
                    self._put_in_service(context, deadline, notes)
                notes.require([check_resident(image.local, limit)], "cache")
            with notes.phase("remove"):
                stack.close()

    def _start_seconds(self, cell: Cell) -> float:
        own = self.setup.own_guest
        is_own = own is not None and cell.level("frontend") == OWN_GUEST
        return own.boot_timeout if own and is_own else START_SECONDS

    def _put_in_service(self, context: RunContext, deadline: Deadline, notes: RunNotes) -> None:
        """Start, load and stop; logs and command lines are kept however that ends."""
        frontend = find_frontend(context.cell)
        try:
            self._put_under_load(frontend, context, deadline, notes)
        except RunFailure as failure:
            raise _with_full_disk(failure, context.run_dir) from None
        finally:
            notes.keep(frontend.artefacts(context))

    def _put_disk(
        self,
        stack: ExitStack,
        folder: Path,
        place: Place,
        cell: Cell,
        deadline: Deadline,
        notes: RunNotes,
    ) -> DiskImage:
        """A fresh image, or a disk that a server hands out until the end of the run."""
        size = int(cell.workload.option("size"))
        device = find_device(folder)
        with notes.phase("create"):
            if place.service:
                disk = stack.enter_context(place.service.start(folder, size))
                image = images.network_image(disk, size)
                notes.require(images.inspect_network(image))
                return image
            if has_own_system(cell.workload.kind):
                base = require_system(cell.workload).image
                image = images.clone_image(
                    folder, cell, base, device=device, timeout=deadline.left()
                )
            else:
                image = images.create_image(
                    folder, cell, size, device=device, timeout=deadline.left()
                )
            notes.require(images.inspect_image(image, cell))
        return image

    def _put_second_disk(
        self, stack: ExitStack, cell: Cell, deadline: Deadline, notes: RunNotes
    ) -> DiskImage | None:
        """A raw disk of the same size, where the workload names a backing for it."""
        name = cell.workload.option(SECOND_DISK_ON)
        if not name:
            return None
        with notes.phase("source"):
            place = self._ensure_place(self.setup.backings[name])
            folder = stack.enter_context(start_run_dir(place))
            size, plain = int(cell.workload.option("size")), Cell((), cell.workload)
            device = find_device(folder)
            return images.create_image(folder, plain, size, device=device, timeout=deadline.left())

    def _fill(
        self, image: DiskImage, backing: BackingSpec, deadline: Deadline, notes: RunNotes
    ) -> None:
        with self._ensure_place(backing).uncached():
            with notes.phase("make_data"):
                source = self._ensure_source(backing, image.size)
            with notes.phase("fill"):
                images.fill_image(image, source, timeout=deadline.left())

    def _ensure_place(self, backing: BackingSpec) -> Place:
        """The backing, made at its first run and there until the end of the study."""
        if backing.name not in self._places:
            place = self._stack.enter_context(start_place(backing, self.setup.consent))
            self._places[backing.name] = place
        return self._places[backing.name]

    def _ensure_source(self, backing: BackingSpec, size: int) -> Path:
        """Data to fill disks of ``size`` with, on the same backing; one size at a time."""
        if backing.name not in self._fill_folders:
            # A place whose disks are devices has a folder beside them.
            place = replace(self._ensure_place(backing), device=None)
            made = self._stack.enter_context(start_run_dir(place))
            self._fill_folders[backing.name] = made
        folder = self._fill_folders[backing.name]
        for other in folder.glob("fill-*.raw"):
            if other.stat().st_size != size:
                other.unlink()
        return images.ensure_fill_source(folder, size)

    def _put_under_load(
        self, frontend: Frontend, context: RunContext, deadline: Deadline, notes: RunNotes
    ) -> None:
        spec = context.cell.workload
        workload = load_workload(spec.kind)
        with ExitStack() as stack:
            with notes.phase("start"):
                drive = stack.enter_context(frontend.start(context))
            stack.enter_context(start_watch(context.image.server_pids, drive.facts.pids))
            with notes.phase("read_back"):
                notes.require(drive.read_back())
            with notes.phase("workload"):
                with start_sampler(
                    drive.facts.pids, run_dir=context.run_dir, interval=choose_interval(spec)
                ) as recording:
                    began = time.time()
                    with require_sound_disk(drive.facts.machine):
                        result = workload.run(spec, BoundedDrive(drive, deadline))
                    notes.result = result
                    measured = result.measured_seconds
                    recording.zero = time.time() - measured if measured else began
                    notes.keep(result.artefacts)
                notes.series += recording.series
                notes.require(result.checks, "workload")
            if may_write(spec) and context.image.local:
                with notes.phase("drain"):
                    notes.metrics.append(measure_drain(context.image.local[0], deadline))
            with notes.phase("stop"):
                stack.close()


def _with_full_disk(failure: RunFailure, folder: Path) -> RunFailure:
    """The failure, as one of space when that is what the load met: a guest sees just an error."""
    stat = os.statvfs(folder)
    free = stat.f_bavail * stat.f_frsize if stat.f_blocks else math.inf  # ramfs does not tell
    if failure.kind not in ("workload", "qemu") or free > FULL_BYTES:
        return failure
    why = f"the file system of the disk under test is full\n{failure.why}"
    return RunFailure("space", failure.what, why, failure.hint, failure.evidence)


def choose_interval(spec: WorkloadSpec) -> float:
    """Seconds between host samples: twice a second, and more often in a short run."""
    return min(0.5, max(0.1, float(spec.option("runtime", "10")) / 10))


def may_write(spec: WorkloadSpec) -> bool:
    """Whether a workload may leave written data in caches; a user's own job always may."""
    return spec.option("rw", "write") not in ("read", "randread")


def measure_drain(image: Path, deadline: Deadline) -> Metric:
    """Seconds until everything that the load wrote is on the host's disk: fsync of the image.

    In a process of its own, so that a disk that hangs meets the deadline. Raises RunFailure.
    """
    done = write_back(image, timeout=deadline.left())
    if done.returncode != 0:
        kind = "space" if tells_no_space(done.error_text) else "tool"
        raise RunFailure(kind, "what the load wrote cannot be written back", done.error_text)
    return Metric("drain_seconds", "s", done.seconds, higher_is_better=False)
