"""The engine's order, barriers and ends, with far ends that answer as they are told.

Real guests are in tests/vm/test_tiles_engine.py.
"""

import base64
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskproof.errors import RunFailure
from diskproof.guest.ours.channel import Channel
from diskproof.lab.deadline import Deadline
from diskproof.tiles.engine import Engine, PhaseProgress
from diskproof.tiles.step_run import TAIL, Station
from diskproof.tiles.steps import TileStep

Request = dict[str, object]


class Closed(Exception):
    """The far end is done."""


@dataclass
class Agent:
    """A far end: answers each exec by the last word of its argv, and remembers what it was asked.

    ``3`` is an exit status, ``-9`` a signal, ``hang`` gets no answer, ``late`` is timed out,
    ``close`` closes the channel; anything else is printed and ends with 0.
    """

    asked: list[Request] = field(default_factory=list)
    deaf: bool = False
    """Whether it leaves signs of life unanswered."""

    def serve(self, end: socket.socket) -> None:
        with end, end.makefile("rb") as lines, suppress(Closed, ConnectionError):
            for line in lines:
                request = json.loads(line)
                if request["op"] != "clock":
                    self.asked.append(request)
                for event in self.answer(request):
                    end.sendall(json.dumps(event).encode() + b"\n")

    def answer(self, request: Request) -> list[Request]:
        number = request["id"]
        if request["op"] == "clock":
            times = {"monotonic_ns": 1, "realtime_ns": 2}
            return [] if self.deaf else [{"type": "clock", "id": number, **times}]
        if request["op"] == "write":
            return [{"type": "done", "id": number}]
        argv = request["argv"]
        assert isinstance(argv, list)
        return self.run(number, str(argv[-1]))

    def run(self, number: object, word: str) -> list[Request]:
        if word == "close":
            raise Closed
        if word == "hang":
            return []
        status = int(word) if word.lstrip("-").isdecimal() else 0
        ended: Request = {
            "code": status if status >= 0 else None,
            "signal": -status if status < 0 else None,
            "timed_out": word == "late",
            "user_us": 0,
            "system_us": 0,
            "elapsed_ns": 1,
        }
        said = base64.b64encode(f"first\n{word}\n".encode()).decode()
        stream = "stderr" if status else "stdout"
        output: Request = {"stream": stream, "data_base64": said}
        return [
            {"type": "output", "id": number, **output},
            {"type": "exit", "id": number, **ended},
        ]


@contextmanager
def stationed(*agents: Agent, tiles: int = 1) -> Iterator[list[Station]]:
    """Seats ``a``, ``b``, ... of each tile, the agents taken in turn."""
    stations, threads, ours = [], [], []
    per_tile = len(agents) // tiles
    for number, agent in enumerate(agents):
        near, far = socket.socketpair()
        ours.append(near)
        threads.append(threading.Thread(target=agent.serve, args=(far,)))
        threads[-1].start()
        tile, place = divmod(number, per_tile)
        stations.append(Station(tile + 1, "abcdef"[place], Channel(near), {"TILE": str(tile + 1)}))
    try:
        yield stations
    finally:
        for near in ours:
            near.shutdown(socket.SHUT_RDWR)
            near.close()
        for thread in threads:
            thread.join()


def make_step(name: str, guest: str = "a", *after: str, word: str = "", **more: object) -> TileStep:
    step = TileStep(f"{guest}.{name}", guest, "load", ("run", word or name), after)
    return replace(step, **more)  # type: ignore[arg-type]


def fail(
    stations: list[Station], *steps: TileStep, seconds: float = 60, **more: float
) -> RunFailure:
    engine = Engine(stations, steps, Deadline(seconds).left, **more)  # type: ignore[arg-type]
    with pytest.raises(RunFailure) as caught:
        engine.run("load")
    return caught.value


