"""Where image bytes live. One kind = one file; all speak the protocol below."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from diskproof.records import BackingFacts, BackingSpec


class Backing(Protocol):
    """A kind of backing."""

    def probe(self, spec: BackingSpec) -> BackingFacts:
        """What this backing can do here; creates nothing that stays. Raises HostError."""
        ...

    def start_run_dir(self, spec: BackingSpec) -> AbstractContextManager[Path]:
        """A fresh private folder for one run's image on this backing; gone at the end."""
        ...
