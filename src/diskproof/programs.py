"""The workloads that are not one fio job, by name, as data: each has steps of its own, in
``workloads/KIND.py``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from diskproof.factors import FRONTENDS
from diskproof.option_rules import Option, one_of


@dataclass(frozen=True)
class Program:
    """``name`` stands in a study, ``kind`` names the module. ``options`` are the keys that its
    table takes beside the common ones (size, runtime), ``fixed`` what the name says. It works with
    the given ``frontends`` and ``levels`` (factor -> levels) only. ``fill``: the disk is written
    once before. ``own_backing``: it needs one that the study makes, for it fills it up."""

    name: str
    kind: str
    help: str
    options: Mapping[str, Option] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)
    frontends: tuple[str, ...] = FRONTENDS
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fill: bool = False
    own_backing: bool = False


PROGRAMS = (
    Program(
        "out-of-space",
        "out_of_space",
        "the host runs out of space under a guest: it must pause, and go on when there is room",
        {"free": one_of("on", "off")},
        {"werror": "enospc"},
        frontends=("guest",),
        levels={"preallocation": ("off", "metadata")},
        own_backing=True,
    ),
)

PROGRAM_BY_NAME = {program.name: program for program in PROGRAMS}
PROGRAM_BY_KIND = {program.kind: program for program in PROGRAMS}
"""Programs of one kind have the same needs."""
