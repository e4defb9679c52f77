"""``diskproof crash --writer CMD --check CMD DIR``: a program of the user's own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from diskproof.errors import UsageError

if TYPE_CHECKING:
    from diskproof.lab.setup import LabSetup
    from diskproof.records import Cell, StudyRecord
    from diskproof.store import Store
    from diskproof.study.crash import CrashRules

PROGRAM_SECONDS = 60.0
"""How long a program is tested without ``--budget``: half writing, half looking for losses."""


def program_rules(sector: int | None, seed: int | None) -> CrashRules:
    """How a program's states are built. Raises UsageError."""
    from dataclasses import replace

    from diskproof.crash.program import RULES
    from diskproof.study.crash import SECTORS

    if sector is not None and sector not in SECTORS:
        known = " or ".join(str(each) for each in SECTORS)
        raise UsageError(f"--sector {sector} is no sector of a disk", f"it is {known} bytes")
    rules = RULES if sector is None else replace(RULES, sector=sector)
    return rules if seed is None else replace(rules, seed=seed)


def crash_program(
    folder: Path,
    commands: tuple[str, str],
    rules: CrashRules,
    store: str,
    budget: str | None,
    quiet: bool,
    as_json: bool,
    cluster: str | None,
    again: str,
) -> int:
    """A program of the user's own, on a copy of its folder."""
    from diskproof.cli.crash_live import start_watching
    from diskproof.cli.crash_verbs import conclude, print_verdicts, start_explorer
    from diskproof.cli.study_verbs import parse_budget, require_quiet_store
    from diskproof.cli.terminal import note
    from diskproof.crash.course import run_crash_study
    from diskproof.crash.program import NO_FLUSH, make_program, program_cell, sent_no_flush
    from diskproof.crash.run import CrashLab
    from diskproof.recording.folder import require_fuse
    from diskproof.records.verdicts import FAULTS
    from diskproof.store import open_store

    seconds = parse_budget(budget) or PROGRAM_SECONDS
    writer, check = commands
    # Half of the time is for the writer, the rest for the three faults that the host knows.
    program = make_program(writer, check, folder, seconds / 2, seconds / 6)
    require_fuse()
    cell = program_cell(program, rules)
    with start_explorer(cluster) as explorer, open_store(store, create=True) as opened:
        require_quiet_store(opened)
        record, setup = _program_study(cell, folder, opened)
        lab = CrashLab(setup, explorer)
        with start_watching([cell], quiet) as watcher:
            outcome = run_crash_study(record, [cell], FAULTS, lab, opened, on_event=watcher)
        rows = [row for row in opened.verdicts(record.id) if row.cell.id == cell.id]
    print_verdicts(rows, as_json)
    if any(sent_no_flush(row.counts) for row in rows):
        note(NO_FLUSH)
    return conclude(outcome, rows, again)


def _program_study(cell: Cell, folder: Path, store: Store) -> tuple[StudyRecord, LabSetup]:
    """A study of its own for each call: a program may have changed since the last one."""
    from diskproof.backings import NO_CONSENT
    from diskproof.cli.sweeping import sweep_and_tell
    from diskproof.host.facts import host_record
    from diskproof.lab.setup import LabSetup
    from diskproof.records import StudyRecord, content_id
    from diskproof.study.backing_tables import FOLDER

    sweep_and_tell([Path(FOLDER.option("path"))])
    host = host_record("", "no guest is started")
    store.add_host(host)
    now = time.time()
    study_id = content_id([cell.id, now])
    name = f"crash-{folder.resolve().name}"[:64]
    seed = int(cell.workload.option("seed"))
    record = StudyRecord(study_id, name, "program", "", seed, 1, (), created=now)
    backings = {FOLDER.name: FOLDER}
    return record, LabSetup(study_id, host.id, backings, NO_CONSENT, "", 24 * 3600.0)
