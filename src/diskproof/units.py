"""Quantities in text: bytes (binary, as QEMU and fio read them) and seconds."""

import re

MIB = 1 << 20
SCALE = r"1|1/[1-9][0-9]{0,3}"
"""A share of the full size of something: 1 or 1/N."""

_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SECONDS = {"ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_bytes(text: str | int) -> int:
    """Read ``4096``, ``64K``, ``1GiB`` or ``1G`` (all binary). Raises ValueError."""
    if isinstance(text, int) and not isinstance(text, bool):
        value = text
    else:
        match = re.fullmatch(
            r"\s*(\d{1,18})\s*([KMGT]?)(?:i?B)?\s*", str(text), re.IGNORECASE | re.ASCII
        )
        if match is None:
            raise ValueError(f"{text!r} is not a size; write it like 4096, 64K or 1GiB")
        value = int(match[1]) * _BYTES[match[2].upper()]
    if not 0 <= value <= 1 << 60:
        raise ValueError(f"{text!r} is out of range for a size")
    return value


def parse_size(text: str | int) -> int:
    """As ``parse_bytes``, of what somebody wrote for us: ``16MB`` could be meant either way. Raises
    ValueError."""
    found = re.fullmatch(r"\s*(\d+)\s*([KMGT])B\s*", str(text), re.IGNORECASE | re.ASCII)
    if found:
        own = f"{found[1]}{found[2].upper()}"
        raise ValueError(f"{text!r} counts in thousands; sizes here are binary: write {own}iB")
    return parse_bytes(text)


def parse_seconds(text: str | float) -> float:
    """Read ``10``, ``2.5s``, ``500ms``, ``30m`` or ``1h``. Raises ValueError."""
    match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|min|m|h|d|)\s*", str(text), re.ASCII)
    if isinstance(text, bool) or match is None:
        raise ValueError(f"{text!r} is not a time; write it like 500ms, 10s, 30m or 1h")
    return float(match[1]) * _SECONDS[match[2]]


def parse_share(text: str | float) -> float:
    """Read ``0.02``, ``2%`` or ``2 %``. Raises ValueError."""
    match = re.fullmatch(r"\s*(\d{0,9}(?:\.\d{1,12})?)\s*(%?)\s*", str(text), re.ASCII)
    if isinstance(text, bool) or match is None or not match[1]:
        raise ValueError(f"{text!r} is not a share; write it like 0.02 or 2%")
    return float(match[1]) / (100 if match[2] else 1)


def render_bytes(count: float) -> str:
    """Bytes for people: ``512 B``, ``64 KiB``, ``1.5 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(count) < 1024:
            return f"{count:.3g} {unit}" if abs(count) < 999.5 else f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.3g} EiB"


def render_seconds(seconds: float) -> str:
    """A time span for people: ``850 ms``, ``12 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def render_latency(seconds: float) -> str:
    """A latency for people with three digits: ``85 us``, ``1.25 ms``, ``2.1 s``."""
    for factor, unit in ((1e9, "ns"), (1e6, "us"), (1e3, "ms")):
        if seconds * factor < 999.5:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"
