"""Causes of losses and needless flushes in words, and as a table for the terminal."""

from collections.abc import Iterator, Sequence

from diskproof.records.callers import Caller, SourcePlace
from diskproof.records.causes import Cause, Causes, Flushes, find_causes
from diskproof.records.operations import Operation, absence_words, by_words, merged, operation_words
from diskproof.records.verdicts import VerdictRow
from diskproof.report import layout, output_causes
from diskproof.units import render_seconds


def cause_text(cause: Cause) -> str:
    """What must be missing: ``mkdir d is missing``; with all of several."""
    if not cause.operations:
        return "nothing is missing: the check does not hold even of what was written"
    moves = [cause.there] if cause.there else []
    return " and ".join(absence_words(each, moves) for each in merged(cause.operations))


def told_cause(cause: Cause) -> str:
    """The same with who did it, who may be another one each time: ``..., by git (4711)``."""
    by = by_words(cause.operations)
    return f"{cause_text(cause)}, {by}" if by else cause_text(cause)


def loss_text(cause: Cause) -> str:
    if cause.corrupts:
        first = next(iter(cause.text.strip().splitlines()), "")
        return f"corrupts: {first}"[:120].rstrip(": ")
    return f"loses {cause.lost}"


def cure_text(cause: Cause) -> str:
    """The flush that would have helped: ``fsync of . after rename a -> b (checked)``."""
    cure = cause.cure
    if cure is None:
        return "-"
    operation = next((each for each in cause.operations if each.sequence == cure.after), None)
    after = operation_words(operation) if operation else f"record {cure.after}"
    flush = f"fsync of {cure.path} after {after}"
    if not cure.works:
        return f"none: {flush} does not help"
    further = f", and after {cure.flushes - 1} like it" if cure.flushes > 1 else ""
    return f"{flush}{further}, checked"


def flushes_text(flushes: Flushes) -> str:
    """``14 of 20 flushes can go: 38 ms of 52 ms``."""
    times = f"{render_seconds(flushes.needless_seconds)} of {render_seconds(flushes.seconds)}"
    text = f"{flushes.needless} of {flushes.count} flushes can go: {times}"
    return text + (f"; {flushes.unknown} were not looked at" if flushes.unknown else "")


def summary_lines(causes: Causes) -> Iterator[str]:
    """What is known of all of them together."""
    if causes.failure:
        yield f"causes: {causes.failure}"
    if causes.found and not causes.finished:
        yield "there may be more causes: the time ended the search"
    if causes.cured:
        yield "with all cures nothing more was lost"
    if causes.flushes.count:
        yield flushes_text(causes.flushes)
        dear = sorted(causes.by_path, key=lambda each: each.needless_seconds, reverse=True)
        told = [f"{o.operation} {o.path} ({o.needless} of {o.count})" for o in dear if o.needless]
        if told:
            yield f"those are {', '.join(told[:5])}{' and others' if len(told) > 5 else ''}"


def causes_of(rows: Sequence[VerdictRow]) -> list[tuple[VerdictRow, Causes]]:
    """The verdicts of which causes were looked for."""
    found = ((row, find_causes(row.verdict.details)) for row in rows)
    return [(row, causes) for row, causes in found if causes is not None]


def cause_rows(causes: Causes) -> Iterator[tuple[str, ...]]:
    """What is missing, what is lost by it, its cure and how many states showed it."""
    for each in causes.found:
        texts = told_cause(each), loss_text(each), cure_text(each)
        yield str(each.number), *texts, f"{each.states:,}"


def causes_sentence(causes: Causes) -> str:
    return "; ".join(summary_lines(causes))


def render_causes(causes: Causes, title: str) -> layout.Shown | str:
    """The causes of one verdict, with what is known of its flushes below them."""
    if not causes.found:
        return layout.plain(f"{title}: {causes_sentence(causes) or 'no cause of a loss was found'}")
    table = layout.start_table(
        f"causes: {title}", ">#", "*what is missing", "*what is lost by it", "*cure", ">states"
    )
    for row in cause_rows(causes):
        table.add_row(*row)
    table.caption = layout.plain(causes_sentence(causes))
    return table


def causes_json(causes: Causes | None) -> output_causes.CausesJson | None:
    """For programs; None where nobody looked."""
    if causes is None:
        return None
    return {
        "found": [_cause_json(each) for each in causes.found],
        "finished": causes.finished,
        "cured": causes.cured,
        "flushes": _flushes_json(causes.flushes),
        "flushes_by_path": [_flushes_json(each) for each in causes.by_path],
        "failure": causes.failure,
    }


def change_json(operation: Operation) -> output_causes.ChangeJson:
    return {
        "record": operation.sequence,
        "operation": operation.kind,
        "path": operation.path,
        "to": operation.to,
        "offset": operation.offset,
        "bytes": operation.bytes,
        "torn": operation.presence == "torn",
        "by": _caller_json(operation.by),
    }


def _caller_json(by: Caller | None) -> output_causes.CallerJson | None:
    if by is None:
        return None
    return {
        "process": by.process,
        "thread": by.thread,
        "name": by.name,
        "place": _place_json(by.place) if by.place else None,
        "frames": [_place_json(each) for each in by.frames],
    }


def _place_json(place: SourcePlace) -> output_causes.PlaceJson:
    return {
        "module": place.module,
        "offset": place.offset,
        "function": place.function,
        "file": place.file,
        "line": place.line or None,
    }


def _cause_json(cause: Cause) -> output_causes.CauseJson:
    return {
        "number": cause.number,
        "text": cause_text(cause),
        "operations": [change_json(each) for each in cause.operations],
        "verdict": "corrupts" if cause.corrupts else "loses",
        "lost": cause.lost,
        "age_seconds": cause.age_seconds,
        "state": cause.state,
        "states": cause.states,
        "alike": cause.alike,
        "cure": cure_text(cause) if cause.cure else "",
        "cures": cause.cure is not None and cause.cure.works,
    }


def _flushes_json(flushes: Flushes) -> output_causes.NeedlessJson:
    return {
        "operation": flushes.operation,
        "path": flushes.path,
        "count": flushes.count,
        "seconds": flushes.seconds,
        "needless": flushes.needless,
        "needless_seconds": flushes.needless_seconds,
        "needless_alone": flushes.alone,
        "unknown": flushes.unknown,
    }
