"""``diskproof crash --writer CMD|--block-log LOG --check CMD DIR``: a program of the user's own;
``--app NAME``: one of the gallery."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from diskproof.backings import NO_CONSENT
from diskproof.cli.conduct import Order, conduct, prepare_host
from diskproof.cli.crash import CrashWords, beside_words, start_crashing, start_explorer
from diskproof.cli.crash_in_guest import GuestCall, crash_in_guest, recipe_call
from diskproof.cli.terminal import note
from diskproof.cli.typed import require_consent
from diskproof.crash import gallery, program, real_fs
from diskproof.crash.next import CrashCampaign
from diskproof.crash.run import CrashLab, leaves_one_state
from diskproof.errors import UsageError
from diskproof.lab.course import Outcome
from diskproof.lab.setup import LabSetup
from diskproof.recording.folder import require_fuse
from diskproof.records import Cell, StudyRecord, content_id
from diskproof.records.verdicts import FAULTS, PROFILES, Fault
from diskproof.report.barred import Bars, dropping_text
from diskproof.report.durability import profiles_text
from diskproof.store import Store
from diskproof.study.backings import FOLDER
from diskproof.study.crash import (
    KNOWN_SECTORS,
    SECTORS,
    USUAL_FAULTS,
    CrashRules,
    faults_of,
    read_granularity,
)
from diskproof.study.load import load_study

PROGRAM_SECONDS = 60.0
"""How long a program is tested without ``--budget``: half writing, half looking for losses."""

OF_PROGRAMS = "--writer", "a study has these in [crash], and its writers bring their checks"
OF_STUDIES = "a study", "a program writes on copies of DIR"
OF_OTHERS = "a study or --writer", "a recipe has its writer, its check and its folder"
OF_HOSTS = "a program on this host", "--in-guest has a disk, whose states a guest mounts"
OF_GUESTS = "--in-guest", "a program on this host has the packages that are installed there"
OF_FOLDERS = "a program in a folder", "--on has a disk in its place, whose states this host mounts"


class ProgramOptions(NamedTuple):
    """What can be typed beside a program."""

    stays: bool
    sector: int | None
    discard_granularity: str | None
    seed: int | None
    causes: float | None
    old_content: bool
    profiles: str | None
    on: str | None
    cluster: str | None
    in_guest: str | None
    packages: str | None


class CrashTarget(NamedTuple):
    """What is to be crashed: a study or a folder, with what writes and what judges there."""

    target: Path | None
    app: str | None
    writer: str | None
    block_log: Path | None
    check: str | None

    @property
    def is_program(self) -> bool:
        return any(each is not None for each in self[1:])


def crash_of_study(
    order: Order, path: Path, own: ProgramOptions, *, make: bool, destroy_data: bool
) -> int:
    """Crash the cells of a study. Raises HostError where nothing can be recorded."""
    refuse_for_study(own)
    study = load_study(path, make)
    consent = require_consent(order.context, study, destroy_data)
    require_fuse()
    return conduct(order, partial(start_crashing, study, consent, own.cluster))


def crash_asked(
    order: Order, asked: CrashTarget, own: ProgramOptions, for_study: Mapping[str, object]
) -> int:
    """A program: a recipe's, or one that was typed. Raises UsageError."""
    _refuse(for_study, *OF_STUDIES)
    if asked.app is not None:
        given: dict[str, object] = {
            "STUDY|DIR": asked.target,
            "--writer": asked.writer,
            "--check": asked.check,
        }
        given |= {"--block-log": asked.block_log, "--stays": own.stays}
        _refuse(given, *OF_OTHERS)
        if own.in_guest is not None:
            call = recipe_call(asked.app, _make_call("", "", Path(), own))
            return crash_in_guest(order, call, own.cluster)
        _refuse({"--packages": own.packages}, *OF_GUESTS)
        return _crash_application(order, asked.app, own)
    if asked.target is None:
        why = "it is a study file; with --writer and --check a folder"
        raise UsageError("STUDY or DIR is missing", why, "or name a program: --app (`crash apps`)")
    source, check = _choose_source(asked)
    if own.in_guest is not None:
        _refuse({"--block-log": asked.block_log}, *OF_HOSTS)
        call = _make_call(str(source), check, asked.target, own)
        return crash_in_guest(order, call, own.cluster)
    _refuse({"--packages": own.packages}, *OF_GUESTS)
    return _crash_program(order, asked.target, source, check, own)


