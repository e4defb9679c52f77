"""Litmus programs and their operations in few words."""

from support.litmus.operations import Litmus, Operation


def step(do: str, path: str, **more: object) -> Operation:
    return {"do": do, "path": path, **more}


def make(path: str) -> Operation:
    return step("creat", path)


def fsync(path: str) -> Operation:
    return step("fsync", path)


def write(path: str, offset: int, length: int, fill: str) -> Operation:
    return step("write", path, offset=offset, bytes=length, fill=fill)


def read_programs(text: str) -> tuple[Litmus, ...]:
    """A program is its name and, moved in, its operations: what to do, a path, perhaps a second
    one, and what else it is told (``one*40`` is a word 40 times over). ``before:`` stands before
    those of its set-up, ``#`` before a remark."""
    programs: list[tuple[str, list[Operation], list[Operation]]] = []
    for line in text.splitlines():
        if line.startswith(" "):
            _, operations, setup = programs[-1]
            before, _, steps = line.rpartition("before: ")
            (setup if before else operations).extend(map(_read_step, steps.split("; ")))
        elif line and not line.startswith("#"):
            programs.append((line, [], []))
    return tuple(Litmus(name, tuple(done), tuple(setup)) for name, done, setup in programs)


def _read_step(text: str) -> Operation:
    do, path, *words = text.split()
    named = dict(word.split("=") if "=" in word else ("to", word) for word in words)
    return step(do, path, **{name: _read_value(word) for name, word in named.items()})


def _read_value(text: str) -> int | str | bool:
    word, _, times = text.partition("*")
    return word == "true" or (int(word) if word.isdecimal() else word * int(times or 1))
