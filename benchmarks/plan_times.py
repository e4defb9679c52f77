"""What a plan says of its time against the clock, over 20 different studies (bar: 90 % in 25 %).

Matrices of few cells and short runs, where what is not the load weighs most; guests, races (whose
plan says "at most": ended before is right), studies of writers, and one that measures and judges.
All share a store, as on a host that is used: the first is planned without any history. Prints for
each what was planned, what it took, the error, and the phase where plan and clock parted most;
``outside`` is what is before the first run and after the last one.

What was measured is kept in ``--folder`` line by line; the same command goes on where it stopped,
and ``--fresh`` begins anew. A study whose runs fail is told with what failed, and its time counts.
"""

import argparse
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from diskproof.store import Store, open_store
from diskproof.store.parts import CRASH, MEASURED, RunKind

WITHIN, SHARE = 0.25, 0.9
LOADS = ("sync-write-4k", "rand-read-4k-d32", "rand-write-4k-d32", "seq-read", "seq-write")
CACHES = ("none", "writeback", "writethrough", "directsync", "unsafe")
KINDS = (*["matrix"] * 4, "crash", "guest", *["matrix"] * 3, "race", "crash", *["matrix"] * 3,
         "guest", "race", "crash", "matrix", "both", "matrix")  # fmt: skip
OUTSIDE, BETWEEN = "outside", "between runs"
BUSY, BUSY_SECONDS = "is being measured already", 5.0


@dataclass(frozen=True)
class Row:
    """A study against the clock, in seconds. ``parted`` is the phase in which plan and clock differ
    most, and by how much; ``failed`` what its runs told of failures; ``load`` is the host's."""

    study: str
    kind: str
    runs: int
    known: int
    planned: float
    took: float
    parted: str
    parted_seconds: float
    load: float
    failed: tuple[str, ...]

    @property
    def error(self) -> float:
        return self.planned / self.took - 1

    @property
    def good(self) -> bool:
        """Of a race only the upper end is told."""
        return abs(self.error) <= WITHIN or self.kind == "race" and self.error > 0

    @property
    def text(self) -> str:
        most = " at most" * (self.kind == "race")
        return (
            f"{self.study:4} {self.kind:6} {self.runs:3} runs ({self.known:3} known)  "
            f"plan {self.planned:6.1f} s{most:8}  took {self.took:6.1f} s  {self.error:+5.0%} "
            f"{' ' if self.good else '!'} {self.parted} {self.parted_seconds:+.1f} s  "
            f"load {self.load:.1f}"
        )


# -- the studies ----------------------------------------------------------------------------


def study_text(kind: str, dice: random.Random) -> str:
    lines = {"matrix": matrix, "both": both, "guest": guest, "race": race, "crash": crash}
    return "\n".join(lines[kind](dice))


def matrix(dice: random.Random) -> Iterator[str]:
    """One of few cells and short runs: what is not the load weighs most there."""
    frontends = dice.choice((["host"], ["daemon"], ["host", "daemon"]))
    yield f"workloads = {json.dumps(dice.sample(LOADS, dice.randint(1, 2)))}"
    yield from factors(frontends, dice, most=2)
    yield from protocol(dice, f"blocks = {dice.randint(1, 3)}")


def guest(dice: random.Random) -> Iterator[str]:
    yield f"workloads = {json.dumps([dice.choice(LOADS)])}"
    yield from factors(["guest"], dice, most=1)
    yield from protocol(dice, "blocks = 2")


def race(dice: random.Random) -> Iterator[str]:
    yield f"workloads = {json.dumps([dice.choice(LOADS)])}"
    yield from factors(["daemon"], dice, most=1, caches=3)
    yield from protocol(dice, 'stop = "decided"', 'delta = "20%"', "max_blocks = 6")


def crash(dice: random.Random) -> Iterator[str]:
    frontend = dice.choice((["daemon"], ["host", "daemon"]))
    yield from factors(frontend, dice, most=2)
    yield from rules(dice)


def both(dice: random.Random) -> Iterator[str]:
    """A study whose cells are measured and then judged."""
    yield from matrix(dice)
    yield from rules(dice)


def factors(
    frontends: list[str], dice: random.Random, *, most: int, caches: int = 0
) -> Iterator[str]:
    yield "[factors]"
    yield f"frontend = {json.dumps(frontends)}"
    yield f"format = {json.dumps(dice.sample(('raw', 'qcow2'), dice.randint(1, most)))}"
    yield f"cache = {json.dumps(dice.sample(CACHES, caches or dice.randint(1, 2)))}"


def protocol(dice: random.Random, *rules: str) -> Iterator[str]:
    yield from ("[protocol]", *rules)
    yield f'size = "{dice.choice((32, 64, 128, 256))}MiB"'
    yield f'runtime = "{dice.randint(1, 3)}s"'
    yield 'ramp = "0s"'


def rules(dice: random.Random) -> Iterator[str]:
    yield "[crash]"
    yield f"records = {dice.choice((16, 32, 64))}"
    yield f"explore_seconds = {dice.randint(2, 5)}"


# -- plan, run, compare ---------------------------------------------------------------------


def diskproof(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "diskproof", *words]
    return subprocess.run(argv, cwd=folder, check=False, capture_output=True, text=True)


