"""Before work: remove what dead runs have left behind, and say so."""

from collections.abc import Iterable
from pathlib import Path


def sweep_and_tell(folders: Iterable[Path]) -> None:
    """Sweep the folders of runs, and those of temporary files, told of only when that fails."""
    from diskproof.cli.terminal import note
    from diskproof.host.janitor import sweep
    from diskproof.process.scratch import scratch_homes

    temporary = (swept for swept in sweep(scratch_homes()) if swept.kept)
    for swept in (*sweep(folders), *temporary):
        note(f"left behind by a dead run: {swept.path} {swept.kept or 'is removed'}")
