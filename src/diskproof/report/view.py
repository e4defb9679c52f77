"""A view is what a table or a page needs to know of one study on one host."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from diskproof.errors import UsageError
from diskproof.records import HostRecord, StudyRecord
from diskproof.records.metrics import BESIDE_SPEEDS, HIGHER, MetricRow, metric_said
from diskproof.report.durability import CellDurability, deciding_levels
from diskproof.report.labels import cell_label, evenly, varying_factors
from diskproof.stats.histograms import CellFigure
from diskproof.stats.intervals import Sample
from diskproof.stats.study_race import race_rules
from diskproof.store import ResultRow, Store
from diskproof.store.show import Figures

if TYPE_CHECKING:
    from diskproof.stats.ranking import Ranked

TCG_NOTE = (
    "Guest cells ran under TCG, QEMU's pure emulation. It distorts what CPU work costs, so "
    "IOPS and latency of guests are far below those under KVM and differences between buses and "
    "threads may not carry over. It does not distort the order of flushes or what is durable."
)
MINIMAL_NOTE = (
    "Guests were minimal, with the host's own kernel and fio: their figures are no other guest's."
)
Verdicts = Mapping[tuple[tuple[str, str], ...], CellDurability]


@dataclass(frozen=True)
class Line:
    """One cell in a ranking. ``latencies`` are its percentiles in seconds, by metric;
    ``durability`` is what crash studies say of the same disk, where they do. ``blocks`` are those
    of ``values``, empty where equal numbers do not mean equal conditions; ``looked``: a race's."""

    ranked: "Ranked"
    label: str
    values: tuple[float, ...]
    run_ids: tuple[str, ...]
    latencies: Mapping[str, CellFigure]
    durability: CellDurability | None = None
    blocks: tuple[int, ...] = ()
    looked: bool = False

    @property
    def sample(self) -> Sample:
        return Sample(self.values, self.blocks, self.looked)


@dataclass(frozen=True)
class WorkloadView:
    """A workload's ranking by its primary metric, best line first. ``alpha`` is the error granted
    to all claims of it together: its share of what the study's rankings are granted. ``skewed``:
    its runs lean to one side, and intervals of single means hold less often than they say."""

    name: str
    metric: str
    unit: str
    higher_is_better: bool
    varying: tuple[str, ...]
    lines: tuple[Line, ...]
    alpha: float
    skewed: bool = False

    @property
    def measured(self) -> str:
        """It says what the workload is ranked by: ``IOPS, higher is better``."""
        return f"{metric_said(self.metric, self.unit)}, {HIGHER[self.higher_is_better]}"


@dataclass(frozen=True)
class StudyView:
    """One study on one host; ``file`` is the study's, where it is known. ``parts`` stand by the
    names of the chapters that found them; a chapter on each workload has found a mapping by the
    workload's name."""

    study: StudyRecord
    host: HostRecord
    workloads: tuple[WorkloadView, ...]
    parts: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""

    @property
    def runs(self) -> int:
        return sum(len(line.values) for load in self.workloads for line in load.lines)


def choose_studies(store: Store, wanted: Sequence[str] = ()) -> list[StudyRecord]:
    """Choose all studies, or those of these names or ids. Raises UsageError for one that is not
    there."""
    studies = store.studies()
    for name in wanted:
        if not any(name in (study.id, study.name) for study in studies):
            held = ", ".join(dict.fromkeys(study.name for study in studies)) or "no study"
            raise UsageError(f"no study {name!r} in {store.place}", f"it holds {held}")
    return [study for study in studies if not wanted or {study.id, study.name} & set(wanted)]


def present_latencies(load: WorkloadView) -> list[MetricRow]:
    """The latencies that any line has beside its speed."""
    return [r for r in BESIDE_SPEEDS if any(r.name in line.latencies for line in load.lines)]


def chosen_lines(load: WorkloadView, most: int = 4) -> tuple[Line, ...]:
    """The best line, the worst and some between: what a chart can hold."""
    return evenly(load.lines, most)


def by_workload(rows: Iterable[ResultRow]) -> dict[str, list[ResultRow]]:
    """Sort rows by the name of their workload."""
    found: dict[str, list[ResultRow]] = {}
    for row in rows:
        found.setdefault(row.cell.workload.name, []).append(row)
    return found


def rank_workloads(
    study: StudyRecord,
    rows: Sequence[ResultRow],
    verdicts: Verdicts | None = None,
    figures: Figures | None = None,
) -> tuple[WorkloadView, ...]:
    """One ranking per workload from a study's result rows of one host; ``verdicts`` by the levels
    they are about stand beside the lines of the same disks, and so do the percentiles among
    ``figures``.

    At most 5 % of studies claim any false difference in any of them: Bonferroni's share for each
    workload, and all pairs of its cells together within that.
    """
    from diskproof.stats.comparisons import ALPHA

    found = by_workload(rows)
    names = dict.fromkeys([*(cell.workload.name for cell in study.cells), *found])
    alpha = ALPHA / max(1, len(names))  # of all workloads, also where only some are asked for
    return tuple(
        _rank_workload(
            found[name],
            verdicts or {},
            figures or {},
            alpha,
            paired=study.origin == "run",
            looked=race_rules(study) is not None,
        )
        for name in names
        if any(row.primary for row in found.get(name, ()))
    )


def is_beside(row: ResultRow) -> bool:
    """Whether a ranking tells of this metric beside the speed."""
    return any(each.name == row.metric for each in BESIDE_SPEEDS)


def _rank_workload(
    rows: Sequence[ResultRow],
    verdicts: Verdicts,
    figures: Figures,
    alpha: float,
    *,
    paired: bool,
    looked: bool,
) -> WorkloadView:
    """Imported results are not paired: their numbers of runs are not randomised blocks."""
    from diskproof.stats.ranking import Measured, rank
    from diskproof.stats.skewness import are_skewed

    primary = [row for row in rows if row.primary]
    factors = varying_factors(row.cell for row in primary)
    first = primary[0]
    measured = {
        row.cell.id: Measured(row.cell, Sample(row.values, row.blocks if paired else (), looked))
        for row in primary
    }
    by_cell = {row.cell.id: row for row in primary}
    latencies: dict[str, dict[str, CellFigure]] = {}
    for row in rows:
        if is_beside(row) and row in figures:
            latencies.setdefault(row.cell.id, {})[row.metric] = figures[row]
    lines = tuple(
        Line(
            ranked,
            cell_label(ranked.cell, factors),
            by_cell[ranked.cell.id].values,
            by_cell[ranked.cell.id].run_ids,
            latencies.get(ranked.cell.id, {}),
            verdicts.get(deciding_levels(ranked.cell)),
            measured[ranked.cell.id].sample.blocks,
            looked,
        )
        for ranked in rank(list(measured.values()), first.higher_is_better, alpha)
    )
    name = first.cell.workload.name
    skewed = are_skewed([each.sample for each in measured.values()])
    return WorkloadView(
        name, first.metric, first.unit, first.higher_is_better, factors, lines, alpha, skewed
    )
