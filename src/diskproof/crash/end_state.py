"""The one state after an end in order: the folder as it is when QEMU, asked to, has ended.

It is what a killed guest leaves, for QEMU then still writes what it holds back. No search is
needed: the same check as for all other states judges the real folder.
"""

import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import psutil

from diskproof.crash.verdict import Coverage, Explored, Loss
from diskproof.crash.writers.command import copied
from diskproof.crash.writers.program_end import CRASHES
from diskproof.drive import DiskImage, RunContext
from diskproof.errors import RunFailure
from diskproof.frontends import load_frontend
from diskproof.process.cage import TOOL_CAGE
from diskproof.process.native import require_native
from diskproof.process.owner import hand_over
from diskproof.process.run_user import require_run_user
from diskproof.process.start import Completed, require_tool, run
from diskproof.recording.log import ACKNOWLEDGE, Frame, read_frames
from diskproof.records import Cell, WorkloadSpec

ACKS = "acknowledged"
_READER = (("cache", "writeback"), ("frontend", "daemon"))
# The kernel's modules, hardware, accounting, boot, clock, terminals, audit, security modules, log,
# alarms, counters and programs (capabilities(7)): no check of files needs them.
_OF_THE_HOST = (16, 17, 20, 22, 25, 26, 29, 30, *range(32, 40))
_LAST_CAPABILITY = Path("/proc/sys/kernel/cap_last_cap")
_LEAKS_ONLY = 3  # qemu-img(1), check


def check_end_state(
    found: Explored, files: Path, room: Path, log: Path, check: Mapping[str, object], timeout: float
) -> Explored:
    """Check the recorded folder after its end. ``found`` has fault and promises; a check that
    fails is a failure in the answer."""
    frames = [frame for frame in read_frames(log) if frame.kind == ACKNOWLEDGE]
    try:
        loss = check_folder(files, room, frames, check, timeout)
    except RunFailure as failure:
        return replace(found, failure=": ".join(filter(None, (failure.what, failure.why))))
    whole = Coverage((1, 1), (0, 0))  # it is the one state that this fault can leave
    found = replace(found, states_checked=1, states_total=1, estimated=False, cuts=1, covered=whole)
    return replace(found, worst=loss, smallest=loss)


def check_folder(
    files: Path,
    room: Path,
    frames: Sequence[Frame],
    check: Mapping[str, object],
    timeout: float,
) -> Loss | None:
    """One check of a folder against the promises in ``frames``; None when all are kept.

    ``room`` takes the promises and, for formats that QEMU must read, its log and socket. Raises
    RunFailure when the check itself fails.
    """
    acks = room / ACKS
    acks.write_bytes(b"".join(frame.payload + b"\n" for frame in frames))
    if check.get("kind") == "ledger":
        target, form = str(check["target"]), str(check["format"])
        return read_exit(_verify_ledger(files / target, form, room, acks, timeout), frames)
    argv = list(_words(check["argv"]))
    if not check.get("stays"):
        return read_exit(_run_check(argv, files, acks, timeout), frames)
    with copied(files) as copy:  # such a check works in states that are thrown away
        question = f"{copy}\t{acks}\n".encode()
        return read_exit(_read_answer(_run_check(argv, room, acks, timeout, question)), frames)


def _words(argv: object) -> Sequence[str]:
    if isinstance(argv, list) and all(isinstance(word, str) for word in argv):
        return argv
    raise RunFailure("tool", "the check names no program")


def _read_answer(done: Completed) -> Completed:
    """The first line of a check that stays, which ends when nothing more is asked, as a status."""
    line, _, _ = done.stdout.partition(b"\n")
    code, _, said = line.strip().partition(b" ")
    if code not in (b"0", b"1", b"2"):
        if -done.returncode in CRASHES:
            return done
        told = line.decode("utf-8", "replace")[:200]
        why = done.error_text[-500:] or "no 0, 1 or 2 stands there"
        raise RunFailure("tool", f"the check answered {told!r}", why)
    return replace(done, returncode=int(code), stdout=said or b"1", stderr=said or done.stderr)


def _run_check(
    argv: Sequence[str], folder: Path, acks: Path, timeout: float, question: bytes = b""
) -> Completed:
    environment = {**os.environ, "DISKPROOF_ACKNOWLEDGED": str(acks)}
    program = require_tool(argv[0])
    argv = [*_caller_args(), program, *argv[1:]]
    return run(argv, timeout=timeout, cwd=folder, env=environment, check=False, stdin=question)


def _caller_args() -> list[str]:
    """The argv prefix of a check, which the explorer has as well (native/lab/states): it is the
    caller's and does what they may do with files, gains nothing and leaves no core."""
    limits = ["--core=0", f"--data={psutil.virtual_memory().total // 4 * 3}"]
    prefix = [require_tool("prlimit", "util-linux"), *limits, "--"]
    prefix += [require_tool("setpriv", "util-linux"), "--no-new-privs"]
    if os.geteuid() == 0:
        last = int(_LAST_CAPABILITY.read_text())
        prefix.append("--bounding-set=" + ",".join(f"-cap_{n}" for n in _OF_THE_HOST if n <= last))
    return [*prefix, "--"]


