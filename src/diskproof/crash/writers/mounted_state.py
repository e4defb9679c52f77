"""Judge crash states of a disk by a program that runs in the file system on it.

``python -m diskproof.crash.writers.mounted_state KIND OPTIONS CHECK...`` is a check that stays: a
line for each state in, its verdict out. The kernel mounts the disk, which recovers its journal.
It is the first process of a namespace with mounts of its own. So what a check leaves is ended
after it, and mount and loop device go with us, however we end.
"""

import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from diskproof.backings.mounted_disk import Unmountable, start_mounted
from diskproof.crash.end_state import read_exit
from diskproof.crash.real_fs import DISK, FOLDER
from diskproof.crash.writers.command import ACKNOWLEDGED, EACH_STATE, fail
from diskproof.crash.writers.same_tree import KEPT, Verdicts
from diskproof.errors import HostError
from diskproof.process.start import run

_NO_BOUND = 7 * 24 * 3600.0
"""Who asks has one."""
_MAX_SAID = 2000


def main(arguments: Sequence[str]) -> int:
    """The program; gives its exit code."""
    kind, options, *argv = arguments
    try:
        if os.getpid() != 1:  # all processes that there are will be ended
            raise HostError("this check needs a namespace of processes", "it is not its first one")
        point = Path(tempfile.mkdtemp(prefix="mounted-", dir=Path.cwd()))
        verdicts = Verdicts(shares=EACH_STATE not in os.environ)
        for line in sys.stdin:
            state, _, acks = line.rstrip("\n").partition("\t")
            answer = judge(Path(state) / DISK, (kind, options), point, argv, acks, verdicts)
            sys.stdout.write(" ".join(answer.split())[:_MAX_SAID] + "\n")
            sys.stdout.flush()
        point.rmdir()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is no verdict
        return fail(error)
    return 0


def judge(
    disk: Path,
    on: tuple[str, str],
    point: Path,
    argv: Sequence[str],
    acks: str,
    verdicts: Verdicts,
) -> str:
    """``0``, ``1 N`` or ``2``, and words; behind ``unsteady`` where the same was told otherwise
    before. Raises what is not the state's fault."""
    with ExitStack() as stack:
        try:
            stack.enter_context(start_mounted(disk, *on, point))
        except Unmountable as error:
            return f"2 it cannot be mounted: {error}"
        stack.callback(_end_all)
        folder = point / FOLDER
        try:
            list(folder.iterdir())
        except OSError as error:
            return f"2 the folder {FOLDER} was there before: {error.strerror}"
        return verdicts.judge(folder, Path(acks), lambda: _check(folder, argv, acks))


def _check(folder: Path, argv: Sequence[str], acks: str) -> str:
    environment = {**os.environ, ACKNOWLEDGED: acks, "DISKPROOF_STATE": str(folder)}
    done = run(argv, timeout=_NO_BOUND, cwd=folder, env=environment, check=False)
    loss = read_exit(done, ())
    if loss is None:
        return KEPT
    return f"1 {loss.lost}" if loss.verdict == "loses" else f"2 {loss.text}"


def _end_all() -> None:
    """Every process here but us."""
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
