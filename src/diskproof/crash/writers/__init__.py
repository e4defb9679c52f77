"""Who writes and is promised things. One kind = one file; all speak the protocol below."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from diskproof.errors import UsageError

if TYPE_CHECKING:  # a check is started for each state: what it does not need costs it
    from diskproof.drive import Drive, RunContext
    from diskproof.recording.folder import Recording
    from diskproof.records import Cell


@dataclass(frozen=True)
class WriterContext:
    """What a writer needs. ``cell.workload`` has its options; ``drive.execute`` runs commands
    where the disk is visible; ``context`` names image and room; ``recording`` is the recorded
    folder (``folder``, and ``acknowledge`` for promises); all must end within ``seconds``."""

    cell: Cell
    drive: Drive
    context: RunContext
    recording: Recording
    seconds: float


class Writer(Protocol):
    """A kind of writer."""

    def prepare(self, cell: Cell, folder: Path) -> None:
        """Put into the folder what is there before the recording begins, written back."""
        ...

    def write(self, context: WriterContext) -> None:
        """Write and have every promise acknowledged. Raises RunFailure."""
        ...

    def check(self, cell: Cell) -> dict[str, object]:
        """The check of its states, as the explorer's request takes it."""
        ...


def load_writer(name: str) -> Writer:
    """The writer of that name (its module is imported only now). Raises UsageError."""
    from diskproof.study.crash import WRITERS

    if name not in WRITERS:
        raise UsageError(f"unknown writer {name!r}", f"known: {', '.join(WRITERS)}")
    module = importlib.import_module(f"diskproof.crash.writers.{name.replace('-', '_')}")
    return cast(Writer, module.WRITER)
