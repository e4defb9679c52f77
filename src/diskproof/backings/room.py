"""How much of the place below a volume takes."""

from collections.abc import Callable

from diskproof.backings.place import Place
from diskproof.errors import HostError
from diskproof.records import BackingSpec
from diskproof.units import render_bytes

DEFAULT_BYTES = 8 << 30
_RESERVE = 64 << 20


def choose_size(
    spec: BackingSpec, base: Place, needed: Callable[[int], int], step: int = 4 << 20
) -> int:
    """The size in bytes of a volume that takes ``needed(size)`` when it is full: what is asked for
    rounded up to ``step``, else all of a device, and 8 GiB at most where files are made.

    Raises HostError when there is less room.
    """
    room = base.free_bytes() - (0 if base.device else _RESERVE)
    asked = -(-int(spec.option("size") or 0) // step) * step
    if asked == 0:
        asked = _largest(room if base.device else min(room, DEFAULT_BYTES), needed, step)
    if asked < step or needed(asked) > room:
        wanted = f"{render_bytes(needed(asked))} are needed at the peak, " if asked else ""
        raise HostError(
            f"backing {spec.name} does not fit on {base.device or base.folder}",
            f"{wanted}{render_bytes(max(0, room))} are free",
            f"set a smaller size in [backings.{spec.name}]",
        )
    return asked


def _largest(room: int, needed: Callable[[int], int], step: int) -> int:
    """The largest multiple of ``step`` that fits; ``needed`` grows with its argument."""
    low, high = 0, max(0, room) // step
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if needed(middle * step) <= room else (low, middle - 1)
    return low * step
