"""Errors of the host's disk under a guest: QEMU reports them to the guest, whose programs may say
little of them, or go on."""

from collections.abc import Iterator
from contextlib import contextmanager

from diskproof.drive import Monitor, SteeredMachine
from diskproof.errors import RunFailure, tells_no_space

WHAT = "its disk cannot be read or written"
_FAILED = {"rd": "reads", "wr": "writes", "flush": "flushes"}
_EVENT_SECONDS = 0.01
_MOST_EVENTS = 1000


@contextmanager
def require_sound_disk(machine: SteeredMachine | None) -> Iterator[None]:
    """Around a load in a guest. Raises RunFailure ``qemu`` or ``space`` when the host failed to
    read, write or flush one of the guest's disks, also where the load took no notice."""
    try:
        yield
    except RunFailure as failure:
        if told := _find_errors(machine):
            why = "\n".join(filter(None, (told, f"{failure.what}: {failure.why}")))
            raise _failure(told, why, failure.evidence) from None
        raise
    if told := _find_errors(machine):
        raise _failure(told, f"{told}\nthe load took no notice: its figures are worth nothing")


def _failure(told: str, why: str, evidence: tuple[tuple[str, bytes], ...] = ()) -> RunFailure:
    if tells_no_space(told):
        why = f"the file system of the disk under test is full\n{why}"
        return RunFailure("space", f"the guest: {WHAT}", why, evidence=evidence)
    hint = "see the host's kernel log (dmesg), and the disk below the backing"
    return RunFailure("qemu", f"the guest: {WHAT}", why, hint, evidence)


def _find_errors(machine: SteeredMachine | None) -> str:
    """What QEMU counts and tells of failed operations, empty for none, or where it is gone."""
    if machine is None:
        return ""
    try:
        counts = _read_counts(machine.monitor)
        reasons = _take_reasons(machine.monitor) if counts else ""
    except RunFailure:
        return ""
    if not counts:
        return ""
    return f"{counts} failed (QMP query-blockstats)" + reasons


def _read_counts(monitor: Monitor) -> str:
    """``3 reads, 1 flushes`` of all disks together, or empty."""
    answer = monitor.execute("query-blockstats")
    drives = [item.get("stats") for item in answer if isinstance(item, dict)]
    stats = [each for each in drives if isinstance(each, dict)]
    found = []
    for key, name in _FAILED.items():
        counts = [each.get(f"failed_{key}_operations") for each in stats]
        if total := sum(count for count in counts if isinstance(count, int)):
            found.append(f"{total} {name}")
    return ", ".join(found)


def _take_reasons(monitor: Monitor) -> str:
    """What the events that wait say, each once."""
    reasons: dict[str, None] = {}
    for _ in range(_MOST_EVENTS):
        event = monitor.wait_event(("BLOCK_IO_ERROR",), _EVENT_SECONDS)
        if event is None:
            break
        data = event.get("data")
        if isinstance(data, dict):
            reasons[f"{data.get('operation')}: {data.get('reason')}"[:200]] = None
    told = "; ".join(list(reasons)[:5])
    return f": {told} (QMP event BLOCK_IO_ERROR)" if told else ""