def _make_call(writer: str, check: str, folder: Path, own: ProgramOptions) -> GuestCall:
    """A program in our guest. Raises UsageError."""
    given: dict[str, object] = {"--causes": own.causes, "--old-content": own.old_content}
    _refuse({**given, "--stays": own.stays, "--profiles": own.profiles}, *OF_HOSTS)
    packages = tuple(own.packages.split(",")) if own.packages else ()
    where = folder, str(own.in_guest), own.on
    whole = own.sector, own.seed, own.discard_granularity
    return GuestCall(writer, check, *where, *whole, packages)


def _choose_source(asked: CrashTarget) -> tuple[str | Path, str]:
    """What writes (or wrote) and what judges. Raises UsageError."""
    writer, log, check = asked.writer, asked.block_log, asked.check
    if writer is not None and log is not None:
        raise UsageError("--writer or --block-log, not both", "both say what was written")
    source = writer if log is None else log
    if source is None or check is None:
        what = "--writer and --check go together" if log is None else "--check is missing"
        raise UsageError(what, "one writes, the other judges")
    return source, check


def refuse_for_study(own: ProgramOptions) -> None:
    """Raises UsageError for an option that a study has no use for."""
    given: dict[str, object] = {"--sector": own.sector, "--seed": own.seed, "--stays": own.stays}
    given |= {"--causes": own.causes, "--old-content": own.old_content, "--on": own.on}
    given |= {"--profiles": own.profiles, "--in-guest": own.in_guest}
    given["--packages"] = own.packages
    given["--discard-granularity"] = own.discard_granularity
    _refuse(given, *OF_PROGRAMS)


def _refuse(given: Mapping[str, object], goes_with: str, why: str) -> None:
    """Raises UsageError for the first option that was given and has no use here."""
    for name, value in given.items():
        if value is not None and value is not False:
            raise UsageError(f"{name} goes with {goes_with}", why)


def _make_rules(own: ProgramOptions) -> CrashRules:
    """How a program's states are built. Raises UsageError."""
    if own.sector is not None and own.sector not in SECTORS:
        raise UsageError(f"--sector {own.sector} is no sector of a disk", f"it is {KNOWN_SECTORS}")
    sector = own.sector or (program.RULES.sector if own.on is None else real_fs.SECTOR)
    asked = {*USUAL_FAULTS, *_read_profiles(own.profiles)}
    asked |= {"old-content"} if own.old_content else set()
    faults = tuple(fault for fault in FAULTS if fault in asked)
    rules = replace(program.RULES, sector=sector, faults=faults)
    rules = replace(rules, discard_granularity=_read_granularity(own, sector))
    return rules if own.seed is None else replace(rules, seed=own.seed)


def _read_granularity(own: ProgramOptions, sector: int) -> int:
    """What a device discards whole; 0: everything. Raises UsageError."""
    text = own.discard_granularity
    try:
        size = read_granularity(text or 0)
    except ValueError as error:
        raise UsageError(f"--discard-granularity {text} cannot be read", str(error)) from None
    if 0 < size < sector:
        why = f"a sector has {sector} bytes (--sector)"
        raise UsageError(f"--discard-granularity {text} is less than a sector", why)
    return size


def _read_profiles(text: str | None) -> Iterator[Fault]:
    """Raises UsageError."""
    for name in text.split(",") if text is not None else ():
        if name not in PROFILES:
            why = f"it is {', '.join(PROFILES)}, with commas between them"
            raise UsageError(f"--profiles {text}: no rules of {name or 'nothing'} are known", why)
        yield PROFILES[name]


