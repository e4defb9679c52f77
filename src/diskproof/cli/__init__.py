"""The command line: the only room that prints and exits."""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself would cost milliseconds
if TYPE_CHECKING:
    from collections.abc import Sequence


def run_command_line(arguments: Sequence[str]) -> int:
    """Run one command; errors become three lines on stderr and an exit code."""
    from diskproof.cli.handover import hand_over

    hand_over(arguments)
    # Typer and all verbs cost more time than many a command that a host tool runs.
    from diskproof.cli.app import run_verb

    return run_verb(arguments)
