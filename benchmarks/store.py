"""Runs stored per second, and the time of ``results`` on 5,000 runs: SQLite beside PostgreSQL
beside plain JSON lines with an fsync each.

All three keep a run through a power cut before they take the next. The runs are simulated (figures,
series, distributions and an artefact each). The kinds take turns, so that the host's moods meet
all of them; PostgreSQL is a server of our own with its default settings.
"""

import dataclasses
import functools
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from diskproof.plan import make_plan
from diskproof.plan.schedule import make_schedule
from diskproof.records import RunRecord, StudyRecord
from diskproof.store import Store, open_store
from diskproof.study.load import parse_study
from support.simulate import SIMULATED_HOST, SimulatedExecutor

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.databases import make_cluster, start_server
from support.planning import FACTS

RUNS = 5000
CHUNK = 100
READS = 7
STUDY = """
name = "benchmark"
workloads = ["rand-read-4k-d1", "sync-write-4k"]
[factors]
frontend = "daemon"
format = ["raw", "qcow2"]
cache = ["none", "writeback", "writethrough", "directsync", "unsafe"]
aio = ["threads", "io_uring"]
"""
Results = Mapping[tuple[str, str], Sequence[float]]


class Keeper(Protocol):
    def keep(self, run: RunRecord) -> None: ...
    def results(self) -> Results: ...


class InStore:
    """A store of diskproof."""

    def __init__(self, store: Store, study: StudyRecord) -> None:
        self.store = store
        store.add_study(study)
        store.add_host(SIMULATED_HOST)

    def keep(self, run: RunRecord) -> None:
        self.store.add_run(run)

    def results(self) -> Results:
        return {(row.cell.id, row.metric): row.values for row in self.store.results()}


class InLines:
    """What one would write instead: a line a run, appended and synced."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stream = path.open("ab", buffering=0)

    def keep(self, run: RunRecord) -> None:
        content = dataclasses.asdict(run) | {"cell_id": run.cell.id}
        line = json.dumps(content, default=lambda raw: raw.decode("latin-1"))
        self.stream.write(line.encode() + b"\n")
        os.fsync(self.stream.fileno())

    def results(self) -> Results:
        found: dict[tuple[str, str], list[float]] = {}
        with self.path.open("rb") as stream:
            for line in stream:
                run = json.loads(line)
                for metric in run["metrics"]:
                    key = (run["cell_id"], metric["name"])
                    found.setdefault(key, []).append(metric["value"])
        return found


def simulate() -> tuple[StudyRecord, list[RunRecord]]:
    study = parse_study(STUDY)
    cells = make_plan(study, FACTS).cells
    blocks = RUNS // len(cells)
    executor = SimulatedExecutor(study.id)
    runs = [executor.execute(each) for each in make_schedule(cells, blocks, study.seed)]
    return StudyRecord(study.id, study.name, "run", STUDY, study.seed, blocks, cells), runs


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def keep_all(keeper: Keeper, runs: Sequence[RunRecord]) -> None:
    for run in runs:
        keeper.keep(run)


def store_all(keepers: Mapping[str, Keeper], runs: Sequence[RunRecord]) -> dict[str, float]:
    """Median runs per second of each kind, over chunks that take turns."""
    rates: dict[str, list[float]] = {name: [] for name in keepers}
    for start in range(0, len(runs), CHUNK):
        chunk = runs[start : start + CHUNK]
        for name, keeper in keepers.items():
            rates[name].append(len(chunk) / seconds(functools.partial(keep_all, keeper, chunk)))
    return {name: statistics.median(each) for name, each in rates.items()}


def read_all(keepers: Mapping[str, Keeper]) -> dict[str, float]:
    """Median seconds of ``results`` of each kind; all must answer the same."""
    times: dict[str, list[float]] = {name: [] for name in keepers}
    for _ in range(READS):
        for name, keeper in keepers.items():
            times[name].append(seconds(keeper.results))
    answers = [
        {key: tuple(values) for key, values in keeper.results().items()}
        for keeper in keepers.values()
    ]
    assert all(answer == answers[0] for answer in answers), "they do not agree"
    return {name: statistics.median(each) for name, each in times.items()}


def main() -> None:
    study, runs = simulate()
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="diskproof-benchmark-"))
        stack.callback(shutil.rmtree, folder)
        server = stack.enter_context(start_server(stack.enter_context(make_cluster())))
        places = {"SQLite": str(folder / "store.sqlite"), "PostgreSQL": server.new_database()}
        keepers: dict[str, Keeper] = {
            name: InStore(stack.enter_context(open_store(place, create=True)), study)
            for name, place in places.items()
        }
        lines = InLines(folder / "runs.jsonl")
        stack.callback(lines.stream.close)
        keepers["JSON lines"] = lines
        rates, times = store_all(keepers, runs), read_all(keepers)
    print(f"{len(runs):,} simulated runs, medians of {len(runs) // CHUNK} turns of {CHUNK} runs")
    for name in keepers:
        print(
            f"{name:11} {rates[name]:6.0f} runs/s ({rates[name] / rates['JSON lines']:.2f} x lines)"
            f"   results in {times[name] * 1e3:6.0f} ms ({times[name] / times['JSON lines']:.2f} x)"
        )


if __name__ == "__main__":
    main()