def _verify_ledger(image: Path, form: str, room: Path, acks: Path, timeout: float) -> Completed:
    """Through QEMU's driver of the format, as a guest would see it; raw as it is."""
    verify = [str(require_native("diskproof-ledger")), "verify"]
    options = ["--acks", str(acks), "--json"]
    if form == "raw":
        return run([*verify, str(image), *options], timeout=timeout, check=False)
    image = _for_its_reader(image, room, timeout)
    unsound = find_damage(image, form, timeout)
    if unsound is not None:
        return unsound
    cell = Cell((*_READER, ("format", form)), WorkloadSpec("end", "crash"))
    context = RunContext(cell, DiskImage(image, form, 0), room, "", min(60.0, timeout))
    with load_frontend("daemon").start(context) as drive:
        target = drive.facts.fio["uri"]
        done = drive.execute([*verify, target, *options], timeout=timeout)
    return Completed(tuple(verify), done.returncode, done.stdout, done.stderr, done.seconds)


def _for_its_reader(image: Path, room: Path, timeout: float) -> Path:
    """The image as the user without rights may open it: a copy of one that is somebody else's."""
    if os.geteuid() != 0 or image.stat().st_uid == require_run_user():
        return image
    copy = room / image.name
    run(["cp", "--reflink=auto", "--sparse=always", "--", str(image), str(copy)], timeout=timeout)
    hand_over(copy)
    return copy


def find_damage(image: Path, form: str, timeout: float) -> Completed | None:
    """``qemu-img check`` where it finds more than clusters that leak; as a check's answer."""
    tool = require_tool("qemu-img", "qemu-utils")
    done = run(
        [tool, "check", "-f", form, "--", image.name],
        timeout=timeout,
        cwd=image.parent,
        check=False,
        confined=True,
        cage=TOOL_CAGE,
    )
    if done.returncode in (0, _LEAKS_ONLY):
        return None
    return done if done.returncode < 0 else replace(done, returncode=2)


def read_exit(done: Completed, frames: Sequence[Frame]) -> Loss | None:
    """A check's answer: 0 keeps, 1 loses with a count on stdout (nothing said: one), 2 or a crash
    of its own corrupts; all else fails, as in the explorer (``checks/command.rs``)."""
    cut = frames[-1].sequence if frames else 0
    moment = frames[-1].end if frames else 0
    if done.returncode == 0:
        return None
    if done.returncode == 1:
        is_silent = not (done.stdout.strip() or done.stderr.strip())
        lost, sequences = _read_lost(b"1" if is_silent else done.stdout)
        age = (moment - promised_at(frames, lost, sequences)) / 1e9
        return Loss(cut, (), lost, age, lost_sequences=sequences)
    text = (done.error_text or done.text.strip())[-500:]
    if -done.returncode in CRASHES:
        crash = f"the check crashed with {signal.Signals(-done.returncode).name}"
        text, done = "\n".join(filter(None, (crash, text))), replace(done, returncode=2)
    if done.returncode == 2:
        return Loss(cut, (), 0, 0.0, "corrupts", text)
    raise RunFailure("tool", f"the check ended with status {done.returncode}", text)


def promised_at(frames: Sequence[Frame], lost: int, sequences: Sequence[int]) -> int:
    """When the oldest of ``lost`` promises was acknowledged, ns; 0 when none was.

    ``sequences`` are the numbers of lost records of a ledger. Where a check only counts, those
    promised last are lost: that is the least it can be.
    """
    totals = list(accumulate((frame.payload for frame in frames), _promised_by, initial=0))[1:]
    kept = min(sequences) - 1 if sequences else totals[-1] - lost if totals else 0
    later = (frame.end for frame, total in zip(frames, totals, strict=True) if total > max(0, kept))
    return next(later, 0)


def _promised_by(before: int, line: bytes) -> int:
    """What is promised after one more line: a ledger's tells how much, others one promise more."""
    words = line.split()
    if len(words) in (3, 6) and words[0] == b"ledger" and words[2].isdigit():
        return max(before, int(words[2]))
    return before + 1


def _read_lost(stdout: bytes) -> tuple[int, tuple[int, ...]]:
    text = stdout.strip()
    try:
        if text.startswith(b"{"):
            report = json.loads(text)
            sequences = tuple(int(sequence) for sequence, *_ in report["lost_sequences"])
            return int(report["lost"]), sequences
        return max(1, int(text.split()[0])), ()
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
        raise RunFailure(
            "tool", "the check did not say how much is lost", repr(text[:200])
        ) from None
