"""What the rules of file systems cannot say."""

from collections.abc import Mapping

from diskproof.records.verdicts import Verdict


def doubt_text(named: Mapping[str, Verdict | None]) -> str:
    """A sentence, with what parts it from the one before, where nothing was lost by the rules of
    f2fs, about those of Linux's (docs/crash-model.md): that there are such, or what helps where
    they lose something. Else empty."""
    meant, real = named.get("f2fs"), named.get("f2fs-unwaited")
    if meant is None or meant.is_broken:
        return ""
    if real is None:
        return (
            ". On Linux the first fsync after a mount or a checkpoint of f2fs does not wait for "
            "what it writes: --profiles f2fs-unwaited judges by that"
        )
    return ". On f2fs an fsync of the directory, too, is waited for" if real.is_broken else ""
