"""The one loop of every experiment: it resumes, keeps to a budget, ends cleanly, and tells.

A campaign says what comes next and how one of it is made; it is `measure/next.py`,
`crash/next.py` or `tiles/next.py`.
"""

from __future__ import annotations

import math
import os
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar

import psutil

from diskproof.errors import DiskproofError
from diskproof.records import Failure, StudyRecord
from diskproof.store.rows import Progress

if TYPE_CHECKING:
    from diskproof.store import Store

Reason = Literal["done", "budget", "interrupted"]


class Made(Protocol):
    """A run of any experiment, as it is stored."""

    @property
    def failure(self) -> Failure | None: ...


Job = TypeVar("Job")
Run = TypeVar("Run", bound=Made)
News = TypeVar("News")


@dataclass(frozen=True)
class Standing:
    """How far an experiment is. ``done`` counts what failed too; ``eta_seconds`` is for what
    remains, nan where nobody knows. With ``at_most`` it may end before."""

    done: int
    failed: int
    total: int
    eta_seconds: float
    at_most: bool = False


@dataclass(frozen=True)
class JobStarted(Generic[Job]):
    job: Job
    standing: Standing


@dataclass(frozen=True)
class Activity:
    """What a job does now. ``phase`` names one that begins with it, for logs."""

    text: str
    phase: str = ""


@dataclass(frozen=True)
class JobFinished(Generic[Run]):
    """The run is stored. ``seconds`` is all it cost, the store included."""

    run: Run
    seconds: float
    standing: Standing


@dataclass(frozen=True)
class Noted(Generic[News]):
    """What the last run has told of the whole: a block is judged, a capacity is known."""

    news: News


@dataclass(frozen=True)
class Stopped:
    """Nothing more is run. ``next_seconds`` is what the next job would have cost (``budget``)."""

    reason: Reason
    standing: Standing
    next_seconds: float = 0.0


Event = JobStarted[Job] | Activity | JobFinished[Run] | Noted[News] | Stopped
Tell = Callable[[Activity], None]


@dataclass(frozen=True)
class Outcome:
    """How a call ended: ``executed`` runs were made in it, ``standing`` is of the whole study,
    ``next_seconds`` is what the next job would have cost (``budget``)."""

    reason: Reason
    executed: int
    seconds: float
    standing: Standing
    next_seconds: float


class Campaign(ABC, Generic[Job, Run, News]):
    """What one experiment brings to the loop."""

    study: StudyRecord
    store: Store

    @abstractmethod
    def begin(self, retry: bool) -> None:
        """Learn what the store holds; with ``retry`` what failed counts no longer."""

    @abstractmethod
    def next(self) -> Job | None:
        """The next job by all that is stored; None when nothing is left to do."""

    @abstractmethod
    def expect(self, job: Job) -> float:
        """Seconds that a job will take."""

    @abstractmethod
    def execute(self, job: Job, tell: Tell) -> Run:
        """Make one. A failed run is a result; raises only for Ctrl-C and defects."""

    @abstractmethod
    def keep(self, run: Run) -> None:
        """Store a run in one transaction."""

    @abstractmethod
    def learn(self, run: Run, seconds: float) -> Sequence[News]:
        """Take in a run that is stored and cost that much; what is known now of the whole."""

    @abstractmethod
    def standing(self) -> Standing: ...


def run_course(
    campaign: Campaign[Job, Run, News],
    *,
    describe: Callable[[Job], str],
    on_event: Callable[[Event[Job, Run, News]], None],
    budget_seconds: float | None = None,
    retry: bool = False,
    now: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Make all that a campaign asks for and its store does not hold; the same call resumes.

    ``describe`` names a job for ``diskproof status``. The caller has stored the host that the runs
    name. Failed runs are results and not made again,
    unless ``retry``. No job is started that is expected to overshoot ``budget_seconds``. Ctrl-C
    discards the run in flight and returns ``interrupted``. Raises HostError when the store cannot
    be written.
    """
    store, study = campaign.store, campaign.study
    if study.cells or store.find_study(study.id) is None:
        store.add_study(study)
    campaign.begin(retry)
    began, executed, over = now(), 0, 0.0
    reason: Reason = "done"
    with start_telling(store, study.id) as tell:
        try:
            while (job := campaign.next()) is not None:
                expected = campaign.expect(job)
                if budget_seconds is not None and now() - began + expected > budget_seconds:
                    reason, over = "budget", expected
                    break
                standing = campaign.standing()
                tell(describe(job), standing)
                on_event(JobStarted(job, standing))
                job_began = now()
                run = campaign.execute(job, on_event)
                campaign.keep(run)
                executed += 1
                seconds = now() - job_began
                news = campaign.learn(run, seconds)
                on_event(JobFinished(run, seconds, campaign.standing()))
                for each in news:
                    on_event(Noted(each))
        except KeyboardInterrupt:
            reason = "interrupted"
    on_event(Stopped(reason, campaign.standing(), over))
    return Outcome(reason, executed, now() - began, campaign.standing(), over)


class TellProgress(Protocol):
    """Says how far a study is, before each job: so it is also found out that the store cannot be
    written before a run is spent on it."""

    def __call__(self, what: str, standing: Standing) -> None: ...


@contextmanager
def start_telling(store: Store, study_id: str) -> Iterator[TellProgress]:
    """Other terminals see what this process measures, until the block ends."""
    started = time.time()

    def tell(what: str, standing: Standing) -> None:
        eta = standing.eta_seconds
        store.set_progress(
            Progress(
                study_id=study_id,
                pid=os.getpid(),
                boot_id=_boot_id(),
                host=platform.node(),
                started=started,
                total=standing.total,
                done=standing.done,
                failed=standing.failed,
                current=what,
                eta_seconds=None if math.isnan(eta) else eta,
                updated=time.time(),
            )
        )

    try:
        yield tell
    finally:
        # A store that has just failed has said so; who reads it sees that our process is gone.
        with suppress(DiskproofError):
            store.clear_progress(study_id)


def is_running(progress: Progress) -> bool:
    """Whether the process that told this lives. On another host one cannot look: it counts as
    living until it says that it stopped."""
    if progress.host != platform.node():
        return True
    if progress.boot_id != _boot_id():
        return False
    try:
        # A process that is younger than the progress has only got the dead one's number.
        born: float = psutil.Process(progress.pid).create_time()
        return born <= progress.started
    except psutil.Error:
        return False


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
