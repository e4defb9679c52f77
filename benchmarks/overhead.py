"""What a run costs beside fio: the daemon frontend, against a bare shell script, in turns.

Prints the medians of our phases and of the script's cost, and what the host sampler does to the
speed that fio sees; exits with 1 when the median cost is above the bar. Cost is wall time without
that of the fio process, and without giving the image's blocks back, which both pay and which is
printed beside it: a file system mounted with ``discard`` trims them on the spot. Nothing is
filled before (the load writes).
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from diskproof.backings import NO_CONSENT
from diskproof.drive import Command, Execution
from diskproof.host.sampler import Sampling
from diskproof.measure import run as executor
from diskproof.process.start import run
from diskproof.records import BackingSpec, Cell, PlannedRun, RunRecord
from diskproof.study.load import parse_study

BAR_SECONDS = 0.5
LEVELS = {"frontend": "daemon", "format": "qcow2", "cache": "none", "aio": "threads"}
STUDY = """
workloads = "rand-write-4k-d32"
[protocol]
size = "64MiB"
runtime = "1s"
ramp = "0s"
"""
# Image, daemon and fio as a person would type them. Prints the nanoseconds of fio and of removing.
SCRIPT = """
set -e
cd "$1"
qemu-img create -q -f qcow2 disk.qcow2 67108864
qemu-storage-daemon \\
  --blockdev driver=file,node-name=f,filename=disk.qcow2,cache.direct=on,aio=threads \\
  --blockdev driver=qcow2,node-name=d,file=f,cache.direct=on \\
  --nbd-server addr.type=unix,addr.path=nbd.sock \\
  --export type=nbd,id=e,node-name=d,name=disk,writable=on &
until [ -S nbd.sock ]; do sleep 0.01; done
before=$(date +%s%N)
fio --name=load --ioengine=nbd --uri='nbd+unix:///disk?socket=nbd.sock' --rw=randwrite --bs=4k \\
  --iodepth=32 --size=64m --time_based --runtime=1s --thread --norandommap \\
  --output-format=json+ --output=fio.json
after=$(date +%s%N)
kill %1
wait || true
removing=$(date +%s%N)
rm -f disk.qcow2
removed=$(date +%s%N)
echo $((after - before)) $((removed - removing))
"""


@dataclass
class Turns:
    """Seconds by name, one a round."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        self.seconds.setdefault(name, []).append(value)

    def render(self, name: str) -> str:
        values = self.seconds[name]
        low, high = min(values), max(values)
        return f"{name:28} {statistics.median(values):7.3f}  ({low:.3f} to {high:.3f})"


class TimedDrive(executor.BoundedDrive):
    """Adds up what the workload's commands took."""

    spent = 0.0

    def run(self, command: Command) -> Execution:
        done = super().run(command)
        TimedDrive.spent += done.seconds
        return done


@contextmanager
def start_nothing(pids: Sequence[int], **_: object) -> Iterator[Sampling]:
    """In place of the sampler."""
    yield Sampling(time.time())


def run_ours(lab: executor.MeasureLab, planned: PlannedRun) -> tuple[RunRecord, float, float]:
    """The record, its wall time, and fio's part of that."""
    TimedDrive.spent = 0.0
    began = time.perf_counter()
    record = lab.execute(planned)
    wall = time.perf_counter() - began
    if record.failure:
        raise SystemExit(f"a run failed: {record.failure}")
    return record, wall, TimedDrive.spent


def keep_phases(record: RunRecord, wall: float, fio: float, turns: Turns) -> None:
    phases = dict(record.phases)
    for name, seconds in phases.items():
        if name != "remove":
            turns.add(f"  {name}", seconds - (fio if name == "workload" else 0.0))
    turns.add("  audit and record", wall - sum(phases.values()))
    turns.add("diskproof", wall - fio - phases["remove"])
    turns.add("diskproof, remove", phases["remove"])


def run_script(folder: Path, turns: Turns) -> None:
    began = time.perf_counter()
    done = run(["bash", "-c", SCRIPT, "bash", str(folder)], timeout=60)
    wall = time.perf_counter() - began
    fio, remove = (int(text) / 1e9 for text in done.stdout.split()[-2:])
    turns.add("shell script", wall - fio - remove)
    turns.add("shell script, remove", remove)


def iops(record: RunRecord) -> float:
    return next(metric.value for metric in record.metrics if metric.primary)


def measure(folder: Path, rounds: int) -> tuple[Turns, list[float], list[float]]:
    """Rounds of: ours, ours without the sampler, the script; in changing order."""
    backing = BackingSpec("here", "directory", (("path", str(folder / "images")),), make=True)
    levels = tuple(sorted({**LEVELS, "backing": "here"}.items()))
    planned = PlannedRun(0, 0, Cell(levels, parse_study(STUDY).workloads[0]))
    turns, sampled, bare = Turns(), list[float](), list[float]()
    executor.BoundedDrive = TimedDrive  # type: ignore[misc]
    real = executor.start_sampler

    def ours() -> None:
        record, wall, fio = run_ours(lab, planned)
        keep_phases(record, wall, fio, turns)
        sampled.append(iops(record))

    def without() -> None:
        executor.start_sampler = start_nothing  # type: ignore[assignment]
        record, wall, fio = run_ours(lab, planned)
        executor.start_sampler = real
        turns.add("without the sampler", wall - fio - dict(record.phases)["remove"])
        bare.append(iops(record))

    with executor.start_lab(
        executor.LabSetup("study", "host", {"here": backing}, NO_CONSENT, "tcg", 120.0)
    ) as lab:
        for number in range(rounds):
            acts = [ours, without, lambda: run_script(folder, turns)]
            for act in acts[number % 3 :] + acts[: number % 3]:
                act()
    return turns, sampled, bare


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=12)
    options.add_argument("--folder", type=Path, help="where the images are put")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="diskproof-overhead-", dir=chosen.folder) as name:
        folder = Path(name)
        folder.chmod(0o755)
        turns, sampled, bare = measure(folder, chosen.rounds)
    print(f"seconds a run beside fio, median (range) of {chosen.rounds}")
    for row in turns.seconds:
        print(turns.render(row))
    ratio = statistics.median(sampled) / statistics.median(bare)
    spread = statistics.stdev(bare) / statistics.fmean(bare)
    print(f"IOPS with the sampler / without: {ratio:.3f} (runs scatter by {spread:.1%})")
    median = statistics.median(turns.seconds["diskproof"])
    print(f"diskproof: {median:.3f} s a run (bar: at most {BAR_SECONDS} s)")
    return 0 if median <= BAR_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
