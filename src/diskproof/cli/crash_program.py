"""``diskproof crash --writer CMD|--block-log LOG --check CMD DIR``: a program of the user's own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from diskproof.backings import NO_CONSENT
from diskproof.cli.conduct import Order, conduct, prepare_host
from diskproof.cli.crash import CrashWords, start_explorer
from diskproof.crash.next import CrashCampaign
from diskproof.crash.program import (
    BROKEN_BEFORE,
    NO_FLUSH,
    RULES,
    TimeShares,
    make_program,
    program_cell,
    sent_no_flush,
)
from diskproof.crash.real_fs import RealFs, require_real_fs
from diskproof.crash.run import CrashLab, leaves_one_state
from diskproof.errors import UsageError
from diskproof.lab.course import Outcome
from diskproof.lab.setup import LabSetup
from diskproof.recording.folder import require_fuse
from diskproof.records import Cell, StudyRecord, content_id
from diskproof.records.verdicts import FAULTS, Fault
from diskproof.report.barred import Bars, dropping_text
from diskproof.store import Store
from diskproof.study.backings import FOLDER
from diskproof.study.crash import KNOWN_SECTORS, SECTORS, USUAL_FAULTS, CrashRules, faults_of

PROGRAM_SECONDS = 60.0
"""How long a program is tested without ``--budget``: half writing, half looking for losses."""


def program_rules(sector: int | None, seed: int | None, old_content: bool) -> CrashRules:
    """How a program's states are built. Raises UsageError."""
    if sector is not None and sector not in SECTORS:
        raise UsageError(f"--sector {sector} is no sector of a disk", f"it is {KNOWN_SECTORS}")
    rules = RULES if sector is None else replace(RULES, sector=sector)
    faults = FAULTS if old_content else USUAL_FAULTS
    rules = replace(rules, faults=faults)
    return rules if seed is None else replace(rules, seed=seed)


def crash_program(
    order: Order,
    folder: Path,
    writer: str | Path,
    check: str,
    rules: CrashRules,
    cluster: str | None,
    causes: float | None,
    *,
    stays: bool,
    on: RealFs | None,
) -> int:
    """A program of the user's own, on a copy of its folder; or the log of a disk's writes."""
    budget = order.budget or PROGRAM_SECONDS
    # On a file system of its own a killed program leaves the one state that it had made.
    searches = len(faults_of("host", rules.faults)) - bool(on)
    program = make_program(
        writer, check, folder, TimeShares(budget, searches, causes), stays=stays, on=on
    )
    require_fuse()
    if on:
        require_real_fs(on)
    cell, name = program_cell(program, rules), f"crash-{folder.resolve().name}"[:64]
    # A program stops by itself: no budget forbids to start it.
    return conduct(
        replace(order, budget=None), partial(_start_program, cell, name, rules.faults, cluster)
    )


@contextmanager
def _start_program(
    cell: Cell, name: str, faults: tuple[Fault, ...], cluster: str | None, store: Store
) -> Iterator[ProgramWords]:
    """A study of its own for each call: a program may have changed since the last one."""
    with start_explorer(cluster) as explorer:
        host = prepare_host([FOLDER], "", "no guest is started", store)
        now, seed = time.time(), int(cell.workload.option("seed"))
        study = StudyRecord(
            content_id([cell.id, now]), name, "program", "", seed, 1, (), created=now
        )
        backings = {FOLDER.name: FOLDER}
        setup = LabSetup(study.id, host.id, backings, NO_CONSENT, "", 24 * 3600.0)
        make = CrashLab(setup, explorer).execute
        yield ProgramWords(CrashCampaign(study, [cell], faults, make, store))


class ProgramWords(CrashWords):
    def closing(self, outcome: Outcome, resume: str) -> Sequence[str]:
        return [*filter(None, dict.fromkeys(self._tell()))]

    def _tell(self) -> Iterator[str]:
        for row in self.verdicts():
            yield dropping_text([row.cell], Bars(self.campaign.study))
            if sent_no_flush(row.counts):
                yield NO_FLUSH
            one = leaves_one_state(row.cell, row.verdict.fault)
            yield BROKEN_BEFORE if one and row.verdict.is_broken else ""
