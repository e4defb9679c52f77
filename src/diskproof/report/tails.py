"""The last lines of what a run left behind: where the reason of a failure stands."""

from collections.abc import Iterable

from diskproof.records import Artefact

MAX_TAILS_A_RUN = 60
_LINES = 40
_CHARS = 4000

Tails = tuple[tuple[str, str], ...]


def text_tails(artefacts: Iterable[Artefact]) -> Tails:
    """(name, last lines) of the files that are text and not empty."""
    found = (
        (artefact.name, tail)
        for artefact in artefacts
        if artefact.media_type.startswith("text/") and (tail := _tail(artefact))
    )
    return tuple(tail for _, tail in zip(range(MAX_TAILS_A_RUN), found, strict=False))


def _tail(artefact: Artefact) -> str:
    text = artefact.content[-4 * _CHARS :].decode("utf-8", "replace").strip()
    return "\n".join(text.splitlines()[-_LINES:])[-_CHARS:]
