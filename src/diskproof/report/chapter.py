"""A chapter is found in a store once, and then told in tables and on the page."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from diskproof.records import Cell, HostRecord, StudyRecord
from diskproof.report import layout, vega
from diskproof.report.view import Line, StudyView, WorkloadView, by_workload
from diskproof.store import ResultRow, Store

P = TypeVar("P")
MAX_PICTURES = 20
"""Static pictures on a page; further charts are drawn with scripts on only. It bounds the page's
size and the time to make it, whatever the number of workloads."""


@dataclass
class Figure:
    """This is a chart on the page. ``importance`` 0 gets its static picture first; ``svg`` may stay
    empty."""

    id: str
    caption: str
    spec: vega.Spec
    importance: int
    svg: str = ""


Draw = Callable[[vega.Spec, str, int], Figure]
"""It puts a chart on the page with its caption and importance."""


@dataclass
class Drawing:
    """It numbers the figures of a page and draws the most important of them."""

    figures: list[Figure] = field(default_factory=list)

    def figure(self, spec: vega.Spec, caption: str, importance: int) -> Figure:
        figure = Figure(f"chart-{len(self.figures)}", caption, vega.cleaned(spec), importance)
        self.figures.append(figure)
        return figure

    def draw(self) -> None:
        """Make the static pictures, the most important first."""
        chosen = sorted(self.figures, key=lambda each: each.importance)[:MAX_PICTURES]
        pictures = vega.draw_all([figure.spec for figure in chosen])
        for figure, svg in zip(chosen, pictures, strict=True):
            figure.svg = svg


@dataclass(frozen=True)
class Source:
    """Chapters look here for their parts. ``rows`` are the study's results on the host; without
    ``details`` only what tables of the terminal tell is wanted."""

    store: Store
    study: StudyRecord
    host: HostRecord
    rows: tuple[ResultRow, ...]
    workloads: tuple[WorkloadView, ...]
    details: bool

    @property
    def primary(self) -> tuple[ResultRow, ...]:
        """These are the results that workloads are ranked by."""
        return tuple(row for row in self.rows if row.primary)

    @property
    def by_load(self) -> dict[str, list[ResultRow]]:
        """They are the same by the name of their workload."""
        return by_workload(self.primary)

    def by_line(self, load: WorkloadView) -> list[tuple[Line, list[ResultRow]]]:
        """All results of each cell of a workload come together, the best cell first."""
        of_cell: dict[str, list[ResultRow]] = {}
        for row in self.rows:
            of_cell.setdefault(row.cell.id, []).append(row)
        return [(line, of_cell.get(line.ranked.cell.id, [])) for line in load.lines]


@dataclass(frozen=True)
class Lead:
    """A chapter adds this to the head of its study."""

    count: str = ""
    """It says what was run: ``12 runs, none failed``."""
    answers: tuple[tuple[str, str], ...] = ()
    """Each is of a name, and is a sentence."""
    settled: tuple[str, ...] = ()
    """Names whose answers by other chapters would add nothing."""
    reading: str = ""
    """It says how the answers are to be read."""
    facts: tuple[tuple[str, str], ...] = ()
    title: str = ""
    """A study without a ranking has this title; ``origin`` says how its figures were made."""
    origin: str = ""
    cells: tuple[Cell, ...] = ()
    """They stand with their runs, not in the study."""
    failed: int = 0
    """So many failed runs the chapter itself tells of."""


@dataclass(frozen=True)
class Chapter(Generic[P]):
    """Its row stands in ``chapters.py``. What is None the chapter does not have."""

    name: str
    find: Callable[[Source], Mapping[str, P] | P | None]
    """It looks for the part in a store, by workload if the chapter is on each of them."""
    page: Callable[[P, StudyView, Draw], Mapping[str, object]]
    """It gives what the template needs, and draws the charts."""
    on_each_workload: bool = False
    table: Callable[[P, StudyView, int], Sequence[layout.Shown]] | None = None
    """It makes tables for the terminal, cut to so many lines (0: all)."""
    lead: Callable[[P, StudyView], Lead] | None = None
    raw: Callable[[P], Iterable[Mapping[str, object]]] | None = None
    """It gives the values behind the figures, as rows of JSON that the page carries."""
    question: str = ""
    """Who asks it unfolds the chapter on the page; without one it stands open."""
    hosts: Callable[[Store, StudyRecord], Iterable[str]] | None = None
    """It names the hosts that a study has runs of this kind on, where they are no results."""

    @property
    def told_in_tables(self) -> bool:
        return self.table is not None or self.lead is not None

    def parts(self, view: StudyView) -> Mapping[str, P]:
        """Parts stand by workload; that of a whole study stands under an empty name."""
        if self.name not in view.parts:
            return {}
        found: Mapping[str, P] = view.parts[self.name]
        return found if self.on_each_workload else {"": view.parts[self.name]}
