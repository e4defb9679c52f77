"""What ``--json`` prints of comparisons, factors and stability, typed as in ``outputs.py``."""

from typing import Annotated, Generic, TypedDict, TypeVar

from diskproof.report.outputs import AsDict, LevelsJson, LoadHeadJson
from diskproof.stats.power import Power
from diskproof.stats.slow_losses import SlowLosses
from diskproof.stats.spells import Spell
from diskproof.stats.two_states import TwoStates

# -- comparisons ----------------------------------------------------------------------------

SideJson = TypedDict("SideJson", {"asked": str, "is": str})


class ComparedJson(LoadHeadJson):
    label: str
    cell_a: LevelsJson | None
    cell_b: LevelsJson | None
    n_a: int
    n_b: int
    mean_a: float | None
    mean_b: float | None
    geomean_a: float | None
    geomean_b: float | None
    ratio: float | None
    low: float | None
    high: float | None
    method: str
    p_corrected: float | None
    verdict: str
    further_runs: int | None
    crash_a: str | None
    crash_b: str | None
    drops_flushes: list[bool]


class ComparisonJson(TypedDict):
    a: SideJson
    b: SideJson
    delta: float
    regression: bool
    comparisons: list[ComparedJson]
    only_in_a: list[str]
    only_in_b: list[str]
    notes: list[str]


# -- analysis -------------------------------------------------------------------------------

Found = TypeVar("Found")


class AnalysedJson(TypedDict, Generic[Found]):
    study: str
    id: str
    host: str
    workloads: list[Found]


class TermJson(TypedDict):
    term: list[str]
    share: float
    at_most: float
    freedom: int
    p_corrected: float | None


class SharesJson(TypedDict):
    shared: float
    higher: float
    blocks: float
    runs: float


InseparableJson = TypedDict(
    "InseparableJson",
    {"term": list[str], "missing": int, "freedom": int, "with": list[list[str]]},
)


class EffectJson(TypedDict):
    factor: str
    level: str
    base: str
    method: str
    ratio: float | None
    low: float | None
    high: float | None
    p_corrected: float | None
    pairs: int
    text: str


class FactorTermsJson(TypedDict):
    cells: int
    runs: int
    left_out: int
    noise: str
    run_cv: float | None
    terms: list[TermJson]
    shares: SharesJson
    inseparable: list[InseparableJson]


class FactorsJson(LoadHeadJson, FactorTermsJson):
    first_blocks: int | None
    effects: list[EffectJson]
    advice: list[str]


class NoFactorsJson(LoadHeadJson):
    """Of a workload whose cells do not tell factors apart; the lists are empty."""

    terms: list[TermJson]
    effects: list[EffectJson]
    inseparable: list[InseparableJson]


# -- stability ------------------------------------------------------------------------------


class FirstRunJson(TypedDict):
    factor: str | None
    level: str | None
    ratio: float | None
    low: float | None
    high: float | None
    p: float | None
    cells: int
    judged_by: str


class FirstBootJson(FirstRunJson):
    kind: str


class DriftBlockJson(TypedDict):
    block: int
    hours: float | None
    ratio: float


class DriftJson(TypedDict):
    ratio: float | None
    low: float | None
    high: float | None
    p: float | None
    per_hour: float | None
    spread: float
    blocks: list[DriftBlockJson]


class OutlierJson(TypedDict):
    cell: str
    where: str
    run: str
    value: float
    ratio: float | None
    deviations: float | None


class WindowJson(TypedDict):
    start: int
    end: int
    average: float
    range: float | None
    slope: float | None


class StateJson(TypedDict):
    verdict: str
    rounds: int
    missing: int
    window: WindowJson | None
    measurement: WindowJson | None
    last: WindowJson | None


class SteadyJson(StateJson):
    cell: str
    run: str
    series: str
    two_states: Annotated[AsDict, TwoStates] | None


class VarianceJson(TypedDict):
    run_cv: float | None
    block_cv: float | None
    inside_cv: float | None
    inside_share: float | None
    measured_seconds: float | None
    other_seconds: float | None
    best_seconds: float | None
    advice: list[str]


class StabilityJson(LoadHeadJson):
    first_run: list[FirstRunJson]
    first_boot: list[FirstBootJson]
    drift: DriftJson | None
    spell: Annotated[AsDict, Spell] | None
    slow_losses: Annotated[AsDict, SlowLosses] | None
    outliers_told: bool
    outliers: list[OutlierJson]
    steady_state: list[SteadyJson]
    variance: VarianceJson
    power: Annotated[AsDict, Power] | None
