"""What a run of any experiment is given: the study's setup, and the time it has."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diskproof.backings import Consent
from diskproof.records import BackingSpec
from diskproof.study.guest import OwnGuest

if TYPE_CHECKING:
    from diskproof.store import Store

START_SECONDS = 120.0
FULL_BYTES = 4 << 20  # no cluster or extent of an image fits in less


@dataclass(frozen=True)
class LabSetup:
    """What all runs of a study share. ``consent`` is for what its backings destroy; ``accel`` is
    the host's probed accelerator."""

    study_id: str
    host_id: str
    backings: Mapping[str, BackingSpec]
    consent: Consent
    accel: str
    run_timeout: float
    own_guest: OwnGuest | None = None


def hosts_here(store: Store) -> frozenset[str]:
    """Ids under which a store knows this host, as it is and as it was."""
    here = platform.node() or "unnamed"
    return frozenset(host.id for host in store.hosts() if host.name == here)
