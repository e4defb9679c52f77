"""``discard_granularity`` of a study: read, part of a crash cell, said where verdicts stand."""

import pytest

from diskproof.errors import StudyError
from diskproof.study.crash import crash_workload
from diskproof.study.load import parse_study


def options_of(text: str) -> dict[str, str]:
    rules = parse_study(f"[crash]\n{text}\n").crash
    return dict(crash_workload(rules, "ledger", "daemon").options)


def test_it_is_part_of_a_cell_where_it_is_asked_for() -> None:
    assert options_of('discard_granularity = "64KiB"')["discard_granularity"] == "65536"
    assert options_of("discard_granularity = 512")["discard_granularity"] == "512"
    # Verdicts that are stored stay those of their cells.
    assert "discard_granularity" not in options_of("")
    assert options_of("discard_granularity = 0") == options_of("")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("discard_granularity = 3000", "it is a power of two from 512 B to 1 GiB"),
        ('discard_granularity = "2GiB"', "it is a power of two from 512 B to 1 GiB"),
        ("discard_granularity = true", "True is not a size"),
        ("discard_granularity = 512\nsector = 4096", "and no less than a sector"),
    ],
)
def test_one_that_is_none_is_refused(text: str, why: str) -> None:
    with pytest.raises(StudyError, match=f"crash.discard_granularity: .*{why}"):
        options_of(text)
