"""``diskproof quick``: a study that fits a budget, written, measured, judged and answered."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import psutil

from diskproof.advice import observed
from diskproof.advice.dialect import Dialect, Target
from diskproof.backings import NO_CONSENT, probe_backing
from diskproof.cli.advise_verb import find_filesystems, name_files, print_answers
from diskproof.cli.conduct import Order, conduct_alone, ensure_guest, require_quiet_store
from diskproof.cli.crash import start_judging
from diskproof.cli.measure import MeasureWords, start_measuring
from diskproof.cli.terminal import console, note, print_json
from diskproof.errors import DiskproofError, UsageError
from diskproof.guest.ours.build import find_guest
from diskproof.host.accel import find_accel, probe_accel
from diskproof.host.below import read_below
from diskproof.host.facts import probe_facts
from diskproof.measure.next import MeasureCampaign
from diskproof.plan.like import SPOKEN
from diskproof.plan.quick import Asked, QuickPlan, fit, folder_spec
from diskproof.plan.quick_study import BACKING
from diskproof.process.host_lock import start_alone
from diskproof.records import BackingFacts, HostFacts
from diskproof.records.virtual_machines import MachineDisk
from diskproof.report import layout
from diskproof.report.advice.answer import answers_json, find_answers
from diskproof.report.advice.choose import Wish
from diskproof.report.chapters import CHAPTERS
from diskproof.report.output_answers import QuickJson
from diskproof.report.read import read_views
from diskproof.report.study_tables import render_study
from diskproof.report.view import StudyView
from diskproof.store import Store, open_store
from diskproof.store.connect import StoreUrl
from diskproof.store.show import ShownJson, show_rows
from diskproof.units import render_bytes, render_seconds

GUEST_SECONDS = 300.0
"""With less no guest is built, nor booted to see what it runs under."""
ANSWER_SECONDS = 3.0
MAX_ANSWER_SHARE = 0.25
"""What the beginning took the answer takes, too: on a busy host more than usual."""
Tell = Callable[[str], None]


@dataclass(frozen=True)
class QuickStudy:
    """A plan with the file that its study was written to, for a manager's dialect.
    ``guest_seconds`` of the budget went into building a guest."""

    plan: QuickPlan
    file: Path
    dialect: Dialect
    budget: float
    guest_seconds: float


def prepare(
    folder: Path, dialect: Dialect, budget: float, output: Path | None, tell: Tell
) -> QuickStudy:
    """Look at this host and the disk below a folder, write the study, and tell of both.

    Raises UsageError for what is no folder, a budget that is too small and a file that is there.
    """
    path = _require_folder(folder)
    if output is not None and (output.exists() or output.is_symlink()):
        raise _there_already(output)
    tell(describe_folder(path, probe_backing(folder_spec(str(path)), NO_CONSENT)))
    spent = _find_out_about_guests(budget, tell)
    facts = _look(path)
    words = f"diskproof quick {folder} --for {dialect.name} --budget {budget:g}s"
    for name, file in _names(path, output):
        asked = Asked(str(path), _like_name(dialect), name, words)
        plan = fit(asked, facts, budget - spent)
        if write_text(file, plan.study.text, number=output is None):
            made = QuickStudy(plan, file, dialect, budget, spent)
            _tell_of_plan(made, tell)
            return made
    raise AssertionError("numbers do not end")


def _find_out_about_guests(budget: float, tell: Tell) -> float:
    """Build one, and boot it to see what it runs under, where nobody has and there is time; the
    seconds that this took."""
    if find_accel() is not None or budget < GUEST_SECONDS:
        return 0.0
    began = time.monotonic()
    ensure_guest()
    if find_guest() is not None:
        tell("accelerator: KVM is probed by booting a guest (once for each boot of the host)")
        with suppress(DiskproofError, OSError):  # whoever looks at the host next tells of it
            probe_accel()
    return time.monotonic() - began


def _like_name(dialect: Dialect) -> str:
    """The manager that a study calls by another name than ``--for`` does."""
    return next((like for like, name in SPOKEN.items() if name == dialect.name), dialect.name)


def _require_folder(folder: Path) -> Path:
    """Its absolute path. Nothing is made: a disk that is not mounted is not there."""
    if not folder.exists():
        hint = "is its disk mounted? A new folder is yours to make"
        raise UsageError(f"there is no folder {folder}", "it is not made for you", hint)
    if not folder.is_dir():
        why = "disks are measured as files in a folder"
        hint = "for a whole device: `diskproof init --example device`"
        raise UsageError(f"{folder} is not a folder", why, hint)
    path = folder.resolve()
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise UsageError(f"the name of {path!r} is no UTF-8", "a study file is") from None
    return path


def _look(path: Path) -> HostFacts:
    guest = find_accel() is not None
    return probe_facts([folder_spec(str(path))], NO_CONSENT, guest=guest, progress=lambda _: None)


def describe_folder(path: Path, facts: BackingFacts) -> str:
    """The disk below a folder in a line: file system, mount options, devices, room, O_DIRECT."""
    layer = read_below(MachineDisk(name=BACKING, image=str(path)))
    mounts = [f"{text} at {point}" for point, text in observed.mounts(layer)]
    devices = [f"{name} ({cache})" for name, cache in observed.entries(layer, observed.QUEUE)]
    where = f"{' on '.join(mounts) or facts.filesystem}, {', '.join(devices)}".removesuffix(", ")
    direct = "O_DIRECT works" if facts.o_direct else f"no O_DIRECT: {facts.o_direct_reason}"
    told = f"{path}: {where}, {render_bytes(facts.free_bytes)} free, {direct}"
    barred = [observed.no_barrier(text) for _, text in observed.mounts(layer)]
    if lost := ", ".join(filter(None, barred)):
        told += f"\nwarning: mounted with {lost}, it sends no flushes: a power cut takes what was "
        told += "acknowledged, whatever a disk's settings are"
    return told


def _names(path: Path, output: Path | None) -> Iterator[tuple[str, Path]]:
    """Names for the study, and files for it in the current folder: what is there is not written
    over."""
    stem = "quick-" + (re.sub(r"[^A-Za-z0-9._-]+", "-", path.name).strip("-") or "root")[:50]
    if output is not None:
        yield stem, output
        return
    for number in count(1):
        name = stem if number == 1 else f"{stem}-{number}"
        yield name, Path(f"{name}.toml")


def _there_already(file: Path) -> UsageError:
    return UsageError(f"{file} is there already", "nothing is written over", "name another file")


def write_text(file: Path, text: str, *, number: bool) -> bool:
    """Write a new file; of one that is there already, whether it says the same. Without ``number``
    that one is refused. Raises UsageError."""
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        if number:
            return file.is_file() and file.read_text(errors="replace") == text
        raise _there_already(file) from None
    except OSError as error:
        raise UsageError(f"{file} cannot be written", error.strerror or "") from None
    return True


def _tell_of_plan(quick: QuickStudy, tell: Tell) -> None:
    plan = quick.plan
    tell(f"study {quick.file}: at most {render_seconds(plan.seconds)}, for {quick.dialect.title}")
    for text in plan.missing:
        tell(f"cannot be measured here: {text}")
    if plan.gave_up:
        tell(f"given up for {render_seconds(quick.budget)}: {'; '.join(plan.gave_up)}")


def require_store(url: str) -> None:
    """A store that cannot be read, or is measured into, is told before anything is written."""
    path = StoreUrl(url).path
    if path is None or path.exists():
        with open_store(url, create=path is None) as store:
            require_quiet_store(store)


def run_quick(order: Order, quick: QuickStudy) -> int:
    """Measure, judge and answer, until this process is as old as the budget; what it waited for
    another measurement does not count."""
    asked = time.monotonic()
    with start_alone(order.wait, note):
        age = time.time() - psutil.Process().create_time() - (time.monotonic() - asked)
        answering = max(ANSWER_SECONDS, age - quick.guest_seconds)
        left = quick.budget - age - min(answering, MAX_ANSWER_SHARE * quick.budget)
        limited = replace(order, until=time.monotonic() + left, reserve=quick.plan.verdict_seconds)
        judge = partial(start_judging, quick.plan.study, NO_CONSENT)
        return conduct_alone(limited, partial(_start_quick, quick), judge)


@contextmanager
def _start_quick(quick: QuickStudy, store: Store) -> Iterator[QuickWords]:
    with start_measuring(quick.plan.study, NO_CONSENT, store) as words:
        yield QuickWords(words.campaign, quick)


class QuickWords(MeasureWords):
    """It ends with the line to paste, what would make it surer, and the tables of a run."""

    def __init__(self, campaign: MeasureCampaign, quick: QuickStudy) -> None:
        super().__init__(campaign)
        self._quick = quick

    def print_results(self, as_json: bool) -> None:
        store, study = self.campaign.store, self.campaign.study
        views = [view for view in name_files(read_views(store, [study.id])) if view.workloads]
        if as_json:
            results = store.results(study.id)
            print_json(
                self._json(views, show_rows(results, store.figures(results), store.studies()))
            )
            return
        for view in views:
            print_answers(view, self._answers(view), conditions=False)
            console().print()
            console().print(layout.paragraphs([self._more(), []]))
            console().print()
            console().print(render_study(view, chapters=[*map(_without_advice, CHAPTERS)]))

    def _answers(self, view: StudyView) -> Any:
        wish = Wish(file=str(self._quick.file))
        filesystems = find_filesystems(view)
        return find_answers(view, wish, self._quick.dialect, Target(), "", filesystems)

    def _more(self) -> list[layout.Shown]:
        """The commands that go on from here, and what the budget has cost."""
        quick = self._quick
        gave_up = "; ".join(quick.plan.gave_up)
        told = f"For {render_seconds(quick.budget)} it gave up: {gave_up}." if gave_up else ""
        on = f"To go on: {quick.file} is the study; `diskproof run {quick.file}` after a change"
        lines = [told, f"{on}, `diskproof advise {quick.file}` for all that the answer holds for."]
        return [layout.line(line) for line in lines if line]

    def _json(self, views: list[StudyView], rows: list[ShownJson]) -> QuickJson:
        quick = self._quick
        told = [answers_json(view, self._answers(view)) for view in views]
        return {
            "study": quick.plan.study.name,
            "file": str(quick.file),
            "for": quick.dialect.name,
            "budget_seconds": quick.budget,
            "gave_up": list(quick.plan.gave_up),
            "missing": list(quick.plan.missing),
            "answers": [answer for each in told for answer in each["answers"]],
            "cells": rows,
        }


def _without_advice(chapter: Any) -> Any:
    """What to use has been told in the manager's words."""
    lead = chapter.lead
    if chapter.name != "advice" or lead is None:
        return chapter
    return replace(chapter, lead=lambda part, view: replace(lead(part, view), answers=()))
