"""One cause as a folder that can be sent to a maintainer: it needs nothing of ours."""

import os
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from diskproof.crash.record import cut_at_mark
from diskproof.crash.reproduce import (
    Reproduced,
    make_state,
    require_loss,
    require_new,
    unpack_evidence,
)
from diskproof.crash.run import find_check
from diskproof.errors import UsageError
from diskproof.process.scratch import start_scratch_dir
from diskproof.records.callers import is_by_several
from diskproof.records.causes import Cause, find_causes
from diskproof.records.operations import by_words, operation_words
from diskproof.records.verdicts import CrashRun
from diskproof.report.crash.cause_table import cause_text, cure_text, loss_text, told_cause
from diskproof.study.crash import FAULT_WORDS

STORY_LINES = 20
SCRIPT = """#!/bin/sh
# Checks a copy of the state that a crash left. Exit status 0: kept, 1: lost, 2: corrupt.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 3
copy=$(mktemp -d) || exit 3
trap 'rm -rf "$copy"' EXIT
cp -a "$here/state/." "$copy/" || exit 3
export DISKPROOF_ACKNOWLEDGED="$here/acknowledged" DISKPROOF_STATE="$copy"
cd "$copy" || exit 3
{check}
"""


def make_case_folder(run_: CrashRun, fault: str, number: int, target: Path) -> Reproduced:
    """Build the state of a cause in ``target/state``, and beside it what tells of it.

    Raises UsageError when there is no such cause, or the evidence was too large to keep.
    """
    verdict = require_loss(run_, fault)
    causes = find_causes(verdict.details)
    cause = next((each for each in causes.found if each.number == number), None) if causes else None
    if cause is None:
        there = f"it has {len(causes.found)}" if causes else "nobody looked for any"
        raise UsageError(f"crash run {run_.id} has no cause {number} under {fault}", there)
    require_new(target)
    target.mkdir(parents=True)
    with start_scratch_dir(large=True) as room:
        room.chmod(0o711)
        base, log = unpack_evidence(run_, room)
        killed = log.with_name("killed.log")
        cut_at_mark(log, killed)
        made = make_state(run_, verdict, (killed, base, cause.state), target / "state", room)
    _write(target, run_, cause, made)
    return replace(made, folder=target)


def _write(target: Path, run_: CrashRun, cause: Cause, made: Reproduced) -> None:
    lines = (frame.payload + b"\n" for frame in made.promises)
    (target / "acknowledged").write_bytes(b"".join(lines))
    check = find_check(run_.cell).get("argv")
    if isinstance(check, list):
        script = target / "check.sh"
        script.write_text(SCRIPT.format(check=shlex.join(map(str, check))))
        script.chmod(0o755)
    (target / "story.txt").write_text("\n".join(story(cause, made)) + "\n")
    ElementTree.ElementTree(junit(run_, cause, made)).write(
        target / "junit.xml", encoding="utf-8", xml_declaration=True
    )


def story(cause: Cause, made: Reproduced) -> Iterator[str]:
    """What happened, in at most ``STORY_LINES``: the head, then the last things before the crash,
    what is missing among them in any case."""
    yield f"cause: {_plain(told_cause(cause))}"
    yield f"loss: {_plain(loss_text(cause))}"
    yield f"cure: {_plain(cure_text(cause))}"
    yield "time, ms  what happened before the crash"
    known, room = made.known, STORY_LINES - 6
    gone = [each for each in known if each.is_absent][:room]
    wanted = {each.sequence for each in (*gone, *([cause.there] if cause.there else []))}
    wanted |= {each.sequence for each in known[max(0, len(known) - (room - len(wanted))) :]}
    shown = [each for each in known if each.sequence in wanted]
    began = shown[0].end if shown else 0
    several = is_by_several(each.by for each in shown)
    for each in shown:
        by = f", {by_words([each])}" if several and each.by else ""
        told = _plain(f"{operation_words(each)}{by}")
        said = f"promised: {told}" if each.kind == "acknowledge" else told
        state = f"  <- {each.presence}" if each.is_absent else ""
        yield f"{(each.end - began) / 1e6:8.3f}  {said}{state}"
    yield f"          crash: {FAULT_WORDS[made.verdict.fault]}"


def _plain(text: str) -> str:
    """On one line, whatever stands in a name."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:300]


def junit(run_: CrashRun, cause: Cause, made: Reproduced) -> ElementTree.Element:
    """A suite with the one case that fails, for programs that read JUnit."""
    suite = ElementTree.Element("testsuite", name="diskproof crash", tests="1", failures="1")
    name = f"{made.verdict.fault}: {_plain(cause_text(cause))}"
    case = ElementTree.SubElement(suite, "testcase", classname=run_.writer, name=name)
    failure = ElementTree.SubElement(case, "failure", message=_plain(loss_text(cause)))
    failure.text = os.linesep.join(story(cause, made))
    return suite
