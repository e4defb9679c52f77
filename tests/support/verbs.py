"""Every verb with one call of it, for the promises that ``test_verbs.py`` holds all verbs to.

A new verb needs a row here. What a promise does not fit stands in ``exempt``, with the reason.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer

from diskproof.cli.app import app
from diskproof.cli.handover import PROGRAMS
from diskproof.cli.tool_verbs import find_options, read_help

COMMAND = "what it prints is its command's"
FIGURES = "it measures, and its figures differ from call to call"
QUIET = "it prints nothing on stdout"
GUEST = "it boots a guest, and then prints as `crash study` does"
HANDED = "a native program takes its place and its arguments"


@dataclass(frozen=True)
class Verb:
    """``call`` are arguments that work in a place of ``verb_places.py``; ``wrong`` has calls with
    FILE wherever the verb reads a file. ``code`` is what ``call`` ends with, ``makes`` the files it
    leaves on purpose; ``json`` stands for ``--json`` where that takes an argument."""

    name: str
    call: str = ""
    code: int = 0
    makes: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    json: str = "--json"
    exempt: Mapping[str, str] = field(default_factory=dict)

    def argv(self, call: str | None = None) -> list[str]:
        return [*self.name.split(), *shlex.split(self.call if call is None else call)]


FOLDER = "it takes a folder"

VERBS = (
    Verb(
        "quick",
        ". --for qemu --budget 1m --quiet",
        makes=("quick-here.toml",),
        exempt={"figures": FIGURES, "wrong": FOLDER, "width": "it prints lines to paste"},
    ),
    Verb(
        "init",
        "--example crash",
        exempt={"wrong": FOLDER, "width": "it prints a file, which is to be taken whole"},
    ),
    Verb("doctor", ".", exempt={"figures": "free space changes", "wrong": "it examines folders"}),
    Verb("audit", "./machine.xml", wrong=("FILE",)),
    Verb("plan", "study.toml", wrong=("FILE",)),
    Verb("run", "study.toml", wrong=("FILE",), exempt={"figures": FIGURES}),
    Verb("status"),
    Verb(
        "crash study",
        "study.toml",
        wrong=("FILE", "--writer true --check true FILE"),
        exempt={"figures": FIGURES},
    ),
    Verb("crash apps", exempt={"figures": "the programs of this host"}),
    Verb(
        "crash unsynced",
        "--writer 'echo done' images",
        exempt={"figures": FIGURES, "wrong": FOLDER},
    ),
    Verb(
        "crash flushes",
        "guests.toml",
        wrong=("FILE",),
        exempt=dict.fromkeys(("figures", "stdout", "interrupt"), GUEST),
    ),
    Verb(
        "crash block-log",
        "RUN --to disk.log",
        makes=("disk.log",),
        exempt={"wrong": "--to names a file that is not there", "again": "the file is there"},
    ),
    Verb(
        "crash reproduce",
        "RUN --fault lying-device --to state",
        code=1,  # it lost something again
        makes=("state", "state/*"),
        exempt={"wrong": "--to names a folder that is not there", "again": "the folder is there"},
    ),
    Verb("tiles", "tiles.toml", wrong=("FILE",), exempt={"figures": FIGURES}),
    Verb(
        "advise",
        "--for qemu",
        code=1,  # nobody has judged what it advises
        wrong=("FILE",),
        exempt={"width": "it prints lines to paste, which are to be taken whole"},
    ),
    Verb("show"),
    Verb("rank"),
    Verb(
        "report",
        "-o page.html",
        makes=("page.html",),
        exempt={"wrong": "it writes its file", "interrupt": QUIET, "stdout": QUIET},
    ),
    Verb(
        "export",
        "-o table.csv",
        makes=("table.csv",),
        exempt={"wrong": "it writes its file", "interrupt": QUIET, "stdout": QUIET},
    ),
    Verb("factors"),
    Verb("stability"),
    Verb("compare", "cache=none cache=writeback", wrong=("FILE FILE", "FILE cache=none")),
    Verb("import kvm-perf", "kvm-perf.txt", wrong=("FILE",)),
    Verb("import fio", "fio.json", wrong=("FILE", "fio.json FILE")),
    Verb(
        "guest build",
        wrong=("--minimal --kernel FILE --modules FILE",),
        exempt={"width": "it prints one path, which is to be taken whole"},
    ),
    Verb(
        "guest export",
        "guest.tar.gz",
        makes=("guest.tar.gz",),
        exempt={
            "wrong": "it writes its file",
            "again": "it packs 170 MiB",
            "width": "it prints a line for sha256sum, which is to be taken whole",
        },
    ),
    Verb(
        "guest import",
        "study.toml",
        code=2,  # true ones are imported in tests/vm/test_guest_travel_boot.py
        wrong=("FILE",),
        exempt={"json": "it is refused", "stdout": QUIET, "interrupt": QUIET},
    ),
    Verb(
        "sync drop",
        "-- sh -c 'sync; echo done'",
        json="--quiet --json -",
        exempt={"json": COMMAND, "help width": HANDED},
    ),
    Verb(
        "sync trace", "-- sh -c 'sync; echo done'", exempt={"json": COMMAND, "help width": HANDED}
    ),
    Verb("nocache", "-- cat study.toml", exempt={"json": COMMAND, "help width": HANDED}),
    Verb(
        "monitor",
        "-cd 0.05 3",
        wrong=("--html page.html --from FILE", "--parquet table.parquet --from FILE"),
        exempt={"figures": FIGURES, "help width": HANDED},
    ),
)
WRITES = {"quick", "run", "crash study", "crash flushes", "tiles"}
"""The verbs that write on what a study names; all others never do."""

BY_NAME = {verb.name: verb for verb in VERBS}


def find_commands() -> dict[str, Any]:
    """The commands of the command line by their words, groups left out."""
    return {name: command for name, command in _walk(typer.main.get_command(app), "") if name}


def find_groups() -> list[str]:
    """The words that have verbs below them, the whole command line first."""
    names = [name.split()[:-1] for name in find_commands()]
    return list(dict.fromkeys(" ".join(words) for words in names))


def _walk(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield name, command
        return
    for word, each in below.items():
        yield from _walk(each, f"{name} {word}".strip())


def find_verb_options(name: str) -> set[str]:
    """The options that a verb knows; a native program's are those that its help explains."""
    program = PROGRAMS.get(tuple(name.split()))
    if program is not None:
        return set(find_options(read_help(program)))
    return {option for each in find_commands()[name].params for option in each.opts}


def reads_study(name: str) -> bool:
    """Whether a verb takes a study file."""
    params = find_commands()[name].params
    return any(str(each.metavar).startswith("STUDY") for each in params)


def names_files(name: str) -> bool:
    """Whether an argument or option of a verb is a path."""
    if tuple(name.split()) in PROGRAMS:
        return False
    hints = get_type_hints(find_commands()[name].callback)
    return any(Path.__name__ in str(hint) for hint in hints.values())


def verbs_for(promise: str, *, option: str = "") -> list[Verb]:
    """The verbs that a promise applies to: those without an excuse, and with the option."""
    known = [verb for verb in VERBS if verb.name in find_commands()]
    return [
        verb
        for verb in known
        if promise not in verb.exempt and (not option or option in find_verb_options(verb.name))
    ]


def is_native(verb: Verb) -> bool:
    """Whether a native program takes the verb's place."""
    return tuple(verb.name.split()) in PROGRAMS


def each(*verbs: Verb) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("verb", verbs, ids=lambda verb: verb.name)
