"""Run the steps of all tiles at once: one thread, one selector over the channels of all guests.

A phase is a barrier: ``Engine.run`` returns when each of its steps has ended with status 0, and
raises at the first thing that goes wrong anywhere, whatever else is still under way.
"""

import selectors
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from graphlib import TopologicalSorter

from diskproof.errors import RunFailure
from diskproof.guest.ours.jobs import Job
from diskproof.records.tiles import Phase, StepRun
from diskproof.tiles.step_run import RunningStep, Station
from diskproof.tiles.steps import TileStep

HEARTBEAT_SECONDS = 10.0
SILENCE_SECONDS = 120.0
"""How long an agent may leave a sign of life unanswered. Long: an emulated guest beside many
others is slow, and what hangs for good is told all the same."""

Node = tuple[int, str]


@dataclass(frozen=True)
class PhaseProgress:
    """Which steps of a phase run, as (tile, guest, step); ``done`` of ``total`` have ended."""

    phase: Phase
    running: tuple[tuple[int, str, str], ...]
    done: int
    total: int


OnStep = Callable[[PhaseProgress], None]


class Heartbeat:
    """Asks one guest for signs of life."""

    def __init__(self, station: Station, silence: float) -> None:
        self.station, self._silence = station, silence
        self._job: Job | None = None
        self._asked = 0.0
        self.due = time.monotonic()

    def advance(self) -> None:
        """Ask when it is time. Raises RunFailure ``guest`` after a long silence."""
        now = time.monotonic()
        if self._job is not None and self._job.final is None:
            if now >= self._asked + self._silence:
                why = f"its agent gave no sign of life for {self._silence:g} s"
                raise RunFailure("guest", "the guest hangs", why)
            self.due = self._asked + self._silence
        elif now >= self.due:
            self.station.check()
            self._job, self._asked = self.station.channel.start_clock(), now
            self.due = now + min(HEARTBEAT_SECONDS, self._silence)


