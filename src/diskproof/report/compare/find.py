"""Two sides beside each other: which cells match, the verdict on each, and on all together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from diskproof.errors import UsageError
from diskproof.records import Cell
from diskproof.report.compare.sides import Variant
from diskproof.report.labels import cell_label, varying_factors
from diskproof.stats.histograms import LEAST_BEYOND, TOO_FEW_OPERATIONS, CellFigure, mean_figure
from diskproof.stats.intervals import LogRatio, Sample, looks_at
from diskproof.stats.percentiles import estimate_percentiles, together
from diskproof.stats.speed_verdict import SpeedVerdict, judge, overall_samples
from diskproof.store import ResultRow

FEW_RUNS = 3
ALL_CELLS = "all cells together"
Key = tuple[str, str, tuple[tuple[str, str], ...]]
"""Workload, metric and the levels that both sides have in common."""


@dataclass(frozen=True)
class Compared:
    """One line: a pair of cells, or all cells of a workload together (``cell_a`` is None).

    ``told`` are the figures of both cells. ``kept`` is what is known of what each side keeps in a
    crash, ``drops_flushes`` a rule.
    """

    workload: str
    metric: str
    unit: str
    higher_is_better: bool
    label: str
    cell_a: Cell | None
    cell_b: Cell | None
    a: Sample
    b: Sample
    verdict: SpeedVerdict
    told: tuple[CellFigure, CellFigure]
    kept: tuple[str, str] = ("", "")
    drops_flushes: tuple[bool, bool] = (False, False)


@dataclass(frozen=True)
class Comparison:
    """All lines, and the labels of cells that one side alone has."""

    a: Variant
    b: Variant
    delta: float
    lines: tuple[Compared, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def regressions(self) -> tuple[Compared, ...]:
        return tuple(line for line in self.lines if line.verdict.outcome == "slower")


def compare_sides(
    a: Variant,
    b: Variant,
    *,
    delta: float,
    metric: str | None = None,
    workloads: Sequence[str] = (),
) -> Comparison:
    """Match the cells of both sides by workload, metric and the levels that neither side named.

    Only each workload's primary metric unless one is named. Raises UsageError when nothing matches.
    """
    _require_two(a, b)
    named = {**a.levels, **b.levels}
    own = [_by_key(side, named, metric, workloads) for side in (a, b)]
    matched = _matched(own[0], own[1])
    if not matched:
        raise _nothing_in_common(a, b, metric, workloads)
    pairs = _told_pairs(a, b, matched)
    notes = [*_source_notes(a, own[0]), *_source_notes(b, own[1]), *_load_notes(matched)]
    if len(pairs) < len(matched):
        notes.append(f"{len(matched) - len(pairs)} left out: {TOO_FEW_OPERATIONS} beyond it")
    factors = varying_factors([row.cell for one, other in pairs for row in (one, other)])
    shown = [name for name in factors if name not in named] if named else list(factors)
    lines = _judge(a, b, pairs, shown, delta)
    notes += [*_proof_notes(lines), *_race_notes(a, b, pairs)]
    every = varying_factors([row.cell for rows in own for each in rows.values() for row in each])
    met = {id(row) for pair in matched for row in pair}
    missing = [
        tuple(_row_label(rows[-1], every) for rows in side.values() if id(rows[-1]) not in met)
        for side in own
    ]
    return Comparison(a, b, delta, lines, missing[0], missing[1], tuple(dict.fromkeys(notes)))


def _require_two(a: Variant, b: Variant) -> None:
    """A comparison of something with itself would say that it is the same. Raises UsageError."""
    if a.rows and a.rows == b.rows:
        raise UsageError(
            f"{a.asked!r} and {b.asked!r} are the same: {a.title}",
            "whatever is compared with itself is no slower",
            "`diskproof status` lists studies with their ids; name two of them by id",
        )


def _by_key(
    side: Variant, named: Mapping[str, str], metric: str | None, workloads: Sequence[str]
) -> dict[Key, list[ResultRow]]:
    """A side's rows by what is to match; several of one key come from several studies or hosts,
    the newest study last."""
    found: dict[Key, list[ResultRow]] = {}
    for row in side.rows:
        wanted = row.metric == metric if metric else row.primary
        if wanted and (not workloads or row.cell.workload.name in workloads):
            company = tuple(pair for pair in row.cell.levels if pair[0] not in named)
            found.setdefault((row.cell.workload.name, row.metric, company), []).append(row)
    for rows in found.values():
        cells = {row.cell.levels for row in rows}
        if len(cells) > 1:
            names = varying_factors([row.cell for row in rows])
            raise UsageError(
                f"{side.asked!r} names {len(cells)} cells where the other side names one",
                f"they differ in {', '.join(names)}",
                "name that level on this side as well",
            )
    return found


def _matched(
    a: Mapping[Key, list[ResultRow]], b: Mapping[Key, list[ResultRow]]
) -> list[tuple[ResultRow, ResultRow]]:
    """Rows of equal key; where no key is equal, a side with a single cell of a workload meets
    every cell of the other (the bare-metal baseline has no other levels)."""
    pairs = [(rows[-1], b[key][-1]) for key, rows in a.items() if key in b]
    if pairs:
        return pairs
    found = []
    for load in dict.fromkeys(key[:2] for key in a):
        left = [rows[-1] for key, rows in a.items() if key[:2] == load]
        right = [rows[-1] for key, rows in b.items() if key[:2] == load]
        if len(left) == 1 or len(right) == 1:
            found += [(one, other) for one in left for other in right]
    return found


def _told_pairs(
    a: Variant, b: Variant, pairs: Sequence[tuple[ResultRow, ResultRow]]
) -> list[tuple[ResultRow, ResultRow]]:
    """The pairs of which both cells have a figure. Raises UsageError when there is none."""
    found = [
        (one, other)
        for one, other in pairs
        if not a.figures[one].reason and not b.figures[other].reason
    ]
    if not found:
        why = f"fewer than {LEAST_BEYOND} lie beyond it in every cell"
        raise UsageError(f"{TOO_FEW_OPERATIONS} for {pairs[0][0].metric}", why, "run longer")
    return found


def _judge(
    a: Variant,
    b: Variant,
    pairs: Sequence[tuple[ResultRow, ResultRow]],
    shown: Sequence[str],
    delta: float,
) -> tuple[Compared, ...]:
    """Verdicts on all pairs, and on all cells of a workload together, corrected as one family."""
    found: list[_Pair] = []
    for load in dict.fromkeys((one.cell.workload.name, one.metric) for one, _ in pairs):
        own = [
            _Pair(one, other, *_samples(a, b, one, other), (a.figures[one], b.figures[other]))
            for one, other in pairs
            if (one.cell.workload.name, one.metric) == load
        ]
        every = _all_cells(a, b, own) if len(own) > 1 else None
        found += [*own, *([every] if every else [])]
    verdicts = judge(
        [(each.a, each.b) for each in found],
        [each.one.higher_is_better for each in found],
        delta,
        [each.percentiles() for each in found],
    )
    return tuple(_line((a, b), *each, shown) for each in zip(found, verdicts, strict=True))


@dataclass(frozen=True)
class _Pair:
    """What one line is judged by: rows of both sides, their runs and their figures. Of all cells
    ``together`` the rows are those of the first."""

    one: ResultRow
    other: ResultRow
    a: Sample
    b: Sample
    figures: tuple[CellFigure, CellFigure]
    together: bool = False

    def percentiles(self) -> LogRatio | None:
        """B's percentile over A's; None of what is none, and where one is nought."""
        a, b = self.figures
        if not (a.pooled and b.pooled and a.value and b.value):
            return None
        paired = bool(self.a.blocks) and self.a.blocks == self.b.blocks
        return estimate_percentiles(b, a, paired=paired, looks=looks_at(self.a, self.b))


def _all_cells(a: Variant, b: Variant, own: Sequence[_Pair]) -> _Pair | None:
    """All cells of a workload as one line: of races their first blocks alone, which are a fixed
    sample; of percentiles only where both sides' cells ran in the same blocks."""
    first = own[0]
    if any(figure.pooled for each in own for figure in each.figures):
        looked = any(each.a.looked or each.b.looked for each in own)
        a_all = together([e.figures[0] for e in own], [e.a.blocks for e in own])
        b_all = together([e.figures[1] for e in own], [e.b.blocks for e in own])
        if a_all is None or b_all is None or looked:
            return None
        return replace(first, figures=(a_all, b_all), together=True)
    fixed = [(_fixed(a, e.one), _fixed(b, e.other)) for e in own]
    if not all(one.values and other.values for one, other in fixed):
        return None
    samples = [_samples(a, b, one, other) for one, other in fixed]
    both = overall_samples(
        [(replace(x, looked=False), replace(y, looked=False)) for x, y in samples]
    )
    if both is None:
        return None
    told = mean_figure(both[0].values), mean_figure(both[1].values)
    return _Pair(first.one, first.other, *both, told, together=True)


