"""Virtual machines that were found on a host, layer by layer, and what is to be said of a disk.

Levels are spelt as a study spells them (``cache`` = ``none``), whoever's words they were read from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

Levels = Mapping[str, str]
"""Factors with their levels. A factor that is missing is not known, never at its default."""

LayerName = Literal["configured", "pending", "running", "guest", "below"]
Certainty = Literal["proved", "by rule", "unknown"]
"""``proved``: a verdict in the store is about such a disk; ``by rule``: a cited rule decides;
``unknown``: nobody knows, which is never shown as safe."""
Effect = Literal["keeps", "note", "ignored", "will not start", "unknown", "may lose", "loses"]
"""From harmless to bad. ``ignored``: a setting is written and not in force."""
EFFECTS: tuple[Effect, ...] = get_args(Effect)


@dataclass(frozen=True)
class Layer:
    """The levels that one layer has a disk at. ``assumed`` are the factors that nobody wrote, at
    the default of that layer; ``source`` says who was asked (a file, QMP, fdinfo)."""

    levels: Levels
    source: str
    assumed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Change:
    """What to paste to mend it, whole, and when it takes effect."""

    text: str
    takes_effect: str


@dataclass(frozen=True)
class Remark:
    """One thing to say of a disk. ``rule`` is its short name (``no-flush``), ``source`` where the
    rule or the fact is from."""

    rule: str
    layer: LayerName
    effect: Effect
    what: str
    source: str
    certainty: Certainty = "by rule"
    change: Change | None = None


@dataclass(frozen=True)
class MachineDisk:
    """One disk of a machine. ``name`` is the manager's (``scsi0``, ``vda``); ``image`` a path, a
    volume or a URI, empty where it is not known. ``line`` is its configuration as it was found, so
    that a change can be written whole. ``remarks`` are what only its reader can tell."""

    name: str
    image: str
    kind: Literal["file", "block", "network", "volume", ""] = ""
    configured: Layer | None = None
    pending: Layer | None = None
    running: Layer | None = None
    guest: Layer | None = None
    read_only: bool = False
    line: str = ""
    remarks: tuple[Remark, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    below: Layer | None = None

    @property
    def layers(self) -> dict[LayerName, Layer]:
        """Those that were read, from what is written to what runs, then what lies around it."""
        named: dict[LayerName, Layer | None] = {
            "configured": self.configured,
            "pending": self.pending,
            "running": self.running,
            "guest": self.guest,
            "below": self.below,
        }
        return {name: layer for name, layer in named.items() if layer is not None}


@dataclass(frozen=True)
class Machine:
    """One virtual machine. ``manager`` is a dialect's name, ``source`` where it was found, ``pid``
    its QEMU's process where it runs here."""

    name: str
    manager: str
    source: str
    disks: tuple[MachineDisk, ...]
    id: str = ""
    pid: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class DiskJudgement:
    """What is to be said of a disk as a whole: ``disk`` with all its remarks. ``what`` is the
    reason for ``effect`` in words, ``source`` where that is from."""

    disk: MachineDisk
    effect: Effect
    certainty: Certainty
    what: str
    source: str

    @property
    def falls_short(self) -> bool:
        """Whether it loses or may lose what was promised."""
        return self.effect in ("loses", "may lose")


@dataclass(frozen=True)
class MachineJudgement:
    """A machine with what is to be said of each of its disks, in their order."""

    machine: Machine
    disks: tuple[DiskJudgement, ...]
