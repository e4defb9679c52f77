"""Before work: remove what dead runs have left behind, and say so."""

from collections.abc import Iterable
from pathlib import Path


def sweep_and_tell(folders: Iterable[Path]) -> None:
    """Sweep the folders of runs, and that of temporary files, which is told of when it fails."""
    from diskproof.cli.terminal import note
    from diskproof.host.janitor import sweep
    from diskproof.process.scratch import scratch_home

    temporary = (swept for swept in sweep([scratch_home()]) if swept.kept)
    for swept in (*sweep(folders), *temporary):
        note(f"left behind by a dead run: {swept.path} {swept.kept or 'is removed'}")
