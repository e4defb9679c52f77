"""What the rules of file systems cannot say."""

from collections.abc import Collection

SEEN_WORSE = ("btrfs", "f2fs")
"""Whose real ones were seen to break the order of names, which no rules allow
(docs/crash-model.md)."""


def doubt_text(kept: Collection[str]) -> str:
    """A sentence, with what parts it from the one before, where one of the file systems by whose
    rules nothing was lost is such a one; else empty."""
    weak = [name for name in SEEN_WORSE if name in kept]
    if not weak:
        return ""
    real = " and a real ".join(weak)
    where = " (f2fs with --in-guest, where this kernel lacks it)" if "f2fs" in weak else ""
    return (
        f". A real {real} was seen to break the order of names that its rules keep: --on asks the "
        f"real one{where}"
    )
