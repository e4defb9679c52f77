"""Commands of a workload that run on this host, in scratch folders of the run."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from diskproof.drive import Execution
from diskproof.errors import RunFailure
from diskproof.process.start import run

MAX_COLLECTED = 64 << 20  # bytes of one file brought back


def scratch_names(names: Sequence[str]) -> tuple[PurePosixPath, ...]:
    """Relative names that stay inside a scratch folder. Raises ValueError for others."""
    paths = tuple(map(PurePosixPath, names))
    for path in paths:
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ValueError(f"{path} is not inside the scratch folder")
    return paths


def run_here(
    run_dir: Path,
    argv: Sequence[str],
    *,
    timeout: float,
    files: Mapping[str, bytes],
    collect: Sequence[str],
) -> Execution:
    """``Drive.execute`` on this host, in a scratch folder in ``run_dir`` that goes at the end."""
    scratch_names([*files, *collect])
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=run_dir) as name:
        scratch = Path(name)
        for file, content in files.items():
            (scratch / file).parent.mkdir(parents=True, exist_ok=True)
            (scratch / file).write_bytes(content)
        done = run(argv, timeout=timeout, cwd=scratch, check=False)
        brought = {file: _read(scratch / file) for file in collect if (scratch / file).is_file()}
    return Execution(done.returncode, done.stdout, done.stderr, done.seconds, brought)


def read_inside(scratch: Path, name: str) -> bytes | None:
    """A file that a program which is not trusted has left, or None: a link leads nowhere."""
    path = scratch / name
    if path.is_symlink() or not path.resolve().is_relative_to(scratch.resolve()):
        return None
    return _read(path) if path.is_file() else None


def _read(path: Path) -> bytes:
    with path.open("rb") as stream:
        content = stream.read(MAX_COLLECTED + 1)
    if len(content) > MAX_COLLECTED:
        raise RunFailure("workload", f"{path.name} is larger than {MAX_COLLECTED >> 20} MiB")
    return content
