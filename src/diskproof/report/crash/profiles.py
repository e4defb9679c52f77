"""What the rules of file systems cannot say."""


def doubt_text(kept: list[str]) -> str:
    """A sentence, with what parts it from the one before, where f2fs is one of the file systems by
    whose rules nothing was lost: a real one was seen to lose more, in four programs of 74
    (docs/crash-model.md). Else empty."""
    if "f2fs" not in kept:
        return ""
    return (
        ". A real f2fs was seen to lose files that its rules keep: --on asks the real one "
        "(with --in-guest, where this kernel lacks it)"
    )
