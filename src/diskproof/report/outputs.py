"""What ``--json`` prints of plans, rankings, verdicts and tiles, typed: mypy holds the code to it,
``make schemas`` publishes it.

``AsDict`` stands for what ``dataclasses.asdict`` makes of the class beside it. A field that may be
left out is NotRequired; None is for what is not known.
"""

from typing import Annotated, Any, NotRequired, TypedDict

from diskproof.report.output_causes import CausesJson
from diskproof.study.like import DiskDefault
from diskproof.study.protocol import RaceRules

LevelsJson = dict[str, str]
"""Levels by factor."""
PairJson = list[float] | None
"""Lower and upper end of an interval."""
AsDict = dict[str, Any]


# -- verdicts -------------------------------------------------------------------------------


class VerdictJson(TypedDict):
    fault: str
    writer: str
    verdict: str
    kept_so_far: bool
    covered: Any
    lost: int
    age_seconds: float
    states_checked: int
    states_equal: int
    states_total: int | None
    states_estimated: bool
    cuts: int
    sector: int
    discard_granularity: int | None
    seed: int
    cut: int | None
    missing: list[int]
    causes: CausesJson | None
    reason: str
    reproduce: str
    study: str
    run: str


class CrashCellJson(VerdictJson):
    cell: LevelsJson


# -- plans ----------------------------------------------------------------------------------


class SecondsJson(TypedDict):
    estimated_seconds: float
    estimated_phases: dict[str, float]
    estimated_from_runs: int


class TileCellJson(TypedDict):
    id: str
    cell: LevelsJson
    default_of: list[str]


class PlanCellJson(TileCellJson):
    workload: str
    options: dict[str, Any]
    barred: list[str]


class DroppedJson(TypedDict):
    reason: str
    cells: int
    example: LevelsJson


class NamedLevelsJson(TypedDict):
    levels: LevelsJson


DefaultJson = Annotated[AsDict, DiskDefault, NamedLevelsJson]


class OwnersJson(TypedDict):
    factor: str
    level: str
    managers: list[str]


class LikelyJson(TypedDict):
    likely: bool


class PlanJson(SecondsJson):
    study: str
    id: str
    blocks: int
    seed: int
    runs: int
    race: Annotated[AsDict, RaceRules, LikelyJson] | None
    disk_bytes: int
    cells: list[PlanCellJson]
    dropped: list[DroppedJson]
    defaults: list[DefaultJson]
    default_levels: list[OwnersJson]
    backings: dict[str, str]
    warnings: list[str]


class PlannedVerdictsJson(SecondsJson):
    cells: int
    verdicts: int
    at_most_seconds: float
    obstacle: str


class TilePlanJson(SecondsJson):
    tile: str
    guests: list[str]
    workloads: list[str]
    scale: str
    most: int
    counts: list[int]
    runs_of_each: int
    runs: int
    disk_bytes: int
    memory_bytes: int
    cells: list[TileCellJson]
    dropped: list[DroppedJson]
    defaults: list[DefaultJson]
    backings: dict[str, str]
    warnings: list[str]


class FurtherPlansJson(TypedDict):
    verdicts: NotRequired[Annotated[AsDict, PlannedVerdictsJson]]
    tiles: NotRequired[TilePlanJson]


class WholePlanJson(PlanJson, FurtherPlansJson):
    obstacle: str | None
    proves: list[str]


# -- rankings -------------------------------------------------------------------------------


class RaceDropJson(TypedDict):
    cell: LevelsJson
    after_block: int
    reason: str
    rival: LevelsJson | None
    ratio: float | None
    at_most: float | None


class ChanceJson(TypedDict):
    cell: LevelsJson
    chance: float


class RaceJson(TypedDict):
    blocks: int
    cells: int
    racing: int
    resting: int
    stop: str
    over: bool
    settled: bool
    leaders: list[LevelsJson]
    tied: list[LevelsJson]
    open: list[LevelsJson]
    probability: float
    chances: list[ChanceJson] | None
    lead_at_least: float | None
    blocks_needed: int
    dropped: list[RaceDropJson]


