"""Verbs about the guest: ``guest build``, ``guest path``."""

from __future__ import annotations

import typer

from diskproof.errors import Exit

guest = typer.Typer(no_args_is_help=True, help="The Linux guest that measurements run in.")


def register(app: typer.Typer) -> None:
    app.add_typer(guest, name="guest")


@guest.command()
def build() -> int:
    """Build the guest (kernel, initramfs, root); does nothing when it is up to date."""
    from diskproof.cli.terminal import note
    from diskproof.guest.build import build_guest

    files = build_guest(note)
    print(files.kernel.parent)
    return Exit.OK
