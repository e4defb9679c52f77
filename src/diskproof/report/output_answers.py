"""What ``--json`` prints of advice and of virtual machines, typed as in ``outputs.py``."""

from typing import Annotated, TypedDict

from diskproof.advice.dialect import Unsayable
from diskproof.records.virtual_machines import Remark
from diskproof.records.walls import Walls
from diskproof.report.outputs import AsDict, LevelsJson, PairJson, VerdictJson
from diskproof.store.show import ShownJson

# -- advice ---------------------------------------------------------------------------------


class WhyNotJson(TypedDict):
    why: str
    what: str


class CandidateJson(TypedDict):
    cell: LevelsJson
    settings: str
    n: int
    mean: float
    ci95: float | None
    times_of_chosen: float | None
    times_simultaneous95: PairJson
    told_apart: bool
    keeping: str
    fault: str
    rules: list[str]
    against: list[WhyNotJson]
    unsayable: list[Annotated[AsDict, Unsayable]]
    durability: list[VerdictJson] | None


class PasteJson(TypedDict):
    text: str
    where: str
    takes_effect: str
    create: str
    notes: list[str]


AnswerJson = TypedDict(
    "AnswerJson",
    {
        "workload": str,
        "metric": str,
        "unit": str,
        "for": str,
        "keep": str,
        "migrates": bool,
        "disposable": bool,
        "sentences": list[str],
        "proved": bool,
        "likely": bool,
        "keeps": bool,
        "instead": LevelsJson,
        "is_default": bool,
        "default_measured": bool,
        "chosen": CandidateJson | None,
        "beside": CandidateJson | None,
        "ties": list[CandidateJson],
        "faster": list[CandidateJson],
        "refused": list[CandidateJson],
        "unsaid": CandidateJson | None,
        "paste": PasteJson | None,
        "conditions": dict[str, str],
        "judge_seconds": float | None,
        "source": str,
    },
)


class AdviceJson(TypedDict):
    study: str
    id: str
    host: str
    answers: list[AnswerJson]


QuickJson = TypedDict(
    "QuickJson",
    {
        "study": str,
        "file": str,
        "for": str,
        "budget_seconds": float,
        "gave_up": list[str],
        "missing": list[str],
        "answers": list[AnswerJson],
        "cells": list[ShownJson],
    },
)


# -- machines and hosts ---------------------------------------------------------------------


class LayerJson(TypedDict):
    levels: LevelsJson
    source: str
    assumed: list[str]


class DiskJson(TypedDict):
    name: str
    image: str
    kind: str
    read_only: bool
    line: str
    facts: dict[str, str]
    verdict: str
    certainty: str
    what: str
    source: str
    layers: dict[str, LayerJson]
    remarks: list[Annotated[AsDict, Remark]]


class MachineJson(TypedDict):
    name: str
    manager: str
    source: str
    id: str
    pid: int | None
    notes: list[str]
    disks: list[DiskJson]


class MachinesJson(TypedDict):
    machines: list[MachineJson]
    obstacles: list[str]
    summary: str


class OwnSettingsJson(TypedDict):
    """What ``audit --measure`` says once it has measured."""

    study: str
    own: LevelsJson
    told: list[str]


class WallsJson(TypedDict):
    programs: list[Annotated[AsDict, Walls]]
    missing: list[str]
