"""Files for ``import`` with something wrong in them, the same for the same seed: fio's answers by
their structure and by their bytes, kvm-perf's text by its lines and bytes."""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

Dice = random.Random
_NUMBERS = (0, -1, 7, 1 << 31, (1 << 63) - 1, 10**18, 10**19, 10**400, 0.5, -0.5, 1e300, -1e300)
_TEXTS = ("", "\x1b[2J", "\0", "\ud800", "\u202e", "a" * 300, "y" * 70_000, "=A1", "<b>", "4k,8k")
_WORDS = (b"1e999", b"NaN", b"-Infinity", b"9" * 400, b"9" * 6000, b"{", b"\n{", b"\x1b[2J", b"\0",
          b"\xff\xfe", b"[" * 5000, b'"', b"}", b"\n}\n{", b"\\ud800", b"\r", b"\t", b"'", b",",
          b"-1", b"0", b"+-", b"1,2", b"%", b"null")  # fmt: skip


def mutate_fio(content: Any, dice: Dice) -> bytes:
    """An answer of fio, given as what its JSON says, with up to five things changed in it."""
    for _ in range(dice.choice((0, 1, 1, 2, 5))):
        content = _change(content, dice)
    indent, plain = dice.choice((None, 1)), dice.random() < 0.5
    try:
        data = json.dumps(content, indent=indent, ensure_ascii=plain)
    except RecursionError:  # changed again and again, it is deeper than can be written
        data = '{"a":[' * 100_000
    made = data.encode("utf-8", "surrogatepass")
    if dice.random() < 0.1:
        made = b"\n".join([made] * dice.choice((2, 40, 1001)))[: 8 << 20]
    return mutate_bytes(made, dice) if dice.random() < 0.4 else made


def mutate_bytes(data: bytes, dice: Dice) -> bytes:
    """The bytes of a file, damaged in up to four places."""
    changed = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        dice.choice(_WAYS)(changed, dice)
    return bytes(changed)


# -- what is wrong in structure ---------------------------------------------------------------


def _change(content: Any, dice: Dice) -> Any:
    """One place in it is something else, or is there too often, or not at all."""
    if isinstance(content, list) and content and dice.random() < 0.85:
        at = dice.randrange(len(content))
        return [_change(each, dice) if place == at else each for place, each in enumerate(content)]
    if isinstance(content, dict) and content and dice.random() < 0.9:
        name = dice.choice(list(content))
        if dice.random() < 0.15:
            return {key: each for key, each in content.items() if key != name}
        return {**content, name: _change(content[name], dice)}
    return _odd(content, dice)


def _odd(content: Any, dice: Dice) -> Any:
    how = dice.randrange(8)
    most = 10_001 if isinstance(content, (int, float, str)) else 100
    if how == 0:
        return dice.choice(_NUMBERS)
    if how == 1:
        return dice.choice(_TEXTS)
    if how == 2:
        return dice.choice((None, True, False, [], {}, [[]], [None]))
    if how == 3:
        return [content] * dice.choice((2, 30, most))
    if how == 4:
        return {str(number): content for number in range(dice.choice((1, 50, most)))}
    if how == 5:
        deep = content
        for _ in range(dice.choice((3, 100, 900))):
            deep = [deep]
        return deep
    if how == 6:
        return {dice.choice(_TEXTS): content, dice.choice(_TEXTS): dice.choice(_NUMBERS)}
    bins = dice.choice((5, 2000, 10_001))
    return {str(dice.randrange(1, 1 << 40)): dice.choice(_NUMBERS[:6]) for _ in range(bins)}


# -- what is wrong in bytes -------------------------------------------------------------------


def _flip(data: bytearray, dice: Dice) -> None:
    for _ in range(dice.choice((1, 8, 100)) if data else 0):
        data[dice.randrange(len(data))] = dice.randrange(256)


def _cut(data: bytearray, dice: Dice) -> None:
    del data[dice.randrange(len(data) + 1) :]


def _double(data: bytearray, dice: Dice) -> None:
    at, end = sorted(dice.randrange(len(data) + 1) for _ in range(2))
    data[at:at] = data[at:end] * dice.choice((1, 1, 20))
    del data[8 << 20 :]


def _insert(data: bytearray, dice: Dice) -> None:
    at = dice.randrange(len(data) + 1)
    data[at:at] = dice.choice(_WORDS)


def _replace_number(data: bytearray, dice: Dice) -> None:
    places = [place for place, byte in enumerate(data) if 48 <= byte < 58]
    if places:
        at = dice.choice(places)
        data[at : at + 1] = dice.choice(_WORDS)


def _swap_lines(data: bytearray, dice: Dice) -> None:
    lines = bytes(data).split(b"\n")
    one, other = dice.randrange(len(lines)), dice.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    data[:] = b"\n".join(lines)


_WAYS: Sequence[Callable[[bytearray, Dice], None]] = (
    _flip,
    _cut,
    _double,
    _insert,
    _insert,
    _replace_number,
    _replace_number,
    _swap_lines,
)
