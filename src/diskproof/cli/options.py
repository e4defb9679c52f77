"""Options that several verbs share."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from diskproof.errors import UsageError

DEFAULT_STORE = "diskproof.sqlite"
DESTROY_DATA = "--destroy-data"


def parse_budget(budget: str) -> float:
    """Seconds. Raises UsageError."""
    from diskproof.units import parse_seconds

    try:
        return parse_seconds(budget)
    except ValueError as error:
        raise UsageError(f"--budget: {error}") from None


StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="A study file (TOML).")]
BudgetOption = Annotated[
    float | None,
    typer.Option(
        "--budget",
        parser=parse_budget,
        metavar="TIME",
        help="Stop in time, e.g. 30m; resume later.",
    ),
]
RetryOption = Annotated[
    bool, typer.Option("--retry", help="Make again what failed or stayed undecided.")
]
DestroyOption = Annotated[
    bool, typer.Option(DESTROY_DATA, help="Write on the devices that the study names.")
]
MakeOption = Annotated[
    bool, typer.Option("--make", help="Make the folders of backings that are not there.")
]
WaitOption = Annotated[
    bool,
    typer.Option("--wait", help="Queue behind another measurement on this host, not refuse."),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="DISKPROOF_STORE",
        metavar="URL",
        help="SQLite file or postgresql:// URL that holds the results.",
    ),
]


def complete_study(context: typer.Context, incomplete: str) -> Iterator[str]:
    """Names of the studies in the store that the command line names so far."""
    from diskproof.errors import DiskproofError
    from diskproof.store import open_store

    with (
        suppress(DiskproofError),
        open_store(context.params.get("store") or DEFAULT_STORE) as store,
    ):
        names = dict.fromkeys(study.name for study in store.studies())
        yield from (name for name in names if name.startswith(incomplete))


StudiesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--study",
        metavar="NAME",
        autocompletion=complete_study,
        help="Only this study (name or id); may be given several times.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
