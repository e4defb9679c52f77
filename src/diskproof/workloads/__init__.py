"""What load is put on the disk. One kind = one file; all speak the protocol below."""

import importlib
from dataclasses import dataclass
from typing import Protocol, cast

from diskproof.drive import Drive
from diskproof.errors import UsageError
from diskproof.records import Artefact, Check, Histogram, Metric, Series, WorkloadSpec
from diskproof.study.programs import PROGRAM_BY_KIND

_MODULES = {"fio": "fio", "fio-job": "fio_job", **{kind: kind for kind in PROGRAM_BY_KIND}}


@dataclass(frozen=True)
class WorkloadResult:
    """What one execution of a workload measured.

    ``checks`` tell whether the load was the one asked for; the figures of a run with one that is
    not right do not count. ``measured_seconds`` is how long the measured part took, which ended
    when the workload did: it is where series of other sources find second 0. Nought: all of it.
    """

    metrics: tuple[Metric, ...]
    checks: tuple[Check, ...] = ()
    series: tuple[Series, ...] = ()
    histograms: tuple[Histogram, ...] = ()
    artefacts: tuple[Artefact, ...] = ()
    measured_seconds: float = 0.0


class Workload(Protocol):
    """A kind of workload."""

    def run(self, spec: WorkloadSpec, drive: Drive) -> WorkloadResult:
        """Put the load on and read its figures.

        Raises RunFailure with the tool's output as ``evidence``.
        """
        ...


def load_workload(kind: str) -> Workload:
    """The workload of that kind (its module is imported only now). Raises UsageError."""
    if kind not in _MODULES:
        raise UsageError(f"unknown kind of workload {kind!r}", f"known: {', '.join(_MODULES)}")
    module = importlib.import_module(f"diskproof.workloads.{_MODULES[kind]}")
    return cast(Workload, module.WORKLOAD)
