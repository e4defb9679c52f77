"""First write against rewrite, part by part: what a thin disk costs until all of it is allocated.

The disk is written twice in the same order, in equal parts. A part's first pass finds nothing
allocated, its second everything; with a fully preallocated image the two are alike.
"""

import math
from collections.abc import Sequence

from diskproof.drive import Drive
from diskproof.errors import RunFailure
from diskproof.fio_output import FioJob
from diskproof.records import Metric, WorkloadSpec
from diskproof.units import MIB, parse_bytes
from diskproof.workloads import WorkloadResult, fio_run

PASSES = ("first_write", "rewrite")
SLOWEST = 2 << 20  # bytes/s, under emulation on a busy host
START_SECONDS = 120.0


class FirstWrite:
    """The kind ``first_write``."""

    def run(self, spec: WorkloadSpec, drive: Drive) -> WorkloadResult:
        """Raises RunFailure; see ``run_fio``."""
        parts = int(spec.option("parts"))
        seconds = START_SECONDS + 2 * drive.facts.size / SLOWEST
        run = fio_run.run_fio(drive, render_jobs(spec, drive), seconds, {})
        if len(run.result.jobs) != parts * len(PASSES):
            raise fio_run.broken_answer(run, f"{len(run.result.jobs)} jobs answered")
        speeds = [measure(job) for job in run.result.jobs]
        if min(speeds) <= 0:
            raise fio_run.broken_answer(run, "a part was not written")
        metrics = tuple(curve_metrics(speeds, parts))
        return WorkloadResult(metrics, (fio_run.check_messages(run),), artefacts=run.artefacts)


WORKLOAD = FirstWrite()


def render_jobs(spec: WorkloadSpec, drive: Drive) -> str:
    """One job a part and pass, one after the other. Raises RunFailure when parts are smaller than
    a write."""
    parts, block = int(spec.option("parts")), parse_bytes(spec.option("bs"))
    length = min(int(spec.option("size")), drive.facts.size) // parts // block * block
    if length < block:
        raise RunFailure("workload", f"{parts} parts of the disk are smaller than {block} bytes")
    shared = {**drive.facts.fio, **fio_run.FIXED_OPTIONS, "rw": spec.option("rw")}
    shared |= {"bs": str(block), "iodepth": spec.option("iodepth"), "size": str(length)}
    return "".join(
        fio_run.render_options(
            f"{name}{part}", {**shared, "stonewall": "1", "offset": str(part * length)}
        )
        for name in PASSES
        for part in range(parts)
    )


def measure(job: FioJob) -> float:
    """MiB/s of one part."""
    return job.write.bandwidth / MIB


def curve_metrics(speeds: Sequence[float], parts: int) -> list[Metric]:
    """Both passes as a whole, what the first costs, and each part by where it ends, in percent."""
    means = [parts / sum(1 / speed for speed in speeds[at : at + parts]) for at in (0, parts)]
    whole = [
        Metric(name, "MiB/s", mean, higher_is_better=True, primary=name == PASSES[0])
        for name, mean in zip(PASSES, means, strict=True)
    ]
    whole.append(Metric("rewrite_ratio", "x", means[1] / means[0], higher_is_better=False))
    ends = [math.ceil(100 * (part + 1) / parts) for part in range(parts)]
    return whole + [
        Metric(f"{name} {ends[place % parts]} %", "MiB/s", speed, higher_is_better=True)
        for place, (name, speed) in enumerate(
            zip([each for each in PASSES for _ in range(parts)], speeds, strict=True)
        )
    ]
