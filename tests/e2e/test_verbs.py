"""Promises that every verb keeps, each tried on every verb that the command line has.

A new verb needs a row in ``verbs.py``. Requires root, /dev/fuse, fio, QEMU, the native programs and
the guest.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from rich.cells import cell_len

from diskproof.cli.handover import PROGRAMS
from support.json_schemas import validate
from support.recording import needs_fuse
from support.verb_places import COLOUR, COLUMNS, Call, Place, plain_lines
from support.verbs import (
    BY_NAME,
    VERBS,
    WRITES,
    Verb,
    each,
    find_commands,
    find_groups,
    is_native,
    names_files,
    verbs_for,
)

pytestmark = [needs_fuse, pytest.mark.long]
PHASE = re.compile(r"([a-z_]+\s+)?\d[\d.]*\s*(ms|s|min|h)\b")
PROMISES = {"wrong", "json", "figures", "stdout", "interrupt", "again", "width", "help width"}


class Called:
    """Each verb called once, in a place of its own that later calls find as it was left."""

    def __init__(self, template: Place, folder: Path) -> None:
        self.template, self.folder = template, folder
        self.calls: dict[str, tuple[Place, Call]] = {}

    def of(self, verb: Verb) -> tuple[Place, Call]:
        if verb.name not in self.calls:
            place = self.template.copy(self.folder / verb.name)
            has_json = verb in verbs_for("json", option="--json")
            how = shlex.split(verb.json) if has_json else []
            before, after = (how, []) if is_native(verb) else ([], how)
            words, rest = verb.name.split(), shlex.split(verb.call)
            call = place.call([*words, *before, *rest, *after], verb.makes, fresh=True)
            self.calls[verb.name] = place, call
        return self.calls[verb.name]


@pytest.fixture(scope="module")
def called(template: Place, tmp_path_factory: pytest.TempPathFactory) -> Called:
    return Called(template, tmp_path_factory.mktemp("called"))


# -- the table ------------------------------------------------------------------------------


def test_every_verb_has_a_row() -> None:
    assert sorted(BY_NAME) == sorted(find_commands())
    assert {" ".join(words) for words in PROGRAMS} <= set(BY_NAME)
    assert set(BY_NAME) >= WRITES


@each(*VERBS)
def test_an_excuse_names_a_promise_and_a_reason(verb: Verb) -> None:
    assert set(verb.exempt) <= PROMISES and all(verb.exempt.values())
    assert verb.wrong or not names_files(verb.name) or "wrong" in verb.exempt


# -- one call -------------------------------------------------------------------------------


@each(*VERBS)
def test_it_works_and_leaves_nothing(called: Called, verb: Verb) -> None:
    _, call = called.of(verb)
    assert call.code == verb.code, call.err
    assert call.left == ()
    call.assert_no_traceback()


@each(*VERBS)
def test_no_escape_codes_where_there_is_no_terminal(called: Called, verb: Verb) -> None:
    _, call = called.of(verb)
    assert "\x1b" not in call.out and "\x1b" not in call.err


@each(*verbs_for("json", option="--json"))
def test_json_alone_is_on_stdout(called: Called, verb: Verb) -> None:
    place, call = called.of(verb)
    lines = call.out.splitlines() if verb.name == "monitor" else [call.out]
    assert lines and all(json.loads(line, parse_constant=pytest.fail) for line in lines)


@each(*verbs_for("json", option="--json"))
def test_json_is_as_its_published_schema_says(called: Called, verb: Verb) -> None:
    _, call = called.of(verb)
    lines = call.out.splitlines() if verb.name == "monitor" else [call.out]
    for line in lines:
        validate(verb.name.replace(" ", "-"), json.loads(line))


# -- who reads it ---------------------------------------------------------------------------


@each(*[verb for verb in verbs_for("stdout") if "again" not in verb.exempt])
def test_a_reader_that_has_gone_changes_nothing(called: Called, verb: Verb) -> None:
    """Nobody reads from the start: every write meets it, not only one after the first line."""
    place, _ = called.of(verb)
    read, write = os.pipe()
    os.close(read)
    before = place.seen()
    with place.start(verb.argv(), stdout=write) as child:
        os.close(write)
        _, err = child.communicate(timeout=600)
    ends = {-signal.SIGPIPE, 128 + signal.SIGPIPE} if is_native(verb) else set()
    assert child.returncode in {verb.code, *ends}, err.decode()
    call = Call(child.returncode, "", err.decode(), place.left(before, verb.makes))
    call.assert_no_traceback()
    assert call.left == ()


@each(*[verb for verb in verbs_for("stdout") if "again" not in verb.exempt])
def test_a_full_or_closed_stdout_is_an_error_at_most(called: Called, verb: Verb) -> None:
    place, first = called.of(verb)
    silent = not first.out
    native = is_native(verb)
    with Path("/dev/full").open("wb") as full, place.start(verb.argv(), stdout=full) as child:
        _, err = child.communicate(timeout=600)
    done = Call(child.returncode, "", err.decode())
    done.assert_no_traceback()
    if silent:
        assert native or done.code == verb.code, done.err
    elif not native:
        assert done.code == 3 and "stdout cannot be written" in done.err
        assert len(done.err.splitlines()) <= 5
    closed = place.shell(f"{shlex.join(['diskproof', *place.filled(verb.argv())])} >&-")
    closed.assert_no_traceback()
    assert native or closed.code == verb.code, closed.err


@each(*[verb for verb in verbs_for("interrupt") if not is_native(verb)])
def test_ctrl_c_while_it_prints(called: Called, verb: Verb) -> None:
    """A reader that does not read holds it at its last step, as `less` does."""
    if "again" in verb.exempt:
        pytest.skip(verb.exempt["again"])
    place, _ = called.of(verb)
    read, write = os.pipe()
    fill_pipe(write)
    with place.start(verb.argv(), stdout=write) as child:
        os.close(write)
        wait_until_it_writes(child)
        child.send_signal(signal.SIGINT)
        os.close(read)
        _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    Call(130, "", err.decode()).assert_no_traceback()


def fill_pipe(write: int) -> None:
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, bytes(4096))
    except BlockingIOError:
        os.set_blocking(write, True)


def wait_until_it_writes(child: subprocess.Popen[bytes]) -> None:
    where = Path(f"/proc/{child.pid}/wchan")
    while "pipe_write" not in where.read_text():
        assert child.poll() is None, "it ended without writing"
        time.sleep(0.01)


# -- what a terminal shows ------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown(called: Called) -> dict[str, Call]:
    """What each verb showed on a terminal of 80 columns, in the place of its first call."""
    return {}


def show(called: Called, shown: dict[str, Call], verb: Verb) -> Call:
    if verb.name not in shown:
        place, _ = called.of(verb)
        shown[verb.name] = place.call_on_terminal(verb.argv(), NO_COLOR="1")
    return shown[verb.name]


@each(*[verb for verb in verbs_for("width") if "again" not in verb.exempt])
def test_80_columns_hold_it_and_no_color_is_heard(
    called: Called, shown: dict[str, Call], verb: Verb
) -> None:
    call = show(called, shown, verb)
    assert call.code == verb.code, call.err
    call.assert_no_traceback()
    lines = plain_lines(call.out)
    assert max(map(cell_len, lines)) <= COLUMNS, max(lines, key=cell_len)
    assert not COLOUR.search(call.out) and not COLOUR.search(call.err)


@each(*[verb for verb in verbs_for("figures") if not is_native(verb)])
def test_nothing_is_cut_without_a_mark(called: Called, shown: dict[str, Call], verb: Verb) -> None:
    """Every letter of the wide output stands in the narrow one, or an ellipsis does."""
    if "again" in verb.exempt:
        pytest.skip(verb.exempt["again"])
    place, _ = called.of(verb)
    narrow = " ".join(plain_lines(show(called, shown, verb).out))
    wide = place.call(verb.argv(), COLUMNS="400").out
    if "…" not in narrow:
        if verb.name == "plan":  # it names phases by how long it took itself, each time anew
            narrow, wide = PHASE.sub("", narrow), PHASE.sub("", wide)
        assert letters(narrow) == letters(wide)


def letters(text: str) -> Counter[str]:
    return Counter(letter for letter in text if letter.isalnum())


@pytest.mark.parametrize("name", [*find_groups(), *(v.name for v in verbs_for("help width"))])
def test_help_fits_the_terminal(template: Place, name: str) -> None:
    call = template.call_on_terminal([*name.split(), "--help"], NO_COLOR="1")
    lines = plain_lines(call.out)
    assert call.code == 0 and any("Usage:" in line for line in lines)
    assert max(map(cell_len, lines)) <= COLUMNS
    assert not COLOUR.search(call.out)
