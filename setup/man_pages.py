"""Man pages of diskproof and its tools, from what their --help says: setup/man_pages.py FOLDER"""

import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from pathlib import Path

import typer

from diskproof.cli.app import app
from diskproof.errors import Exit
from diskproof.process.native import require_native

EXITS = {
    Exit.OK: "done",
    Exit.FELL_SHORT: "done, and something failed, or was proved slower",
    Exit.USAGE: "the command line or a file asks for what cannot be",
    Exit.HOST: "this host lacks something",
    Exit.INTERRUPTED: "interrupted; what was finished is stored",
}
TOOLS = ("monitor", "nocache", "states", "sync-drop", "sync-trace", "sync-ways")
"""The programs that people start by their own name, without ``diskproof-``."""

Row = tuple[str, str]
Leaf = tuple[tuple[str, ...], typer.core.TyperCommand]


def write_pages(folder: Path) -> list[Path]:
    """One page of section 1 for each; returns their paths."""
    pages = {"diskproof": list(_diskproof())}
    for tool in TOOLS:
        pages[f"diskproof-{tool}"] = list(_tool(f"diskproof-{tool}"))
    others = sorted(pages)
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in pages.items():
        also = " ,\n.Xr ".join(f"{other} 1" for other in others if other != name)
        text = "\n".join([*_head(name), *lines, ".Sh SEE ALSO", f".Xr {also}", ""])
        (folder / f"{name}.1").write_text(text)
    return [folder / f"{name}.1" for name in others]


def _head(name: str) -> Iterator[str]:
    now = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    yield time.strftime(f".Dd %B {now.tm_mday}, %Y", now)
    yield f".Dt {name.upper()} 1"
    yield ".Os"


def _text(text: str) -> str:
    """A line that no macro is made of."""
    plain = text.replace("\\[", "[").replace("\\", r"\e").replace("-", r"\-")
    return r"\&" + plain if plain.startswith((".", "'")) else plain


def _wrapped(text: str) -> list[str]:
    sentences = re.split(r"(?<=[.!?])\s+", text)
    lines = (textwrap.wrap(each, 70, break_on_hyphens=False) for each in sentences)
    return [_text(line) for line in chain.from_iterable(lines)]


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(filter(None, map(str.strip, text.split("\n\n")))):
        if number:
            yield ".Pp"
        for line in paragraph.splitlines():
            yield from _wrapped(line.strip())


def _rows(rows: Sequence[Row]) -> Iterator[str]:
    if rows:
        yield ".Bl -tag -width Ds"
        for name, told in rows:
            yield f".It {_text(name)}"
            yield from _wrapped(told) or [r"\&"]
        yield ".El"


# -- diskproof itself -----------------------------------------------------------------------


def _diskproof() -> Iterator[str]:
    root = typer.main.get_command(app)
    yield from (".Sh NAME", ".Nm diskproof", ".Nd which virtual-disk settings are fast, and safe")
    yield from (".Sh SYNOPSIS", ".Nm", ".Ar command", ".Op Ar arguments", ".Sh DESCRIPTION")
    yield from _paragraphs(root.help or "")
    yield ".Sh COMMANDS"
    for words, command in _leaves(root, ("diskproof",)):
        context = command.make_context(" ".join(words), [], resilient_parsing=True)
        usage = " ".join(command.collect_usage_pieces(context))
        yield f".Ss {_text(f'{chr(32).join(words)} {usage}')}"
        yield from _paragraphs(command.help or "")
        records = (param.get_help_record(context) for param in command.params)
        yield from _rows([record for record in records if record])
    yield from (".Sh EXIT STATUS", *_rows([(str(int(code)), told) for code, told in EXITS.items()]))


def _leaves(command: typer.core.TyperCommand, words: tuple[str, ...]) -> Iterator[Leaf]:
    inner = getattr(command, "commands", {})
    if not inner:
        yield words, command
    for name, each in sorted(inner.items()):
        if not each.hidden:
            yield from _leaves(each, (*words, name))


# -- the native tools -----------------------------------------------------------------------


def _tool(name: str) -> Iterator[str]:
    argv = [require_native(name), "--help"]
    told = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=30).stdout
    what, _, rest = told.partition("\n\n")
    usage, _, rest = rest.partition("\n\n")
    yield from (".Sh NAME", f".Nm {name}", f".Nd {_text(what.strip())}", ".Sh SYNOPSIS")
    for line in usage.removeprefix("Usage:").strip().splitlines():
        yield from (".Nm", *_arguments(line.strip().removeprefix(name).strip()))
    yield ".Sh DESCRIPTION"
    for is_rows, lines in groupby(rest.splitlines(), lambda line: line[:2] in ("  ", "")):
        text = list(lines)
        if not is_rows:
            yield f".Ss {_text(' '.join(text).rstrip(':'))}"
        elif rows := list(_option_rows(text)):
            yield from _rows(rows)
        else:
            yield from _paragraphs("\n".join(map(str.strip, text)))
    yield from (".Sh EXIT STATUS", "That of the command, where one is run;")
    yield "2 for a wrong command line."


def _arguments(text: str) -> list[str]:
    return [f".Ar {_text(text)}"] if text else []


def _option_rows(lines: Sequence[str]) -> Iterator[Row]:
    """Rows of ``  --name VALUE  what it does``, continued where a line stands further right."""
    row: Row | None = None
    for line in filter(None, lines):
        found = re.match(r" {2,6}(\S.*?)(?: {2,}(\S.*))?$", line)
        if found:
            if row:
                yield row
            row = (found[1], found[2] or "")
        elif row:
            row = (row[0], f"{row[1]} {line.strip()}")
    if row:
        yield row


if __name__ == "__main__":
    for page in write_pages(Path(sys.argv[1])):
        print(page)
