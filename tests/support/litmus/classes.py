"""Kinds of trees: what became of each operation of a program, not which sector tells it.

Sectors that are there or not by themselves multiply the trees that rules allow; a class counts
them as one. It is the tree's text with two things of each file told in words: its size, where no
operation makes the file so long, is ``between``; its content is, of each operation that wrote or
zeroed bytes, whether ``all`` or ``part`` of them are there (none: not named). What a later
operation has put in their place counts as there. Names, links, targets and attributes stay.
"""

import re
from collections.abc import Iterator, Mapping, Sequence, Set

from support.litmus.operations import Litmus, Operation

_FILE = re.compile(r"(?P<name>\S+ file .*size=)(?P<size>\d+) (?P<runs>-|\w+\*\S+)(?P<rest>.*)")
_FLUSHES = ("fsync", "fdatasync", "sync", "mmapwrite")
Run = tuple[str, int, int]
"""A letter, where its bytes begin and where they end."""


def classes(trees: Mapping[int, Set[str]], program: Litmus) -> frozenset[tuple[int, str]]:
    """The classes with how many operations had returned.

    What was there after some operations may be there after more, as long as none of those flushes
    something: nothing has to be written between.
    """
    found: set[tuple[int, str]] = set()
    lasting: set[str] = set()
    for returned in range(len(program.operations) + 1):
        if returned and program.operations[returned - 1]["do"] in _FLUSHES:
            lasting.clear()
        lasting |= {class_of(text, program) for text in trees.get(returned, ())}
        found |= {(returned, each) for each in lasting}
    return frozenset(found)


def class_of(text: str, program: Litmus) -> str:
    operations = (*program.setup, *program.operations)
    return "\n".join(_class_of_line(line, operations) for line in text.splitlines())


def _class_of_line(line: str, operations: Sequence[Operation]) -> str:
    file = _FILE.fullmatch(line)
    if not file:
        return line
    size, runs = int(file["size"]), tuple(_runs(file["runs"]))
    length = str(size) if size in _lengths(operations) else "between"
    fates = " ".join(_fates(runs, size, operations))
    return f"{file['name']}{length} {fates or '-'}{file['rest']}"


def _lengths(operations: Sequence[Operation]) -> set[int]:
    ends = (each["offset"] + each["bytes"] for each in operations if "bytes" in each)
    return {0, *ends, *(each["size"] for each in operations if "size" in each)}


def _runs(text: str) -> Iterator[Run]:
    begin = 0
    for each in text.split(",") if text != "-" else ():
        letter, _, count = each.partition("*")
        yield letter, begin, begin + int(count)
        begin += int(count)


def _fates(runs: Sequence[Run], size: int, operations: Sequence[Operation]) -> Iterator[str]:
    for number, operation in enumerate(operations):
        own = _letter(operation)
        if not own:
            continue
        begin, end = operation["offset"], min(size, operation["offset"] + operation["bytes"])
        there = [
            (letter, max(begin, first), min(end, last))
            for letter, first, last in runs
            if first < end and last > begin
        ]
        if any(letter == own for letter, _, _ in there):
            later = operations[number + 1 :]
            is_whole = all(run[0] == own or _is_of(run, later) for run in there)
            yield f"{operation['do']}-{own}:{'all' if is_whole else 'part'}"


def _letter(operation: Operation) -> str:
    """What an operation leaves where it was; empty: no bytes."""
    zeroes = operation["do"] == "fallocate" and operation["mode"] not in ("", "keep")
    return "0" if zeroes else operation.get("fill", "")


def _is_of(run: Run, operations: Sequence[Operation]) -> bool:
    """Whether one of them leaves the run's letter, and there."""
    letter, first, last = run
    return any(
        _letter(each) == letter and each["offset"] < last and first < each["offset"] + each["bytes"]
        for each in operations
    )
