"""Verbs about the guest: ``guest build``, ``guest path``."""

from typing import Annotated

import typer

from diskproof.errors import Exit, UsageError

guest = typer.Typer(no_args_is_help=True, help="The Linux guest that measurements run in.")


def register(app: typer.Typer) -> None:
    app.add_typer(guest, name="guest")


@guest.command()
def build(
    extra: Annotated[
        str,
        typer.Option("--with", metavar="NAME", help="Further packages in it: postgres or storage."),
    ] = "",
) -> int:
    """Build the guest (kernel, initramfs, root); does nothing when it is up to date.

    One with further packages is a second guest; crash studies that need it build it themselves.
    """
    from diskproof.cli.terminal import note
    from diskproof.guest.ours.build import build_guest
    from diskproof.guest.ours.packages import EXTRA_PACKAGES

    if extra and extra not in EXTRA_PACKAGES:
        raise UsageError(f"no guest is built with {extra!r}", f"known: {', '.join(EXTRA_PACKAGES)}")
    files = build_guest(note, extra)
    print(files.kernel.parent)
    return Exit.OK
