"""What the rules of file systems cannot say."""

from collections.abc import Mapping


def doubt_text(losing: Mapping[str, bool]) -> str:
    """A sentence, with what parts it from the one before, where nothing was lost by the rules of
    f2fs, about those of Linux's (docs/crash-model.md): that there are such, or what helps where
    they lose something. Else empty. ``losing`` says it of each of those that were tried."""
    if losing.get("f2fs", True):
        return ""
    if "f2fs-unwaited" not in losing:
        return (
            ". On Linux the first fsync after a mount or a checkpoint of f2fs does not wait for "
            "what it writes: --profiles f2fs-unwaited judges by that"
        )
    if losing["f2fs-unwaited"]:
        return ". On f2fs an fsync of the directory behind that of the file is waited for"
    return ""
