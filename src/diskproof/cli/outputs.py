"""The type of every JSON that is printed; ``version_json.py`` has the numbers of their schemas."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from diskproof.crash.block_log import ExportedJson
from diskproof.crash.flush_audit import FlushesJson
from diskproof.crash.gallery import ApplicationJson
from diskproof.crash.reproduce import MadeAgainJson
from diskproof.records import Finding
from diskproof.records.operations import UnsyncedJson
from diskproof.report import output_analyses as analyses
from diskproof.report import output_answers as answers
from diskproof.report import outputs
from diskproof.report.progress import StudyStatus
from diskproof.store.show import ShownJson

# -- native programs, whose serializers stand in native/tools -------------------------------


class DropsJson(TypedDict):
    dropped: dict[str, int]
    dropped_total: int
    passed: int
    not_dropped: int
    refused: int
    io_uring_setups: int
    seconds_per_sync: float | None
    seconds_saved_estimate: float | None
    processes_still_running: int
    exit_code: int


class LeftFileJson(TypedDict):
    path: str
    bytes: int
    why: str


class PageCacheJson(TypedDict):
    files: int
    unseen_files: int
    brought_in_bytes: int
    dropped_by_watcher_bytes: int
    left_bytes: int
    peak_file_bytes: int
    peak_all_bytes: int
    left: list[LeftFileJson]


class HistogramBinJson(TypedDict):
    from_ns: int
    calls: int


class SyncSumsJson(TypedDict):
    calls: int
    errors: int
    total_ns: int
    max_ns: int


class SyncCallJson(SyncSumsJson):
    process: str
    call: str
    mean_ns: int
    p50_ns: int
    p99_ns: int
    p99_9_ns: int
    histogram: list[HistogramBinJson]


class SyncGroupJson(SyncSumsJson):
    process: str
    pid: int
    call: str
    file: str


class SyncWriterJson(TypedDict):
    process: str
    pid: int
    syncs: int
    written_bytes: int
    empty: int


class SyncWaitJson(TypedDict):
    waiter: str
    waiter_pid: int
    beside: str
    beside_pid: int
    file: str
    calls: int
    together_ns: int


class SyncTraceJson(SyncSumsJson):
    type: Literal["sync_trace"]
    protocol: Literal[1]
    mechanism: str
    command: list[str]
    pid: int
    exit_code: int | None
    wall_ns: int
    busy_ns: int
    late: int
    lost: int
    not_seen: list[str]
    by_call: list[SyncCallJson]
    groups: list[SyncGroupJson]
    writers: list[SyncWriterJson]
    waits: list[SyncWaitJson]
    advice: list[str]


class ColumnJson(TypedDict):
    name: str
    unit: str


class RowColumnsJson(TypedDict):
    key: str
    columns: list[ColumnJson]


class MonitorHeaderJson(TypedDict):
    type: Literal["header"]
    protocol: Literal[1]
    interval_ms: int
    columns: list[ColumnJson]
    rows: NotRequired[RowColumnsJson]


class MonitorSampleJson(TypedDict):
    type: Literal["sample"]
    time: float
    values: list[float | None]
    rows: NotRequired[list[list[str | float | None]]]


# -- guests as files -------------------------------------------------------------------------


class ExportedGuestJson(TypedDict):
    """``extra`` names what it was built ``--with``, or nothing."""

    file: str
    sha256: str
    bytes: int
    id: str
    suite: str
    extra: str


class ImportedGuestJson(TypedDict):
    """``id`` is not ``exported_id`` where diskproof's own programs differ."""

    id: str
    exported_id: str
    folder: str
    suite: str
    extra: str
    sha256: str
    there_before: bool


# -- all ------------------------------------------------------------------------------------


class ProgramJson(TypedDict):
    path: str
    sha256: str


class VersionJson(TypedDict):
    """What ``--version --json`` prints. ``commit`` is None where nobody knows it, and ends in
    ``-dirty`` where files differ from it; ``outputs`` has the number of each schema."""

    version: str
    commit: str | None
    python: str
    store_schema: int
    outputs: dict[str, int]
    programs: dict[str, ProgramJson]


OUTPUTS: Mapping[str, Any] = {
    "advise": answers.AdviceJson,
    "audit": answers.MachinesJson,
    "audit-measure": answers.OwnSettingsJson,
    "compare": analyses.ComparisonJson,
    "crash-apps": list[ApplicationJson],
    "crash-block-log": ExportedJson,
    "crash-flushes": list[FlushesJson],
    "crash-reproduce": MadeAgainJson,
    "crash-study": list[outputs.CrashCellJson],
    "crash-unsynced": UnsyncedJson,
    "doctor": list[Annotated[outputs.AsDict, Finding]],
    "doctor-walls": answers.WallsJson,
    "factors": list[analyses.AnalysedJson[analyses.FactorsJson | analyses.NoFactorsJson]],
    "guest-export": ExportedGuestJson,
    "guest-import": ImportedGuestJson,
    "monitor": MonitorHeaderJson | MonitorSampleJson,
    "nocache": PageCacheJson,
    "plan": outputs.WholePlanJson,
    "quick": answers.QuickJson,
    "rank": list[outputs.RankingJson],
    "run": list[ShownJson],
    "show": list[ShownJson],
    "stability": list[analyses.AnalysedJson[analyses.StabilityJson]],
    "status": list[Annotated[outputs.AsDict, StudyStatus]],
    "sync-drop": DropsJson,
    "sync-trace": SyncTraceJson,
    "tiles": list[outputs.TilesJson],
    "version": VersionJson,
}
"""By the words of a verb; ``monitor`` and ``status --follow`` print one such a line."""
