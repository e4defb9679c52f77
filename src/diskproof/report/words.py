"""Sentences for people: who won, what the accelerator distorts, what went wrong."""

from __future__ import annotations

import time
from collections.abc import Sequence

from diskproof.records import HostRecord, StudyRecord
from diskproof.report.labels import render_figure, unit_name
from diskproof.report.view import Line, StudyView, WorkloadView
from diskproof.stats.ranking import Ranked
from diskproof.stats.score import Scored

TCG_NOTE = (
    "Guest cells ran under TCG, QEMU's pure emulation. It distorts what CPU work costs, so "
    "IOPS and latency of guests are far below those under KVM and differences between buses and "
    "threads may not carry over. It does not distort the order of flushes or what is durable."
)
OURS = ("run", "program")
"""Origins of studies that were made here, by ``run`` and ``crash``."""
GUESTS = ("guest", "own-guest")
HIGHER = {True: "higher is better", False: "lower is better"}


def accelerator(view: StudyView) -> str:
    """The accelerator the study's guests ran under, or empty when it has no guests."""
    cells = [*view.study.cells, *(run.cell for run in view.tile_runs)]
    guests = [cell for cell in cells if cell.level("frontend") in GUESTS]
    if not guests:
        return ""
    asked = {cell.level("accel", "auto") for cell in guests}
    probed = str(view.host.facts.get("accel", ""))  # who imports results may not know
    return ", ".join(
        sorted(filter(None, (probed if level == "auto" else level for level in asked)))
    )


def headline(view: StudyView) -> str:
    """One line for the head of a table: study, host, seed, accelerator, runs, failures."""
    study, host = view.study, view.host
    accel = accelerator(view)
    parts = [f"study {study.name}", f"host {host.name}"]
    parts += [f"guests under {accel.upper()}"] if accel else []
    if study.origin in OURS:
        parts += [f"seed {study.seed}"]
    else:
        parts += [f"imported {study.origin}"]
    if view.verdicts:
        parts += [f"{len(view.verdicts)} crash verdicts"]
    if view.tile_runs:
        parts += [f"{len(view.tile_runs)} runs of tiles"]
    if (view.verdicts or view.tile_runs) and not view.workloads:
        return ", ".join(parts)
    failed = len(view.failures)
    parts += [f"{view.runs} runs", f"{failed} failed" if failed else "none failed"]
    return ", ".join(parts)


def accelerator_note(view: StudyView) -> str:
    """What the accelerator distorts, or empty when it does not."""
    return TCG_NOTE if "tcg" in accelerator(view) else ""


def warnings(view: StudyView) -> list[str]:
    """What a reader must know before any figure, from the host and from the plan."""
    found = ["The host is simulated: every figure is made up."] if _simulated(view.host) else []
    return [*found, *view.study.warnings]


def _simulated(host: HostRecord) -> bool:
    return host.facts.get("simulated") is True


def metric_name(load: WorkloadView) -> str:
    named = {"iops": "IOPS", "seconds": "seconds"}
    return named.get(load.metric, f"{load.metric} in {load.unit}")


def winner_sentence(load: WorkloadView) -> str:
    """Who is fastest, and how sure that is."""
    if not load.lines:
        return f"{load.name}: no run gave a result."
    best = load.lines[0]
    value = f"{render_figure(best.ranked.interval.mean)} {unit_name(load.metric, load.unit)}"
    if len(load.lines) == 1:
        return f"{best.label} is the only cell: {value}."
    if best.ranked.interval.n < 2:
        return f"{best.label} is ahead with {value}, but a single run proves nothing."
    tied = sum(line.ranked.tied_with_best and line.ranked.interval.n > 1 for line in load.lines[1:])
    if tied == 0:
        return f"{best.label} wins with {value}{_margin(load, load.lines[1])}."
    if tied == len(load.lines) - 1:
        return f"No cell is proved better than another; {best.label} has the best mean, {value}."
    others = "another cell is" if tied == 1 else f"{tied} others are"
    return f"{best.label} has the best mean, {value}; {others} not proved worse."


