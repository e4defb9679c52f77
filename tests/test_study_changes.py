"""What changed between two texts of a study."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.cli.changed import tell_of_changes
from diskproof.cli.conduct import study_record
from diskproof.store import open_store
from diskproof.study.changes import find_changes
from diskproof.study.load import parse_study

BEFORE = """
name = "g"
[factors]
cache = ["none", "unsafe"]
[protocol]
runtime = "1s"
blocks = 4
[[only]]
cache = "none"
"""


def test_the_keys_that_differ_are_named_with_both_values() -> None:
    after = BEFORE.replace('"1s"', '"2s"').replace('[[only]]\ncache = "none"', "")
    assert find_changes(BEFORE, after) == (
        "protocol.runtime ('1s' -> '2s')",
        "only.1.cache ('none' -> not there)",
    )


def test_what_makes_no_other_study_is_not_told() -> None:
    after = BEFORE.replace("blocks = 4", "blocks = 9") + '[crash]\nwriters = "ledger"\n'
    assert find_changes(BEFORE, after) == ()


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_texts_are_compared(before: str, after: str) -> None:
    assert find_changes(before, before) == ()
    assert isinstance(find_changes(before, after), tuple)


def test_a_changed_study_is_told_with_both_ids(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = parse_study(BEFORE), parse_study(BEFORE.replace('"1s"', '"2s"'))
    with open_store(str(tmp_path / "s.sqlite"), create=True) as store:
        tell_of_changes(first, store)
        store.add_study(study_record(first))
        tell_of_changes(first, store)
        assert capsys.readouterr().err == ""
        tell_of_changes(second, store)
    told = capsys.readouterr().err
    assert f"study g is {second.id} now; results of {first.id}, of the same name (0 runs)" in told
    assert "Changed: protocol.runtime ('1s' -> '2s')" in told
