"""Quantities: what is read is what was meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof import units


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("4096", 4096),
        (4096, 4096),
        ("64K", 65536),
        ("64k", 65536),
        ("1GiB", 1 << 30),
        ("2T", 2 << 40),
    ],
)
def test_bytes(text: str | int, count: int) -> None:
    assert units.parse_bytes(text) == count


@pytest.mark.parametrize(
    "text", ["", "K", "-1", "1.5G", "1 2", "9" * 19, "1e3", "４", True, "8192T1"]
)
def test_bad_bytes(text: str) -> None:
    with pytest.raises(ValueError):
        units.parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10", 10), (3, 3), ("2.5s", 2.5), ("500ms", 0.5), ("30m", 1800), ("1h", 3600)],
)
def test_seconds(text: str | int, seconds: float) -> None:
    assert units.parse_seconds(text) == pytest.approx(seconds)


@given(st.text(max_size=20))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    for parse in (units.parse_bytes, units.parse_seconds):
        try:
            assert parse(text) >= 0
        except ValueError as error:
            assert repr(text) in str(error)


@given(st.integers(0, 1 << 60))
def test_rendered_bytes_are_close_and_without_exponents(count: int) -> None:
    number, unit = units.render_bytes(count).split()
    scale = 1 << 10 * ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB").index(unit)
    assert float(number) * scale == pytest.approx(count, rel=6e-3)
    assert "e" not in number


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.85, "850 ms"),
        (9.5, "9.5 s"),
        (59.6, "1 min 0 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
    ],
)
def test_render_seconds(seconds: float, text: str) -> None:
    assert units.render_seconds(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(85e-6, "85 us"), (1.25e-3, "1.25 ms"), (2.1, "2.1 s"), (999.6e-6, "1 ms")],
)
def test_render_latency(seconds: float, text: str) -> None:
    assert units.render_latency(seconds) == text


@pytest.mark.parametrize(
    ("text", "share"), [("2%", 0.02), ("2.5 %", 0.025), (0.02, 0.02), ("0.95", 0.95), (".5", 0.5)]
)
def test_shares(text: str | float, share: float) -> None:
    assert units.parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "%", "-1%", "2%%", "1e-2", "two", True, "nan", "2 % 3"])
def test_bad_shares(text: str) -> None:
    with pytest.raises(ValueError, match="is not a share"):
        units.parse_share(text)
