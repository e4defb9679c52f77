"""What load is put on the disk. One kind = one file; all speak the protocol below."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from diskproof.drive import Drive
from diskproof.records import Artefact, Histogram, Metric, Series, WorkloadSpec


@dataclass(frozen=True)
class WorkloadResult:
    """What one execution of a workload measured."""

    metrics: tuple[Metric, ...]
    series: tuple[Series, ...] = ()
    histograms: tuple[Histogram, ...] = ()
    artefacts: tuple[Artefact, ...] = ()


class Workload(Protocol):
    """A kind of workload."""

    def run(self, spec: WorkloadSpec, drive: Drive) -> WorkloadResult:
        """Put the load on and read its figures.

        Raises RunFailure with the tool's output as ``evidence``.
        """
        ...
