"""Who drives the disk. One kind = one file; all speak the protocol below."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from typing import Protocol, cast

from diskproof.drive import Drive, RunContext
from diskproof.errors import UsageError
from diskproof.factors import FRONTENDS
from diskproof.records import Artefact


class Frontend(Protocol):
    """A kind of frontend. ``start`` yields a drive and leaves nothing behind."""

    name: str

    def start(self, context: RunContext) -> AbstractContextManager[Drive]: ...

    def artefacts(self, context: RunContext) -> tuple[Artefact, ...]:
        """Logs and command lines kept with the run, also after a failure."""
        ...


def load_frontend(name: str) -> Frontend:
    """The frontend of that name (its module is imported only now). Raises UsageError."""
    if name not in FRONTENDS:
        raise UsageError(f"unknown frontend {name!r}", f"known: {', '.join(FRONTENDS)}")
    module = importlib.import_module(f"diskproof.frontends.{name}")
    return cast(Frontend, module.FRONTEND)
