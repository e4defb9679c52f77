"""What a run of any experiment is given: the study's setup, and the time it has."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from diskproof.backings import Consent
from diskproof.drive import Command, Drive, Execution
from diskproof.lab.deadline import Deadline
from diskproof.records import BackingSpec, Check
from diskproof.study.guest import OwnGuest

START_SECONDS = 120.0
FULL_BYTES = 4 << 20  # no cluster or extent of an image fits in less


@dataclass(frozen=True)
class LabSetup:
    """What all runs of a study share. ``consent`` is for what its backings destroy; ``accel`` is
    the host's probed accelerator."""

    study_id: str
    host_id: str
    backings: Mapping[str, BackingSpec]
    consent: Consent
    accel: str
    run_timeout: float
    own_guest: OwnGuest | None = None


class BoundedDrive(Drive):
    """A drive whose commands end with the run's deadline."""

    def __init__(self, drive: Drive, deadline: Deadline) -> None:
        super().__init__(drive.facts)
        self.drive, self.deadline = drive, deadline

    def run(self, command: Command) -> Execution:
        left = self.deadline.left()
        return self.drive.run(replace(command, timeout=min(command.timeout, left), left=left))

    def read_back(self) -> tuple[Check, ...]:
        return self.drive.read_back()
