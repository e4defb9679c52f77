"""Who drives the disk. One kind = one file; all speak the protocol below."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from diskproof.drive import Drive, RunContext
from diskproof.records import Artefact


class Frontend(Protocol):
    """A kind of frontend. ``start`` yields a drive and leaves nothing behind."""

    name: str

    def start(self, context: RunContext) -> AbstractContextManager[Drive]: ...

    def artefacts(self, context: RunContext) -> tuple[Artefact, ...]:
        """Logs and command lines kept with the run, also after a failure."""
        ...
