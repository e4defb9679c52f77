"""Where image bytes live. One kind = one file; all speak the protocol below."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, cast

from diskproof.errors import UsageError
from diskproof.records import BackingFacts, BackingSpec

KINDS = ("directory",)


class Backing(Protocol):
    """A kind of backing."""

    def probe(self, spec: BackingSpec) -> BackingFacts:
        """What this backing can do here; creates nothing that stays. Raises HostError."""
        ...

    def start_run_dir(self, spec: BackingSpec) -> AbstractContextManager[Path]:
        """A fresh private folder for one run's image on this backing; gone at the end."""
        ...


def load_backing(kind: str) -> Backing:
    """The backing of that kind (its module is imported only now). Raises UsageError."""
    if kind not in KINDS:
        raise UsageError(f"unknown kind of backing {kind!r}", f"known: {', '.join(KINDS)}")
    module = importlib.import_module(f"diskproof.backings.{kind}")
    return cast(Backing, module.BACKING)
