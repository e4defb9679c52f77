"""Writers that are programs: how their end is understood."""

from __future__ import annotations

import errno
import os

from diskproof.errors import RunFailure

_NO_SPACE = os.strerror(errno.ENOSPC)


def require_written(name: str, status: int, stderr: bytes) -> None:
    """Raises RunFailure ``space`` or ``workload`` when a writer did not end well."""
    if status == 0:
        return
    text = stderr.decode("utf-8", "replace").strip()
    kind = "space" if _NO_SPACE in text else "workload"
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    why = "\n".join(line[:300] for line in text.splitlines()[-5:])
    raise RunFailure(kind, f"the writer {name} {how}", why, evidence=(("stderr", stderr),))
