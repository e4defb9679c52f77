"""The words for causes, cures and needless flushes, from what the explorer says."""

from dataclasses import replace
from typing import Any

import pytest

from diskproof.records.callers import read_caller
from diskproof.records.causes import CAUSES, find_causes, read_causes
from diskproof.report.crash.cause_table import (
    cause_text,
    causes_json,
    causes_sentence,
    cure_text,
    flushes_text,
    loss_text,
    told_cause,
)

RENAME = {
    "sequence": 9,
    "operation": "rename",
    "path": "a.tmp",
    "to": "a",
    "begin_ns": 1,
    "end_ns": 2,
}
WRITE = {
    "sequence": 8,
    "operation": "write",
    "path": "a.tmp",
    "offset": 0,
    "bytes": 40,
    "begin_ns": 0,
    "end_ns": 1,
    "presence": "missing",
}
CAUSE: dict[str, Any] = {
    "number": 1,
    "verdict": "loses",
    "lost": 2,
    "age_ns": 1_500_000_000,
    "cut": 9,
    "state": "power:512:9:without=8",
    "moment_ns": 3,
    "alike": 3,
    "states": 70,
    "operations": [WRITE],
    "there": RENAME,
    "cure": {"after": 8, "path": "a.tmp", "flushes": 3, "works": True, "states": 5},
}
FLUSHES = {
    "count": 20,
    "ns": 52_000_000,
    "needless": 14,
    "needless_ns": 38_000_000,
    "alone": 15,
    "unknown": 0,
    "records": [1],
    "by_path": [],
}
SUMMARY: dict[str, Any] = {"finished": True, "cured": True, "flushes": FLUSHES, "found": [CAUSE]}


def test_a_cause_is_told_with_its_cure() -> None:
    (cause,) = read_causes(SUMMARY).found
    assert cause_text(cause) == "rename a.tmp -> a is there, 40 bytes of a.tmp at 0 are not"
    assert loss_text(cause) == "loses 2"
    after = "fsync of a.tmp after 40 bytes of a.tmp at 0"
    assert cure_text(cause) == f"{after}, and after 2 like it, checked"
    assert cause.cure is not None
    useless = replace(cause, cure=replace(cause.cure, works=False))
    assert cure_text(useless) == f"none: {after} does not help"
    assert cure_text(replace(cause, cure=None)) == "-"
    corrupt = replace(cause, corrupts=True, text="0 bad index\nmore")
    assert loss_text(corrupt) == "corrupts: 0 bad index"
    assert cause_text(replace(cause, operations=())).startswith("nothing is missing")


def test_who_did_it_is_told_where_it_is_known() -> None:
    assert told_cause(read_causes(SUMMARY).found[0]).endswith("are not")
    one = {"process": 70, "thread": 70, "name": "git\n\x1b[2J"}
    two = {"process": 70, "thread": 71, "name": "x" * 1000}
    written = [WRITE | {"by": one}, WRITE | {"by": two, "offset": 40, "sequence": 9}]
    cause = CAUSE | {"operations": written, "there": None}
    (told,) = read_causes(SUMMARY | {"found": [cause]}).found
    who = f"by git\ufffd\ufffd[2J (70) and {'x' * 64} (70, thread 71)"
    assert told_cause(told) == f"{cause_text(told)}, {who}"
    assert cause_text(told).count("40 bytes") == 2
    listed = causes_json(read_causes(SUMMARY | {"found": [cause]}))
    assert listed is not None
    assert [each["by"] for each in listed["found"][0]["operations"]] == [
        {**one, "name": "git\ufffd\ufffd[2J", "place": None, "frames": []},
        {**two, "name": "x" * 64, "place": None, "frames": []},
    ]


def place(function: str, file: str, line: int) -> dict[str, Any]:
    return {"module": "/bin/app", "offset": 500, "function": function, "file": file, "line": line}


