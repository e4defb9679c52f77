"""Looking for losses on many hosts: a Dask cluster whose workers each check one part.

Log and base go to the workers once, named by their SHA-256; each worker unpacks them into its own
scratch folder and starts the native explorer there. Which states fall to a part, and how parts
become one answer: ``merge``. A worker needs diskproof of the same version with its native
programs, and what the check needs (QEMU, a built guest, the program given as ``--check`` at the
same path). Whoever reaches a Dask scheduler runs programs on its workers: keep it on loopback, in
a tunnel, or behind TLS.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diskproof import __version__
from diskproof.crash.explore import SLACK_SECONDS, Explorer, Shard, StateSearch, explore
from diskproof.crash.merge import merge_parts
from diskproof.crash.verdict import Explored
from diskproof.errors import DiskproofError, HostError, UsageError
from diskproof.process.extras import require_extra
from diskproof.process.host_lock import read_boot_id, start_beside
from diskproof.process.owner import admit
from diskproof.process.start import run

if TYPE_CHECKING:
    from distributed import Client, Future

CONNECT_SECONDS = 15.0
_UNPACK_SECONDS = 600.0
_TRANSFER_SECONDS = 300.0


@dataclass(frozen=True)
class RecordingData:
    """Log and base of a recording as they travel. ``id`` is the hash of both."""

    id: str
    log: bytes
    base: bytes


@dataclass(frozen=True)
class Errand:
    """A search for a worker. ``python`` is the sender's: a check that is started with it is
    started with the worker's own. ``version`` is the sender's diskproof, ``session`` its call:
    it asks about one recording after the other. ``boot_id`` tells its host."""

    search: StateSearch
    python: str
    version: str
    session: str
    boot_id: str


@contextmanager
def start_fleet(address: str) -> Iterator[Explorer]:
    """An explorer that spreads searches over the workers of a cluster.

    Raises UsageError for an address that is none, HostError without the library, or when nobody
    answers there.
    """
    if not address.startswith(("tcp://", "tls://")):
        what = f"{address!r} is no address of a cluster"
        raise UsageError(what, hint="--cluster tcp://HOST:8786")
    require_extra("fleet")
    from distributed import Client

    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # its failures are told by us
    try:
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        what = f"no cluster answers at {address}"
        raise HostError(what, str(error), "dask scheduler; dask worker ADDRESS") from None
    with client:
        yield _Fleet(client, address)


class _Fleet:
    """The explorer; keeps what was sent last, for the next fault is about the same recording."""

    def __init__(self, client: Client, address: str) -> None:
        self.client, self.address = client, address
        self.sent: dict[str, Future] = {}
        self.session = uuid.uuid4().hex

    def __call__(
        self, search: StateSearch, room: Path, on_progress: Callable[[Explored], None]
    ) -> Explored:
        """As ``explore``; a part that nobody brings back is a failure in the answer."""
        began = time.monotonic()
        nothing = Explored(search.fault, search.promises, 0, None, True, 0, search.seed, 0.0)
        workers = sorted(self.client.scheduler_info(n_workers=-1)["workers"])
        if not workers:
            return replace(nothing, failure=f"the cluster at {self.address} has no workers")
        evidence = self._send(search)
        waiting = {}
        for number, worker in enumerate(workers, 1):
            part = replace(search, shard=Shard(number, len(workers)))
            errand = Errand(part, sys.executable, __version__, self.session, read_boot_id())
            placing: dict[str, Any] = {"workers": [worker], "allow_other_workers": True}
            future = self.client.submit(run_errand, errand, evidence, pure=False, **placing)
            waiting[future] = number
        parts = []
        for found in self._gather(waiting, search):
            parts.append(found)
            missing = [nothing] * (len(workers) - len(parts))
            on_progress(merge_parts([*parts, *missing]))
        return replace(merge_parts(parts), seconds=time.monotonic() - began)

    def _send(self, search: StateSearch) -> Future:
        packed = pack_evidence(search)
        if packed.id not in self.sent:
            self.sent = {packed.id: self.client.scatter(packed, hash=False)}
        return self.sent[packed.id]

    def _gather(self, waiting: dict[Future, int], search: StateSearch) -> Iterator[Explored]:
        """Parts as they come; in place of those that do not, why."""
        from distributed import TimeoutError as Late
        from distributed import as_completed

        nothing = Explored(search.fault, search.promises, 0, None, True, 0, search.seed, 0.0)
        # Twice: a part whose worker is gone is begun again on another one.
        limit = 2 * (search.seconds + SLACK_SECONDS) + _TRANSFER_SECONDS
        left, of = dict(waiting), len(waiting)
        try:
            for future in as_completed(list(waiting), loop=self.client.loop, timeout=limit):
                number = left.pop(future)
                if future.status == "finished":
                    yield future.result()
                else:
                    why = str(future.exception() or future.status)
                    failure = f"part {number}/{of} came to nothing: {why}"[:2000]
                    yield replace(nothing, failure=failure)
        except Late:
            for number in left.values():
                yield replace(nothing, failure=f"part {number}/{of} did not end in its time")
        finally:
            self.client.cancel(list(left))


def pack_evidence(search: StateSearch) -> RecordingData:
    """Log and base of a search, to be sent. Holes of the base stay holes."""
    argv = ["tar", "--create", "--sparse", "--numeric-owner", "--sort=name"]
    archive = run([*argv, "--directory", str(search.base), "--file=-", "."], timeout=120).stdout
    log = search.log.read_bytes()
    return RecordingData(_evidence_id(log, archive), log, archive)


def _evidence_id(log: bytes, base: bytes) -> str:
    parts = (hashlib.sha256(log).digest(), hashlib.sha256(base).digest())
    return hashlib.sha256(b"".join(parts)).hexdigest()


# -- on a worker ----------------------------------------------------------------------------


def run_errand(errand: Errand, evidence: RecordingData) -> Explored:
    """One part of a search, on a worker. What cannot be done there is a failure in the answer."""
    from distributed import get_worker

    search, worker = errand.search, get_worker()
    nothing = Explored(search.fault, search.promises, 0, None, True, 0, search.seed, 0.0)
    try:
        if errand.version != __version__:
            raise HostError("another diskproof is here", f"{__version__}, not {errand.version}")
        scratch = Path(worker.local_directory) / f"diskproof-{errand.session}"
        folder = unpack_evidence(evidence, scratch)
        local = replace(
            search,
            log=folder / "log",
            base=folder / "base",
            check=_localise(search.check, errand.python),
            threads=worker.state.nthreads,
        )
        with (
            start_beside(errand.boot_id),
            tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as room,
        ):
            return explore(local, Path(room), lambda found: None)
    except (DiskproofError, OSError) as error:
        return replace(nothing, failure=f"on {worker.address}: {error}"[:2000])


def unpack_evidence(evidence: RecordingData, scratch: Path) -> Path:
    """Log and base in a folder that is named by their hash; made once, whole or not at all.

    What was unpacked for earlier recordings goes. Raises HostError when what came is not what was
    sent, RunFailure when it cannot be unpacked.
    """
    folder = scratch / evidence.id
    if folder.is_dir():
        return folder
    if _evidence_id(evidence.log, evidence.base) != evidence.id:
        raise HostError("log and base did not arrive whole", "their hash is another")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=scratch))
    base = unfinished / "base"
    base.mkdir()
    (unfinished / "log").write_bytes(evidence.log)
    argv = ["tar", "--extract", "--sparse", "--numeric-owner", "--directory", str(base)]
    run([*argv, "--file=-"], timeout=_UNPACK_SECONDS, stdin=evidence.base)
    admit(base)  # QEMU's user looks into states
    unfinished.rename(folder)
    return folder


def _localise(check: Any, python: str) -> dict[str, object]:
    """The check as this host starts it."""
    argv = check.get("argv")
    if not argv or argv[0] != python:
        return dict(check)
    return {**check, "argv": [sys.executable, *argv[1:]]}
