"""What the Debian package says of its changes, who is its maintainer, what it needs."""

import pytest

from deb import RECOMMENDS, find_package, maintainer
from deb_texts import render_changelog

CHANGES = """# Changelog

## Unreleased

- `x` is faster,
  by much.

## 0.9.0 (2026-01-02)

- It began.
"""
EPOCH = 1_700_000_000


def test_releases_become_entries_of_debians_changelog() -> None:
    text = render_changelog(CHANGES, "1.0-1~deb12", "bookworm", "A <a@b.c>", EPOCH)
    assert text == (
        "diskproof (1.0-1~deb12) bookworm; urgency=medium\n\n  * x is faster, by much.\n\n"
        " -- A <a@b.c>  Tue, 14 Nov 2023 22:13:20 +0000\n\n"
        "diskproof (0.9.0-1~deb12) bookworm; urgency=medium\n\n  * It began.\n\n"
        " -- A <a@b.c>  Fri, 02 Jan 2026 00:00:00 +0000\n"
    )


def test_a_library_that_no_package_is_known_for_is_refused() -> None:
    assert find_package("libm.so.6") == "libc6"
    with pytest.raises(LookupError, match=r"libodd\.so\.1"):
        find_package("libodd.so.1")


def test_the_maintainer_is_whom_debians_tools_know() -> None:
    assert maintainer({"DEBFULLNAME": "A B", "DEBEMAIL": "a@b.c"}) == "A B <a@b.c>"
    assert maintainer({}).endswith(".invalid>")


def test_no_recommendation_is_listed_twice() -> None:
    assert len(set(RECOMMENDS)) == len(RECOMMENDS)
