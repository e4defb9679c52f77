"""Tables of a study: what is written is what is read, whatever the values."""

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.errors import StudyError
from diskproof.records.verdicts import FAULTS
from diskproof.study import keys
from diskproof.study.crash import DURABLE, FILE_SYSTEM_BYTES, MAX_RECORDS, WRITERS, CrashRules
from diskproof.study.load import parse_study
from diskproof.study.protocol import RaceRules, find_rules
from diskproof.study.workloads import FIO_OPTIONS
from diskproof.units import MIB
from support.toml_text import render_toml


def render_table(name: str, values: dict[str, object]) -> str:
    lines = [f"{key} = {render_toml(value)}" for key, value in values.items()]
    return "\n".join([f"[{name}]", *lines, ""])


CRASH = st.builds(
    CrashRules,
    # The writer "program" has a table of its own: test_guest_program.py.
    writers=st.lists(
        st.sampled_from(sorted(set(WRITERS) - {"program"})), min_size=1, unique=True
    ).map(tuple),
    faults=st.sets(st.sampled_from(FAULTS), min_size=1).map(
        lambda chosen: tuple(fault for fault in FAULTS if fault in chosen)
    ),
    records=st.integers(1, MAX_RECORDS),
    seconds=st.integers(1, 86_400).map(float),
    durable=st.sampled_from(DURABLE),
    depth=st.integers(1, 64),
    size=st.integers(300, 1024).map(lambda count: count * MIB),
    filesystem=st.sampled_from(list(FILE_SYSTEM_BYTES)),
    mount=st.from_regex(r"[a-z0-9_=,.:-]{0,200}", fullmatch=True),
    states=st.integers(1, 10**9),
    sector=st.sampled_from([512, 4096]),
    seed=st.integers(0, keys.MAX_SEED),
)


@given(CRASH)
def test_a_crash_table_is_read_as_it_was_written(rules: CrashRules) -> None:
    table = {key: value for key, value in asdict(rules).items() if key != "program"}
    assert parse_study(render_table("crash", table)).crash == rules


@given(
    st.integers(1, 50), st.integers(50, 99), st.integers(1, 1000), st.integers(2, 1000), st.data()
)
def test_a_race_is_read_as_it_was_written(
    delta: int, confidence: int, top: int, most: int, data: st.DataObject
) -> None:
    least = data.draw(st.integers(2, most))
    rules = RaceRules(delta / 100, confidence / 100, top, least, most)
    table = {"stop": "decided", **asdict(rules), "delta": f"{delta}%"}
    text = render_table("protocol", table)
    assert parse_study(text).race == rules == find_rules(text)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "rw": st.sampled_from(["read", "randwrite", "rw"]),
            "bs": st.from_regex(r"[1-9][0-9]{0,3}[kKmM]?", fullmatch=True),
            "iodepth": st.integers(1, 4096),
            "fsync": st.integers(0, 1_000_000),
            "rwmixread": st.integers(0, 100),
            "primary": st.sampled_from(["iops", "bandwidth"]),
        },
    )
)
def test_a_preset_has_the_changes_of_its_table(changes: dict[str, object]) -> None:
    plain = parse_study('workloads = "seq-read"').workloads[0]
    changed = parse_study(render_table("workloads.seq-read", changes)).workloads[0]
    for key in FIO_OPTIONS:
        assert changed.option(key) == str(changes.get(key, plain.option(key)))


@pytest.mark.parametrize("number", ["9" * 5000, "0x" + "f" * 5000])
@pytest.mark.parametrize("key", ["[protocol]\nseed", "[factors]\nvcpus", "[crash]\nsize", "name"])
def test_a_number_too_long_for_python_is_a_mistake(key: str, number: str) -> None:
    with pytest.raises(StudyError):
        parse_study(f"{key} = {number}\n")


@pytest.mark.parametrize(
    ("delta", "confidence", "least", "most"),
    [(0.0, 0.9, 2, 3), (0.6, 0.9, 2, 3), (0.1, 1.0, 2, 3), (0.1, 0.9, 1, 3), (0.1, 0.9, 4, 3)],
)
def test_rules_out_of_bounds_cannot_be_made(
    delta: float, confidence: float, least: int, most: int
) -> None:
    with pytest.raises(ValueError, match="must|not a whole number"):
        RaceRules(delta, confidence, 1, least, most)


def test_the_line_of_an_item_is_told() -> None:
    with pytest.raises(StudyError) as caught:
        parse_study('[crash]\nwriters = [\n  "ledger",\n  "sqlight",\n]\n')
    assert caught.value.what.startswith("study.toml:4: crash.writers: unknown writer 'sqlight'")
    assert "did you mean 'sqlite'" in caught.value.what