def plan(folder: Path, study: str, kind: str) -> tuple[float, dict[str, float], int]:
    """Seconds that are planned, all of them and by phase, and by how many runs. Raises SystemExit
    with what was said where there is no plan."""
    done = diskproof(folder, "plan", study, "--json")
    if done.returncode:
        raise SystemExit(f"{study} cannot be planned:\n{done.stderr}")
    told = json.loads(done.stdout)
    phases, verdicts = told["estimated_phases"], told.get("verdicts", {})
    around = {name: phases[name] for name in ("prepare", "report")}
    if kind == "crash":  # it is asked what is lost, not what is fast
        phases = around | verdicts["estimated_phases"]
    elif kind == "both":
        phases = Counter(phases) + Counter(verdicts["estimated_phases"])
    seconds = sum(phases.values())
    outside = sum(around.values())
    inside = {name: part for name, part in phases.items() if name not in around}
    return seconds, inside | {OUTSIDE: outside}, told["estimated_from_runs"]


def execute(folder: Path, study: str, kind: str) -> tuple[float, list[str]]:
    """Seconds that it took, and what failed. While something else measures on this host it waits,
    and that is no part of the time."""
    verb = "crash" if kind == "crash" else "run"
    while True:
        began = time.monotonic()
        done = diskproof(folder, verb, study)
        took = time.monotonic() - began
        if done.returncode != 3 or BUSY not in done.stderr:
            break
        time.sleep(BUSY_SECONDS)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{study} cannot be run:\n{done.stderr}")
    return took, [line for line in done.stderr.splitlines() if "FAILED" in line]


def read_phases(store: Store, study: str, took: float) -> tuple[dict[str, float], int]:
    """What the runs of a study took by phase, and how many there were."""
    record = store.find_study(study)
    assert record is not None, study
    phases, seconds = Counter[str](), 0.0
    runs = [*all_runs(store, record.id, MEASURED), *all_runs(store, record.id, CRASH)]
    for run in sorted(runs, key=lambda run: run.started):
        for name, part in run.phases:
            phases[name] += part  # type: ignore[assignment]  # it counts seconds
        seconds += run.ended - run.started
    phases[BETWEEN] = seconds - sum(phases.values())  # type: ignore[assignment]
    phases[OUTSIDE] = took - seconds  # type: ignore[assignment]
    return dict(phases), len(runs)


def all_runs(store: Store, study_id: str, kind: RunKind) -> Sequence:
    return store.runs(study_id) if kind is MEASURED else store.counted_runs(kind, study_id)


def keep_times(place: str) -> list[object]:
    """What all measured runs of a store took, study by study, each with its cells: the form of
    tests/golden/run-times.json.gz."""
    found: list[object] = []
    with open_store(place) as store:
        for study in store.studies():
            runs, cells = store.runs(study.id), list(study.cells)
            known = [
                [c.levels, c.workload.name, c.workload.kind, c.workload.options] for c in cells
            ]
            made = [
                [cells.index(run.cell), round(run.ended - run.started, 4),
                 [[name, round(part, 4)] for name, part in run.phases]]
                for run in runs
            ]  # fmt: skip
            found += [[study.name, known, made]] if runs else []
    return found


def measure(folder: Path, number: int, kind: str) -> Row:
    study = f"s{number}"
    planned, foretold, known = plan(folder, f"{study}.toml", kind)
    took, failed = execute(folder, f"{study}.toml", kind)
    with open_store(str(folder / "diskproof.sqlite")) as store:
        seen, runs = read_phases(store, study, took)
    gaps = {name: foretold.get(name, 0.0) - seen.get(name, 0.0) for name in foretold | seen}
    parted = max(gaps, key=lambda name: abs(gaps[name]))
    load = os.getloadavg()[0]
    return Row(study, kind, runs, known, planned, took, parted, gaps[parted], load, tuple(failed))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=len(KINDS))
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/diskproof-times"))
    parser.add_argument("--fresh", action="store_true", help="begin anew")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="what runs took, then end")
    asked = parser.parse_args()
    if asked.keep:
        times = json.dumps(keep_times(str(asked.folder / "diskproof.sqlite")))
        asked.keep.write_bytes(gzip.compress(times.encode(), mtime=0))
        return 0
    if asked.fresh and asked.folder.exists():
        shutil.rmtree(asked.folder)
    asked.folder.mkdir(parents=True, exist_ok=True)
    kept = asked.folder / "rows.jsonl"
    there = kept.read_text().splitlines() if kept.exists() else []
    rows = [Row(**json.loads(line)) for line in there][: asked.studies]
    for row in rows:
        print(row.text)
    dice = random.Random(20261122)
    for number, kind in enumerate(KINDS[: asked.studies]):
        (asked.folder / f"s{number}.toml").write_text(study_text(kind, dice))
        if number < len(rows):
            continue
        rows.append(row := measure(asked.folder, number, kind))
        with kept.open("a") as file:
            print(json.dumps(asdict(row)), file=file)
        print(row.text, *row.failed, sep="\n  ", flush=True)
    good = sum(row.good for row in rows)
    bar = "reached" if good >= SHARE * len(rows) else "missed"
    print(f"{good} of {len(rows)} within {WITHIN:.0%} (bar: {SHARE:.0%}): {bar}")
    return 0 if bar == "reached" else 1


if __name__ == "__main__":
    sys.exit(main())
