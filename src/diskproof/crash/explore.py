"""The native explorer: a request out, findings in, with a deadline and live progress."""

import errno
import json
import os
import selectors
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from diskproof.crash.verdict import Explored, take_line
from diskproof.errors import RunFailure
from diskproof.process.cage import QEMU_CAGE
from diskproof.process.native import require_native
from diskproof.process.owner import write_private
from diskproof.process.run_user import require_private_home, require_run_user
from diskproof.process.start import Process, grandchild_args, require_tool, start_process
from diskproof.records.verdicts import PROFILES, Fault

NATIVE_FAULTS: Mapping[Fault, str] = {
    "power": "power",
    "qemu-kill": "kill",
    "lying-device": "lying-device",
    "old-content": "old-content",
    **{fault: fault for fault in PROFILES.values()},
}
"""The explorer's names; what an end in order leaves is one state, and not explored."""

SLACK_SECONDS = 120.0
"""Beyond the time for states: reading the log, making the loss smaller."""
_MAX_LINE = 4 << 20
# Making a loss smaller checks states one after the other.
_MINIMISE = {"ledger": 2000, "image": 100, "command": 40}


@dataclass(frozen=True)
class Shard:
    """Part ``number`` (from 1) of a search that is cut into ``of``."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


@dataclass(frozen=True)
class StateSearch:
    """One search: log and base as ``docs/crash-model.md`` has them, the writer's check, limits.

    With a ``shard`` it is one part of the search. ``threads`` None: one for each core.
    """

    log: Path
    base: Path
    fault: Fault
    check: Mapping[str, object]
    promises: int
    sector: int
    seed: int
    states: int
    seconds: float
    shard: Shard | None = None
    threads: int | None = None
    discard_granularity: int = 0
    """Bytes that a device discards whole; 0: a discard is there or not."""


def search_request(search: StateSearch) -> dict[str, object]:
    """The explorer's request."""
    return {
        **({"shard": str(search.shard)} if search.shard else {}),
        **({"threads": search.threads} if search.threads else {}),
        "log": str(search.log),
        "base": str(search.base),
        "fault": NATIVE_FAULTS[search.fault],
        "sector": search.sector,
        **({"discard_granularity": whole} if (whole := search.discard_granularity) else {}),
        "seed": search.seed,
        "check": dict(search.check),
        "budget": {
            "states": search.states,
            "seconds": search.seconds,
            "minimise": _MINIMISE.get(str(search.check.get("kind")), 0),
        },
    }


def _confinement(search: StateSearch) -> dict[str, object]:
    """How the explorer starts QEMU's programs on states: as somebody without rights."""
    if search.check.get("kind") == "command" or search.check.get("format") == "raw":
        return {}
    cage = QEMU_CAGE
    for name, package in (
        ("qemu-storage-daemon", "qemu-system-common"),
        ("qemu-img", "qemu-utils"),
    ):
        cage = cage.starting(require_tool(name, package))
    user = {"user": require_run_user()} if os.geteuid() == 0 else {}
    return {"confined": {"argv": grandchild_args(cage), **user}}


def explorer_request(search: StateSearch) -> tuple[dict[str, object], dict[str, str]]:
    """The request with how QEMU's programs are started, and the explorer's variables."""
    confinement = _confinement(search)
    return {**search_request(search), **confinement}, _reachable_home() if confinement else {}


def _reachable_home() -> dict[str, str]:
    """Where states are shown, if those that open them as somebody else could not enter the folder
    of temporary files: root's may be closed to all others."""
    home = Path(tempfile.gettempdir()).resolve()
    if os.geteuid() or all(each.stat().st_mode & 0o001 for each in (home, *home.parents)):
        return {}
    return {"TMPDIR": str(require_private_home())}


def _without_refusals(found: Explored) -> Explored:
    """What could not be opened says nothing of what a crash has left: no loss, but nothing that was
    kept so far either."""
    worst = found.worst
    if worst is None or worst.lost or os.strerror(errno.EACCES) not in worst.text:
        return found
    why = f"a state could not be opened: {worst.text}"
    return replace(found, worst=None, covered=None, failure=why)


class Explorer(Protocol):
    """Who looks for losses: this host (``explore``), or many (``fleet``)."""

    def __call__(
        self, search: StateSearch, room: Path, on_progress: Callable[[Explored], None]
    ) -> Explored: ...


def explore(search: StateSearch, room: Path, on_progress: Callable[[Explored], None]) -> Explored:
    """Look for losses; ends in the search's time and some slack, however long a check takes.

    ``room`` takes the request and what the explorer has to say. Losses found before a failure
    count; the failure is in the answer. Raises HostError when the explorer is not there.
    """
    request = room / f"explore-{search.fault}.json"
    content, variables = explorer_request(search)
    write_private(request, json.dumps(content).encode())
    log = room / f"explore-{search.fault}.log"
    found = Explored(search.fault, search.promises, 0, None, True, 0, search.seed, 0.0)
    began = time.monotonic()
    deadline = began + search.seconds + SLACK_SECONDS
    argv = [str(require_native("diskproof-states")), "explore", str(request)]
    reader, writer = os.pipe()
    with ExitStack() as stack:
        stack.callback(os.close, reader)
        with os.fdopen(writer, "wb") as stdout:
            starting = start_process(
                argv, name="states", log=log, cwd=room, stdout=stdout, variables=variables
            )
            process = stack.enter_context(starting)
        try:
            for line in _read_lines(reader, deadline):
                found = take_line(found, line)
                on_progress(found)
            found = _with_end(found, process, deadline)
        except RunFailure as failure:
            found = replace(found, failure=": ".join(filter(None, (failure.what, failure.why))))
    found = _without_refusals(found) if "confined" in content else found
    return replace(found, seconds=time.monotonic() - began)


def _read_lines(stream: int, deadline: float) -> Iterator[bytes]:
    """Whole lines until the end of the stream. Raises RunFailure ``timeout`` or ``tool``."""
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not selector.select(left):
                raise RunFailure("timeout", "the explorer did not end in its time")
            chunk = os.read(stream, 1 << 16)
            if not chunk:
                return
            *lines, pending = (pending + chunk).split(b"\n")
            if len(pending) > _MAX_LINE:
                raise RunFailure("tool", "the explorer said a line without end")
            yield from lines


def _with_end(found: Explored, process: Process, deadline: float) -> Explored:
    """Whether the explorer ended well, and if not, why."""
    status = process.wait(max(0.1, deadline - time.monotonic()))
    if status == 0 or found.failure:
        return found
    tail = process.read_log(2000).decode("utf-8", "replace").strip().splitlines()[-1:]
    how = "did not end" if status is None else f"ended with status {status}"
    return replace(found, failure=f"the explorer {how}: {''.join(tail)}")
