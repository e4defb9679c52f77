"""Verbs of the host tools: ``sync drop``, ``sync trace``, ``nocache``, ``monitor``.

The native program gets every argument as it was typed. Most calls never come here
(``handover.py``): what is left are help, completion and a program that is not installed.
"""

import re
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand

from diskproof.cli.handover import MONITOR, PAGE_OPTIONS, PROGRAMS, become, is_ours
from diskproof.cli.monitor_page_verb import PAGE_HELP, make_pages
from diskproof.errors import DiskproofError, Exit
from diskproof.process import native
from diskproof.process.start import run

HELP_SECONDS = 5.0

sync = typer.Typer(
    no_args_is_help=True,
    help="Do away with a program's syncs, or see how long it waits for them.",
    epilog="Each has its own help: `diskproof sync drop --help`, `diskproof sync trace --help`.",
)


def register(app: typer.Typer) -> None:
    app.add_typer(sync, name="sync")
    sync.command("drop", cls=_HandedOver)(drop)
    sync.command("trace", cls=_HandedOver)(trace)
    app.command("nocache", cls=_HandedOver)(nocache)
    app.command("monitor", cls=_HandedOver)(monitor)


def drop(context: typer.Context) -> None:
    """Run a command whose syncs cost nothing (and keep nothing): builds, tests, installs."""
    _become("diskproof-sync-drop", context)


def trace(context: typer.Context) -> None:
    """Show how long a command or process waits for each fsync and its like, by file."""
    _become("diskproof-sync-trace", context)


def nocache(context: typer.Context) -> None:
    """Run a command that leaves the page cache as it was."""
    _become("diskproof-nocache", context)


def monitor(context: typer.Context) -> int:
    """Watch the host: processors, memory, disks and their flushes, virtual machines."""
    if not is_ours(context.args):
        _become(MONITOR, context)
    if {"--help", "-h"} & set(context.args):
        path = str(native.require_native(MONITOR))
        print(run([path, "--help"], timeout=HELP_SECONDS).text.rstrip())
        print(PAGE_HELP)
        return Exit.OK
    return make_pages(context.args)


def _become(program: str, context: typer.Context) -> None:
    become(str(native.require_native(program)), context.args)


@dataclass(frozen=True)
class _Offer:
    """A completion as the shells' scripts take it."""

    value: str
    help: str | None = None
    type: str = "plain"


class _HandedOver(TyperCommand):
    """A command that reads none of its arguments, ``--`` and ``--help`` included."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.args = list(args)
        return []

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The options of the native program; for all else the shell offers files."""
        if not incomplete.startswith("-"):
            return []
        words = tuple(ctx.command_path.split())
        program = PROGRAMS.get(words[-2:]) or PROGRAMS[words[-1:]]
        options = find_options(read_help(program))
        options += PAGE_OPTIONS if program == MONITOR else ()
        return [_Offer(option) for option in options if option.startswith(incomplete)]


def read_help(program: str) -> str:
    """What a native program says of itself; nothing when it cannot be asked."""
    try:
        path = str(native.require_native(program))
        return run([path, "--help"], timeout=HELP_SECONDS, check=False).text
    except DiskproofError:
        return ""


def find_options(text: str) -> list[str]:
    """The options that a help text explains, in its order: those at the start of a line."""
    found = re.findall(r"^ +(-\w)?(?:, +)?(?: *)(--[\w-]+)?", text, re.MULTILINE)
    return list(dict.fromkeys(option for pair in found for option in pair if option))
