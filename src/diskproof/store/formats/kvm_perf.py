"""``import kvm-perf``: boots of a guest timed by disk configuration (Ubuntu, 2012).

Each printed mean and interval is computed again from the single times: figures that do not match
would mean that the file was read wrongly, or is wrong.
"""

import hashlib
import time
from collections.abc import Iterator, Sequence

from diskproof.records import (
    Cell,
    HostRecord,
    Metric,
    RunRecord,
    StudyRecord,
    WorkloadSpec,
    content_id,
)
from diskproof.stats.intervals import Interval, student_interval
from diskproof.store.formats.imported import Imported
from diskproof.store.formats.kvm_perf_text import (
    Configuration,
    KvmPerfText,
    Printed,
    parse_kvm_perf,
    refusal,
)

ORIGIN = "kvm-perf"
ABSOLUTE_TOLERANCE = 1e-4
# The source's quantile of Student's t for 9 degrees of freedom is 8.7e-7 too large.
RELATIVE_TOLERANCE = 1e-6
MAX_NOTES = 50

_LEVEL = {
    ("bus", "virtio"): "virtio-blk",
    ("bus", "scsi"): "virtio-scsi",
    ("preallocation", "yes"): "metadata",
    ("preallocation", "no"): "off",
}
# The factor that tells configurations of equal levels apart; its blank keeps it from any text.
_COPY = "measured again"
_Levels = tuple[tuple[str, str], ...]


def import_kvm_perf(data: bytes, name: str) -> Imported:
    """Read the text format of kvm-perf as a study called ``name``.

    Cells have the workloads ``read`` and ``write`` with the metric ``seconds``; the n-th time of a
    list is the run of block n. Where a text holds several sections, hosts or kernels, those become
    levels too. Raises UsageError naming the line for what cannot be read, and for a printed figure
    that does not follow from the times.
    """
    text = parse_kvm_perf(data, name)
    notes = [*_check_figures(text, name), *_describe_ignored(text)]
    facts, told_apart, more = _tell_apart(text)
    notes = _shortened([*notes, *more])
    # Who imports a file twice under one name has one study.
    study_id = content_id([ORIGIN, name, hashlib.sha256(data).hexdigest()])
    host = HostRecord(
        content_id([ORIGIN, facts]), ORIGIN, {"imported": ORIGIN, "accel": "kvm", **facts}
    )
    runs: list[RunRecord] = []
    cells: dict[str, Cell] = {}
    for levels, configuration in told_apart:
        for workload, times in configuration.times.items():
            cell = Cell(levels, WorkloadSpec(workload, "imported"))
            cells[cell.id] = cell
            runs += _runs(study_id, host.id, cell, len(cells) - 1, times)
    blocks = max((run.block + 1 for run in runs), default=0)
    study = StudyRecord(
        study_id,
        name,
        ORIGIN,
        data.decode("utf-8-sig", "replace"),
        0,
        blocks,
        tuple(cells.values()),
        warnings=tuple(notes),
        created=time.time(),
    )
    return Imported(study, host, tuple(runs), tuple(notes))


def _runs(
    study_id: str, host_id: str, cell: Cell, position: int, times: Sequence[float]
) -> Iterator[RunRecord]:
    """When a run was made is not known: ``started`` is 0."""
    for block, seconds in enumerate(times):
        yield RunRecord(
            id=content_id([study_id, cell.id, block]),
            study_id=study_id,
            cell=cell,
            block=block,
            position=position,
            started=0.0,
            ended=seconds,
            status="ok",
            host_id=host_id,
            metrics=(Metric("seconds", "s", seconds, higher_is_better=False, primary=True),),
        )


# -- levels ---------------------------------------------------------------------------------


def _tell_apart(
    text: KvmPerfText,
) -> tuple[dict[str, str], list[tuple[_Levels, Configuration]], list[str]]:
    """Facts that hold for the whole text, configurations with levels of their own, and notes.

    What a configuration's surroundings say becomes a level where it is not the same throughout.
    """
    measured = [each for each in text.configurations if each.times]
    kinds = sorted({name for each in measured for name, _ in each.context})
    said: dict[str, set[str]] = {
        kind: {dict(each.context).get(kind, "") for each in measured} for kind in kinds
    }
    facts = {kind: levels.pop() for kind, levels in said.items() if len(levels) == 1}
    varying = [kind for kind in kinds if kind not in facts]
    found: list[tuple[_Levels, Configuration]] = []
    alike: dict[_Levels, list[Configuration]] = {}
    notes = []
    for each in measured:
        context = [(kind, dict(each.context).get(kind, "none")) for kind in varying]
        levels = _levels([*context, *each.levels])
        before = alike.setdefault(levels, [])
        if any(other.times == each.times for other in before):
            notes.append(f"line {each.line} repeats a configuration with the same times; left out")
            continue
        before.append(each)
        if len(before) > 1:
            levels = tuple(sorted([*levels, (_COPY, str(len(before)))]))
            notes.append(f"line {each.line} measures a configuration again: {_COPY}={len(before)}")
        found.append((levels, each))
    return facts, found, notes


def _levels(pairs: Sequence[tuple[str, str]]) -> _Levels:
    """Levels as ours: what is called differently is renamed, the rest is kept."""
    levels = {"frontend": "guest"}
    for name, level in pairs:
        levels[name] = _LEVEL.get((name, level), level)
    return tuple(sorted(levels.items()))


# -- figures --------------------------------------------------------------------------------


def _check_figures(text: KvmPerfText, name: str) -> Iterator[str]:
    """Compute every printed figure again; yields notes on those that are missing."""
    for each in text.configurations:
        if not each.times:
            yield f"line {each.line}: a configuration without times"
        for workload, printed in each.printed.items():
            if each.times and workload not in each.times:
                raise refusal(name, printed.line, f"a {workload} interval without its times")
        for workload, times in each.times.items():
            shown = each.printed.get(workload)
            if not times:
                yield f"line {each.line}: no {workload} times"
            elif shown is None:
                yield f"line {each.line}: no {workload} interval is printed to check against"
            else:
                _check_interval(shown, student_interval(times), name, workload)


def _check_interval(printed: Printed, ours: Interval, name: str, workload: str) -> None:
    for what, shown, computed in (
        ("mean", printed.mean, ours.mean),
        ("half width", printed.half_width, ours.half_width),
    ):
        if shown is None or computed is None:
            continue
        if abs(shown - computed) > max(ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE * abs(computed)):
            why = f"the {workload} {what} is printed as {shown:.6f}, its times give {computed:.6f}"
            raise refusal(name, printed.line, why)


def _shortened(notes: list[str]) -> list[str]:
    more = len(notes) - MAX_NOTES
    return [*notes[:MAX_NOTES], f"and {more} more notes of this kind"] if more > 0 else notes


def _describe_ignored(text: KvmPerfText) -> Iterator[str]:
    if text.ignored:
        line, words = text.ignored[0]
        yield f"{len(text.ignored)} lines are no results, the first at line {line}: {words!r:.60}"
