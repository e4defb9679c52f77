"""What becomes known of a run while it goes on, and of its failure."""

import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from diskproof.errors import NO_SPACE, DiskproofError, RunFailure
from diskproof.host.audit import start_audit
from diskproof.lab.deadline import Deadline, OutOfTime
from diskproof.process.owner import OURS_ALONE, start_umask
from diskproof.process.run_user import start_run_user
from diskproof.records import Artefact, Check, Failure, Metric, Series
from diskproof.workloads import WorkloadResult


@dataclass
class RunNotes:
    """What becomes known of a run while it goes on; kept as far as it came. ``broken`` names the
    phase that failed."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    started: float = field(default_factory=time.time)
    ended: float = 0.0
    failure: Failure | None = None
    phases: list[tuple[str, float]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    artefacts: dict[str, Artefact] = field(default_factory=dict)
    result: WorkloadResult | None = None
    broken: str = ""
    deadline: Deadline | None = None

    @contextmanager
    def whole_run(self, seconds: float) -> Iterator[Deadline]:
        """Around a run, all of it: it ends in its time, what goes wrong in it is its result, and
        the host is audited. Root's has a user of its own, and what it makes and starts leaves
        nothing that others may read."""
        self.deadline = deadline = Deadline(seconds)
        private = start_umask(OURS_ALONE) if os.geteuid() == 0 else nullcontext()
        with start_audit() as audit, private, start_run_user():
            try:
                with deadline.enforced():
                    yield deadline
            except OutOfTime:
                self.failure = self._keep_failure(deadline.failure())
            except (DiskproofError, OSError) as error:
                self.failure = self._keep_failure(error)
        self.keep([audit.as_artefact()])
        self.ended = time.time()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a step, also one that fails."""
        began = time.monotonic()
        try:
            yield
        except BaseException:
            self.broken = self.broken or name
            if self.deadline:
                self.deadline.clean_up()
            raise
        finally:
            self.phases.append((name, time.monotonic() - began))

    def require(self, checks: Sequence[Check], kind: str = "mismatch") -> None:
        """Keep checks. Raises RunFailure ``kind`` that names those that are not right."""
        self.checks += checks
        if wrong := [check for check in checks if not check.ok]:
            raise RunFailure(
                kind,
                f"{', '.join(check.name for check in wrong)}: not what was asked for",
                "\n".join(
                    f"{check.name}: asked {check.requested}, in force {check.effective} "
                    f"({check.source})"
                    for check in wrong
                ),
            )

    def keep(self, artefacts: Sequence[Artefact]) -> None:
        """Keep files; the first of a name counts."""
        for artefact in artefacts:
            self.artefacts.setdefault(artefact.name, artefact)

    def _keep_failure(self, error: DiskproofError | OSError) -> Failure:
        """The failure to store, its evidence among the artefacts."""
        if isinstance(error, RunFailure):
            self.keep([_as_artefact(name, content) for name, content in error.evidence])
            where = f"in the phase {self.broken}" if error.kind == "timeout" and self.broken else ""
            why = "\n".join(filter(None, (error.why, where)))
            return Failure(error.kind, error.what, why, error.hint)
        cause = error.__cause__ if isinstance(error, DiskproofError) else error
        full = isinstance(cause, OSError) and cause.errno in NO_SPACE
        kind = "space" if full else "tool"
        if isinstance(error, DiskproofError):
            return Failure(kind, error.what, error.why, error.hint)
        return Failure(kind, error.strerror or str(error), str(error.filename or ""))


def _as_artefact(name: str, content: bytes) -> Artefact:
    media = "application/json" if name.endswith(".json") else "text/plain"
    return Artefact(name, media, content)
