"""Make a stored loss again: log and base out of the store, the state built, its check repeated."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from diskproof.crash.end_state import check_folder
from diskproof.crash.listing import list_operations
from diskproof.crash.record import cut_at_mark, is_mark
from diskproof.crash.run import BASE_ARTEFACT, LOG_ARTEFACT, find_check, leaves_one_state
from diskproof.crash.verdict import Loss
from diskproof.errors import UsageError
from diskproof.process.native import require_native
from diskproof.process.owner import admit
from diskproof.process.scratch import start_scratch_dir
from diskproof.process.start import run
from diskproof.recording.log import ACKNOWLEDGE, Frame, read_frames
from diskproof.records.operations import Operation, absences
from diskproof.records.verdicts import CrashRun, Verdict
from diskproof.report.crash.cause_table import change_json
from diskproof.report.output_causes import ChangeJson

SHOW_SECONDS = 600.0
CHECK_SECONDS = 600.0


@dataclass(frozen=True)
class Reproduced:
    """A state that was made again. ``state`` is the explorer's name of it, ``missing`` the changes
    that are not in it, ``told`` the same in words, ``loss`` what the repeated check found. All
    that happened before the crash is ``known``, ``promises`` are its acknowledgements."""

    folder: Path
    state: str
    verdict: Verdict
    missing: tuple[Operation, ...]
    told: tuple[str, ...]
    loss: Loss | None
    known: tuple[Operation, ...] = ()
    promises: tuple[Frame, ...] = ()


def reproduce(run_: CrashRun, fault: str, target: Path, *, worst: bool = False) -> Reproduced:
    """Build the smallest loss of a stored verdict (or the worst state) in ``target`` and check it.

    Raises UsageError when there is no such verdict, no loss, or the log was too large to keep.
    """
    verdict = require_loss(run_, fault)
    require_new(target)
    with start_scratch_dir(large=True) as room:
        room.chmod(0o711)
        base, log = unpack_evidence(run_, room)
        if leaves_one_state(run_.cell, verdict.fault):
            state, until = _end_state(log), log
        else:
            state, until = _find_state(verdict, log, worst)
        return make_state(run_, verdict, (until, base, state), target, room)


def make_state(
    run_: CrashRun, verdict: Verdict, of: tuple[Path, Path, str], target: Path, room: Path
) -> Reproduced:
    """Build a state ``of`` a log and a base, and check it."""
    until, base, state = of
    run(
        [
            *(str(require_native("diskproof-states")), "show"),
            *(str(until), str(base), state, "--to", str(target)),
        ],
        timeout=SHOW_SECONDS,
    )
    cut = verdict.cut if verdict.cut is not None else 0
    frames = [frame for frame in read_frames(until) if _is_before(frame, state, cut)]
    promises = [f for f in frames if f.kind == ACKNOWLEDGE and not is_mark(f)]
    known = list_operations(until, base, state, room)
    missing = tuple(each for each in known if each.is_absent)
    loss = check_folder(target, room, promises, find_check(run_.cell), CHECK_SECONDS)
    told = tuple(absences(known))
    return Reproduced(target, state, verdict, missing, told, loss, known, tuple(promises))


def require_new(target: Path) -> None:
    if target.exists():
        raise UsageError(f"{target} is there already", hint="name a folder that is not, with --to")


def require_loss(run_: CrashRun, fault: str) -> Verdict:
    for verdict in run_.verdicts:
        if verdict.fault == fault and verdict.is_broken:
            return verdict
    told = ", ".join(f"{verdict.fault}: {verdict.verdict}" for verdict in run_.verdicts)
    raise UsageError(f"crash run {run_.id} has no loss under {fault}", f"it has {told or 'none'}")


def unpack_evidence(run_: CrashRun, room: Path) -> tuple[Path, Path]:
    """Base and log of a stored run as a folder and a file in ``room``. Raises UsageError."""
    content = {artefact.name: artefact.content for artefact in run_.artefacts}
    if missing := [name for name in (LOG_ARTEFACT, BASE_ARTEFACT) if name not in content]:
        what = f"crash run {run_.id} cannot be shown again"
        raise UsageError(what, f"{', '.join(missing)} was too large to be kept", "record less")
    base, log = room / "base", room / LOG_ARTEFACT
    base.mkdir()
    log.write_bytes(content[LOG_ARTEFACT])
    # tar itself refuses names that lead out of the folder.
    argv = ["tar", "--extract", "--sparse", "--directory", str(base), "--file=-"]
    run([*argv, "--no-same-owner"], timeout=SHOW_SECONDS, stdin=content[BASE_ARTEFACT])
    admit(base)
    return base, log


def _end_state(log: Path) -> str:
    last = max((frame.sequence for frame in read_frames(log)), default=0)
    return f"kill:512:{last}:everything"


def _find_state(verdict: Verdict, log: Path, worst: bool) -> tuple[str, Path]:
    """The state's name and the log it is a state of."""
    killed = log.with_name("killed.log")
    cut_at_mark(log, killed)
    name = verdict.details.get("worst_state" if worst else "smallest_state")
    if not isinstance(name, str) or not name:
        raise UsageError("the store does not say which state it was")
    return name, killed


def _is_before(frame: Frame, state: str, cut: int) -> bool:
    """Whether a record is up to the state's cut: the third part of its name."""
    parts = state.split(":")
    at = int(parts[2]) if len(parts) > 2 and parts[2].isdecimal() else cut
    return frame.sequence <= at


def state_lines(made: Reproduced) -> list[str]:
    """What was made, for people."""
    changes = [f"  record {o.sequence}: {t}" for o, t in zip(made.missing, made.told, strict=True)]
    more = len(changes) - 20
    changes[20:] = [f"  and {more} more"] if more > 0 else []
    head = f"{made.folder}: state {made.state}"
    found = made.loss
    if found is None:
        told = "its check finds nothing lost; the stored verdict does not hold for it"
    elif found.verdict == "corrupts":
        told = f"its check finds it corrupt: {found.text}".rstrip(": ")
    else:
        told = f"its check finds {found.lost} acknowledged writes lost"
    listed = [f"changes that are missing or torn: {len(made.missing)}", *changes]
    return [head, *(listed if made.missing else []), told]


class MissingRecordJson(ChangeJson):
    """A change that is not in the state, or ``torn``; ``text`` says it."""

    text: str


class MadeAgainJson(TypedDict):
    """What ``crash reproduce --json`` prints."""

    folder: str
    state: str
    fault: str
    missing: list[MissingRecordJson]
    corrupt: bool
    lost: int


def state_json(made: Reproduced) -> MadeAgainJson:
    """The same for programs."""
    return {
        "folder": str(made.folder),
        "state": made.state,
        "fault": made.verdict.fault,
        "missing": [
            {**change_json(each), "text": text}
            for each, text in zip(made.missing, made.told, strict=True)
        ],
        "corrupt": bool(made.loss and made.loss.verdict == "corrupts"),
        "lost": made.loss.lost if made.loss else 0,
    }
