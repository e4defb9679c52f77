"""What an answer holds for: a line to paste without its conditions is a rumour."""

import time
from collections.abc import Iterator, Mapping

from diskproof.records import BackingSpec, Cell
from diskproof.records.metrics import figure_unit
from diskproof.report.advice.choose import Candidate, Recommendation, is_emulated
from diskproof.report.advice.words import differs_text, keeping_text
from diskproof.report.barred import read_backings_of
from diskproof.report.durability import render_age
from diskproof.report.labels import count, plus_minus, render_figure
from diskproof.report.view import TCG_NOTE, StudyView
from diskproof.study.backings import chain

DAEMON_NOTE = (
    "measured through qemu-storage-daemon: the same block nodes as a machine's disk, without a "
    "guest; what the guest and its bus cost is not in it"
)
MIGRATES_NOTE = (
    "only cache none and directsync: elsewhere the page cache of the host that a machine leaves "
    "and of the one it comes to may differ, and libvirt refuses (its docs/migration)"
)


def find_conditions(
    found: Recommendation, view: StudyView, filesystems: Mapping[str, str] | None = None
) -> tuple[tuple[str, str], ...]:
    """Name and value of each, in the order in which one asks. Empty without a choice."""
    if found.chosen is None:
        return ()
    pairs = [
        *_of_host(view),
        ("disk on", _backing_text(found.chosen.cell, view, filesystems or {})),
        ("guest", _guest_text(found.chosen.cell, view)),
        ("image", _image_text(found.chosen.cell)),
        ("workload", _workload_text(found)),
        ("speed", _speed_text(found)),
        *_of_verdict(found.chosen),
        ("measured", _day(view.study.created)),
        ("tied with", _tie_text(found)),
        ("race", _race_text(found)),
        ("migrates", MIGRATES_NOTE if found.wish.migrates else ""),
    ]
    return tuple((name, value) for name, value in pairs if value)


def _of_host(view: StudyView) -> Iterator[tuple[str, str]]:
    facts = view.host.facts
    yield "host", view.host.name
    yield "QEMU", str(facts.get("qemu_version", "")) or "unknown"
    yield "kernel", str(facts.get("kernel", "")) or "unknown"
    if facts.get("simulated") is True:
        yield "warning", "the host is simulated: every figure is made up"


def _backing_text(cell: Cell, view: StudyView, filesystems: Mapping[str, str]) -> str:
    """The backing with what it is made on; its file system as far as somebody knows it."""
    name = cell.level("backing")
    spec = read_backings_of(view.study).get(name)
    if spec is None:
        return f"{name or 'its folder'}, of which the study says no more"
    below = f" on {filesystems[name]}" if name in filesystems else ""
    return f"{name}: {', on '.join(_spec_text(each) for each in chain(spec))}{below}"


def _spec_text(spec: BackingSpec) -> str:
    said = " ".join(
        f"{key}={value}" for key, value in spec.options if value and key not in ("size", "mkfs")
    )
    return f"{spec.kind} {said}".strip()


def _guest_text(cell: Cell, view: StudyView) -> str:
    frontend = cell.level("frontend")
    if frontend == "daemon":
        return f"none: {DAEMON_NOTE}"
    asked = cell.level("accel", "auto")
    accel = str(view.host.facts.get("accel", "unknown")) if asked == "auto" else asked
    size = f"{cell.level('vcpus', '?')} vCPUs, {cell.level('memory', '?')}"
    whose = "your own" if frontend == "own-guest" else "the study's Linux"
    note = f". {TCG_NOTE}" if is_emulated(cell, view) else ""
    return f"{whose}, {size}, under {accel.upper()}{note}"


def _image_text(cell: Cell) -> str:
    """What the line does not say of an image that is there already."""
    names = ("format", "preallocation", "cluster_size", "lazy_refcounts")
    return ", ".join(f"{name}={cell.level(name)}" for name in names if cell.level(name))


def _workload_text(found: Recommendation) -> str:
    chosen = found.chosen
    spec = chosen.cell.workload if chosen else None
    if spec is None:
        return ""
    told = ("rw", "bs", "iodepth", "fsync", "size", "runtime")
    said = ", ".join(f"{key}={spec.option(key)}" for key in told if spec.option(key))
    return f"{spec.name} ({said})" if said else spec.name


def _speed_text(found: Recommendation) -> str:
    chosen, load = found.chosen, found.load
    if chosen is None:
        return ""
    interval, unit = chosen.line.ranked.interval, figure_unit(load.metric, load.unit)
    half = f" {plus_minus(interval)}" if interval.half_width is not None else ""
    return f"{render_figure(interval.mean)}{half} {unit} (95 %, {count(interval.n, 'run')})"


def _of_verdict(chosen: Candidate) -> Iterator[tuple[str, str]]:
    row = chosen.keeping.row
    yield "verdict", keeping_text(chosen)
    if row is not None:
        made = f", {_day(row.ended)}" if row.ended else ""
        age = row.verdict.age_seconds
        oldest = f", the oldest acknowledged {render_age(age)} before" if row.verdict.lost else ""
        yield "writer", f"{row.cell.workload.name}{oldest}{made}"


def _tie_text(found: Recommendation) -> str:
    """All of them, the most told apart by their settings."""
    names = [differs_text(each, found) for each in found.ties]
    more = f"; {len(names) - 6} more" if len(names) > 6 else ""
    return "; ".join(names[:6]) + more


def _race_text(found: Recommendation) -> str:
    race = found.race
    verdict = race.verdict if race else None
    if race is None or verdict is None:
        return ""
    rules = race.rules
    blocks = count(len(race.course.verdicts), "block")
    if rules.likely:
        chance = f"{100 * verdict.probability:.3g} % likely after {blocks}"
        return f"{chance} that no other of all cells is more than {100 * rules.delta:g} % better"
    if verdict.settled:
        return (
            f"settled after {blocks}: at {100 * rules.confidence:g} % no other of all cells is "
            f"more than {100 * rules.delta:g} % better than its leaders"
        )
    return f"not settled after {blocks}"


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(seconds)) if seconds else ""
