"""All workloads of a study together: scores by weights, the front of reads and writes, and the
2013 article's weighted speeds. From a store alone."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from diskproof.errors import UsageError
from diskproof.records import StudyRecord, WorkloadSpec
from diskproof.report.view import by_workload
from diskproof.stats.intervals import Sample
from diskproof.stats.pareto import FrontPoint, find_front
from diskproof.stats.score import Levels, ScoredLoad, Scores, score
from diskproof.stats.study_race import race_rules
from diskproof.stats.weighted_speed import Pair, Speeds, WeightedSpeeds, weigh_speeds
from diskproof.store import ResultRow, Store
from diskproof.study.presets import PRESET_BY_NAME

DIRECTIONS = ("read", "write")
RANDOM_4K = {"read": ("rand-read-4k-d1", "rand-read-4k-d32"), "write": ()}
RANDOM_4K["write"] = tuple(name.replace("read", "write") for name in RANDOM_4K["read"])


@dataclass(frozen=True)
class StudyScores:
    """The scores of one study on one host. ``front`` is of (read, write) scores, empty unless both
    kinds are there; ``weighted`` is None with the reason in ``unweighted``. ``raced``: cells may
    have been stopped early."""

    scores: Scores
    front: tuple[FrontPoint, ...]
    weighted: WeightedSpeeds | None
    unweighted: str = ""
    raced: bool = False


def read_scores(
    store: Store, study: StudyRecord, host_id: str, weights: Mapping[str, float]
) -> StudyScores | None:
    """Scores of a study with two workloads or more; None for fewer.

    Raises UsageError for a weight of a workload that the study does not have.
    """
    rows = [row for row in store.results(study.id) if row.primary and row.host_id == host_id]
    return score_study(study, rows, weights)


def score_study(
    study: StudyRecord, rows: Iterable[ResultRow], weights: Mapping[str, float]
) -> StudyScores | None:
    """As ``read_scores``, from the study's primary results of one host."""
    looked = race_rules(study) is not None
    return score_rows(rows, weights, blocked=study.origin == "run", looked=looked)


def score_rows(
    rows: Iterable[ResultRow], weights: Mapping[str, float], *, blocked: bool, looked: bool = False
) -> StudyScores | None:
    """As ``read_scores``, from the primary results of one study on one host."""
    by_load = by_workload(rows)
    given = spread_weights([each[0].cell.workload for each in by_load.values()], weights)
    if len(by_load) < 2:
        return None
    loads = [_load(name, own, given[name], blocked, looked) for name, own in by_load.items()]
    aims = [
        [load for load in loads if direction(by_load[load.name][0].cell.workload) == aim]
        for aim in DIRECTIONS
    ]
    weighted, reason = _weighted(by_load)
    return StudyScores(score(loads), find_front(aims), weighted, reason, looked)


def _load(
    name: str, rows: Sequence[ResultRow], weight: float, blocked: bool, looked: bool
) -> ScoredLoad:
    samples = {
        row.cell.levels: Sample(row.values, row.blocks if blocked else (), looked) for row in rows
    }
    return ScoredLoad(name, rows[0].higher_is_better, samples, weight)


def direction(workload: WorkloadSpec) -> str:
    """``read``, ``write``, or empty for a load that does both or that we cannot tell."""
    if workload.name in DIRECTIONS:
        return workload.name
    preset = PRESET_BY_NAME.get(workload.name)
    rw = workload.option("rw") or (preset.rw if preset else "")
    return {"read": "read", "randread": "read", "write": "write", "randwrite": "write"}.get(rw, "")


def spread_weights(
    workloads: Sequence[WorkloadSpec], weights: Mapping[str, float]
) -> dict[str, float]:
    """A weight for each workload: all 1 when none is given; ``read`` and ``write`` are shared out
    evenly among the loads of that direction that have no weight of their own; what is not
    mentioned counts nothing. Raises UsageError for a name that fits no workload."""
    names = [workload.name for workload in workloads]
    if not weights:
        return dict.fromkeys(names, 1.0)
    spread = {name: float(weights.get(name, 0.0)) for name in names}
    for asked, weight in weights.items():
        if asked in names:
            continue
        sharing = [
            each.name for each in workloads if direction(each) == asked and each.name not in weights
        ]
        if not sharing:
            raise UsageError(
                f"--weights: no workload {asked!r}",
                f"the study has {', '.join(names) or 'no results yet'}",
                _nearest(asked, names),
            )
        for name in sharing:
            spread[name] = weight / len(sharing)
    if not any(spread.values()):
        raise UsageError("--weights: all weights are 0", "a score needs one that is not")
    return spread


def _nearest(asked: str, names: Sequence[str]) -> str:
    close = get_close_matches(asked, [*names, *DIRECTIONS], 1)
    return f"did you mean {close[0]!r}?" if close else ""


def parse_weights(text: str) -> dict[str, float]:
    """``read=2,write=1`` as a mapping. Raises UsageError for anything else."""
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, equals, number = (each.strip() for each in part.partition("="))
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if not (name and equals) or not 0 <= weight <= 1e9 or name in weights:
            raise UsageError(
                f"--weights: {part.strip()!r} is not understood",
                "each part is a workload, or read or write, once, = and a number from 0 on",
                "--weights read=2,write=1",
            )
        weights[name] = weight
    return weights


def _weighted(by_load: Mapping[str, Sequence[ResultRow]]) -> tuple[WeightedSpeeds | None, str]:
    """The article's score, or why there is none."""
    pairs = []
    for aim in DIRECTIONS:
        random = next((name for name in RANDOM_4K[aim] if name in by_load), None)
        if f"seq-{aim}" not in by_load or random is None:
            return None, f"it needs seq-{aim} and {RANDOM_4K[aim][0]}"
        pairs.append(Pair(_speeds(by_load[f"seq-{aim}"]), _speeds(by_load[random])))
    hosts = dict.fromkeys(
        row.cell.levels
        for rows in by_load.values()
        for row in rows
        if row.cell.level("frontend") == "host"
    )
    if len(hosts) != 1:
        return None, f"it needs one baseline cell with frontend=host; there are {len(hosts)}"
    return weigh_speeds(pairs[0], pairs[1], next(iter(hosts))), ""


def _speeds(rows: Sequence[ResultRow]) -> Speeds:
    speeds: dict[Levels, float] = {}
    for row in rows:
        speeds[row.cell.levels] = math.fsum(row.values) / len(row.values)
    return speeds
