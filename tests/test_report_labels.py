"""Names and figures: short, unambiguous, never misleading."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.records import Cell, WorkloadSpec
from diskproof.report.labels import (
    cell_label,
    group_name,
    render_figure,
    render_half_width,
    spell_groups,
    varying_factors,
)
from diskproof.stats.intervals import Interval

LOAD = WorkloadSpec("w", "fio")


def cell(**levels: str) -> Cell:
    named = {
        name.replace("_", "-") if name == "detect_zeroes" else name: levels[name] for name in levels
    }
    return Cell(tuple(sorted(named.items())), LOAD)


def test_only_what_varies_is_named() -> None:
    cells = [
        cell(format="raw", cache="none", iothread="off", preallocation="off"),
        cell(format="raw", cache="unsafe", iothread="on", preallocation="full"),
        cell(frontend="host"),
    ]
    factors = varying_factors(cells)
    assert factors == ("preallocation", "cache", "iothread")
    assert [cell_label(each, factors) for each in cells] == [
        "none",
        "prealloc=full unsafe iothread=on",
        "host",
    ]


def test_bare_metal_among_guests_is_named_by_its_frontend() -> None:
    cells = [cell(frontend="host"), cell(frontend="guest", cache="none")]
    assert [cell_label(each, varying_factors(cells)) for each in cells] == ["host", "guest"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.000"),
        (0.45678, "0.4568"),
        (214.1869, "214.2"),
        (9999.4, "9999"),
        (9999.9, "10.00k"),
        (12345, "12.35k"),
        (999_960, "1.000M"),
        (1.2345e9, "1.234G"),
    ],
)
def test_four_digits(value: float, text: str) -> None:
    assert render_figure(value) == text


@given(st.floats(min_value=1e-3, max_value=1e11))
def test_a_figure_is_short_and_close(value: float) -> None:
    text = render_figure(value)
    scale = {"k": 1e3, "M": 1e6, "G": 1e9}.get(text[-1], 1)
    assert len(text) <= 8
    assert float(text.rstrip("kMG")) * scale == pytest.approx(value, rel=6e-4)


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [
        (214.19, 4.513, "4.5"),
        (12345, 321, "0.32k"),
        (1.2, None, "?"),
        (214.19, 0.001, "<0.1"),
        (50.0, 0.0, "0.00"),
    ],
)
def test_half_width_reads_with_its_mean(mean: float, half: float | None, text: str) -> None:
    assert render_half_width(Interval(5, mean, half, half)) == text


def test_groups_are_letters() -> None:
    assert group_name((0, 1)) == "AB"
    assert group_name((0, 1, 2, 4)) == "A-CE"
    assert group_name(()) == ""
    assert group_name((26,)) == "A2"
    assert spell_groups((1, 2, 3, 5)) == "B, C, D and F" and spell_groups((0,)) == "A"
