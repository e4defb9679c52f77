"""The monitor as tests start it."""

import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from diskproof.process.native import require_native
from diskproof.process.start import Completed, run

DEADLINE = 30.0


def argv(*arguments: str | Path) -> list[str]:
    return [str(require_native("diskproof-monitor")), *map(str, arguments)]


def monitor(*arguments: str | Path, check: bool = True) -> Completed:
    return run(argv(*arguments), timeout=DEADLINE, check=check)


@dataclass
class Watching:
    """A monitor that runs; its standard output is read a line at a time."""

    child: subprocess.Popen[bytes]

    def next_line(self) -> str:
        assert self.child.stdout is not None
        ready, _, _ = select.select([self.child.stdout], [], [], DEADLINE)
        assert ready, "the monitor is silent"
        return self.child.stdout.readline().decode()

    def next_row(self) -> list[float | None]:
        """A line of CSV; None is an empty field."""
        return [float(word) if word else None for word in self.next_line().strip().split(",")]

    def end(self) -> tuple[int, str]:
        """Exit code and what it said to stderr."""
        assert self.child.stderr is not None
        code = self.child.wait(DEADLINE)
        return code, self.child.stderr.read().decode()


@contextmanager
def watching(*arguments: str | Path) -> Iterator[Watching]:
    command = argv(*arguments)
    # Unbuffered: a line that is there must not hide from select.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as child:
        try:
            yield Watching(child)
        finally:
            child.kill()
