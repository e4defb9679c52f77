"""crosvm's disks: its command line."""

import re
from collections.abc import Sequence

from diskproof.advice.dialect import Reading
from diskproof.advice.documents import require_few_disks, require_short
from diskproof.advice.qemu_options import split_commands
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import Layer, LayerName, Machine, MachineDisk

SOURCE = (
    "crosvm f1e797a68 (2026-08-21): devices/src/virtio/block/mod.rs DiskOption, asynchronous.rs "
    "(FLUSH is offered by every disk that can be written, and is fdatasync)"
)
PROGRAM = re.compile(r"(?:.*/)?crosvm")
_LINE = re.compile(r"(?:^|[\s/='\"])crosvm['\"]?\s+(?:[^\n]|\\\n){0,400}?run\b", re.MULTILINE)
_BLOCK = ("--block", "-b")
_DISKS = {"--disk": True, "-d": True, "--root": True, "-r": True, "--rwdisk": False,
          "--rwroot": False}  # fmt: skip
"""Older options, with whether the disk is read-only."""


def claims(text: str) -> bool:
    """Whether it starts a crosvm."""
    return bool(_LINE.search(text))


def read_machines(text: str, name: str) -> tuple[Machine, ...]:
    """The machines that a text starts. Raises UsageError where there is none."""
    require_short(text, name)
    found = [
        read_arguments(words[place + 1 :], name, "configured")
        for words in split_commands(text)
        for place in [place for place, word in enumerate(words) if PROGRAM.fullmatch(word)][:1]
        if "run" in words[place:]
    ]
    if not found:
        raise UsageError(f"{name}: no command line of crosvm run")
    return tuple(found)


def read_arguments(arguments: Sequence[str], name: str, layer: LayerName) -> Machine:
    """The machine that ``crosvm run`` starts."""
    disks: list[MachineDisk] = []
    rest = iter(arguments)
    for word in rest:
        option, equals, value = word.partition("=")
        if option in _BLOCK or option in _DISKS:
            value = value if equals and option.startswith("--") else next(rest, "")
            disks.append(_read_disk(value, option, len(disks), layer))
    require_few_disks(len(disks), name)
    return Machine(name.rpartition("/")[2], "crosvm", name, tuple(disks))


def _read_disk(text: str, option: str, place: int, layer: LayerName) -> MachineDisk:
    words = [piece.partition("=") for piece in text.split(",")]
    keys = {key: value or ("true" if not equals else "") for key, equals, value in words[1:]}
    first, equals, value = words[0]
    image = value if equals and first == "path" else text.split(",")[0]
    read_only = _DISKS.get(option, keys.get("ro") == "true")
    said = [keys[key] for key in ("direct", "o_direct", "o-direct") if key in keys]
    levels = {"bus": "virtio-blk", "flush": "advertised",
              "direct": "on" if "true" in said else "off"}  # fmt: skip
    assumed = frozenset({"flush"} | (set() if said else {"direct"}))
    made = Layer(levels, "its command line", assumed)
    return MachineDisk(
        keys.get("id") or f"disk{place}",
        image,
        kind="block" if image.startswith("/dev/") else "file",
        configured=made if layer == "configured" else None,
        running=made if layer == "running" else None,
        read_only=read_only,
        line=f"{option} {text}",
        facts={"vmm": "crosvm"},
    )


READING = Reading("crosvm", claims, read_machines)
