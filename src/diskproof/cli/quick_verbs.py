"""The verbs ``quick`` and ``init``: from a folder to an answer, from nothing to a study."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from diskproof.cli import options
from diskproof.cli.advise_verb import DialectOption, find_manager
from diskproof.cli.typed import is_typed
from diskproof.errors import Exit, UsageError

DEFAULT_BUDGET = "10m"


def _complete_example(incomplete: str) -> Iterator[tuple[str, str]]:
    from diskproof.study.examples import EXAMPLES

    yield from ((kind, asks) for kind, asks in EXAMPLES.items() if kind.startswith(incomplete))


FolderArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="A folder on the disk that you ask about.")
]
BudgetOption = Annotated[
    float,
    typer.Option(
        "--budget",
        parser=options.parse_budget,
        metavar="TIME",
        help="All of it ends in this time: 2m for a first answer, 10m, 1h for a settled one.",
    ),
]
OutputOption = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write it here.")
]
ExampleOption = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        autocompletion=_complete_example,
        help="A study with comments instead: measure, managers, crash, race, boots, own-guest, "
        "network, device, tiles; or tile, a group of guests.",
    ),
]


def register(app: typer.Typer) -> None:
    app.command()(quick)
    app.command()(init)


def quick(
    context: typer.Context,
    folder: FolderArgument,
    dialect: DialectOption = None,
    budget: BudgetOption = DEFAULT_BUDGET,  # type: ignore[assignment]
    store: options.StoreOption = options.DEFAULT_STORE,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
    wait: options.WaitOption = False,
) -> int:
    """Say which settings to use for virtual disks in a folder, and which keep the data, in time.

    It measures what your manager gives a new disk there and its rivals, judges what each loses in
    a power cut, prints the line to paste, and leaves the study as a file to go on with.

    diskproof quick /var/lib/vz/images --for proxmox --budget 2m
    """
    from diskproof.advice.dialects import require_dialect
    from diskproof.cli.conduct import Order
    from diskproof.cli.quick import prepare, require_store, run_quick
    from diskproof.cli.terminal import note

    chosen = require_dialect(dialect or find_manager())
    require_store(store)
    made = prepare(folder, chosen, budget, None, (lambda _: None) if quiet else note)
    again = ["diskproof", "run", str(made.file)]
    again += ["--store", store] if is_typed(context, "store") else []
    order = Order(context, store, None, False, quiet, as_json, wait, resume=shlex.join(again))
    return run_quick(order, made)


def init(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help="A folder on the disk that you ask about."),
    ] = None,
    output: OutputOption = None,
    dialect: DialectOption = None,
    budget: BudgetOption = DEFAULT_BUDGET,  # type: ignore[assignment]
    example: ExampleOption = None,
) -> int:
    """Write the study that `quick` would run, or an example of a kind of study, and run nothing.

    diskproof init /var/lib/vz/images --budget 1h -o images.toml

    diskproof init --example crash
    """
    from diskproof.advice.dialects import require_dialect
    from diskproof.cli.quick import prepare
    from diskproof.cli.terminal import note

    if example is not None:
        if folder is not None:
            raise UsageError("--example is a study of no folder", hint="leave one of both out")
        _give_example(example, output)
        return Exit.OK
    if folder is None:
        raise UsageError("a folder is missing", hint="DIR, or --example KIND")
    chosen = require_dialect(dialect or find_manager())
    print(prepare(folder, chosen, budget, output, note).file)
    return Exit.OK


def _give_example(kind: str, output: Path | None) -> None:
    from diskproof.cli.quick import write_text
    from diskproof.study.examples import EXAMPLES, read_example
    from diskproof.study.toml_lines import unknown

    if kind not in EXAMPLES:
        raise UsageError(f"--example: {unknown('kind', kind, EXAMPLES)}")
    if output is None:
        print(read_example(kind), end="")
    else:
        write_text(output, read_example(kind), number=False)
