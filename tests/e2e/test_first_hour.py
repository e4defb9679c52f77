"""The first hour: what the README has one type, from an empty folder, on a terminal of 80 columns.

Requires fio, qemu-utils, qemu-system-common, /dev/fuse and the native programs.
"""

import re
import shlex
import sys
import time
from pathlib import Path

import pytest
from rich.cells import cell_len

from diskproof.study.load import load_study
from support.recording import needs_fuse
from support.verb_places import COLUMNS, Call, Place, plain_lines

pytestmark = [needs_fuse, pytest.mark.long]
ROOT = Path(__file__).parents[2]
BUDGET = 60
SLACK = 15.0
"""A loaded host may hold the last run and the answer for as long."""


def typed() -> list[list[str]]:
    """The commands of the README's section, for a folder that is here, with a small budget."""
    text = (ROOT / "README.md").read_text()
    section = text[text.index("## Your own disk") :]
    block = re.search(r"```console\n(.*?)```", section, re.DOTALL)
    assert block
    lines = [line.removeprefix("$ ") for line in block[1].splitlines()]
    words = [shlex.split(line, comments=True) for line in lines]
    own = {"/var/lib/vz/images": "images", "2m": f"{BUDGET:g}s"}
    return [[own.get(word, word) for word in line[1:]] for line in words if line[0] == "diskproof"]


@pytest.fixture
def empty(tmp_path: Path) -> Place:
    for name in ("here/images", "tmp", "home", "cache"):
        (tmp_path / name).mkdir(parents=True)
    return Place(tmp_path)


def one_line(call: Call) -> str:
    return " ".join(" ".join(plain_lines(call.out)).split())


def test_from_an_empty_folder_to_the_sentence_that_answers(
    empty: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = typed()
    assert [words[:1] for words in steps] == [[], ["doctor"], ["quick"], ["report"], ["advise"]]
    told: dict[str, Call] = {}
    for words in steps:
        began = time.monotonic()
        call = empty.call_on_terminal(words, NO_COLOR="1")
        took = time.monotonic() - began
        with capsys.disabled():
            sys.stdout.write(f"\ndiskproof {shlex.join(words)}: {took:.1f} s, code {call.code}")
        call.assert_no_traceback()
        told[words[0] if words else ""] = call
        if words[:1] == ["quick"]:
            assert took < BUDGET + SLACK
    assert "quick DIR" in told[""].out
    assert told["doctor"].code in (0, 3)
    for name in ("quick", "report", "advise"):
        assert told[name].code == 0, told[name].err
    assert (empty.here / "answer.html").stat().st_size > 10_000
    assert_answered(empty, told["quick"])
    answer = one_line(told["advise"])
    assert re.search(r"For sync-write-4k (use|no difference is proved)", answer), answer
    assert "kept every acknowledged write in a power cut" in answer


def assert_answered(place: Place, call: Call) -> None:
    """The same sentence, the line to paste, what the time has cost, and a file to go on with."""
    text = one_line(call)
    assert "kept every acknowledged write in a power cut" in text
    (paste,) = (line for line in plain_lines(call.out) if line.startswith("qm set VMID --scsi0"))
    assert "iothread=1" in paste and "cache=unsafe" not in call.out
    told = [line for line in plain_lines(call.out) if not line.startswith("qm set")]
    assert max(map(cell_len, told)) <= COLUMNS, max(told, key=cell_len)
    assert "it gave up: more than" in text
    for word in ("O_DIRECT", "free", "quick-images.toml"):
        assert word in call.err
    study = load_study(place.here / "quick-images.toml")
    assert study.like == ("proxmox",) and study.names_crash
    assert list((place.here / "images").iterdir()) == []


# -- what is refused, and what is never written over ----------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["quick", "nothing-mounted"], 2, "there is no folder"),
        (["quick", "/dev/null"], 2, "is not a folder"),
        (["quick", "images", "--budget", "5s"], 2, "is the smallest that does"),
        (["quick", "images", "--for", "xen"], 2, "no dialect 'xen'"),
        (["quick", "/proc", "--budget", "1m"], 3, "/proc"),
        (["init"], 2, "a folder is missing"),
        (["init", "--example", "rase"], 2, "did you mean 'race'"),
        (["init", "images", "--example", "race"], 2, "--example"),
        (["init", "--example", "race", "-o", "images"], 2, "images is there already"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(
    empty: Place, words: list[str], code: int, told: str
) -> None:
    call = empty.call(words)
    assert call.code == code and told in call.err, call.err
    assert call.left == () and call.out == ""
    call.assert_no_traceback()


def test_a_study_that_is_there_is_not_written_over(empty: Place) -> None:
    """The same one is the same file; another one gets a number."""
    first = empty.call(["init", "images", "--budget", "1m"], ["quick-images.toml"])
    assert (first.code, first.out, first.left) == (0, "quick-images.toml\n", ())
    held = (empty.here / "quick-images.toml").read_bytes()
    again = empty.call(["init", "images", "--budget", "60s"])  # a minute in other words
    assert (again.code, again.out, again.left) == (0, "quick-images.toml\n", ())
    more = empty.call(["init", "images", "--budget", "2m"], ["quick-images-2.toml"])
    assert (more.code, more.out, more.left) == (0, "quick-images-2.toml\n", ())
    assert (empty.here / "quick-images.toml").read_bytes() == held
    assert load_study(empty.here / "quick-images-2.toml").name == "quick-images-2"
    named = empty.call(["init", "images", "-o", "quick-images.toml"])
    assert named.code == 2 and "is there already" in named.err
