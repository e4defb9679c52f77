"""What is kept in the user's cache is used only undamaged, and only if it is the user's."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from diskproof.process.kept import make_once
from diskproof.report.vega import bundle_scripts


def make(content: bytes, made: list[bytes]) -> Callable[[], bytes]:
    return lambda: made.append(content) or content  # type: ignore[func-returns-value]


def test_it_is_made_again_when_it_is_damaged_or_another_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept, made = tmp_path / "diskproof" / "name", list[bytes]()
    assert make_once("name", make(b"a\nb", made)) == b"a\nb"
    assert make_once("name", make(b"c", made)) == b"a\nb" and made == [b"a\nb"]
    whole = kept.read_bytes()
    for damaged in (whole[:-1], whole + b"x", b"", b"\n", whole.replace(b"b", b"\0")):
        kept.write_bytes(damaged)
        assert make_once("name", make(b"c", made)) == b"c"
    os.chown(kept, 4711, 4711)
    assert make_once("name", make(b"d", made)) == b"d"
    assert made == [b"a\nb", *[b"c"] * 5, b"d"]


@pytest.mark.parametrize("home", ["/proc", "/dev/null"])
def test_a_cache_that_cannot_be_written_is_done_without(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", home)
    assert make_once("name", lambda: b"a") == b"a"


def test_scripts_are_bundled_once_for_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    bundle_scripts.cache_clear()
    script = bundle_scripts()
    (kept,) = (tmp_path / "diskproof").iterdir()
    assert "vegaEmbed" in script and kept.read_bytes().endswith(script.encode())
    before = kept.stat().st_mtime_ns
    bundle_scripts.cache_clear()
    assert bundle_scripts() == script and kept.stat().st_mtime_ns == before