def _fixed(side: Variant, row: ResultRow) -> ResultRow:
    """Of a race's cell the runs that it had whatever was seen."""
    first = side.fixed_blocks.get(row.study_id)
    return row if first is None else row.only(lambda block, _: block < first)


def _line(
    sides: tuple[Variant, Variant], pair: _Pair, verdict: SpeedVerdict, shown: Sequence[str]
) -> Compared:
    one, other, a, b, together = pair.one, pair.other, pair.a, pair.b, pair.together
    told = () if together else ((sides[0], one), (sides[1], other))
    kept = [side.kept_text(each) for side, each in told] or ["", ""]
    drops = [side.drops_flushes(each) for side, each in told] or [False, False]
    return Compared(
        one.cell.workload.name,
        one.metric,
        one.unit,
        one.higher_is_better,
        ALL_CELLS if together else _pair_label(one, other, shown),
        None if together else one.cell,
        None if together else other.cell,
        a,
        b,
        verdict,
        pair.figures,
        (kept[0], kept[1]),
        (drops[0], drops[1]),
    )


def _pair_label(one: ResultRow, other: ResultRow, shown: Sequence[str]) -> str:
    labels = [cell_label(row.cell, shown) for row in (one, other)]
    of_either = [
        label
        for row, label in zip((one, other), labels, strict=True)
        if any(row.cell.level(name) for name in shown)
    ]
    common = tuple(pair for pair in one.cell.levels if pair in other.cell.levels)
    alike = Cell(common, one.cell.workload)  # what was asked for by name stands above
    told = [name for name in shown if alike.level(name)]
    if common and (labels[0] == labels[1] or not of_either):
        return cell_label(alike, told)
    return " / ".join(of_either or labels)  # a bare-metal baseline has nothing of what is shown