class RankLineJson(TypedDict):
    rank: int | None
    shared: bool
    tie: str
    cell: LevelsJson
    label: str
    default_of: list[str]
    n: int
    stopped: bool
    mean: float
    ci95: float | None
    geomean: float
    geomean_ci95: float | None
    ratio_to_best: float
    ratio_simultaneous95: PairJson
    ratio_ci95: PairJson
    latencies: dict[str, float | None]
    latencies_ci95: dict[str, PairJson]
    latencies_missing: dict[str, str]
    durability: list[VerdictJson] | None


class SlowLossesJson(TypedDict):
    failed: int
    ratio: float
    p_value: float
    text: str


class LoadHeadJson(TypedDict):
    workload: str
    metric: str
    unit: str
    higher_is_better: bool


class RankedLoadJson(LoadHeadJson):
    cells: list[RankLineJson]
    skewed: bool
    slow_losses: SlowLossesJson | None
    race: RaceJson | None


class WhatToUseJson(TypedDict):
    workload: str
    sentences: list[str]
    chosen: LevelsJson | None
    proved: bool
    likely: bool
    keeps: bool


class ScoredCellJson(TypedDict):
    rank: int | None
    shared: bool
    tie: str
    cell: LevelsJson
    label: str
    score: float
    simultaneous95: PairJson
    speeds: dict[str, float]
    wins: float
    read: float | None
    write: float | None
    on_front: bool | None
    proved_off_front: bool | None


class UnscoredJson(TypedDict):
    cell: LevelsJson
    lacks: list[str]


class ScoreJson(TypedDict):
    weights: dict[str, float]
    holds_within: float | None
    cells: list[ScoredCellJson]
    missing: list[UnscoredJson]


class WeightedCellJson(TypedDict):
    cell: LevelsJson
    label: str
    read: float | None
    write: float | None
    total: float | None


class WeightedJson(TypedDict):
    read_factor: float | None
    write_factor: float | None
    cells: list[WeightedCellJson]


class ScoresJson(TypedDict):
    score: ScoreJson | None
    weighted_speed: WeightedJson | None
    no_weighted_speed: NotRequired[str | None]


class RankingJson(ScoresJson):
    study: str
    id: str
    host: str
    accel: str
    answer: list[WhatToUseJson]
    failed_runs: int
    rankings: list[RankedLoadJson]


# -- tiles ----------------------------------------------------------------------------------


class MeanJson(TypedDict):
    n: int
    mean: float
    ci95: float | None


class CapacityJson(TypedDict):
    tiles: int
    vms: int
    low: int
    high: int
    open_above: bool
    confidence: float
    decided: bool
    monotone: bool
    reason: str
    against_best: str


class TileWorkJson(MeanJson):
    workload: str
    metric: str
    unit: str
    higher_is_better: bool
    worst_ratio: float | None


class TileHostJson(MeanJson):
    unit: str


class TileGuestJson(TypedDict):
    guest: str
    cpus: float
    share_of_cpu: float
    read_bytes_per_second: float
    written_bytes_per_second: float
    memory_bytes: float
    ksm_bytes: float


class TileFailureJson(TypedDict):
    run: str
    repeat: int
    kind: str
    what: str
    why: str
    hint: str


class TilesAtJson(TypedDict):
    tiles: int
    runs: list[str]
    missed: int
    seconds: MeanJson | None
    place: str
    score: MeanJson | None
    fairness: MeanJson | None
    holds: bool | None
    workloads: list[TileWorkJson]
    host: dict[str, TileHostJson]
    guests: list[TileGuestJson]
    failed: list[TileFailureJson]


class TilesOfCellJson(TypedDict):
    cell: LevelsJson
    capacity: CapacityJson
    numbers: list[TilesAtJson]


class TilesJson(TilesOfCellJson):
    study: str
    study_id: str
    host: str
    host_id: str
    tile: str
    guests: list[str]
