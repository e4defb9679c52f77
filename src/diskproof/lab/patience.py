"""A store that is away for a while costs no run: it is asked again, and what it does not take is
put aside for the next start."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from diskproof.errors import HostError
from diskproof.records import StudyRecord
from diskproof.store.connect import StoreAway
from diskproof.store.spool import bring_in, put_aside
from diskproof.units import render_seconds

if TYPE_CHECKING:
    from diskproof.store import Store
    from diskproof.store.parts import Run

PATIENCE_SECONDS = 60.0
"""How long a server may take to come back: a restart with recovery."""
_PAUSE = 1.0

AnyRun = TypeVar("AnyRun", bound="Run")


class Patience:
    """With one store, for the runs of one study; ``warn`` tells whoever waits."""

    def __init__(
        self, store: Store, study: StudyRecord, warn: Callable[[str], None], seconds: float
    ) -> None:
        self.store, self.study, self.warn, self.seconds = store, study, warn, seconds
        self._hosts = {host.id: host for host in store.hosts()}  # when it is away, too late

    def bring_in(self) -> None:
        """Store what was put aside before. Raises HostError."""
        for back in bring_in(self.store, self.study.id):
            what = f"the run that was put aside in {back.path} is "
            self.warn(what + (f"not stored: {back.trouble}" if back.trouble else "stored now"))

    def wait_for(self, step: Callable[[], None], holding: str = "") -> None:
        """Do what the store is needed for, again while its server is away. Raises HostError."""
        began = time.monotonic()
        tries = 0
        while True:
            try:
                step()
                break
            except StoreAway as error:
                if time.monotonic() - began >= self.seconds:
                    raise
                if tries == 0:
                    within = render_seconds(self.seconds)
                    self.warn(f"{error.what}; {holding}it is asked again for {within}")
            tries += 1
            time.sleep(min(_PAUSE, self.seconds))
        if tries:
            self.warn(f"the store is back after {render_seconds(time.monotonic() - began)}")

    def keep(self, run: AnyRun, keep: Callable[[AnyRun], None]) -> None:
        """Store a finished run; one that is not taken is put aside. Raises HostError, which says
        where it is then."""
        try:
            self.wait_for(lambda: keep(run), "the finished run is kept meanwhile, ")
        except HostError as error:
            try:
                told = self._put_aside(run)
            except HostError as worse:
                lost = f"the run that had ended is lost: {worse.what}, {worse.why}"
                raise HostError(error.what, f"{error.why}\n{lost}", error.hint) from error
            raise HostError(error.what, f"{error.why}\n{told}", error.hint) from error
        except KeyboardInterrupt:
            self.warn(self._put_aside(run))
            raise

    def _put_aside(self, run: Run) -> str:
        path = put_aside(self.store, self.study, self._hosts[run.host_id], run)
        return f"the finished run is kept in {path}; the same command brings it in"
