"""All verbs, and what becomes of their errors."""

import shlex
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from diskproof import __version__
from diskproof.cli import (
    advise_verb,
    analysis_verbs,
    audit_verb,
    crash_verbs,
    guest_verbs,
    host_verbs,
    import_verbs,
    quick_verbs,
    result_verbs,
    study_verbs,
    tile_verbs,
    tool_verbs,
)
from diskproof.cli.stops import Stops
from diskproof.cli.terminal import guard_streams
from diskproof.errors import DiskproofError, Exit, UsageError

app = typer.Typer(
    name="diskproof",
    help="Which virtual-disk settings are fast on this host, with evidence.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for verbs in (
    quick_verbs,
    host_verbs,
    audit_verb,
    study_verbs,
    crash_verbs,
    tile_verbs,
    advise_verb,
    result_verbs,
    analysis_verbs,
    import_verbs,
    guest_verbs,
    tool_verbs,
):
    verbs.register(app)


READING = {"status": False, "import": False} | dict.fromkeys(
    ["show", "rank", "report", "export", "compare", "factors", "stability", "advise"], True
)
"""Verbs that read what strangers made, and start nothing that needs memory of its own; whether
they reckon."""


def _tell_version(as_json: bool) -> None:
    if as_json:
        from diskproof.cli.terminal import print_json
        from diskproof.cli.version_json import describe_version

        print_json(describe_version())
    else:
        print(f"diskproof {__version__}")
    raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", "-V", help="Print the version.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --version: commit, digests, numbers of formats.")
    ] = False,
) -> int:
    """Which virtual-disk settings are fast on this host, with evidence.

    Without a command it tells where you are: this host, its virtual machines, your studies.
    """
    if version:
        _tell_version(as_json)
    if as_json:
        raise UsageError("--json stands behind a verb, or beside --version")
    if context.invoked_subcommand is None and not context.resilient_parsing:
        from diskproof.cli.orientation import orient

        orient()
    if context.invoked_subcommand in READING:
        from diskproof.store.budget import build_wall

        build_wall(reckons=READING[context.invoked_subcommand])
    return Exit.OK


def run_verb(arguments: Sequence[str]) -> int:
    """Run one verb; errors become three lines on stderr and an exit code."""
    guard_streams()
    stops = Stops()
    code = _run_verb(arguments, stops)
    if not stops.heard or code == Exit.OK:
        return code
    if code in (Exit.USAGE, Exit.HOST):
        code = _tell_interrupted(arguments)  # the error was of its being ended
    return 128 + stops.heard[0] if code == Exit.INTERRUPTED else code


def _run_verb(arguments: Sequence[str], stops: Stops) -> int:
    try:
        stops.listen()  # here: what comes before the end of it is told of, too
        result = app(args=list(arguments), standalone_mode=False, obj=list(arguments))
        if result == Exit.INTERRUPTED and not isinstance(result, Exit):
            raise KeyboardInterrupt  # which Typer has made a bare number of; a verb's own is told
        return result if isinstance(result, int) else Exit.OK
    except typer.Exit as stop:
        return stop.exit_code
    except DiskproofError as error:
        _print_error(error)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return _tell_interrupted(arguments)
    except typer.TyperException as error:  # a wrong option, argument or command
        return _refuse(error)
    except Exception as error:
        from diskproof.store.budget import stands_at_wall, too_much

        # Python's own parts, when they are refused memory, do not all say so.
        if not isinstance(error, MemoryError) and not stands_at_wall():
            raise
        _print_error(too_much("more than its share of memory was asked for"))
        return Exit.USAGE


def _tell_interrupted(arguments: Sequence[str]) -> int:
    again = shlex.join(["diskproof", *arguments])
    print(f"diskproof: interrupted. The same again: {again}", file=sys.stderr)
    return Exit.INTERRUPTED


def _refuse(error: typer.TyperException) -> int:
    """Say what is wrong with the command line; without a command the help has been shown."""
    command = getattr(getattr(error, "ctx", None), "command_path", "diskproof")
    if message := error.format_message().replace("Value error, ", ""):
        _print_error(UsageError(message, hint=f"`{command} --help` tells more"))
    return Exit.USAGE


def _print_error(error: DiskproofError) -> None:
    print(f"diskproof: {error.what}", file=sys.stderr)
    for line in (error.why, error.hint):
        if line:
            print(f"  {line}", file=sys.stderr)
