"""Ctrl-C from the first instant: a word, what goes on, the shell's exit code, nothing left.

Requires what ``test_verbs.py`` requires, and the start script that ``setup/venv`` makes.
"""

import signal
import sys
from subprocess import run

import pytest

from support.terminals import PROGRAM, interrupt
from support.verb_places import DEADLINE, Place
from support.verbs import VERBS, Verb, each, is_native

STEPS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)


def assert_told(text: str, code: int, wanted: int) -> None:
    assert "Traceback" not in text and "Exception ignored" not in text, text
    assert code == wanted, text
    last = text.replace("\r", "").rstrip().splitlines()[-1]
    assert "interrupted" in last and ("the same command" in last or ": diskproof " in last), text


def test_the_start_script_keeps_ctrl_c_waiting() -> None:
    assert "--block-signal=INT" in PROGRAM.read_text().splitlines()[0]


@each(*VERBS)
def test_a_word_is_said_from_the_first_instant(place: Place, verb: Verb) -> None:
    """Verbs share what comes before them; each is tried at another of the steps."""
    # Later a native program's command may be there, which says what it likes.
    after = STEPS[VERBS.index(verb) % len(STEPS)] if not is_native(verb) else 0.0
    before = place.seen()
    ended = interrupt(place, verb.argv(), after)
    if ended.code == verb.code and "interrupted" not in ended.text:
        return  # it had ended by then
    assert_told(ended.text, ended.code, 130)
    assert place.left(before, verb.makes) == ()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@each(*filter(is_native, VERBS))
def test_a_word_is_said_between_two_programs(
    place: Place, verb: Verb, number: signal.Signals
) -> None:
    """The signal comes while the kernel puts the native program in our place."""
    before = place.seen()
    at_exec = f"inject=execve:signal={number.name}:when=1"
    strace = ["strace", "-qq", "-o", "/dev/null", "-e", "trace=execve", "-e", at_exec]
    argv = [*strace, sys.executable, "-m", "diskproof", *verb.argv()]
    done = run(
        argv,
        capture_output=True,
        cwd=place.here,
        env=place.environment(),
        timeout=DEADLINE,
        check=False,
    )
    assert done.stdout == b""
    assert_told(done.stderr.decode(), done.returncode, 128 + number)
    assert place.left(before) == ()


@pytest.mark.parametrize("after", [0.0, 0.05, 0.2, 0.6, 1.2, 2.0])
def test_no_moment_is_silent_while_a_study_begins(place: Place, after: float) -> None:
    before = place.seen()
    ended = interrupt(place, ["run", "study.toml", "--store", "new.sqlite"], after)
    assert_told(ended.text, ended.code, 130)
    kept = ["new.sqlite*"] if "every finished" in ended.text else []
    assert place.left(before, kept) == ()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("after", [0.1, 2.0])
def test_the_exit_code_tells_the_signal(place: Place, number: signal.Signals, after: float) -> None:
    ended = interrupt(place, ["run", "study.toml"], after, number)
    assert_told(ended.text, ended.code, 128 + number)


def test_what_a_shell_ignored_stays_ignored(place: Place) -> None:
    """nohup: a terminal that goes does not end a measurement."""
    done = place.shell(f"trap '' HUP; {PROGRAM} plan study.toml & kill -HUP $!; wait $!")
    assert done.code == 0, done.err
