"""Writers and checks that are programs: how they are run, and their end is understood."""

import signal
from pathlib import Path

from diskproof.crash.writers import WriterContext, command
from diskproof.errors import RunFailure, tells_no_space
from diskproof.process.start import run
from diskproof.recording.folder import ACK_FILE

CRASHES = {
    *(signal.SIGABRT, signal.SIGBUS, signal.SIGFPE),
    *(signal.SIGILL, signal.SIGSEGV, signal.SIGTRAP),
}
"""The signals that a program brings upon itself; by others somebody ended it."""


def write_database(context: WriterContext, module: str, place: Path, *settings: str) -> None:
    """Have a module write its rows to ``place``. Raises RunFailure ``space`` or ``workload``."""
    spec = context.cell.workload
    limits = ["--records", spec.option("records"), "--seconds", spec.option("seconds")]
    sets = [word for each in settings for word in ("--set", each)]
    acks = ["--acks", str(context.recording.folder / ACK_FILE)]
    argv = [*command.PYTHON, module, "write", str(place), *limits, *sets, *acks]
    done = run(argv, timeout=context.seconds, check=False)
    require_written(spec.name, done.returncode, done.stderr)


def require_written(name: str, status: int, stderr: bytes) -> None:
    """Raises RunFailure ``space`` or ``workload`` when a writer did not end well."""
    if status == 0:
        return
    text = stderr.decode("utf-8", "replace").strip()
    kind = "space" if tells_no_space(text) else "workload"
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    why = "\n".join(line[:300] for line in text.splitlines()[-5:])
    raise RunFailure(kind, f"the writer {name} {how}", why, evidence=(("stderr", stderr),))