class Engine:
    """Runs ``steps`` of each tile in the guests of that tile. ``left`` gives the seconds until the
    run must have ended, and raises RunFailure when it must. Raises ValueError for an order of steps
    that cannot be."""

    def __init__(
        self,
        stations: Sequence[Station],
        steps: Sequence[TileStep],
        left: Callable[[], float],
        on_step: OnStep = lambda progress: None,
        silence: float = SILENCE_SECONDS,
    ) -> None:
        self._stations = {(station.tile, station.name): station for station in stations}
        self._steps = tuple(steps)
        if len({step.name for step in steps}) < len(self._steps):
            raise ValueError("two steps have the same name")
        self._left, self._on_step, self._silence = left, on_step, silence
        self._tiles = sorted({station.tile for station in stations})
        self.courses: dict[Node, RunningStep] = {}
        """What has been started, by tile and name of the step."""

    def run(self, phase: Phase) -> None:
        """All steps of one phase. Raises RunFailure with guest, phase and step in its ``what``."""
        steps = {step.name: step for step in self._steps if step.phase == phase}
        order = sort_steps(self._tiles, steps)
        beats = [Heartbeat(station, self._silence) for station in self._stations.values()]
        running: dict[Node, RunningStep] = {}
        done, total = 0, len(steps) * len(self._tiles)
        with start_selector(self._stations.values()) as selector:
            while order.is_active():
                ended = self._find_ended(phase, running)
                for node in ended:
                    del running[node]
                    order.done(node)
                done += len(ended)
                if self._start_ready(order, steps, running) or ended:
                    self._tell(phase, running, done, total)
                else:
                    self._wait(selector, beats, phase, running)

    def _start_ready(
        self,
        order: TopologicalSorter[Node],
        steps: Mapping[str, TileStep],
        running: dict[Node, RunningStep],
    ) -> bool:
        ready = order.get_ready()
        for tile, name in ready:
            step = steps[name]
            course = RunningStep(self._stations[tile, step.guest], step)
            self.courses[tile, name] = running[tile, name] = course
        return bool(ready)

    def _find_ended(self, phase: Phase, running: Mapping[Node, RunningStep]) -> list[Node]:
        ended = []
        for node, course in running.items():
            with self._blamed(course.station, phase, running):
                if course.advance():
                    ended.append(node)
        return ended

    def _wait(
        self,
        selector: selectors.BaseSelector,
        beats: Sequence[Heartbeat],
        phase: Phase,
        running: Mapping[Node, RunningStep],
    ) -> None:
        """Take in what comes, until something is due."""
        for beat in beats:
            with self._blamed(beat.station, phase, running):
                beat.advance()
        with self._named(phase, running):
            left = self._left()
        now = time.monotonic()
        moments = [beat.due for beat in beats] + [course.due for course in running.values()]
        within = max(0.0, min([*moments, now + left]) - now)
        for key, _ in selector.select(within):
            station, take = key.data
            with self._blamed(station, phase, running):
                take()

    @contextmanager
    def _blamed(
        self, station: Station, phase: Phase, running: Mapping[Node, RunningStep]
    ) -> Iterator[None]:
        """A failure inside is this guest's, and says so."""
        try:
            yield
        except RunFailure as failure:
            explained = station.explain(failure)
            if explained.what.startswith(station.title):  # a step has told
                raise explained from failure
            own = [course.step.name for course in running.values() if course.station is station]
            steps = "step " + ", ".join(own) if own else "no step of its own under way"
            what = f"{station.title}, {phase}, {steps}: {explained.what}"
            raise RunFailure(
                explained.kind, what, explained.why, explained.hint, explained.evidence
            ) from failure

    @contextmanager
    def _named(self, phase: Phase, running: Mapping[Node, RunningStep]) -> Iterator[None]:
        """A failure inside names the steps that were under way."""
        try:
            yield
        except RunFailure as failure:
            names = ", ".join(f"{each.station.title} {each.step.name}" for each in running.values())
            what = f"{phase}: {failure.what}"
            raise RunFailure(
                failure.kind, what, f"still under way: {names}", failure.hint
            ) from None

    def _tell(
        self, phase: Phase, running: Mapping[Node, RunningStep], done: int, total: int
    ) -> None:
        names = ((tile, course.station.name, name) for (tile, name), course in running.items())
        self._on_step(PhaseProgress(phase, tuple(names), done, total))

    def step_runs(self, zero: float) -> tuple[StepRun, ...]:
        """What was started, with times from ``zero`` (of time.monotonic()); what has not ended
        ends now."""
        now = time.monotonic()
        runs = []
        for (tile, name), course in self.courses.items():
            started = course.began if course.started is None else course.started
            ended = now if course.ended is None else course.ended
            step = course.step
            times = (started - zero, ended - zero)
            status = course.status
            runs.append(StepRun(tile, step.guest, name, step.phase, step.work, *times, status))
        return tuple(runs)


def sort_steps(tiles: Iterable[int], steps: Mapping[str, TileStep]) -> TopologicalSorter[Node]:
    """The steps of one phase in all tiles, in an order to be asked for. Raises ValueError for
    steps that wait for each other or for one that is not there."""
    order: TopologicalSorter[Node] = TopologicalSorter()
    for step in steps.values():
        if unknown := set(step.after) - set(steps):
            raise ValueError(f"{step.name} comes after {sorted(unknown)}, which there are not")
        for tile in tiles:
            order.add((tile, step.name), *((tile, name) for name in step.after))
    order.prepare()
    return order


@contextmanager
def start_selector(stations: Iterable[Station]) -> Iterator[selectors.BaseSelector]:
    """Waits for all that stations have to say; ``data`` is the station and what takes it in."""
    with selectors.DefaultSelector() as selector:
        for station in stations:
            takers = {station.channel.fileno(): station.channel.take_ready, **station.watched}
            for descriptor, take in takers.items():
                selector.register(descriptor, selectors.EVENT_READ, (station, take))
        yield selector