def _read_on(own: ProgramOptions, source: str | Path) -> real_fs.RealFs | None:
    """Where the program runs. Raises UsageError, HostError."""
    if own.on is None:
        return None
    given: dict[str, object] = {"--block-log": isinstance(source, Path), "--causes": own.causes}
    given |= {"--old-content": own.old_content, "--stays": own.stays, "--cluster": own.cluster}
    given["--profiles"] = own.profiles
    _refuse(given, *OF_FOLDERS)
    on = real_fs.read_real_fs(own.on)
    real_fs.require_root(on)
    return on


def _crash_program(
    order: Order, folder: Path, writer: str | Path, check: str, own: ProgramOptions
) -> int:
    """A program of the user's own, on a copy of its folder; or the log of a disk's writes."""
    rules = _make_rules(own)
    made = program.make_program(writer, check, folder, _shares(order, own, rules), stays=own.stays)
    made = replace(made, on=_read_on(own, writer))
    return _conduct(order, made, rules, own.cluster)


def _crash_application(order: Order, name: str, own: ProgramOptions) -> int:
    """A program of the gallery, in the folder that its recipe prepares."""
    application, rules = gallery.find_application(name), _make_rules(own)
    on, version = _read_on(own, ""), gallery.ask_version(application)
    with gallery.start_prepared(application) as folder:
        commands = shlex.join(application.writer), shlex.join(application.check)
        made = program.make_program(*commands, folder, _shares(order, own, rules))
        made = replace(made, on=on, name=application.name, version=version)
        if not order.quiet:
            note(f"{application.title} ({version}): a promise is {application.promise}")
        return _conduct(order, made, rules, own.cluster)


def _shares(order: Order, own: ProgramOptions, rules: CrashRules) -> program.TimeShares:
    # On a file system of its own a killed program leaves the one state that it had made.
    searches = len(faults_of("host", rules.faults)) - (own.on is not None)
    return program.TimeShares(order.budget or PROGRAM_SECONDS, searches, own.causes)


def _conduct(
    order: Order, made: program.WriterProgram, rules: CrashRules, cluster: str | None
) -> int:
    require_fuse()
    cells, name = program.program_cells(made, rules), f"crash-{made.folder.name}"[:64]
    # A program stops by itself: no budget forbids to start it.
    return conduct(
        replace(order, budget=None), partial(_start_program, cells, name, rules.faults, cluster)
    )


@contextmanager
def _start_program(
    cells: Sequence[Cell], name: str, faults: tuple[Fault, ...], cluster: str | None, store: Store
) -> Iterator[ProgramWords]:
    """A study of its own for each call: a program may have changed since the last one."""
    if on := real_fs.find_real_fs(cells[0]):
        real_fs.try_real_fs(on)
    with start_explorer(cluster) as explorer:
        host = prepare_host([FOLDER], "", "no guest is started", store)
        now, seed = time.time(), int(cells[0].workload.option("seed"))
        study = StudyRecord(
            content_id([cells[0].id, now]), name, "program", "", seed, 1, (), created=now
        )
        backings = {FOLDER.name: FOLDER}
        setup = LabSetup(study.id, host.id, backings, NO_CONSENT, "", 24 * 3600.0)
        make = CrashLab(setup, explorer).execute
        yield ProgramWords(CrashCampaign(study, cells, faults, make, store))


class ProgramWords(CrashWords):
    def closing(self, outcome: Outcome, resume: str) -> Sequence[str]:
        return [*filter(None, dict.fromkeys(self._tell()))]

    def _tell(self) -> Iterator[str]:
        yield profiles_text([row.verdict for row in self.verdicts()])
        for row in self.verdicts():
            yield dropping_text([row.cell], Bars(self.campaign.study))
            if not row.cell.level("on") and program.sent_no_flush(row.counts):
                yield program.NO_FLUSH
            yield from beside_words([row])
            one = leaves_one_state(row.cell, row.verdict.fault)
            yield program.BROKEN_BEFORE if one and row.verdict.is_broken else ""
