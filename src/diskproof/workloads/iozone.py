"""iozone's manners: every record size with every file size, through the page cache.

Tests as iozone numbers them: 0 write and rewrite, 1 read and reread, 2 random read and write,
8 random reads and writes mixed. The flush after writing is in the time (``-e``). A file is a part
of the disk under test that nothing was written to before, so that write finds it unallocated and
rewrite does not. Source: iozone's own documentation.

fio counts no flush after the last write (``fsync=N`` comes before the write that follows), and the
time of ``end_fsync`` in whole milliseconds. So a job of its own follows each one that writes: it
writes a block of the file again, flushes and writes another. fio measures that flush, of all that
is dirty.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest

from diskproof.drive import Drive
from diskproof.errors import RunFailure
from diskproof.fio_output import FioJob
from diskproof.records import Check, Metric, WorkloadSpec
from diskproof.units import MIB, render_bytes
from diskproof.workloads import WorkloadResult, fio_run

MAX_JOBS = 900  # a run holds 1000 metrics
SLOWEST = 4 << 20  # bytes/s, under emulation on a busy host
START_SECONDS = 120.0
# Name in the results, iozone's number of the test, fio's word.
STEPS = (
    ("write", "0", "write"),
    ("rewrite", "0", "write"),
    ("read", "1", "read"),
    ("reread", "1", "read"),
    ("random_read", "2", "randread"),
    ("random_write", "2", "randwrite"),
    ("mixed", "8", "randrw"),
)
_FLUSH_BLOCK = 4096


@dataclass(frozen=True)
class Step:
    """One figure: a test with one record size on one file, both in bytes; ``offset`` is where the
    file lies on the disk."""

    name: str
    rw: str
    record: int
    file: int
    offset: int

    @property
    def writes(self) -> bool:
        return "read" not in self.rw or self.rw == "randrw"

    @property
    def label(self) -> str:
        """``write 4K/16M``: what, record size, file size."""
        return f"{self.name} {_short(self.record)}/{_short(self.file)}"


class IozoneWorkload:
    """The kind ``iozone``."""

    def run(self, spec: WorkloadSpec, drive: Drive) -> WorkloadResult:
        """Raises RunFailure; see ``run_fio``."""
        threads = int(spec.option("threads"))
        steps = plan_steps(spec, drive.facts.size)
        run = fio_run.run_fio(drive, render_jobs(spec, steps, drive), _seconds(steps, threads), {})
        jobs = run.result.jobs
        started = sum(2 if step.writes else 1 for step in steps) * threads
        if len(jobs) != started:
            raise fio_run.broken_answer(run, f"{len(jobs)} jobs, {started} were started")
        rest = iter(jobs)
        figures = [measure_step(rest, step, threads) for step in steps]
        metrics = [
            Metric(step.label, "MiB/s", figure, higher_is_better=True)
            for step, figure in zip(steps, figures, strict=True)
        ]
        mean = math.exp(sum(map(math.log, figures)) / len(figures))
        metrics.insert(0, Metric("mean_bandwidth", "MiB/s", mean, True, primary=True))
        size = max(step.file for step in steps) * threads
        checks = (fio_run.check_messages(run), check_memory(drive, size))
        return WorkloadResult(tuple(metrics), checks, artefacts=run.artefacts)


WORKLOAD = IozoneWorkload()


def plan_steps(spec: WorkloadSpec, disk: int) -> tuple[Step, ...]:
    """All figures of a run in the order they are measured. Raises RunFailure ``workload`` when
    the files do not fit on a disk of that many bytes, or are too many."""
    names = [step for step in STEPS if step[1] in spec.option("tests").split(",")]
    threads = int(spec.option("threads"))
    steps, offset = [], 0
    for file in _doubling(int(spec.option("min_file")), int(spec.option("max_file"))):
        largest = min(file, int(spec.option("max_record")))
        for record in _doubling(int(spec.option("min_record")), largest):
            steps += [Step(name, rw, record, file, offset) for name, _, rw in names]
            offset += file * threads
    if offset > disk:
        raise RunFailure(
            "workload",
            f"iozone's files need {render_bytes(offset)}, the disk has {render_bytes(disk)}",
            hint="set a smaller max_file, or a larger size",
        )
    if not 0 < len(steps) <= MAX_JOBS:
        raise RunFailure("workload", f"iozone would take {len(steps)} figures, not 1 to {MAX_JOBS}")
    return tuple(steps)


def render_jobs(spec: WorkloadSpec, steps: Sequence[Step], drive: Drive) -> str:
    """fio's job file: one job a figure, one after the other."""
    threads = int(spec.option("threads"))
    shared = {
        **drive.facts.fio,
        **fio_run.FIXED_OPTIONS,
        "ioengine": "psync",
        "direct": "1" if spec.option("direct") == "on" else "0",
        "invalidate": "0",  # iozone reads what it has just written
        "norandommap": "0",  # and visits every record once, in random order
        "numjobs": str(threads),
    }
    sections = []
    for number, step in enumerate(steps):
        sections.append(fio_run.render_options(f"step{number}", {**shared, **_job(step)}))
        if step.writes:
            sections.append(
                fio_run.render_options(f"flush{number}", {**shared, **_flush_job(step)})
            )
    return "".join(sections)


