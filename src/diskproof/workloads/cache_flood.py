"""What a cache keeps when something else has passed through it: skewed reads from a cold start, the
same reads again, and once more after a sequential scan of the whole disk.

All three phases read the same blocks in the same order, so that what the cache answered compares:
a page cache that drops what was used longest ago, and ZFS's, which knows what was used repeatedly.
"""

from dataclasses import dataclass
from pathlib import Path

from diskproof.drive import Drive
from diskproof.host.caches import ReadCounter, count_pages, find_counter, read_arc_data
from diskproof.records import Check, Metric, WorkloadSpec
from diskproof.units import MIB
from diskproof.workloads import WorkloadResult
from diskproof.workloads.fio_run import (
    FIXED_OPTIONS,
    FioRun,
    broken_answer,
    check_messages,
    render_options,
    run_fio,
)

BLOCK = 4096
SLOWEST = 4 << 20  # bytes/s, under emulation on a busy host
SLOWEST_IOPS = 50
START_SECONDS = 60.0


@dataclass(frozen=True)
class Phase:
    """``below`` counts the reads that no cache answered; None where nothing tells."""

    run: FioRun
    iops: float
    below: int | None


@dataclass(frozen=True)
class Held:
    """Bytes of the disk in the page cache, and of data in ZFS's; None: nothing of it is there."""

    pages: int
    arc: int | None


class CacheFlood:
    """The kind ``cache_flood``."""

    def run(self, spec: WorkloadSpec, drive: Drive) -> WorkloadResult:
        """Raises RunFailure; see ``run_fio``."""
        disk = find_disk(drive)
        counter = find_counter(disk) if disk else None
        at_start = look(disk, counter)
        cold, warm = (read_skewed(spec, drive, counter) for _ in range(2))
        warmed = look(disk, counter)
        scan = run_fio(drive, scan_job(drive), START_SECONDS + drive.facts.size / SLOWEST, {})
        flooded = read_skewed(spec, drive, counter)
        phases = {"cold": cold, "warm": warm, "flooded": flooded}
        metrics = (
            *(_speed(name, phase) for name, phase in phases.items()),
            Metric("scan_bandwidth", "MiB/s", _bandwidth(scan), higher_is_better=True),
            *share_metrics(phases, int(spec.option("accesses"))),
            *held_metrics(at_start, warmed),
        )
        runs = (cold.run, warm.run, scan, flooded.run)
        return WorkloadResult(
            metrics,
            (_check_counter(counter), *map(check_messages, runs)),
            artefacts=cold.run.artefacts,
        )


WORKLOAD = CacheFlood()


def find_disk(drive: Drive) -> Path | None:
    """What holds the disk's bytes on this host, if anything does."""
    machine = drive.facts.machine
    if machine:
        return next(iter(machine.image.local), None)
    return Path(drive.facts.path) if drive.facts.path else None


def read_skewed(spec: WorkloadSpec, drive: Drive, counter: ReadCounter | None) -> Phase:
    """As many reads as the study says, and how many of them went below."""
    reads = int(spec.option("accesses"))
    before = counter.read() if counter else 0
    run = run_fio(drive, skewed_job(spec, drive), START_SECONDS + reads / SLOWEST_IOPS, {})
    below = counter.read() - before if counter else None
    done = sum(job.read.operations for job in run.result.jobs)
    if done != reads:
        raise broken_answer(run, f"{done} reads were done, {reads} were asked for")
    return Phase(run, sum(job.read.iops for job in run.result.jobs), below)


def skewed_job(spec: WorkloadSpec, drive: Drive) -> str:
    """Caches are left as they are: fio itself would drop a file's pages first."""
    options = {
        "rw": spec.option("rw"),
        "bs": str(BLOCK),
        "size": str(drive.facts.size),
        "io_size": str(int(spec.option("accesses")) * BLOCK),
        "random_distribution": spec.option("distribution"),
        "invalidate": "0",
    }
    return render_options("skewed", {**drive.facts.fio, **FIXED_OPTIONS, **options})


def scan_job(drive: Drive) -> str:
    options = {"rw": "read", "bs": "1m", "iodepth": "4", "size": str(drive.facts.size)}
    options["invalidate"] = "0"
    return render_options("scan", {**drive.facts.fio, **FIXED_OPTIONS, **options})


def look(disk: Path | None, counter: ReadCounter | None) -> Held | None:
    """What caches hold now."""
    if disk is None:
        return None
    return Held(count_pages(disk), read_arc_data() if counter and counter.is_arc else None)


def share_metrics(phases: dict[str, Phase], reads: int) -> tuple[Metric, ...]:
    """For each phase the share of reads that a cache answered. ``kept``: of those that the first
    pass had brought into it, the share that the scan did not cost."""
    below = {name: phase.below for name, phase in phases.items() if phase.below is not None}
    if len(below) < len(phases):
        return ()
    shares = [
        Metric(f"{name}_cached", "%", max(0.0, 100 - 100 * count / reads), higher_is_better=True)
        for name, count in below.items()
    ]
    if (brought := below["cold"] - below["warm"]) > 0:
        kept = 100 * (below["cold"] - below["flooded"]) / brought
        shares.append(Metric("kept", "%", min(100.0, max(0.0, kept)), higher_is_better=True))
    return tuple(shares)


def held_metrics(start: Held | None, warm: Held | None) -> tuple[Metric, ...]:
    """What the two passes have left in caches; of what lies in both, at most the smaller."""
    if start is None or warm is None:
        return ()
    pages = Metric("in_page_cache", "MiB", warm.pages / MIB, higher_is_better=True)
    if start.arc is None or warm.arc is None:
        return (pages,)
    arc = max(0, warm.arc - start.arc)
    twice = min(warm.pages, arc)
    return (
        pages,
        Metric("in_arc", "MiB", arc / MIB, higher_is_better=True),
        Metric("cached_twice", "MiB", twice / MIB, higher_is_better=False),
    )


def _speed(name: str, phase: Phase) -> Metric:
    return Metric(f"{name}_iops", "1/s", phase.iops, True, primary=name == "flooded")


def _bandwidth(run: FioRun) -> float:
    return sum(job.read.bandwidth for job in run.result.jobs) / MIB


def _check_counter(counter: ReadCounter | None) -> Check:
    told = counter.name if counter else "nothing tells: shares are left out"
    return Check("reads that no cache answered", "counted", told, "the kernel's counters", True)
