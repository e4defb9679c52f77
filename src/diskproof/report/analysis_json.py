"""What ``factors`` and ``stability`` print for programs: an object a study and host."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from diskproof.report.analysis import StudyAnalysis, WorkloadAnalysis


def studies_json(
    studies: Sequence[StudyAnalysis], findings: Callable[[WorkloadAnalysis], dict[str, object]]
) -> list[dict[str, object]]:
    """Plain JSON; ``findings`` are what is said of a workload beside its name and metric."""
    return [
        {
            "study": study.study.name,
            "id": study.study.id,
            "host": study.host.name,
            "workloads": [{**_head(load), **findings(load)} for load in study.loads],
        }
        for study in studies
    ]


def _head(load: WorkloadAnalysis) -> dict[str, object]:
    return {
        "workload": load.name,
        "metric": load.metric,
        "unit": load.unit,
        "higher_is_better": load.higher_is_better,
    }
