"""Man pages of diskproof and its tools, from what their --help says: setup/man_pages.py FOLDER"""

import os
import re
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from pathlib import Path

import typer

from diskproof import __version__
from diskproof.cli.app import app
from diskproof.errors import Exit
from help_text import TOOLS, Row, Section, ask_help

EXITS = {
    Exit.OK: "done",
    Exit.FELL_SHORT: "done, and something failed, or was proved slower",
    Exit.USAGE: "the command line or a file asks for what cannot be",
    Exit.HOST: "this host lacks something",
    Exit.INTERRUPTED: "interrupted; what was finished is stored",
}
Leaf = tuple[tuple[str, ...], typer.core.TyperCommand]


def write_pages(folder: Path) -> list[Path]:
    """One page of section 1 for each; returns their paths."""
    pages = {"diskproof": list(_diskproof())}
    for tool in TOOLS:
        pages[tool] = list(_tool(tool))
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
    yield f".Os diskproof {__version__}"


def _text(text: str) -> str:
    """A line that no macro is made of."""
    plain = text.replace("\\[", "[").replace("\\", r"\e").replace("-", r"\-")
    return r"\&" + plain if plain.startswith((".", "'")) else plain


def _wrapped(text: str) -> list[str]:
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z`<\"])", text)
    lines = (textwrap.wrap(each, 70, break_on_hyphens=False) for each in sentences)
    return [_text(line) for line in chain.from_iterable(lines)]


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(filter(None, map(str.strip, text.split("\n\n")))):
        if number:
            yield ".Pp"
        for line in paragraph.splitlines():
            yield from _wrapped(line.strip())


def _rows(rows: Sequence[tuple[str, Sequence[str]]]) -> Iterator[str]:
    if rows:
        yield ".Bl -tag -width Ds"
        for name, told in rows:
            yield f".It {_text(name.strip())}"
            yield from _told(told)
        yield ".El"


def _told(paragraphs: Sequence[str]) -> Iterator[str]:
    """Paragraphs, and lists of those that begin with a dash."""
    for is_list, group in groupby(paragraphs, lambda each: each.startswith("- ")):
        texts = list(group)
        if is_list:
            yield ".Bl -dash -compact"
            for text in texts:
                yield from (".It", *_wrapped(text.removeprefix("- ")))
            yield ".El"
        else:
            yield from _paragraphs("\n\n".join(texts))


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
        records = filter(None, (param.get_help_record(context) for param in command.params))
        yield from _rows([(_typeless(name), [told]) for name, told in records])
    ends = [(str(int(code)), [told]) for code, told in EXITS.items()]
    yield from (".Sh EXIT STATUS", *_rows(ends))


def _typeless(name: str) -> str:
    """Of ``STUDY <path>`` the first part: Python's types are no matter of a user's."""
    return re.sub(r" <(str|path|int|float|bool|list\[\w+\])>$", "", name)


def _leaves(command: typer.core.TyperCommand, words: tuple[str, ...]) -> Iterator[Leaf]:
    inner = getattr(command, "commands", {})
    if not inner:
        yield words, command
    for name, each in sorted(inner.items()):
        if not each.hidden:
            yield from _leaves(each, (*words, name))


# -- the native tools -----------------------------------------------------------------------


def _tool(name: str) -> Iterator[str]:
    told = ask_help(name)
    yield from (".Sh NAME", f".Nm {name}", f".Nd {_text(told.what)}", ".Sh SYNOPSIS")
    for form in told.usage:
        yield from (".Nm", *_arguments(form))
    yield ".Sh DESCRIPTION"
    yield from _paragraphs("\n\n".join(told.more or (f"{told.what}.",)))
    ends = []
    for section in told.sections:
        if section.title.startswith("Exit "):
            ends += [".Sh EXIT STATUS", *_wrapped(section.text)]
        elif section.title == "Commands":
            for row in section.rows:
                yield from _command(name, row)
        else:
            yield from _section(section)
    yield from ends


def _command(name: str, row: Row) -> Iterator[str]:
    """One command of a tool, as its own --help tells it."""
    if row.name == "help":
        return
    told = ask_help(name, row.name)
    for form in told.usage:
        yield f".Ss {_text(f'{name} {row.name} {form}'.strip())}"
    yield from _paragraphs("\n\n".join((f"{told.what}.", *told.more)))
    yield from _rows([(each.name, each.told) for each in told.rows()])


def _section(section: Section) -> Iterator[str]:
    yield f".Ss {_text(section.title)}"
    yield from _wrapped(section.text)
    yield from _rows([(row.name, row.told) for row in section.rows])


def _arguments(text: str) -> list[str]:
    return [f".Ar {_text(text)}"] if text else []


if __name__ == "__main__":
    for page in write_pages(Path(sys.argv[1])):
        print(page)
