"""What the rules of file systems cannot say."""

from collections.abc import Mapping

from diskproof.records.verdicts import Verdict


def doubt_text(named: Mapping[str, Verdict | None]) -> str:
    """A sentence, with what parts it from the one before, where nothing was lost by the rules of
    f2fs and those of Linux's were not asked for (docs/crash-model.md). Else empty."""
    own = named.get("f2fs")
    if own is None or own.is_broken or named.get("f2fs-unwaited") is not None:
        return ""
    return (
        ". On Linux the first fsync after a mount or a checkpoint of f2fs does not wait for what "
        "it writes: --profiles f2fs-unwaited judges by that"
    )
