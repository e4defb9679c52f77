"""What an importer answers with."""

from dataclasses import dataclass

from diskproof.records import HostRecord, RunRecord, StudyRecord


@dataclass(frozen=True)
class Imported:
    """A foreign file as a study, ready for ``Store.add_imported``.

    The same file under the same name gives the same ids, so that a second import adds nothing.
    ``notes`` say in sentences what was left out or had to be told apart.
    """

    study: StudyRecord
    host: HostRecord
    runs: tuple[RunRecord, ...]
    notes: tuple[str, ...]
