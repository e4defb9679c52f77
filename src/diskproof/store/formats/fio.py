"""``import fio``: files of fio's JSON (``json`` or ``json+``) as a study.

Files are repeats: a job with the same options in several files is one cell with a run each. How
the disk is reached (``ioengine``, ``direct``, ...) becomes levels, what is done to it the workload.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from diskproof.errors import UsageError
from diskproof.fio_output import (
    FioJob,
    FioResult,
    combine_clones,
    job_histograms,
    job_metrics,
    parse_fio_documents,
)
from diskproof.records import (
    Artefact,
    Cell,
    Failure,
    HostRecord,
    Metric,
    RunRecord,
    StudyRecord,
    content_id,
)
from diskproof.store.formats.fio_cells import clean_name, job_cells
from diskproof.store.formats.imported import Imported

ORIGIN = "fio"
MAX_FILES = 10_000
MAX_RUNS = 100_000
MAX_TOTAL = 512 << 20
_LARGE_BLOCK = 64 << 10


@dataclass(frozen=True)
class _Found:
    """A job where it was found; ``first`` marks the first one of its file."""

    file: str
    data: bytes
    document: FioResult
    position: int
    job: FioJob
    first: bool


def import_fio(files: Sequence[tuple[str, bytes]], name: str) -> Imported:
    """Read (file name, content) of one or more files as a study called ``name``.

    Jobs with errors become failed runs. Each file is kept whole with the first run made of it.
    Raises UsageError naming the file that is not fio's JSON.
    """
    if len(files) > MAX_FILES or sum(len(data) for _, data in files) > MAX_TOTAL:
        raise UsageError(
            "too much to import at once",
            f"more than {MAX_FILES} files or {MAX_TOTAL >> 20} MiB",
            "import it in parts, each under a name of its own",
        )
    notes: list[str] = []
    files = _without_copies(files, notes)
    found = [each for file, data in files for each in _read_file(file, data, notes)]
    if not found:
        raise UsageError("nothing was imported", "there is no job of fio in it", "name other files")
    if len(found) > MAX_RUNS:
        raise UsageError("too much to import at once", f"more than {MAX_RUNS} jobs")
    digests = [hashlib.sha256(data).hexdigest() for _, data in files]
    study_id = content_id([ORIGIN, name, digests])
    versions = sorted({each.document.version for each in found})
    host = HostRecord(content_id([ORIGIN, versions]), ORIGIN, {"imported": ORIGIN, "fio": versions})
    cells = job_cells([each.job for each in found])
    runs = tuple(_runs(found, cells, study_id, host.id))
    study = StudyRecord(
        study_id,
        name,
        ORIGIN,
        "\n".join(clean_name(file) for file, _ in files),
        0,
        max(run.block for run in runs) + 1,
        tuple({cell.id: cell for cell in cells}.values()),
        warnings=tuple(notes),
        created=time.time(),
    )
    return Imported(study, host, runs, tuple(notes))


def _without_copies(
    files: Sequence[tuple[str, bytes]], notes: list[str]
) -> list[tuple[str, bytes]]:
    """A file that is given twice is no repeat of the measurement."""
    kept: dict[bytes, tuple[str, bytes]] = {}
    for file, data in files:
        digest = hashlib.sha256(data).digest()
        if digest in kept:
            notes.append(f"{clean_name(file)} is a copy of {clean_name(kept[digest][0])}; left out")
        kept.setdefault(digest, (file, data))
    return list(kept.values())


def _read_file(file: str, data: bytes, notes: list[str]) -> Iterator[_Found]:
    try:
        documents = parse_fio_documents(data)
    except ValueError as error:
        raise UsageError(
            f"{clean_name(file)}: not imported", str(error), "nothing of the files was stored"
        ) from None
    final = [
        document
        for document, later in zip(documents, [*documents[1:], None], strict=True)
        if later is None or not _is_interim(document, later)
    ]
    if len(final) < len(documents):
        count = len(documents) - len(final)
        notes.append(f"{clean_name(file)}: {count} reports of a run that went on were left out")
    first = True
    for document in final:
        for position, job in enumerate(_combined(document.jobs)):
            yield _Found(file, data, document, position, job, first)
            first = False


def _is_interim(document: FioResult, later: FioResult) -> bool:
    """Whether ``later`` reports on the same run (``status-interval``): it has worked for longer
    than the time between the two, so that it had begun when the first one was written."""
    if [job.name for job in document.jobs] != [job.name for job in later.jobs]:
        return False
    pairs = zip(document.jobs, later.jobs, strict=True)
    if any(after.runtime < before.runtime for before, after in pairs):
        return False
    # Before fio 3.0 gave milliseconds, an end was known to the second only.
    whole = document.ended.is_integer() and later.ended.is_integer()
    between = later.ended - document.ended + (1.0 if whole else 0.0)
    return 0 < between < max((job.runtime for job in later.jobs), default=0.0)


def _combined(jobs: Sequence[FioJob]) -> list[FioJob]:
    """Clones taken together; jobs that only share their name are not clones."""
    alike: dict[object, list[FioJob]] = {}
    for job in jobs:
        alike.setdefault((job.name, tuple(sorted(job.options.items()))), []).append(job)
    return [each for clones in alike.values() for each in combine_clones(clones)]


def _runs(
    found: Sequence[_Found], cells: Sequence[Cell], study_id: str, host_id: str
) -> Iterator[RunRecord]:
    blocks: Counter[str] = Counter()
    for each, cell in zip(found, cells, strict=True):
        block = blocks[cell.id]
        blocks[cell.id] += 1
        metrics, failure = _outcome(each.job, cell)
        ended = each.document.ended
        yield RunRecord(
            id=content_id([study_id, cell.id, block]),
            study_id=study_id,
            cell=cell,
            block=block,
            position=each.position,
            started=max(0.0, ended - each.job.runtime),
            ended=ended,
            status="failed" if failure else "ok",
            host_id=host_id,
            failure=failure,
            metrics=metrics,
            histograms=() if failure else job_histograms(each.job),
            artefacts=(_whole(each),) if each.first else (),
            phases=(("workload", each.job.runtime),),
        )


def _outcome(job: FioJob, cell: Cell) -> tuple[tuple[Metric, ...], Failure | None]:
    if job.error:
        why = f"error {job.error} ({job.error_text})"
        return (), Failure("workload", "fio says that the job failed", why)
    try:
        return job_metrics(job, _primary(cell)), None
    except ValueError as error:
        return (), Failure("workload", "the job measured nothing", str(error))


def _primary(cell: Cell) -> str:
    """As our own presets are ranked: sequential loads of large blocks by bandwidth."""
    size = cell.workload.option("bs", "4096")
    large = size.isascii() and size.isdigit() and int(size) >= _LARGE_BLOCK
    sequential = not cell.workload.option("rw", "read").startswith("rand")
    return "bandwidth" if sequential and large else "iops"


def _whole(found: _Found) -> Artefact:
    name = clean_name(PurePath(found.file).name) or "fio.json"
    return Artefact(name, "application/json", found.data)
