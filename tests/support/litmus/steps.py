"""Operations of litmus programs in few words."""

from support.litmus.operations import Operation

OLD, NEW = 9216, 12288
"""Not the same blocks, and more than one: what is torn or of the wrong length shows."""


def step(do: str, path: str, **more: object) -> Operation:
    return {"do": do, "path": path, **more}


def two(do: str, path: str, to: str) -> Operation:
    return step(do, path, to=to)


def make(path: str) -> Operation:
    return step("creat", path)


def fsync(path: str) -> Operation:
    return step("fsync", path)


def write(path: str, offset: int, length: int, fill: str) -> Operation:
    return step("write", path, offset=offset, bytes=length, fill=fill)