def test_the_place_in_the_program_is_told_where_it_is_known() -> None:
    one = place("save", "/src/a\x1b.c", 12)
    by = {"process": 70, "thread": 70, "name": "app", "frames": [one, place("main", "/src/b.c", 3)]}
    other = by | {"frames": [place("x" * 100, "", 0)]}
    bare = by | {"frames": [place("", "", 0)]}
    script = by | {"frames": [place("store", "/srv/app.py", 0)]}
    operations = [
        WRITE | {"by": who, "offset": 100 * n, "sequence": 8 + n}
        for n, who in enumerate((by, by, other, bare, script))
    ]
    cause = CAUSE | {"operations": operations, "there": None}
    summary = SUMMARY | {"found": [cause]}
    (told,) = read_causes(summary).found
    at = f"a\ufffd.c:12 (save) and {'x' * 45}... in app and app+0x1f4 and store in app.py"
    assert told_cause(told) == f"{cause_text(told)}, by app (70), at {at}"
    listed = causes_json(read_causes(summary))
    assert listed is not None
    first, *_, last = (each["by"] for each in listed["found"][0]["operations"])
    assert first is not None and last is not None
    assert first["place"] == first["frames"][0] == one | {"file": "/src/a\ufffd.c"}
    assert [each["function"] for each in first["frames"]] == ["save", "main"]
    assert last["place"] is not None and last["place"]["line"] is None


def test_the_place_is_one_of_the_calls() -> None:
    frames = [place("write", "/usr/lib/python3.11/pathlib.py", 9), place("save", "/srv/a.py", 12)]
    by = {"process": 70, "thread": 70, "name": "app", "frames": frames}
    for at, expected in ((0, "write"), (1, "save"), (2, None), (-1, None)):
        caller = read_caller(by | {"place": at})
        assert caller is not None
        assert (caller.place and caller.place.function) == expected
        assert len(caller.frames) == 2


def test_flushes_are_told_by_number_and_time() -> None:
    causes = read_causes(SUMMARY)
    assert flushes_text(causes.flushes) == "14 of 20 flushes can go: 38 ms of 52 ms"
    assert causes_sentence(causes).startswith("with all cures nothing more was lost; 14 of 20")
    unknown = read_causes({**SUMMARY, "finished": False, "flushes": {**FLUSHES, "unknown": 3}})
    assert "there may be more causes" in causes_sentence(unknown)
    assert "3 were not looked at" in causes_sentence(unknown)


def test_programs_get_the_same() -> None:
    told = causes_json(read_causes(SUMMARY))
    assert told is not None and told["cured"] is True
    (cause,) = told["found"]
    assert (cause["cures"], cause["operations"][0]["path"]) == (True, "a.tmp")
    assert told["flushes"]["needless_seconds"] == 0.038
    assert causes_json(None) is None


@pytest.mark.parametrize(
    "kept",
    [
        {"found": [{}]},
        {"found": [{**CAUSE, "verdict": "what"}]},
        {"found": [{**CAUSE, "operations": [{"path": 1}]}]},
        {"found": [{**CAUSE, "cure": {"after": None}}]},
        {"found": [{**CAUSE, "operations": [WRITE | {"by": "git"}]}]},
        {"found": [{**CAUSE, "operations": [WRITE | {"by": {"frames": [7]}}]}]},
        {"found": [], "flushes": [1]},
    ],
)
def test_what_a_store_holds_of_causes_may_be_anything(kept: dict[str, Any]) -> None:
    found = find_causes({CAUSES: kept})
    assert found is not None and "cannot be read" in found.failure
    assert find_causes({CAUSES: [1]}) is None


def test_a_name_cannot_write_on_the_terminal() -> None:
    evil = {**WRITE, "path": "a\x1b[2Jb\n"}
    (cause,) = read_causes({"found": [{**CAUSE, "operations": [evil]}]}).found
    assert cause.operations[0].path.isprintable()