def measure_step(jobs: Iterator[FioJob], step: Step, threads: int) -> float:
    """MiB/s of one figure: bytes over the time of the slowest thread, its flush included. Takes
    the step's jobs from ``jobs``.

    fio counts a job's length in whole milliseconds; the sum of its operations is exact where
    there is one at a time.
    """
    measured = list(islice(jobs, threads))
    flushes = list(islice(jobs, threads)) if step.writes else []
    count = sum(job.read.bytes + job.write.bytes for job in measured)
    if count < step.file * threads:
        raise RunFailure("workload", f"{step.label}: only {count} bytes were measured")
    if any(job.flush.count != 1 for job in flushes):
        raise RunFailure("workload", f"{step.label}: not one flush was measured")
    seconds = [sum(_operation_seconds(job)) for job in measured]
    waits = [job.flush.mean for job in flushes] or [0.0]
    slowest = max(map(sum, zip_longest(seconds, waits, fillvalue=0.0)))
    if slowest <= 0:
        raise RunFailure("workload", f"{step.label}: no time was measured")
    return count / slowest / MIB


def check_memory(drive: Drive, size: int) -> Check:
    """Whether the data is twice the memory, so that it cannot all have been the page cache. A rule
    of thumb, stated with the result and not enforced: often the cache is what is asked about."""
    done = drive.execute(["cat", "/proc/meminfo"], timeout=30)
    line = next((row for row in done.stdout.splitlines() if row.startswith(b"MemTotal:")), b"")
    fields = line.split()
    memory = int(fields[1]) << 10 if len(fields) > 1 and fields[1].isdigit() else 0
    told = f"{render_bytes(size)}, {size / memory:.2g} x the memory" if memory else "unknown"
    held = "" if size >= 2 * memory else ": the page cache can hold it"
    return Check("2 x RAM", "twice the memory or more", told + held, "/proc/meminfo", True)


def _job(step: Step) -> dict[str, str]:
    """One figure as fio options."""
    return {
        "stonewall": "1",
        "rw": step.rw,
        "bs": str(step.record),
        "size": str(step.file),
        "offset": str(step.offset),
        "offset_increment": str(step.file),
    }


def _flush_job(step: Step) -> dict[str, str]:
    """The flush after a figure: between the writes of two blocks, for fio measures no last one."""
    block = min(step.file // 2, _FLUSH_BLOCK)
    sizes = {"bs": str(block), "size": str(2 * block)}
    return {**_job(step), "rw": "write", "fsync": "1", **sizes}


def _operation_seconds(job: FioJob) -> Iterator[float]:
    for side in (job.read, job.write):
        yield side.operations * (side.lat.mean or side.clat.mean)


def _doubling(first: int, last: int) -> Iterator[int]:
    while first <= last:
        yield first
        first *= 2


def _seconds(steps: Sequence[Step], threads: int) -> float:
    return START_SECONDS + sum(step.file for step in steps) * threads / SLOWEST


def _short(size: int) -> str:
    return render_bytes(size).replace(" ", "").replace("iB", "")
