"""Runs that a store did not take, each in a small store of its own until it does.

The folder is ours alone. A file there is whole, or has another name; what is in it passes the same
gate as a store from a stranger. A run has one id: however often its file is found, it is stored
once.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from diskproof.errors import HostError, UsageError
from diskproof.process.scratch import start_locked_dir
from diskproof.records import HostRecord, StudyRecord, content_id
from diskproof.store.database import Store, open_store
from diskproof.store.parts import KINDS, Run
from diskproof.store.write import DuplicateRun

OF_ROOT = Path("/var/lib/diskproof/spool")
MAX_FILES = 10_000


def spool_folder() -> Path:
    """``$XDG_STATE_HOME/diskproof/spool``; without that root's is no folder of a user's home."""
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not named.is_absolute() and os.geteuid() == 0:
        return OF_ROOT
    base = named if named.is_absolute() else Path.home() / ".local/state"
    return base / "diskproof" / "spool"


def put_aside(store: Store, study: StudyRecord, host: HostRecord, run: Run) -> Path:
    """Keep a run that ``store`` did not take; on disk when this returns. Raises HostError."""
    folder = spool_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_private(folder)
        final = folder / f"{_prefix(store, study.id)}{content_id([run.id])}.sqlite"
        with start_locked_dir(folder) as room:
            path = room / final.name
            with open_store(str(path), create=True) as aside:
                aside.take_in(study, host, run)
            _settle(path)
            path.rename(final)
            _settle(folder)
    except OSError as error:
        why = f"{error.filename or folder}: {error.strerror}"
        raise HostError("the run cannot be put aside", why) from error
    return final


@dataclass(frozen=True)
class PutAside:
    """A file of the spool, and why its run is not in the store, empty when it is."""

    path: Path
    trouble: str = ""


def bring_in(store: Store, study_id: str) -> Iterator[PutAside]:
    """Store the runs of a study that were put aside for this store. What is stored, or counts
    there already, leaves the spool; what cannot be read stays. Raises HostError of the store."""
    for path in _find(store, study_id):
        try:
            study, host, run = _read(path, study_id)
        except (UsageError, HostError, OSError) as error:
            yield PutAside(path, " ".join(str(error).split()))
            continue
        trouble = ""
        try:
            store.take_in(study, host, run)
        except DuplicateRun as error:
            trouble = f"{error.why}; it is removed"
        except UsageError as error:
            yield PutAside(path, " ".join(str(error).split()))
            continue
        path.unlink(missing_ok=True)
        yield PutAside(path, trouble)


def _find(store: Store, study_id: str) -> list[Path]:
    return sorted(spool_folder().glob(f"{_prefix(store, study_id)}*.sqlite"))[:MAX_FILES]


def _prefix(store: Store, study_id: str) -> str:
    """What the files of a study in this store begin with."""
    return f"{content_id([store.identity, study_id])}-"


def _read(path: Path, study_id: str) -> tuple[StudyRecord, HostRecord, Run]:
    """The one run of a file. Raises UsageError for what is no file of ours, or damaged."""
    _require_private(path.parent)
    seen = path.lstat()
    if not stat.S_ISREG(seen.st_mode) or seen.st_nlink != 1 or seen.st_uid != os.geteuid():
        raise UsageError(f"{path} is not a file of ours", "another user may have put it there")
    with open_store(str(path)) as aside:
        study = aside.find_study(study_id)
        found = [(k, run.id) for k in KINDS for run in aside.counted_runs(k, study_id)]
        if study is None or study.id != study_id or len(found) != 1:
            raise UsageError(f"{path} does not hold one run of its study")
        kind, run_id = found[0]
        run: Run = aside.run_of(kind, run_id)
        host = next((host for host in aside.hosts() if host.id == run.host_id), None)
    if host is None:
        raise UsageError(f"{path} does not hold the host of its run")
    return study, host, run


def _require_private(folder: Path) -> None:
    """Raises HostError for a folder that others could write in."""
    seen = folder.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o022:
        hint = f"see who made it: ls -ld {folder}"
        raise HostError(f"{folder} cannot be used", "it is not a folder of ours alone", hint)


def _settle(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
