"""What changed between two texts of a study."""

from hypothesis import given
from hypothesis import strategies as st

from diskproof.study.changes import find_changes

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
