"""Who is fastest under one workload: bars, ratios to the best, factor against factor, a table."""

from collections.abc import Iterator, Mapping, Set

from diskproof.records.metrics import HIGHER, figure_unit
from diskproof.report.barred import DROPS_FLUSHES, MARK, Bars, is_unfit
from diskproof.report.chapter import Chapter, Draw, Figure, Lead, Source
from diskproof.report.durability import durability_json, is_lossy, short_text, verdict_mark
from diskproof.report.labels import render_percentile
from diskproof.report.ranking import chart, words
from diskproof.report.ranking.defaults import default_sentences
from diskproof.report.ranking.table import render_ranking
from diskproof.report.ratios import ratio_chart, ratio_text
from diskproof.report.view import StudyView, WorkloadView, present_latencies


def _find(source: Source) -> Mapping[str, WorkloadView]:
    return {load.name: load for load in source.workloads}


def _lead(load: WorkloadView, view: StudyView) -> Lead:
    bars = Bars(view.study)
    given = " ".join(default_sentences(load, bars))
    told = [(load.name, words.winner_sentence(load, bars))]
    told += [(f"{load.name}, what managers give", given)] if given else []
    looked = any(line.looked for line in load.lines)
    reading = f"{words.READING} {words.RACE_READING}" if looked else words.READING
    return Lead(answers=tuple(told), reading=reading)


def _page(load: WorkloadView, view: StudyView, draw: Draw) -> Mapping[str, object]:
    bars = Bars(view.study)
    unfit = {line.label for line in load.lines if is_unfit(line.ranked.cell, bars)}
    return {
        "load": load,
        "unfit": unfit,
        "drops_flushes": DROPS_FLUSHES,
        "figures": [
            _bars_figure(load, unfit, draw),
            *_ratio_figure(load, unfit, draw),
            *_heat_figure(load, draw),
        ],
        "latencies": present_latencies(load),
        "judged": any(line.durability for line in load.lines),
        "unit": figure_unit(load.metric, load.unit),
        "ratio_text": ratio_text,
        "render_percentile": render_percentile,
        "short_text": short_text,
        "verdict_mark": verdict_mark,
        "stopped_mark": words.STOPPED_MARK,
        "stopped": words.STOPPED if any(line.ranked.stopped for line in load.lines) else "",
        "skewed": words.SKEWED if load.skewed else "",
        "lossy": {line.label for line in load.lines if is_lossy(line.durability)},
    }


def _bars_figure(load: WorkloadView, unfit: Set[str], draw: Draw) -> Figure:
    text = (
        "Geometric means with 95 % intervals; circles are single runs; blue: no cell is proved "
        "better."
    )
    if unfit:
        text = f"{text} {DROPS_FLUSHES}."
    hidden = len(load.lines) - chart.MAX_BARS
    if hidden > 0:
        text = f"{text} The best {chart.MAX_BARS}; all are in the table."
    return draw(chart.bars_chart(load, unfit), text, 0)


def _ratio_figure(load: WorkloadView, unfit: Set[str], draw: Draw) -> Iterator[Figure]:
    title = f"{load.metric} over the best cell's ({HIGHER[load.higher_is_better]})"
    ratios = ratio_chart(
        [(line.label + MARK * (line.label in unfit), line.ranked) for line in load.lines], title
    )
    if ratios is not None:
        yield draw(ratios.spec, ratios.caption, 1)


def _heat_figure(load: WorkloadView, draw: Draw) -> Iterator[Figure]:
    factors = chart.heat_factors(load)
    if factors is not None:
        across, down = factors
        caption = (
            "Speed in percent of the best cell, geometric mean over all other factors: "
            f"{down} down, {across} across."
        )
        yield draw(chart.heat_chart(load, across, down), caption, 1)


def _raw(load: WorkloadView) -> Iterator[Mapping[str, object]]:
    for line in load.lines:
        yield {
            "workload": load.name,
            "cell": line.ranked.cell.levels_dict(),
            "metric": load.metric,
            "unit": load.unit,
            "runs": dict(zip(line.run_ids, line.values, strict=True)),
            "durability": durability_json(line.durability),
        }


CHAPTER = Chapter(
    "ranking",
    _find,
    _page,
    on_each_workload=True,
    table=lambda load, view, best: [render_ranking(load, Bars(view.study), best=best)],
    lead=_lead,
    raw=_raw,
)
