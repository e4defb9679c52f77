"""Crash runs and verdicts: made up for tests that judge none, and real ones."""

from dataclasses import replace
from pathlib import Path

from diskproof.backings import NO_CONSENT
from diskproof.crash.run import CrashLab
from diskproof.lab.setup import LabSetup
from diskproof.records import Artefact, BackingSpec, Cell, Check
from diskproof.records.verdicts import CrashRun, Fault, TraceEvent, Verdict
from diskproof.study.crash import USUAL_FAULTS, CrashRules, crash_workload, faults_of
from support.running import assert_nothing_left

LOSS = Verdict(
    "power",
    "loses",
    lost=3,
    age_seconds=1.25,
    states_checked=12,
    states_total=400,
    estimated=True,
    cuts=5,
    seed=7,
    cut=41,
    missing=(30, 31),
    reason="",
    reproduce="diskproof crash reproduce r1 --fault power",
    seconds=0.5,
    timeline=(
        TraceEvent(0.0, "write", "missing", "4 KiB at 0"),
        TraceEvent(0.01, "acknowledge", "lost", "record 3"),
        TraceEvent(0.5, "cut"),
    ),
    details={"torn": 1},
)


def make_verdict(fault: Fault = "qemu-kill") -> Verdict:
    return Verdict(fault, "keeps", states_checked=9, states_total=9, cuts=5, seed=7)


def make_crash_run(
    number: int = 1,
    *verdicts: Verdict,
    study_id: str = "s1",
    host_id: str = "h1",
    writer: str = "ledger",
    **levels: str,
) -> CrashRun:
    named = levels or {"frontend": "daemon", "format": "raw", "cache": "unsafe"}
    cell = Cell(
        tuple(sorted(named.items())),
        crash_workload(CrashRules(), writer, named.get("frontend", "host")),
    )
    return CrashRun(
        f"crash-{number}",
        study_id,
        cell,
        host_id,
        100.0 + number,
        110.0 + number,
        verdicts or (LOSS, make_verdict()),
        checks=(Check("cache.no-flush", "on", "on", "QMP", True),),
        counts={"writes": 40, "flushes": 10, "acknowledgements": 9},
        artefacts=(Artefact("crash.log", "application/octet-stream", b"dpcrash\n\0" * 9),),
        phases=(("record", 2.5),),
    )


RULES = CrashRules(records=48, states=4000, explore_seconds=4.0, seconds=120.0, seed=3)
# QEMU opens each state of a qcow2: a search of all that decides, which a busy host ends as well.
OF_FORM = {"raw": RULES, "qcow2": replace(RULES, states=400, explore_seconds=60.0)}


def make_real_run(
    folder: Path,
    writer: str = "ledger",
    durable: str = "flush",
    rules: CrashRules = RULES,
    **levels: str,
) -> CrashRun:
    """One real crash run; afterwards no process, folder or mount of it is left."""
    found = execute_real(folder, writer, USUAL_FAULTS, replace(rules, durable=durable), **levels)
    assert_nothing_of(folder)
    return found


def execute_real(
    folder: Path, writer: str, faults: tuple[Fault, ...], rules: CrashRules, **levels: str
) -> CrashRun:
    """One real crash run, of which several may be under way."""
    named = {"backing": "here", "frontend": "daemon", **levels}
    workload = crash_workload(rules, writer, named["frontend"])
    cell = Cell(tuple(sorted(named.items())), workload)
    backing = BackingSpec("here", "directory", (("path", str(folder / "images")),), make=True)
    lab = CrashLab(LabSetup("s", "h", {"here": backing}, NO_CONSENT, "tcg", 240.0))
    return lab.execute(cell, faults_of(cell.level("frontend"), faults), lambda activity: None)


def assert_nothing_of(folder: Path) -> None:
    """No process, folder or mount of a run in ``folder`` is left."""
    images = folder / "images"
    assert_nothing_left(images)
    assert str(images) not in Path("/proc/self/mountinfo").read_text()
