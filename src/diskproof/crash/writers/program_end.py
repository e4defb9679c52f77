"""Writers and checks that are programs: how their end is understood."""

import signal

from diskproof.errors import RunFailure, tells_no_space

CRASHES = {
    *(signal.SIGABRT, signal.SIGBUS, signal.SIGFPE),
    *(signal.SIGILL, signal.SIGSEGV, signal.SIGTRAP),
}
"""The signals that a program brings upon itself; by others somebody ended it."""


def require_written(name: str, status: int, stderr: bytes) -> None:
    """Raises RunFailure ``space`` or ``workload`` when a writer did not end well."""
    if status == 0:
        return
    text = stderr.decode("utf-8", "replace").strip()
    kind = "space" if tells_no_space(text) else "workload"
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    why = "\n".join(line[:300] for line in text.splitlines()[-5:])
    raise RunFailure(kind, f"the writer {name} {how}", why, evidence=(("stderr", stderr),))