@st.composite
def orders(draw: st.DrawFn) -> list[TileStep]:
    """Steps of three guests in which each waits for some of those before."""
    count = draw(st.integers(1, 8))
    steps: list[TileStep] = []
    for number in range(count):
        earlier = [step.name for step in steps]
        after = draw(st.lists(st.sampled_from(earlier), unique=True)) if earlier else []
        idle = draw(st.booleans())
        guest = draw(st.sampled_from("abc"))
        step = make_step(f"s{number}", guest, *after)
        steps.append(replace(step, argv=(), idle=0.001) if idle else step)
    return draw(st.permutations(steps))


@settings(max_examples=40, deadline=None)
@given(orders())
def test_each_step_runs_once_and_behind_those_it_waits_for(steps: list[TileStep]) -> None:
    told: list[PhaseProgress] = []
    with stationed(*(Agent() for _ in range(6)), tiles=2) as stations:
        engine = Engine(stations, steps, Deadline(60).left, told.append)
        engine.run("load")
        runs = {(run.tile, run.step): run for run in engine.step_runs(0.0)}
    assert sorted(runs) == sorted((tile, step.name) for tile in (1, 2) for step in steps)
    for (tile, name), run in runs.items():
        assert run.status == 0 and run.started <= run.ended
        for before in next(step.after for step in steps if step.name == name):
            assert runs[tile, before].ended <= run.started
    assert (told[-1].running, told[-1].done, told[-1].total) == ((), 2 * len(steps), 2 * len(steps))


def test_a_phase_runs_its_own_steps_only_and_knows_their_output() -> None:
    agent = Agent()
    steps = [replace(make_step("up"), phase="setup"), make_step("hello", work="greet")]
    with stationed(agent) as stations:
        engine = Engine(stations, steps, Deadline(60).left)
        engine.run("setup")
        assert [request["argv"] for request in agent.asked] == [["run", "up"]]
        engine.run("check")
        engine.run("load")
        assert engine.courses[1, "a.hello"].stdout == b"first\nhello\n"
        assert [run.work for run in engine.step_runs(0.0)] == ["", "greet"]
    assert [request["env"] for request in agent.asked] == [{"TILE": "1"}] * 2


def test_files_and_modules_are_there_before_the_program() -> None:
    agent = Agent()
    files = {"/run/x/one": b"1", "/tmp/two": b"2"}
    with stationed(agent) as stations:
        station = replace(stations[0], modules={"cifs": ("/m/md4.ko", "/m/cifs.ko")})
        engine = Engine(
            [station], [make_step("go", files=files, modules=("cifs",))], Deadline(60).left
        )
        engine.run("load")
    asked = [request.get("argv") or request["path"] for request in agent.asked]
    modules = [["insmod", "/m/md4.ko"], ["insmod", "/m/cifs.ko"]]
    wanted = [["mkdir", "-p", "--", "/run/x"], "/run/x/one", "/tmp/two", *modules, ["run", "go"]]
    assert asked == wanted


@pytest.mark.parametrize(
    "word, kind, said",
    [
        ("3", "workload", "it ended with 3"),
        ("-9", "workload", "it was killed by signal 9"),
        ("late", "timeout", "it did not end within 300 s"),
    ],
)
def test_a_step_that_fails_ends_the_run_by_name(word: str, kind: str, said: str) -> None:
    """Nobody waits for the step that hangs beside it."""
    with stationed(Agent(), Agent()) as stations:
        failure = fail(
            stations, make_step("stay", "a", word="hang"), make_step("go", "b", word=word)
        )
    assert failure.kind == kind
    assert failure.what == f"tile 1 b, load, step b.go: {said}"
    assert failure.why == f"first\n{word}"
    stream = "stdout" if word == "late" else "stderr"
    assert dict(failure.evidence)[f"tile-1.b.b.go.{stream}"] == f"first\n{word}\n".encode()


def test_a_server_that_does_not_come_up_is_a_failure_of_its_guest() -> None:
    with stationed(Agent()) as stations:
        engine = Engine(
            stations, [replace(make_step("up", word="1"), phase="setup")], Deadline(60).left
        )
        with pytest.raises(
            RunFailure, match=r"tile 1 a, setup, step a.up: it ended with 1"
        ) as caught:
            engine.run("setup")
    assert caught.value.kind == "guest"


