"""Where image bytes live. One kind = one file; all speak the protocol below.

A backing is made for the length of a study and is gone after it: ``start_place``. Each run then
gets a private folder there: ``run_dir.start_run_dir``.
"""

import importlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Protocol, cast

from diskproof.backings.consent import NO_CONSENT, Consent, find_targets
from diskproof.backings.place import Place, explained, find_filesystem, probe_direct, start_run_dir
from diskproof.errors import UsageError
from diskproof.records import BackingFacts, BackingSpec
from diskproof.study.backings import KINDS, NOT_OWN

__all__ = [
    "NO_CONSENT",
    "Consent",
    "Place",
    "load_backing",
    "probe_backing",
    "start_disk_dir",
    "start_place",
]


class Backing(Protocol):
    """A kind of backing."""

    def start(self, spec: BackingSpec, base: Place | None) -> AbstractContextManager[Place]:
        """Make it, on ``base`` when its table names one; it is gone at the end, and after
        ``kill -9`` the kernel or the janitor takes away what is left. Raises HostError."""
        ...


def load_backing(kind: str) -> Backing:
    """The backing of that kind (its module is imported only now). Raises UsageError."""
    if kind not in KINDS:
        raise UsageError(f"unknown kind of backing {kind!r}", f"known: {', '.join(KINDS)}")
    module = importlib.import_module(f"diskproof.backings.{kind}")
    return cast(Backing, module.BACKING)


@contextmanager
def start_place(spec: BackingSpec, consent: Consent) -> Iterator[Place]:
    """A backing and all that it is made on. ``consent`` covers what that destroys.

    Raises HostError.
    """
    consent.hold(spec)  # before anything below is made; again below, which may take a while
    with ExitStack() as stack:
        base = stack.enter_context(start_place(spec.on, consent)) if spec.on else None
        place = stack.enter_context(load_backing(spec.kind).start(consent.hold(spec), base))
        if base and place.uncached is nullcontext:
            place = replace(place, uncached=base.uncached)
        yield place


@contextmanager
def start_disk_dir(spec: BackingSpec, consent: Consent) -> Iterator[Path]:
    """A backing of its own for one private folder on it."""
    with start_place(spec, consent) as place, start_run_dir(place) as folder:
        yield folder


def probe_backing(spec: BackingSpec, consent: Consent) -> BackingFacts:
    """What a backing can do here, by making it; nothing of it stays. Raises HostError.

    Where nobody has consented to what that destroys, nothing is made: what can be read is.
    """
    if find_targets(spec) and not consent.given:
        return _look_at(spec)
    with start_place(spec, consent) as place:
        return _describe(spec, place)


def _look_at(spec: BackingSpec) -> BackingFacts:
    """What reading tells; a server is asked for its disk, on which only runs write."""
    if spec.option("uri") and spec.on and not find_targets(spec.on):
        with (
            start_place(spec.on, NO_CONSENT) as base,
            load_backing(spec.kind).start(spec, base) as place,
        ):
            return _describe(spec, place)
    from diskproof.backings.unmade import inspect_unmade  # it needs what all kinds need

    return inspect_unmade(spec)


def _describe(spec: BackingSpec, place: Place) -> BackingFacts:
    """What is to be said of a backing that is there. Raises HostError."""
    with explained(place.folder):
        # A client over a network takes the flag; it does not reach the server.
        o_direct, reason = (True, "") if place.service else probe_direct(place.folder)
        return BackingFacts(
            path=str(place.folder) if spec.kind == "directory" else f"backing {spec.name}",
            filesystem=place.name or find_filesystem(place.folder),
            o_direct=o_direct,
            o_direct_reason=reason,
            free_bytes=place.free_bytes(),
            device=place.device is not None and place.service is None,
            own=spec.kind not in NOT_OWN,
            network=place.service.driver if place.service else "",
            fio=place.service is None or place.service.fio,
            flushes=place.service.flushes if place.service else "",
        )