def _samples(a: Variant, b: Variant, one: ResultRow, other: ResultRow) -> tuple[Sample, Sample]:
    """Blocks pair only inside one study on one host, and only if they are its own randomised
    blocks; numbers of two studies mean nothing to each other."""
    left, right = (
        Sample(
            row.values,
            row.blocks if row.study_id in side.paired_studies else (),
            row.study_id in side.fixed_blocks,
        )
        for side, row in ((a, one), (b, other))
    )
    together = (one.study_id, one.host_id) == (other.study_id, other.host_id)
    if together and one.run_ids != other.run_ids:  # runs beside themselves are no pairs
        return left, right
    shift = 1 + max([*left.blocks, *right.blocks], default=0)
    return left, replace(right, blocks=tuple(block + shift for block in right.blocks))


def _row_label(row: ResultRow, factors: Sequence[str]) -> str:
    return f"{row.cell.workload.name}: {cell_label(row.cell, factors)}"


def _source_notes(side: Variant, found: Mapping[Key, list[ResultRow]]) -> list[str]:
    notes = []
    if any(len({(r.study_id, r.host_id) for r in rows}) > 1 for rows in found.values()):
        notes.append(f"{side.asked} holds some cells more than once: the newest study is taken")
    if len({rows[-1].study_id for rows in found.values()}) > 1:
        notes.append(f"the cells of {side.asked} come from several studies")
    return notes


def _load_notes(pairs: Sequence[tuple[ResultRow, ResultRow]]) -> list[str]:
    notes = []
    if any(one.cell.workload != other.cell.workload for one, other in pairs):
        notes.append("a workload of this name was set up differently on both sides")
    sources = {(row.study_id, row.host_id) for pair in pairs for row in pair}
    if len(sources) > 1:
        notes.append(
            "the sides were measured at different times or places: the intervals hold what varies "
            "between runs, not what varies between days"
        )
    return notes


def _proof_notes(lines: Sequence[Compared]) -> list[str]:
    told = [line for line in lines if line.verdict.outcome in ("faster", "slower")]
    if all(min(len(line.a.values), len(line.b.values)) >= FEW_RUNS for line in told):
        return []
    return [
        f"some of it rests on fewer than {FEW_RUNS} runs a side, and so on how alike they happened "
        "to be: no ground for a gate yet"
    ]


def _race_notes(a: Variant, b: Variant, pairs: Sequence[tuple[ResultRow, ResultRow]]) -> list[str]:
    rows = [(a, one) for one, _ in pairs] + [(b, other) for _, other in pairs]
    if not any(row.study_id in side.fixed_blocks for side, row in rows):
        return []
    return [
        "runs of a race are judged at the race's boundary, which pays for every look at them; a "
        "cell that it stopped looks slower than it is. All cells together: the race's first blocks"
    ]


def _nothing_in_common(
    a: Variant, b: Variant, metric: str | None, workloads: Sequence[str]
) -> UsageError:
    loads = [dict.fromkeys(row.cell.workload.name for row in side.rows) for side in (a, b)]
    described = [
        f"{side.title}: {', '.join(names) or 'no result'}"
        for side, names in zip((a, b), loads, strict=True)
    ]
    asked = f" of the metric {metric!r}" if metric else ""
    asked += f" in {', '.join(workloads)}" if workloads else ""
    return UsageError(
        f"{a.asked!r} and {b.asked!r} have no cell in common{asked}",
        "; ".join(described),
        "`diskproof show` lists what there is",
    )
