"""Verbs about the host: ``doctor``."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from diskproof.cli.options import JsonOption
from diskproof.errors import Exit


def register(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(
    directories: Annotated[
        list[Path] | None, typer.Argument(help="Directories to probe for direct I/O.")
    ] = None,
    as_json: JsonOption = False,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Probe the accelerator anew, not from the cache.")
    ] = False,
    walls: Annotated[
        bool,
        typer.Option("--walls", help="Run a little of everything, and tell who runs as what."),
    ] = False,
) -> int:
    """Probe what this host can do, and name what is missing and the package that brings it."""
    if walls:
        return _tell_walls(as_json)
    from diskproof.cli.sweeping import sweep_and_tell
    from diskproof.cli.terminal import console, print_json
    from diskproof.host.doctor import examine
    from diskproof.report.findings import render_findings

    places = directories or [Path()]
    sweep_and_tell(places)  # what a killed doctor left behind
    findings = examine(places, refresh=refresh)
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        console().print(render_findings(findings))
    unfit = any(finding.needed and finding.ok == "no" for finding in findings)
    return Exit.HOST if unfit else Exit.OK


def _tell_walls(as_json: bool) -> int:
    from diskproof.cli.terminal import console, print_json
    from diskproof.cli.walls_verb import look_at_walls
    from diskproof.report.walls_table import render_walls

    seen, missing = look_at_walls(guest=True)
    if as_json:
        print_json({"programs": [asdict(each) for each in sorted(seen)], "missing": missing})
    else:
        console().print(render_walls(seen, missing))
    return Exit.OK
