"""Kernel samepage merging, on or off for the length of a run (the kernel's admin-guide/mm/ksm).

Its settings are the host's: they are noted in a run's folder before they are changed, so that the
janitor restores those of an owner that was killed.
"""

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from diskproof.errors import HostError, RunFailure
from diskproof.records import Check, Series

FOLDER = Path("/sys/kernel/mm/ksm")
NOTE = "ksm.json"
_MAX_NOTE = 4096
# In the order of writing; the former values go back in the other one. A kernel's own adviser
# refuses another pace. 1000 pages every 20 ms are 200 MB/s: at the default of 20 MB/s a short run
# would end in the first pass over its guests, and pages are merged in the second.
ON: Mapping[str, str] = {
    "advisor_mode": "none",
    "pages_to_scan": "1000",
    "sleep_millisecs": "20",
    "run": "1",
}
OFF: Mapping[str, str] = {"run": "0"}
_OPTIONAL = "advisor_mode"  # there since Linux 6.8


@contextmanager
def start_ksm(note: Path, level: str, folder: Path = FOLDER) -> Iterator[tuple[Check, ...]]:
    """KSM ``on`` or ``off`` for a ``with`` block, as one run at a time can have it.

    ``note`` is the folder of a run. The checks are of its settings as read back. Afterwards all
    of them are what they were. Raises HostError where it cannot be switched, RunFailure
    ``mismatch`` after the block when somebody else has changed it meanwhile.
    """
    wanted = ON if level == "on" else OFF
    with _held(folder) as held:
        if not held:
            what = "KSM is in use by another run"
            raise HostError(what, f"{folder} is locked", "wait until that one has ended")
        with _explained(folder):
            former = _read_all(folder, wanted)
            _write_note(note, former)
        try:
            with _explained(folder):
                _write_all(folder, {name: wanted[name] for name in former})
                checks = check_ksm(folder, {name: wanted[name] for name in former})
            yield checks
            after = check_ksm(folder, {name: wanted[name] for name in former})
            if wrong := [check for check in after if not check.ok]:
                why = ", ".join(f"{each.name} is {each.effective}" for each in wrong)
                raise RunFailure("mismatch", "KSM was changed during the run", why)
        finally:
            restore_ksm(note, folder)


def check_ksm(folder: Path, wanted: Mapping[str, str]) -> tuple[Check, ...]:
    """What is in force."""
    checks = []
    for name, value in wanted.items():
        found = _read(folder / name)
        checks.append(Check(f"ksm: {name}", value, found, str(folder / name), found == value))
    return tuple(checks)


def restore_held_ksm(note: Path, folder: Path = FOLDER) -> str:
    """``restore_ksm`` for a dead owner's note; says why not (empty: it is done, or there is none).
    Left alone while another run has KSM in its hands."""
    if not os.path.lexists(note / NOTE):
        return ""
    try:
        with _held(folder) as held:
            if not held:
                return "KSM is in use by another run"
            restore_ksm(note, folder)
    except OSError as error:
        return f"KSM cannot be set to what it was: {error.strerror}"
    return ""


def restore_ksm(note: Path, folder: Path = FOLDER) -> None:
    """Put the noted settings in force and remove the note. Raises OSError."""
    former = read_note(note)
    _write_all(folder, {name: former[name] for name in reversed(list(ON)) if name in former})
    (note / NOTE).unlink(missing_ok=True)


def read_note(note: Path) -> dict[str, str]:
    """The noted settings; nothing for what is not ours."""
    try:
        handle = os.open(note / NOTE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return {}
    with os.fdopen(handle, "rb") as stream:
        if os.fstat(handle).st_uid != os.geteuid():
            return {}
        text = stream.read(_MAX_NOTE)
    with suppress(ValueError, AttributeError, RecursionError):
        found = {name: str(value) for name, value in json.loads(text).items() if name in ON}
        return {name: text for name, text in found.items() if re.fullmatch(r"[a-z0-9-]+", text)}
    return {}


def _write_note(note: Path, former: Mapping[str, str]) -> None:
    """On the disk as a whole before anything is changed."""
    with (note / NOTE).open("x") as stream:
        stream.write(json.dumps(former))


def _read_all(folder: Path, wanted: Mapping[str, str]) -> dict[str, str]:
    return {
        name: _read(folder / name)
        for name in wanted
        if name != _OPTIONAL or (folder / name).exists()
    }


def _read(path: Path) -> str:
    text = path.read_text().strip()
    chosen = re.search(r"\[([^]]*)\]", text)  # one of several is in brackets
    return chosen[1] if chosen else text


def _write_all(folder: Path, values: Mapping[str, str]) -> None:
    for name, value in values.items():
        if _read(folder / name) != value:
            (folder / name).write_text(value)


@contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Whether KSM is ours alone, among runs of ours. Raises HostError where there is none."""
    with _explained(folder):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(handle)


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        hint = "boot a kernel with CONFIG_KSM"
        raise HostError("this kernel has no KSM", str(error.filename or folder), hint) from error
    except OSError as error:
        why = f"{error.filename}: {error.strerror}"
        hint = "run as root, or leave ksm out of the study's [tiles]"
        raise HostError("KSM cannot be switched", why, hint) from error


_NAME = b"ksmd"
_KTHREADD = 2  # the parent of all kernel threads; a program may call itself ksmd


def read_ksmd_seconds(proc: Path = Path("/proc")) -> float | None:
    """CPU seconds of ksmd since the host was started (proc_pid_stat(5)); None where there is none
    to be seen: a kernel without KSM, a container."""
    for folder in proc.glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_bytes().partition(b"(")[2].rpartition(b")")
            fields = rest.split()
            if name == _NAME and int(fields[1]) == _KTHREADD:
                return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError, ValueError):
            continue  # a process that has just ended
    return None


def ksmd_series(before: float | None, after: float | None, seconds: float) -> tuple[Series, ...]:
    """Its mean over a load of so many seconds in percent of one CPU, as a series of one reading;
    none where it was not seen."""
    if before is None or after is None or seconds <= 0:
        return ()
    share = 100 * max(0.0, after - before) / seconds
    return (Series("host", "ksm.cpu", "percent", (seconds,), (share,)),)
