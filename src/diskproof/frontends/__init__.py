"""Who drives the disk. One kind = one file; all speak the protocol below."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from typing import Protocol, cast

from diskproof.drive import Drive, RunContext
from diskproof.errors import UsageError
from diskproof.records import Artefact, Cell
from diskproof.study.factors import FRONTENDS
from diskproof.study.programs import has_own_system

OWN_SYSTEM = "boots"


class Frontend(Protocol):
    """A kind of frontend. ``start`` yields a drive and leaves nothing behind."""

    name: str

    def start(self, context: RunContext) -> AbstractContextManager[Drive]: ...

    def artefacts(self, context: RunContext) -> tuple[Artefact, ...]:
        """Logs and command lines kept with the run, also after a failure."""
        ...


def find_frontend(cell: Cell) -> Frontend:
    """Who drives the cell's disk: its level of ``frontend``, or the system on the disk itself."""
    own = has_own_system(cell.workload.kind)
    return load_frontend(OWN_SYSTEM if own else cell.level("frontend"))


def load_frontend(name: str) -> Frontend:
    """The frontend of that name (its module is imported only now). Raises UsageError."""
    if name not in (*FRONTENDS, OWN_SYSTEM):
        raise UsageError(f"unknown frontend {name!r}", f"known: {', '.join(FRONTENDS)}")
    module = importlib.import_module(f"diskproof.frontends.{name.replace('-', '_')}")
    return cast(Frontend, module.FRONTEND)
