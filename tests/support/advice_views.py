"""Views with verdicts for tests of the answer: seeded noise, any cells, any verdicts."""

from collections.abc import Callable, Mapping, Sequence

from diskproof.plan.schedule import make_schedule
from diskproof.records import Cell, HostRecord, StudyRecord
from diskproof.records.verdicts import Durability, Fault, Verdict, VerdictRow
from diskproof.report.durability import join_verdicts
from diskproof.report.view import StudyView, rank_workloads
from diskproof.stats.study_race import race_rules, replay_races, run_score
from diskproof.store.rows import ResultRow
from support.crashing import make_crash_run
from support.simulate import EFFECTS, SIMULATED_HOST, SimulatedExecutor, Simulation
from support.simulated_stores import simulated_cells

EQUAL: Mapping[tuple[str, str], float] = {}
"""Speeds of an A/A study."""
Judge = Callable[[Cell], Mapping[Fault, Durability]]
CACHES = {"frontend": ("daemon",), "cache": ("none", "writeback", "writethrough", "unsafe")}
RACE = '[protocol]\nstop = "decided"\nmax_blocks = 8\n'
DAEMON = {
    "frontend": ("daemon",),
    "backing": ("ssd",),
    "format": ("raw", "qcow2"),
    "cache": ("none", "writeback", "writethrough", "unsafe"),
    "aio": ("threads",),
}


def by_cache(cell: Cell) -> Mapping[Fault, Durability]:
    """As ``crash`` finds it: unsafe loses in a power cut and outlives QEMU's end."""
    lost = cell.level("cache") == "unsafe"
    return {"power": "loses" if lost else "keeps", "qemu-kill": "keeps"}


def nobody(cell: Cell) -> Mapping[Fault, Durability]:
    return {}


def make_verdict_rows(
    cells: Sequence[Cell], judge: Judge, states: tuple[int, int]
) -> list[VerdictRow]:
    rows: list[VerdictRow] = []
    for levels in dict.fromkeys(cell.levels for cell in cells):
        run = make_crash_run(len(rows), **dict(levels))
        of = next(cell for cell in cells if cell.levels == levels)
        for fault, word in judge(of).items():
            lost = 64 if word == "loses" else 0
            shown = {"states_checked": states[0], "states_total": states[1]}
            verdict = Verdict(fault, word, lost=lost, estimated=states[0] < states[1], **shown)
            told = verdict.as_far_as_covered
            rows.append(VerdictRow("s1", "h1", run.id, run.cell, told, ended=1.7e9))
    return rows


def advice_view(
    factors: Mapping[str, Sequence[str]] = DAEMON,
    loads: Sequence[str] = ("sync-write",),
    *,
    judge: Judge = by_cache,
    speeds: Mapping[tuple[str, str], float] = EFFECTS,
    blocks: int = 5,
    seed: int = 1,
    cv: float = 0.03,
    text: str = "",
    host: HostRecord = SIMULATED_HOST,
    keep: Callable[[Cell], bool] = lambda cell: True,
    warnings: tuple[str, ...] = (),
    states: tuple[int, int] = (120, 120),
) -> StudyView:
    """A study of simulated runs with its ranking, verdicts and races. ``keep`` says which of the
    combinations there are."""
    cells = tuple(filter(keep, simulated_cells(factors, loads)))
    study = StudyRecord(
        "s1", "advised", "run", text, seed, blocks, cells, warnings=warnings, created=1.7e9
    )
    executor = SimulatedExecutor("s1", Simulation(seed=seed, cv=cv, effects=speeds))
    values: dict[str, list[float]] = {}
    scores = {}
    for planned in make_schedule(cells, blocks, seed):
        run = executor.execute(planned)
        value = next(metric.value for metric in run.metrics if metric.primary)
        values.setdefault(planned.cell.id, []).append(value)
        scores[planned.block, planned.cell.id] = run_score(value, higher_is_better=True)
    rows = [
        ResultRow(
            "s1", host.id, cell, "iops", "1/s", True, True, tuple(values[cell.id]),
            tuple(range(blocks)), tuple(f"{cell.id}-{run}" for run in range(blocks)),
        )
        for cell in cells
    ]  # fmt: skip
    verdicts = join_verdicts(make_verdict_rows(cells, judge, states))
    ranked = rank_workloads(study, rows, verdicts)
    races = replay_races(study, scores) if race_rules(study) else ()
    parts = {"race": {race.workload: race for race in races}} if races else {}
    return StudyView(study, host, ranked, parts)
