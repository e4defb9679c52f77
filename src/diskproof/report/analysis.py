"""Factors and stability of studies, read from a store: for the verbs that tell of nothing else."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from diskproof.errors import UsageError
from diskproof.records import HostRecord, StudyRecord
from diskproof.report import layout
from diskproof.report.factors.find import WorkloadFactors, find_factors
from diskproof.report.output_analyses import AnalysedJson, Found
from diskproof.report.outputs import LoadHeadJson
from diskproof.report.stability.find import WorkloadStability, find_stability
from diskproof.report.view import by_workload, choose_studies
from diskproof.store import ResultRow, Store


@dataclass(frozen=True)
class WorkloadAnalysis:
    """One workload on one host."""

    factors: WorkloadFactors
    stability: WorkloadStability

    @property
    def advice(self) -> list[str]:
        """Where repeats pay."""
        return self.stability.advice


@dataclass(frozen=True)
class StudyAnalysis:
    study: StudyRecord
    host: HostRecord
    loads: tuple[WorkloadAnalysis, ...]


def read_analyses(
    store: Store,
    wanted: Sequence[str] = (),
    workloads: Sequence[str] = (),
    bases: Mapping[str, str] | None = None,
) -> tuple[StudyAnalysis, ...]:
    """Analyse each study (all, or those of these names or ids) on each host it ran on.

    ``bases`` are the levels to compare with, by factor. Raises UsageError for a study, workload,
    factor or level that is not there.
    """
    chosen = choose_studies(store, wanted)
    _check_workloads(chosen, workloads)
    _check_bases(chosen, bases or {})
    hosts = {host.id: host for host in store.hosts()}
    found = []
    for study in chosen:
        rows = [row for row in store.results(study.id) if row.primary]
        for host_id in dict.fromkeys(row.host_id for row in rows):
            own = [row for row in rows if row.host_id == host_id]
            loads = _analyse(store, study, own, workloads, bases or {})
            found.append(StudyAnalysis(study, hosts[host_id], loads))
    return tuple(found)


def _check_workloads(studies: Sequence[StudyRecord], workloads: Sequence[str]) -> None:
    known = dict.fromkeys(cell.workload.name for study in studies for cell in study.cells)
    for name in workloads:
        if name not in known:
            raise UsageError(f"no workload {name!r}", f"there are {', '.join(known) or 'none'}")


def _check_bases(studies: Sequence[StudyRecord], bases: Mapping[str, str]) -> None:
    known: dict[str, dict[str, None]] = {}
    for factor, level in (pair for s in studies for cell in s.cells for pair in cell.levels):
        known.setdefault(factor, {})[level] = None
    for factor, level in bases.items():
        if factor not in known:
            raise UsageError(f"no factor {factor!r}", f"there are {', '.join(known) or 'none'}")
        if level not in known[factor]:
            raise UsageError(
                f"no cell with {factor}={level}", f"levels: {', '.join(known[factor])}"
            )


def _analyse(
    store: Store,
    study: StudyRecord,
    rows: Sequence[ResultRow],
    workloads: Sequence[str],
    bases: Mapping[str, str],
) -> tuple[WorkloadAnalysis, ...]:
    """The primary ``rows`` of one study on one host, workload by workload."""
    runs = {run.id: run for run in store.runs(study.id)}
    return tuple(
        WorkloadAnalysis(find_factors(study, own, bases), find_stability(store, study, own, runs))
        for name, own in by_workload(rows).items()
        if not workloads or name in workloads
    )


def show_studies(
    studies: Sequence[StudyAnalysis],
    groups: Callable[[WorkloadAnalysis], Iterable[Sequence[layout.Shown]]],
) -> layout.Shown:
    """Every study with its workloads; ``groups`` are what is shown of one."""
    shown: list[Sequence[layout.Shown]] = []
    for study in studies:
        head = f"study {study.study.name}, host {study.host.name}"
        shown.append([layout.line(head, style="bold")])
        shown += [group for load in study.loads for group in groups(load)]
    return layout.paragraphs(shown)


def studies_json(
    studies: Sequence[StudyAnalysis], findings: Callable[[WorkloadAnalysis], Found]
) -> list[AnalysedJson[Found]]:
    """Plain JSON, an object a study and host; ``findings`` are what is said of a workload."""
    return [
        {
            "study": study.study.name,
            "id": study.study.id,
            "host": study.host.name,
            "workloads": [findings(load) for load in study.loads],
        }
        for study in studies
    ]


def head_json(load: WorkloadFactors) -> LoadHeadJson:
    return {
        "workload": load.name,
        "metric": load.metric,
        "unit": load.unit,
        "higher_is_better": load.higher_is_better,
    }
