"""A study has a head: its title, its facts, what distorts it, the answers."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from diskproof.records import StudyRecord
from diskproof.report.chapter import Chapter, Lead
from diskproof.report.chapters import CHAPTERS
from diskproof.report.view import MINIMAL_NOTE, TCG_NOTE, StudyView
from diskproof.study.ground import find_grounds
from diskproof.study.like import find_defaults, keep_warnings
from diskproof.units import render_bytes

GUESTS = ("guest", "own-guest")
OURS = ("run", "program")
"""Origins of studies that were made here, by ``run`` and ``crash``."""


@dataclass(frozen=True)
class Head:
    """It holds a study and what its chapters say up front."""

    view: StudyView
    leads: tuple[Lead, ...]

    @property
    def accelerator(self) -> str:
        """It is what the study's guests ran under, and empty when it has no guests."""
        cells = [*self.view.study.cells, *(cell for lead in self.leads for cell in lead.cells)]
        guests = [cell for cell in cells if cell.level("frontend") in GUESTS]
        asked = {cell.level("accel", "auto") for cell in guests}
        probed = str(self.view.host.facts.get("accel", ""))  # who imports results may not know
        named = (probed if level == "auto" else level for level in asked)
        return ", ".join(sorted(filter(None, named)))

    @property
    def line(self) -> str:
        """It heads a table: study, host, seed, accelerator, runs, failures."""
        study, accel = self.view.study, self.accelerator
        return ", ".join(
            [
                f"study {study.name} ({study.id})",
                f"host {self.view.host.name}",
                *([f"guests under {accel.upper()}"] if accel else []),
                f"seed {study.seed}" if study.origin in OURS else f"imported {study.origin}",
                *(lead.count for lead in self.leads if lead.count),
            ]
        )

    @property
    def note(self) -> str:
        """It says what the accelerator distorts, and is empty when it does not."""
        return TCG_NOTE if "tcg" in self.accelerator else ""

    @property
    def warnings(self) -> list[str]:
        """A reader must know them before any figure; they come from the host and from the plan."""
        simulated = self.view.host.facts.get("simulated") is True
        found = ["The host is simulated: every figure is made up."] if simulated else []
        if self.accelerator and self.view.host.facts.get("guest") == "minimal":
            found.append(MINIMAL_NOTE)
        return [*found, *keep_warnings(self.view.study.warnings)]

    @property
    def title(self) -> str:
        study, host = self.view.study, self.view.host
        if special := self._special("title"):
            return f"{study.name}: {special}"
        if study.origin == "run":
            return f"{study.name}: which virtual disk is fast on {host.name}, and keeps the data?"
        return f"{study.name}: results imported from {study.origin}"

    @property
    def origin(self) -> str:
        return self._special("origin") or _origin_sentence(self.view.study)

    def _special(self, name: str) -> str:
        """A chapter may speak in place of the ranking that a study does not have."""
        found = "" if self.view.workloads else (getattr(lead, name) for lead in self.leads)
        return next(filter(None, found), "")

    @property
    def facts(self) -> list[tuple[str, str]]:
        """They stand at the head of a page, as (name, value)."""
        study = self.view.study
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(study.created))
        lines = [
            ("host", self.view.host.name),
            ("guests run under", self.accelerator.upper()),
            *(fact for lead in self.leads for fact in lead.facts),
            ("blocks and seed", f"{study.blocks}, {study.seed}" if study.origin == "run" else ""),
            *(
                (
                    f"a new disk of {each.name}",
                    f"{each.levels_text} on {each.backing} ({each.source})",
                )
                for each in find_defaults(study.warnings)
            ),
            *((f"backing {each.backing}", each.text) for each in find_grounds(study.warnings)),
            ("study made", made if study.created else ""),
            ("study id", study.id),
        ]
        return [(name, value) for name, value in lines if value]

    @property
    def place(self) -> list[tuple[str, str]]:
        """It is where the study was measured, for the top of a page: machine, kernel, QEMU, and
        what each backing lies on, as far as it was noted."""
        facts = self.view.host.facts
        memory = facts.get("memory_bytes")
        size = render_bytes(memory) if isinstance(memory, int) else ""
        told = {
            "processor": (facts.get("cpu_model"), f"{facts.get('cpus')} CPUs", size),
            "kernel": (facts.get("kernel"), facts.get("distribution")),
            "QEMU": (facts.get("qemu_version"),),
            "fio": (facts.get("fio_version"),),
            "guest": (facts.get("guest"),),  # told where it is not the usual one
        }
        known = ((name, parts) for name, parts in told.items() if parts[0])
        lines = [(name, ", ".join(str(part) for part in parts if part)) for name, parts in known]
        return [*lines, *((name, text) for name, text in self.facts if name.startswith("backing "))]

    @property
    def answers(self) -> list[tuple[str, str]]:
        settled = {name for lead in self.leads for name in lead.settled}
        told = (answer for lead in self.leads for answer in lead.answers)
        return [(name, answer) for name, answer in told if name not in settled]

    @property
    def failed(self) -> int:
        return sum(lead.failed for lead in self.leads)

    @property
    def readings(self) -> list[str]:
        """They say how the answers are to be read, each way once."""
        return [*dict.fromkeys(lead.reading for lead in self.leads if lead.reading)]


def find_head(view: StudyView, chapters: Iterable[Chapter[Any]] = CHAPTERS) -> Head:
    """Ask the chapters that found something what they say of it."""
    leads = (
        chapter.lead(part, view)
        for chapter in chapters
        if chapter.lead is not None
        for part in chapter.parts(view).values()
    )
    return Head(view, tuple(leads))


def _origin_sentence(study: StudyRecord) -> str:
    if study.origin == "program":
        return "A program was recorded, and its own check judged the states that a crash may leave."
    if study.origin == "run":
        return (
            "Each run is a fresh image and fresh processes; cells ran in randomised blocks "
            "and are compared inside a block."
        )
    return (
        f"Imported from {study.origin}: the order of runs is not known to be random, so cells "
        "are compared as independent samples."
    )
