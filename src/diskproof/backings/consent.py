"""Consent to lose what is on devices. It is given on the command line, for the devices that a
study names at that moment, and every backing that destroys asks for it."""

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from diskproof.backings.place import read_device_bytes, refuse_device
from diskproof.errors import HostError
from diskproof.records import BackingSpec

_DEVICES = Path("/sys/dev/block")
# What the kernel knows of a device. It counts disks as they come (diskseq, Linux 5.15), so that
# another one behind the same numbers is told even where none has a serial number.
_FACTS = (
    *("start", "serial", "wwid", "device/serial", "device/wwid", "dm/uuid", "md/uuid"),
    *("loop/backing_file", "diskseq"),
)


@dataclass(frozen=True)
class Identity:
    """What stands behind a name: a block device, or a server's disk, which has its URI only."""

    name: str
    path: str
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Consent:
    """The devices and servers' disks whose content may be lost, as they were when that was said."""

    given: tuple[Identity, ...] = ()

    def hold(self, spec: BackingSpec) -> BackingSpec:
        """The backing, on the very devices that were consented to.

        Raises HostError without consent, and for a name behind which is something else by now.
        """
        paths = [self._hold(name, spec) for name in spec.targets]
        if not spec.option("path") or not paths:
            return spec
        options = {**dict(spec.options), "path": " ".join(paths)}
        return replace(spec, options=tuple(options.items()))

    def _hold(self, name: str, spec: BackingSpec) -> str:
        known = {each.name: each for each in self.given}.get(name)
        if known is None:
            raise HostError(
                f"backing {spec.name} would destroy what is on {name}",
                "nobody has said that this may be lost",
                "when that can go, say so with --destroy-data",
            )
        if changed := _compare(known, identify(name)):
            raise HostError(
                f"{name} is not what it was when its data was given up",
                changed,
                "look at what is there now, then start again",
            )
        return known.path


NO_CONSENT = Consent()


def give_consent(specs: Iterable[BackingSpec]) -> Consent:
    """Consent for all that these write on, as it is now. Only the command line may say so.

    Raises HostError for a device that is not there.
    """
    names = dict.fromkeys(name for top in specs for name in find_targets(top))
    return Consent(tuple(map(identify, names)))


def find_targets(spec: BackingSpec) -> tuple[str, ...]:
    """What a backing, and those that it is made on, write on and the study has not made."""
    return (*spec.targets, *(find_targets(spec.on) if spec.on else ()))


def identify(name: str) -> Identity:
    """What stands behind a name now. Raises HostError for a path that is no block device."""
    if not name.startswith("/"):
        return Identity(name, name)
    try:
        device = Path(name).resolve(strict=True)
        seen = device.stat()
        if not stat.S_ISBLK(seen.st_mode):
            raise HostError(f"{name} is no block device", "nothing else can be a backing")
        size = read_device_bytes(device)
    except OSError as error:
        raise refuse_device(name, error) from None
    number = f"{os.major(seen.st_rdev)}:{os.minor(seen.st_rdev)}"
    facts = {"path": str(device), "number": number, "size": str(size), **_read_facts(number)}
    return Identity(name, str(device), tuple(facts.items()))


def _read_facts(number: str) -> dict[str, str]:
    """Read what the kernel knows of a device; of a partition, of its disk too."""
    folder = (_DEVICES / number).resolve()
    folders = [folder, *([folder.parent] if (folder / "partition").exists() else [])]
    found: dict[str, str] = {}
    for fact in _FACTS:
        for each in folders:
            try:
                found.setdefault(fact, (each / fact).read_text(errors="replace").strip())
            except OSError:  # this kind of device has none
                continue
    return found


def _compare(before: Identity, now: Identity) -> str:
    """In which way they differ, in words; empty when they do not."""
    was, there = dict(before.facts), dict(now.facts)
    changed = [key for key in was | there if was.get(key) != there.get(key)]
    return "; ".join(f"{k} was {was.get(k, 'none')}, now {there.get(k, 'none')}" for k in changed)
