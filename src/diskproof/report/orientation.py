"""Where one is: this host, the machines and studies that were found, and what to type next."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from diskproof.records.virtual_machines import Machine
from diskproof.report import layout
from diskproof.report.labels import count
from diskproof.report.progress import StudyStatus

MAX_NAMED = 6
"""Machines and studies that are named; of more the number is enough."""


@dataclass(frozen=True)
class FoundStudies:
    """What the store at ``place`` holds; ``judged`` are the ids of studies with verdicts.
    ``trouble`` says why it could not be read."""

    place: str
    statuses: tuple[StudyStatus, ...] = ()
    judged: frozenset[str] = frozenset()
    trouble: str = ""


@dataclass(frozen=True)
class Here:
    """What is known of this host. ``able`` and ``unable`` are phrases, ``packages`` bring what is
    missing; ``machines`` is None where their managers did not answer in time, and ``obstacles`` say
    what could not be looked at. ``example`` is a study file that is there."""

    able: tuple[str, ...]
    unable: tuple[str, ...]
    packages: tuple[str, ...]
    machines: tuple[Machine, ...] | None
    obstacles: tuple[str, ...]
    example: Path | None


def render_orientation(here: Here, studies: FoundStudies) -> layout.Shown:
    """All of it for people."""
    facts = layout.start_table("", "!", "*")
    steps = layout.start_table("", "!", "*")
    for table in (facts, steps):
        table.title, table.show_header = None, False
    facts.add_row("this host", _host_line(here))
    facts.add_row("machines", _machines_line(here))
    facts.add_row("studies", _studies_line(studies))
    for command, why in _next_steps(here, studies):
        steps.add_row(layout.line(command, "bold"), why)
    head = "Which virtual-disk settings are fast on this host, and which keep your data?"
    return layout.paragraphs([[layout.line(head, "bold")], [facts], [steps]])


def _host_line(here: Here) -> str:
    text = "; ".join([", ".join(here.able), *here.unable]).removeprefix("; ")
    if here.packages:
        text += f": apt-get install {' '.join(here.packages)}"
    return text


def _machines_line(here: Here) -> str:
    if here.machines is None:
        return "their managers have not answered yet; `diskproof audit` waits for them"
    named = _named([_machine_name(each) for each in here.machines])
    return "; ".join([named or "none found", *here.obstacles])


def _machine_name(machine: Machine) -> str:
    running = ", running" if machine.pid else ""
    return f"{machine.name} ({machine.manager}{running})"


def _studies_line(studies: FoundStudies) -> str:
    if studies.trouble:
        return studies.trouble
    named = _named([_study_text(each, studies.judged) for each in studies.statuses])
    return f"{named} in {studies.place}" if named else f"none yet in {studies.place}"


def _study_text(status: StudyStatus, judged: frozenset[str]) -> str:
    runs = count(status.done, "run")
    told = runs if status.state in ("done", "imported") else f"{status.done} of {status.total} runs"
    told += {"running": ", running", "incomplete": ", not complete"}.get(status.state, "")
    return f"{status.study} ({told}{', judged' * (status.id in judged)})"


def _named(names: Sequence[str]) -> str:
    rest = len(names) - MAX_NAMED
    return ", ".join([*names[:MAX_NAMED], *([f"{rest} more"] if rest > 0 else [])])


def _next_steps(here: Here, studies: FoundStudies) -> Iterator[tuple[str, str]]:
    """Commands in the order in which they help here, each with what it tells."""
    states = {each.state for each in studies.statuses}
    if here.unable and here.packages:
        yield "diskproof doctor", "what is missing here, and the line that mends it"
    if here.machines is None or here.machines:
        yield "diskproof audit", "do the disks of these machines keep what they promise?"
    if "running" in states:
        yield "diskproof status --follow", "how far the study is that runs now"
    if any(each.done for each in studies.statuses):
        yield "diskproof advise", "what to use, as a line to paste"
        yield "diskproof rank", "what was measured, best first"
        yield "diskproof report -o page.html", "the same as one page with pictures"
    if not studies.statuses:
        yield "diskproof quick DIR", "what to use for disks in that folder, in ten minutes"
    if here.example and not studies.statuses:
        yield f"diskproof run {here.example}", "measure and judge the cache modes, in three minutes"
    yield "diskproof run STUDY", "a study of your own, or on with one (docs/study.md)"
    yield "diskproof --help", "all commands"
