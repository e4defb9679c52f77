"""What a dialect is: how a manager of virtual machines writes the settings of a disk."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from diskproof.records.virtual_machines import Levels, Machine


@dataclass(frozen=True)
class Target:
    """The disk that a line is written for: what no cell says.

    ``image`` is a path, a device or a volume of the manager; ``machine`` the name or number of the
    virtual machine; ``disk`` its key there (``scsi0``, ``vda``); ``existing`` the disk's
    configuration as found, whose other contents stay; ``direct`` whether O_DIRECT works there.
    """

    image: str = ""
    block: bool = False
    machine: str = ""
    disk: str = ""
    existing: str = ""
    filesystem: str = ""
    direct: bool = True


@dataclass(frozen=True)
class Unsayable:
    """A level that a dialect cannot say, why, and the nearest that it can (empty: none)."""

    factor: str
    level: str
    reason: str
    nearest: str = ""


@dataclass(frozen=True)
class Paste:
    """Lines to paste: ``text`` belongs ``where``; ``create`` makes the image, where the settings of
    an image are not said by the line; ``takes_effect`` says when."""

    text: str
    where: str
    takes_effect: str
    create: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dialect:
    """One manager's way to write a disk, and back.

    ``source`` names what its rules were read from, with the version. ``find_obstacles`` says what
    of a cell cannot be said; ``write`` raises ValueError where that is not empty. ``read`` is the
    inverse of ``write``. ``defaults`` are the levels that a new disk gets from this manager;
    ``version`` is the manager's that they hold for, as short as people say it (``9``).
    """

    name: str
    title: str
    source: str
    find_obstacles: Callable[[Levels, Target], tuple[Unsayable, ...]]
    write: Callable[[Levels, Target], Paste]
    read: Callable[[str, Target], Levels]
    defaults: Callable[[Target], Mapping[str, str]]
    version: str = ""


@dataclass(frozen=True)
class Reading:
    """How the configuration of whole machines is read. ``claims`` says whether a text (its first
    64 KiB) is of this kind; ``read_machines`` takes the text and its name, and raises UsageError
    with what is wrong in it."""

    name: str
    claims: Callable[[str], bool]
    read_machines: Callable[[str, str], tuple[Machine, ...]]
