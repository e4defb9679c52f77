"""Bounded litmus programs, after B3 ("Finding Crash-Consistency Bugs with Bounded Black-Box Crash
Testing", OSDI 2018) and its generator ACE: every program of one or two core operations on a small
set of names, each followed by a flush of something near it.

The bounds of one operation are ACE's, which give the 328 programs of the paper: core operations on
``foo`` and ``A/foo`` (the second name of link and rename ``bar`` or ``A/bar``, of directories ``A``
to ``B``), three places of a write, two of a direct or mapped one, five modes of fallocate, two
lengths of truncate; then one fsync of a used name, its sibling or its parent, or sync. ``remove``
is remove(3), unlink for a file: 16 of the 328 are there twice, and 312 are distinct. ACE has
msync as the only flush of a mapped write; here the flush comes after it, as after all others. What
an operation needs is made just before it, and is not durable either. Sizes are our own.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from support.litmus.names import Names
from support.litmus.operations import Litmus, Operation

FILES, SECOND = ("foo", "A/foo"), ("bar", "A/bar")
_WRITES = ("append", "overlap", "extend")
_WHOLE = ("append", "overlap")
_MODES = ("zero", "zero,keep", "punch,keep", "keep", "")
_LENGTHS = (0, 2500)
SIBLINGS = {
    "foo": "bar",
    "bar": "foo",
    "A/foo": "A/bar",
    "A/bar": "A/foo",
    "A": "B",
    "B": "A",
}


@dataclass(frozen=True)
class Core:
    """An operation of a program, with the names it uses and its choice of place or mode."""

    do: str
    used: tuple[str, ...]
    choice: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.do, *self.used, *filter(None, self.choice)))


def cores() -> Iterator[Core]:
    """Every core operation with all of its parameters."""
    pairs = [pair for pair in product(FILES + SECOND, SECOND) if len(set(pair)) == 2]
    yield from (Core("creat", (name,)) for name in FILES)
    yield Core("mkdir", ("A",))
    for name, mode, place in product(FILES, _MODES, _WRITES):
        yield Core("fallocate", (name,), (mode, place))
    for do, places in (("write", _WRITES), ("dwrite", _WHOLE), ("mmapwrite", _WHOLE)):
        yield from (Core(do, (name,), (place,)) for name, place in product(FILES, places))
    yield from (Core("link", pair) for pair in pairs)
    for do in ("unlink", "remove"):
        yield from (Core(do, (name,)) for name in FILES + SECOND)
    yield from (Core("rename", pair) for pair in (*pairs, ("A", "B")))
    for do in ("setxattr", "removexattr"):
        yield from (Core(do, (name,)) for name in FILES)
    for name, size in product(FILES, _LENGTHS):
        yield Core("truncate", (name,), (str(size),))


def flushes(used: tuple[str, ...]) -> list[str]:
    """What can be flushed after operations on these names: they, what is near, and everything."""
    near = {*used, *(SIBLINGS[name] for name in used), *map(parent, used)}
    return [*sorted(near), "sync"]


def parent(name: str) -> str:
    return name.rpartition("/")[0] or "."


def all_of_one() -> Iterator[Litmus]:
    """The 328 of one operation, those with ``remove`` among them."""
    for core in cores():
        for flush in flushes(core.used):
            yield _program((core,), (flush,))


def of_one() -> tuple[Litmus, ...]:
    """Those that differ in what they do."""
    distinct = {str(each.operations): each for each in reversed(tuple(all_of_one()))}
    return tuple(reversed(distinct.values()))


def of_two(count: int, seed: int) -> tuple[Litmus, ...]:
    """A sample of the programs of two operations: after the first there may be no flush."""
    some = [core for core in cores() if core.do != "remove"]
    choices = [
        (pair, (first, second))
        for pair in product(some, repeat=2)
        for near in [flushes(pair[0].used + pair[1].used)]
        for first, second in product(["none", *near], near)
    ]
    sample = random.Random(seed).sample(choices, count)
    return tuple(_program(pair, after) for pair, after in sample)


def _program(some: tuple[Core, ...], after: tuple[str, ...]) -> Litmus:
    names = Names()
    for core, flush in zip(some, after, strict=True):
        _add(names, core)
        if flush == "sync":
            names.done.append({"do": "sync", "path": "."})
        elif flush != "none":
            names.need(flush)
            names.done.append({"do": "fsync", "path": flush})
    words = (f"{core}, {flush}" for core, flush in zip(some, after, strict=True))
    return Litmus("; ".join(words), tuple(names.done))


def _add(names: Names, core: Core) -> None:
    name, choice = core.used[0], core.choice
    match core.do:
        case "creat" | "mkdir":
            names.without(name)
            names.make(name)
        case "unlink" | "remove":
            names.need(name)
            names.without(name)
        case "link" | "rename":
            names.connect(core.do, *core.used)
        case "write" | "dwrite" | "mmapwrite" | "fallocate":
            _add_change(names, core)
        case "truncate":
            names.fill(name)
            names.change({"do": "truncate", "path": name, "size": int(choice[0])})
        case _:
            names.need(name)
            names.attribute(core.do, name)


def _add_change(names: Names, core: Core) -> None:
    """A write or fallocate: an append to a file of any length (of a direct write from a block on),
    or over what was put there."""
    name, place = core.used[0], core.choice[-1]
    names.need(name)
    if place != "append" or core.do == "fallocate":
        names.fill(name)
    whole = core.do in ("dwrite", "mmapwrite")
    size = -(-names.size(name) // 4096) * 4096 if whole else names.size(name)
    spans = {
        "append": (size, 12288 if whole else 9216),
        "overlap": (0, 8192 if whole else 5000),
        "extend": (size - 2000, 5000),
    }
    offset, length = spans[place]
    change: Operation = {"do": core.do, "path": name, "offset": offset, "bytes": length}
    if core.do == "fallocate":
        names.change({**change, "mode": core.choice[0]})
        return
    if core.do == "mmapwrite" and offset + length > names.size(name):
        names.change({**change, "do": "fallocate", "mode": ""})
    names.write(change)