def _margin(load: WorkloadView, second: Line) -> str:
    ratio = second.ranked.ratio.ratio
    if not ratio > 0:
        return ""
    ahead = 1 / ratio - 1 if load.higher_is_better else ratio - 1
    return f", {ahead:.0%} ahead of {second.label}" if ahead >= 0.005 else ""


def title(view: StudyView) -> str:
    if only_tiles(view):
        return f"{view.study.name}: how many virtual machines does {view.host.name} carry?"
    if view.verdicts and not view.workloads:
        return f"{view.study.name}: what does a crash leave?"
    if view.study.origin == "run":
        return f"{view.study.name}: which virtual disk is fast on {view.host.name}?"
    return f"{view.study.name}: results imported from {view.study.origin}"


def origin_sentence(study: StudyRecord) -> str:
    if study.origin == "program":
        return "A program was recorded, and its own check judged the states that a crash may leave."
    if study.origin == "run":
        return (
            "Each run is a fresh image and fresh processes; cells ran in randomised blocks "
            "and are compared inside a block."
        )
    return (
        f"Imported from {study.origin}: the order of runs is not known to be random, so cells "
        "are compared as independent samples."
    )


def facts_lines(host: HostRecord) -> Sequence[tuple[str, str]]:
    """The host's facts as flat (name, value) lines, nested ones joined by dots."""
    found: list[tuple[str, str]] = []
    _flatten("", host.facts, found)
    return found


def _flatten(prefix: str, value: object, into: list[tuple[str, str]]) -> None:
    if isinstance(value, dict) and value:
        for key in sorted(value):
            _flatten(f"{prefix}.{key}" if prefix else str(key), value[key], into)
    elif isinstance(value, list | tuple):
        into.append((prefix, ", ".join(str(each) for each in value) or "none"))
    else:
        into.append((prefix, str(value)))


LATENCY_NAMES = {
    "latency_p50": "p50",
    "latency_p99": "p99",
    "latency_p99.9": "p99.9",
    "flush_p99": "flush p99",
}
READING = (
    "The number before a cell is 1 plus the count of cells proved better; = is a tie, ? a cell "
    "that cannot be placed: a single run, or far more scatter than the others. Cells that share a "
    "letter under tie are not told apart. All pairs of cells are compared and corrected together, "
    "so that among equal cells a false difference appears in at most 5 % of studies; the "
    "intervals of the ratio to the best hold for all cells at once."
)


def ratio_text(ranked: Ranked | Scored) -> str:
    """The ratio to the best with its simultaneous 95 % interval: ``0.87 (0.81-0.93)``."""
    ratio = ranked.ratio
    if not ratio.ratio > 0:
        return "-"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.ratio:.3g}"
    high = f"{ratio.high:.3g}" if ratio.high < 1e4 else "?"
    return f"{ratio.ratio:.3g} ({ratio.low:.3g}-{high})"


def only_tiles(view: StudyView) -> bool:
    return bool(view.tile_runs) and not view.workloads


def _runs(view: StudyView) -> str:
    return f"{view.runs} good, {len(view.failures)} failed, {len(view.study.cells)} cells"


def _tile_runs(view: StudyView) -> str:
    if not view.tile_runs:
        return ""
    failed = sum(run.failure is not None for run in view.tile_runs)
    cells = len({run.cell.id for run in view.tile_runs})
    return f"{len(view.tile_runs) - failed} good, {failed} failed, {cells} cells"


def study_facts(view: StudyView) -> list[tuple[str, str]]:
    """What stands at the head of a page, as (name, value)."""
    study = view.study
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(study.created)) if study.created else ""
    accel = accelerator(view)
    lines = [
        ("host", view.host.name),
        ("guests run under", accel.upper()),
        ("runs", "" if only_tiles(view) else _runs(view)),
        ("runs of tiles", _tile_runs(view)),
        ("blocks and seed", f"{study.blocks}, {study.seed}" if study.origin == "run" else ""),
        ("study made", made),
        ("study id", study.id),
    ]
    return [(name, value) for name, value in lines if value]
