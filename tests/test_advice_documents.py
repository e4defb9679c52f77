"""Documents of strangers: what is read, what is refused, and in which time."""

import json
import time
from collections.abc import Callable

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from diskproof.advice.documents import (
    MAX_CHARACTERS,
    dump_yaml,
    find_at,
    list_at,
    load_json,
    load_yaml,
    load_yaml_documents,
    table_at,
    text_at,
)
from diskproof.errors import UsageError

TEXTS = st.text(st.characters(max_codepoint=0x2FFF), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | TEXTS
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(TREES)
def test_a_tree_that_json_wrote_is_read_back_as_json_and_as_yaml(tree: object) -> None:
    assert load_json(json.dumps(tree), "x") == tree
    assert load_yaml(json.dumps(tree), "x") == tree


@settings(max_examples=100, deadline=None)
@given(TREES)
def test_a_tree_that_we_wrote_as_yaml_is_read_back_the_same(tree: object) -> None:
    assert load_yaml(dump_yaml(tree), "x") == tree


@settings(max_examples=300, deadline=None)
@given(st.from_regex(r"[-+0-9a-fxonyesru.:_~]{1,6}", fullmatch=True))
def test_what_we_wrote_is_the_same_to_a_reader_of_yaml_1_1(text: str) -> None:
    """Such as Go's, which kubectl has: 1e3, 0x1f, 010, on and 12:30 have to be in quotes."""
    assert yaml.safe_load(dump_yaml({"a": text})) == {"a": text}


def test_words_of_yaml_1_1_stay_words() -> None:
    text = "{on: yes, a: off, b: 1:30, c: 2026-99-99, d: 0x10, e: .nan, f: '12', g: 1e400}"
    assert load_yaml(text, "x") == {
        "on": "yes",
        "a": "off",
        "b": "1:30",
        "c": "2026-99-99",
        "d": "0x10",
        "e": ".nan",
        "f": "12",
        "g": "1e400",
    }


def test_aliases_and_merges_are_read_as_compose_files_use_them() -> None:
    text = "x: &x {a: 1, b: 2}\ny: {b: 3, <<: *x}\nz: [*x, *x]\nw: {<<: [{a: 9}, *x]}\n"
    assert load_yaml(text, "x") == {
        "x": {"a": 1, "b": 2},
        "y": {"a": 1, "b": 3},
        "z": [{"a": 1, "b": 2}] * 2,
        "w": {"a": 9, "b": 2},
    }


def test_several_documents_are_read_where_they_are_wanted() -> None:
    assert load_yaml_documents("a: 1\n---\nb: 2\n", "x") == [{"a": 1}, {"b": 2}]
    assert load_yaml("", "x") is None
    with pytest.raises(UsageError, match="2 YAML documents"):
        load_yaml("a: 1\n---\nb: 2\n", "x")


def test_paths_into_a_document_never_raise() -> None:
    document = load_yaml("a: {b: [1], c: true, d: {e: x}}", "x")
    assert find_at(document, "a", "b") == [1]
    assert find_at(document, "a", "b", "c") is None
    assert table_at(document, "a", "d") == {"e": "x"}
    assert table_at(document, "a", "b") == {}
    assert list_at(document, "a", "b") == [1] and list_at(document, "a", "d") == []
    assert text_at(document, "a", "c") == "true" and text_at(document, "a", "b") == ""


LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 60)
)
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 60)
)
HOSTILE_YAML = {
    "billion laughs": LAUGHS,
    "merged laughs": MERGES,
    "one long line a thousand times": f"a: &a {'x' * 1_000_000}\nb: [{', '.join(['*a'] * 1000)}]",
    "an alias of itself": "a: &a [*a]",
    "an old anchor in a new one": "a: &a 1\nb: &a [*a]",
    "no such anchor": "a: *b",
    "deep flow": "[" * 100_000,
    "deep flow mappings": "{a: " * 100_000,
    "deep block": "- " * 100_000,
    "deep lines": "\n".join(" " * n + "a:" for n in range(1500)),
    "large": "a: 1\n" * (MAX_CHARACTERS // 4),
    "ten MiB": "x" * (10 << 20),
    "many nodes": "[" + "1," * 2_000_000 + "1]",
    "many short documents": "--- 1\n" * 600_000,
    "keys that stand twice": "a: 1\nb: 2\na: 3\n",
    "a python object": "!!python/object/apply:os.system ['true']",
    "a tag of a stranger": "a: !reset x",
    "a key that is a list": "? [a, b]\n: 1\n",
    "a merge of a number": "a: {<<: 1}",
    "cut short": "a: {b: [1, 2",
    "tabs": "a:\n\tb: 1\n",
    "control characters": "a: \x00\n",
    "a lone surrogate": "a: \ud800\n",
    "an unended quote": "a: 'x\n",
}
HOSTILE_JSON = {
    "deep": "[" * 1_000_000,
    "deep and whole": "[" * 200 + "]" * 200,
    "deep mappings": '{"a":' * 200_000,
    "NaN": '{"a": NaN}',
    "infinity": "[-Infinity]",
    "a float that is none": "[1e999]",
    "an endless number": "1" * 100_000,
    "keys that stand twice": '{"a": 1, "a": 2}',
    "many keys that stand twice": "{" + ",".join(['"a": 1'] * 300_000) + "}",
    "cut short": '{"a": [1, 2',
    "ten MiB": "[" + "1," * (5 << 20) + "1]",
    "half a character": '{"a": "\\ud800"}',
    "half a character, raw": '{"a": "\ud800"}',
    "empty": "",
}


@pytest.mark.parametrize(
    ("load", "text"),
    [
        *(
            pytest.param(load_yaml_documents, text, id=f"yaml {k}")
            for k, text in HOSTILE_YAML.items()
        ),
        *(pytest.param(load_json, text, id=f"json {k}") for k, text in HOSTILE_JSON.items()),
    ],
)
def test_hostile_documents_are_refused_with_their_name(
    load: Callable[[str, str], object], text: str
) -> None:
    start = time.process_time()
    with pytest.raises(UsageError, match=r"^vm\.yaml"):
        load(text, "vm.yaml")
    assert time.process_time() - start < 5


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="{}[]:,-?&*!|>'\"%@`#<= \n\tab1\ud800\x07", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for load in (load_json, load_yaml_documents):
        try:
            load(text, "x")
        except UsageError as error:
            assert str(error).startswith("x:")
