"""What takes long to make and is the same each time, in the user's cache."""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from diskproof.process.plain_file import read_plain

_MOST = 16 << 20


def cache_home() -> Path:
    """``$XDG_CACHE_HOME/diskproof``; a relative value counts as unset."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "diskproof"


def make_once(name: str, make: Callable[[], bytes]) -> bytes:
    """What an earlier process of this user made, if it is undamaged; else it is made, and kept
    where that can be done."""
    with suppress(OSError, RuntimeError):  # nobody has to have a home
        kept = cache_home() / name
        digest, _, content = read_plain(kept, _MOST).partition(b"\n")
        if kept.stat().st_uid == os.geteuid() and digest == _digest(content):
            return content
    content = make()
    with suppress(OSError, RuntimeError):
        kept = cache_home() / name
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(_digest(content) + b"\n" + content)
    return content


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()
