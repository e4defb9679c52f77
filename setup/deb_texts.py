"""What a Debian package says of its changes and of its parts' licences."""

import re
import textwrap
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from third_parties import Part

OWN = "diskproof"
_CLASSIFIER = "License :: OSI Approved :: "


def render_changelog(text: str, version: str, suite: str, maintainer: str, epoch: int) -> str:
    """CHANGELOG.md as Debian's changelog; what is unreleased is of ``version`` and ``epoch``.

    A release's title is its version and its day: ``## 1.2.0 (2026-12-01)``.
    """
    revision = version.partition("-")[2]
    entries = []
    for block in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = block.partition("\n")
        found = re.match(r"\[?(\d[\w.~+]*).*?(\d{4}-\d\d-\d\d)", title)
        named = f"{found[1]}-{revision}" if found else version
        day = time.strptime(found[2], "%Y-%m-%d") if found else time.gmtime(epoch)
        items = [" ".join(item.split()) for item in re.split(r"^- ", body, flags=re.MULTILINE)[1:]]
        if items:
            lines = [line for item in items for line in _wrapped(item)]
            when = time.strftime("%a, %d %b %Y %H:%M:%S +0000", day)
            head = f"{OWN} ({named}) {suite}; urgency=medium"
            entries.append("\n".join([head, "", *lines, "", f" -- {maintainer}  {when}", ""]))
    return "\n".join(entries)


def _wrapped(item: str) -> list[str]:
    plain = item.replace("`", "").replace("**", "")
    return textwrap.wrap(plain, 78, initial_indent="  * ", subsequent_indent="    ")


def render_copyright(packages: Path, parts: Iterable[Part]) -> str:
    """Who else's work is in a folder of Python packages, and which parts in our programs."""
    found = (each for each in distributions(path=[str(packages)]) if each.name != OWN)
    bundled = sorted(f"  {each.name} {each.version}: {_license(each)}" for each in found)
    native = [f"  {part.name} {part.version}: {part.licence}" for part in parts]
    return "\n".join(
        [
            "Python packages, and the libraries that their wheels hold:",
            *bundled,
            "",
            "In the native programs (texts: third-party.gz beside this file):",
            *native,
            "",
        ]
    )


def _license(each: Distribution) -> str:
    """In the words of the package; a whole text is cut to its first line."""
    said = each.metadata.get("License-Expression") or each.metadata.get("License")
    if said:
        return said.strip().splitlines()[0]
    return " AND ".join(_of_classifiers(each)) or "see its files"


def _of_classifiers(each: Distribution) -> Iterator[str]:
    for line in each.metadata.get_all("Classifier", []):
        if line.startswith(_CLASSIFIER):
            yield line.removeprefix(_CLASSIFIER)
