"""What the rules of several file systems make of one recording."""

from collections.abc import Sequence

from diskproof.records.verdicts import PROFILES, Verdict

SEEN_WORSE = ("btrfs", "f2fs")
"""Whose real ones were seen to break the order of names, which no rules allow
(docs/crash-model.md)."""


def profiles_text(verdicts: Sequence[Verdict]) -> str:
    """What a power cut leaves by POSIX and on each file system: ``a power cut, by the rules of
    posix: corrupts; ext4, xfs: keeps; btrfs: loses 1``, and what rules cannot say. Empty without
    profiles."""
    by_fault = {each.fault: each for each in verdicts}
    named = {"posix": by_fault.get("power")}
    named |= {name: by_fault.get(fault) for name, fault in PROFILES.items()}
    alike: dict[str, list[str]] = {}
    for name, verdict in named.items():
        if verdict is not None:
            word = "kept so far" if verdict.kept_so_far else verdict.verdict
            lost = f" {verdict.lost:,}" if verdict.verdict == "loses" else ""
            alike.setdefault(word + lost, []).append(name)
    if not any(name in PROFILES for names in alike.values() for name in names):
        return ""
    told = "; ".join(f"{', '.join(names)}: {text}" for text, names in alike.items())
    weak = [name for name in SEEN_WORSE if (there := named[name]) and not there.is_broken]
    doubt = (
        f". A real {' and a real '.join(weak)} was seen to break the order of names that its "
        "rules keep: --on asks the real one"
    )
    return f"a power cut, by the rules of {told}{doubt if weak else ''}"