def test_what_waits_for_a_step_that_failed_does_not_start() -> None:
    agent = Agent()
    with stationed(agent) as stations:
        fail(stations, make_step("go", word="1"), make_step("next", "a", "a.go"))
    assert [request["argv"] for request in agent.asked] == [["run", "1"]]


def test_a_guest_that_goes_ends_the_run_whoever_works() -> None:
    """The one that goes has a step under way, and so has another."""
    with stationed(Agent(), Agent()) as stations:
        failure = fail(stations, make_step("stay", word="hang"), make_step("go", "b", word="close"))
    assert failure.kind == "guest"
    assert failure.what == "tile 1 b, load, step b.go: the guest is gone"


def test_a_guest_that_hangs_is_told_by_its_silence() -> None:
    """The deaf one is asked first: it is always the first to be overdue."""
    with stationed(Agent(deaf=True), Agent()) as stations:
        failure = fail(stations, make_step("stay", "b", word="hang"), silence=0.05)
    assert failure.kind == "guest"
    assert failure.what == "tile 1 a, load, no step of its own under way: the guest hangs"


def test_the_deadline_of_the_run_names_what_was_under_way() -> None:
    with stationed(Agent()) as stations:
        failure = fail(stations, make_step("stay", word="hang"), seconds=0.05)
    assert failure.kind == "timeout"
    assert failure.why == "still under way: tile 1 a a.stay"


def test_a_rest_ends_no_later_than_the_run() -> None:
    with stationed(Agent()) as stations:
        assert fail(stations, make_step("rest", argv=(), idle=60.0), seconds=0.05).kind == "timeout"


def test_what_is_watched_beside_the_channel_ends_the_run() -> None:
    def take() -> None:
        raise RunFailure("space", "the disk is full")

    near, far = socket.socketpair()
    with near, far, stationed(Agent()) as stations:
        far.send(b"x")
        station = replace(stations[0], watched={near.fileno(): take})
        failure = fail([station], make_step("stay", word="hang"))
    assert (failure.kind, failure.what) == (
        "space",
        "tile 1 a, load, step a.stay: the disk is full",
    )


def test_a_failure_is_explained_by_its_guest() -> None:
    def explain(failure: RunFailure) -> RunFailure:
        return RunFailure("qemu", "QEMU ended", failure.what)

    with stationed(Agent()) as stations:
        failure = fail([replace(stations[0], explain=explain)], make_step("go", word="close"))
    assert (failure.kind, failure.why) == ("qemu", "the guest is gone")
    assert failure.what == "tile 1 a, load, step a.go: QEMU ended"


@pytest.mark.parametrize("after", [("a.nowhere",), ("a.two",)], ids=["unknown", "circle"])
def test_an_order_that_cannot_be_is_a_defect(after: tuple[str, ...]) -> None:
    with stationed(Agent()) as stations:
        steps = [make_step("one", "a", *after), make_step("two", "a", "a.one")]
        with pytest.raises(ValueError, match=r"a\.nowhere|a\.two"):
            Engine(stations, steps, Deadline(60).left).run("load")


def test_a_module_that_is_not_in_the_root() -> None:
    with stationed(Agent()) as stations:
        failure = fail(stations, make_step("go", modules=("cifs",)))
    assert "its root has no kernel module cifs" in failure.what


def test_a_file_that_is_too_large_for_the_channel() -> None:
    with stationed(Agent()) as stations:
        failure = fail(stations, make_step("go", files={"/tmp/x": bytes(1 << 20)}))
    assert "/tmp/x cannot be written" in failure.what


class Talker(Agent):
    """Says more than is kept of a failed step before it fails."""

    def run(self, number: object, word: str) -> list[Request]:
        piece = base64.b64encode(b"x" * (TAIL // 4)).decode()
        said: Request = {"type": "output", "id": number, "stream": "stderr", "data_base64": piece}
        return [said] * 6 + super().run(number, word)


def test_the_end_of_a_long_output_is_evidence() -> None:
    with stationed(Talker()) as stations:
        ((_, kept),) = fail(stations, make_step("go", word="1")).evidence
    assert len(kept) == TAIL and kept.endswith(b"xfirst\n1\n")
