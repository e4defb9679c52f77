"""What a store tells of the runs of this host: the time they take, how far they scatter."""

from itertools import cycle, islice, zip_longest

from diskproof.lab.setup import hosts_here
from diskproof.plan.history import History
from diskproof.records import StudyRecord
from diskproof.stats.intervals import Sample
from diskproof.stats.power import scatter_of
from diskproof.store import Store
from diskproof.store.parts import CRASH

MAX_RUNS = 2000
"""The newest; older ones tell of a host as it was."""

MAX_GAP_SECONDS = 5.0
"""Between two runs one is stored; what is longer was a pause."""


def read_scatter(store: Store, study: StudyRecord, load: str) -> tuple[tuple[float, ...], bool]:
    """How far runs of a study's cells scatter under one workload (``power.scatter_of``), and
    whether the study's own runs tell; else those of the newest study that has such a workload do.
    Empty where no cell has a repeat."""
    cells = sum(cell.workload.name == load for cell in study.cells)
    here = hosts_here(store)
    made = [each for each in store.studies() if each.origin == "run"]
    for each in sorted(made, key=lambda each: (each.id != study.id, -each.created)):
        if not any(cell.workload.name == load for cell in each.cells):
            continue
        rows = [r for r in store.results(each.id) if r.primary and r.cell.workload.name == load]
        rows = [row for row in rows if row.host_id in here]
        found = scatter_of([Sample(row.values, row.blocks) for row in rows])
        if found:
            return tuple(islice(cycle(found), cells)), each.id == study.id
    return (), False


def read_history(store: Store) -> History:
    """The runs of all studies that were made here and did not fail."""
    history = History()
    here = hosts_here(store)
    studies = [study for study in store.studies() if study.origin == "run"]
    for study in sorted(studies, key=lambda study: -study.created):
        runs = [run for run in store.runs(study.id) if run.host_id in here]
        for run, following in zip_longest(runs, runs[1:]):
            if run.status == "ok":
                gap = following.started - run.ended if following else 0.0
                between = gap if 0.0 < gap < MAX_GAP_SECONDS else 0.0
                history.add(study.id, run.cell, run.ended - run.started + between, run.phases)
        for made in store.counted_runs(CRASH, study.id):
            if made.host_id in here and made.failure is None:
                history.add(study.id, made.cell, made.ended - made.started, made.phases)
        if history.runs >= MAX_RUNS:
            break
    return history
