"""Transactions, requests and mails as steps, and what their ended steps say."""

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.errors import RunFailure
from diskproof.process.start import run
from diskproof.study.tile_file import built_in_tile
from diskproof.tiles.loads import figures, http, mail, pgbench
from diskproof.tiles.servers import web
from diskproof.tiles.steps import Load, TileContext, TileStep, tile_steps

TILE = built_in_tile()
FULL, SMALL = (TileContext(TILE, "smb", scale) for scale in (Fraction(1), Fraction(1, 1000)))
PGBENCH = b"tps = 29.115714 (without initial connection time)\n"
LATENCY = b"transactions 52\nlatency_mean 0.268694885\nlatency_p99 1.070270000\n"
AB = b"""Complete requests:      10
Failed requests:        0
Requests per second:    7.31 [#/sec] (mean)
"""
CSV = b"Percentage served,Time in ms\n0,160.1\n98,7311156825131345.000\n99,816.000\n100,817.250\n"
MAILS = b"mails 6\nlatency_mean 0.308666667\nlatency_p99 0.560000000\n"
MAIL_SECONDS = {
    "m.batches": 2.0,
    "m.batches-arrived": 1.0,
    "m.burst": 0.75,
    "m.burst-arrived": 0.25,
    "m.check": 9.0,
}


def steps_of(work: str, context: TileContext) -> dict[str, TileStep]:
    return {
        step.name.removeprefix(f"{work}."): step
        for step in tile_steps(context)
        if step.work == work
    }


def words(step: TileStep) -> tuple[str, ...]:
    """The arguments of a step's script."""
    return step.argv[4:]


def test_transactions_are_shared_by_the_clients() -> None:
    full, small = steps_of("database", FULL), steps_of("database", SMALL)
    assert words(full["run"]) == ("database", "HOST_DB", "4", "2500")
    assert words(small["run"]) == ("database", "HOST_DB", "4", "3")
    assert words(full["setup"]) == ("database", "4") and words(small["setup"])[1] == "1"
    assert words(small["check"])[1] == "12"
    assert [(step.guest, step.phase) for step in full.values()] == [
        ("db", "setup"),
        ("web", "load"),
        ("web", "check"),
        ("db", "check"),
    ]
    assert full["setup"].after == ("db.postgres",)


def test_no_more_clients_than_requests() -> None:
    small = steps_of("web", SMALL)
    assert words(steps_of("web", FULL)["run"])[:4] == ("web", "HOST_WEB", "2000", "4")
    assert words(small["run"])[:4] == ("web", "HOST_WEB", "2", "2")
    assert words(small["check"]) == ("web", "2")
    assert small["page"].files == {"/tmp/http-web.page": web.render_page().encode()}
    assert small["run"].guest == small["page"].guest == "db" and small["check"].guest == "web"


def test_mails_arrive_before_the_burst_begins() -> None:
    steps = steps_of("mail", FULL)
    order = ["batches", "batches-arrived", "burst", "burst-arrived"]
    assert [name for name, step in steps.items() if step.phase == "load"] == order
    for before, after in zip(order, order[1:], strict=False):
        assert steps[after].after == (f"mail.{before}",)
    size = "57344"
    assert words(steps["batches"]) == ("mail", "HOST_WEB", size, "100", "5", "1000")
    assert words(steps["burst"]) == ("mail", "HOST_WEB", size, "100", "10")
    assert words(steps["batches-arrived"])[1] == "500"
    assert words(steps["burst-arrived"])[1] == words(steps["check"])[1] == "600"
    small = steps_of("mail", SMALL)
    assert words(small["burst"])[3:] == ("1", "1") and words(small["check"])[1] == "6"


def values(load: Load, outputs: dict[str, bytes], seconds: dict[str, float]) -> dict[str, float]:
    return {metric.name: metric.value for metric in load.read(outputs, seconds)}


def test_figures_of_each_load() -> None:
    outputs = {"d.setup": b"", "d.run": PGBENCH, "d.latency": LATENCY, "d.check": b""}
    told = values(pgbench.LOAD, outputs, {"d.run": 5.5})
    assert (told["seconds"], told["throughput"], told["transactions"]) == (5.5, 29.115714, 52)
    assert (told["latency_mean"], told["latency_p99"]) == (0.268694885, 1.07027)
    told = values(http.LOAD, {"w.run": AB, "w.page": CSV, "w.check": b""}, {"w.run": 1.5})
    assert told["latency_p99"] == pytest.approx(0.81725)
    assert (told["seconds"], told["throughput"], told["requests"]) == (1.5, 7.31, 10)
    many = AB.replace(b"Complete requests:      10", b"Complete requests:      100")
    told = values(http.LOAD, {"w.run": many, "w.page": CSV}, {"w.run": 1.5})
    assert told["latency_p99"] == pytest.approx(0.816)
    told = values(mail.LOAD, {"m.check": MAILS}, MAIL_SECONDS)
    assert (told["seconds"], told["throughput"], told["mails"]) == (4.0, 1.5, 6)
    assert (told["batches_seconds"], told["burst_seconds"]) == (3.0, 1.0)
    assert told["latency_p99"] == 0.56


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (AB.replace(b"Failed requests:        0", b"Failed requests:        3"), "3 requests"),
        (AB + b"Non-2xx responses:      2\n", "2 answers were errors"),
        (AB.replace(b"Failed requests:", b"Failed:"), "does not say"),
        (b"", "does not say"),
    ],
)
def test_requests_that_failed(wrong: bytes, why: str) -> None:
    with pytest.raises(RunFailure, match=why) as caught:
        http.LOAD.read({"w.run": wrong, "w.page": CSV}, {"w.run": 1.0})
    assert caught.value.kind == "workload"


@pytest.mark.parametrize("output", [b"", b"mails 6\n", MAILS + b"mails 6\n", b"x" * 100_000])
def test_figures_that_are_not_there(output: bytes) -> None:
    with pytest.raises(RunFailure):
        mail.LOAD.read({"m.check": output}, MAIL_SECONDS)


READERS: tuple[Callable[[bytes], object], ...] = (
    lambda said: pgbench.LOAD.read({"d.run": said, "d.latency": LATENCY}, {"d.run": 1.0}),
    lambda said: pgbench.LOAD.read({"d.run": PGBENCH, "d.latency": said}, {"d.run": 1.0}),
    lambda said: http.LOAD.read({"w.run": said, "w.page": CSV}, {"w.run": 1.0}),
    lambda said: http.LOAD.read({"w.run": AB, "w.page": said}, {"w.run": 1.0}),
    lambda said: mail.LOAD.read({"m.check": said}, MAIL_SECONDS),
)
VALID = (PGBENCH, LATENCY, AB, CSV, MAILS)


@given(st.sampled_from(READERS), st.data())
def test_what_a_guest_says_is_hostile(read: Callable[[bytes], object], data: st.DataObject) -> None:
    """Whatever it is: finite figures, or a failure of the workload."""
    said = data.draw(st.sampled_from(VALID) | st.binary(max_size=300))
    at = data.draw(st.integers(0, len(said)))
    said = said[:at] + data.draw(st.binary(max_size=20)) + said[at + data.draw(st.integers(0, 5)) :]
    try:
        metrics = read(said)
    except RunFailure as failure:
        assert failure.kind == "workload"
    else:
        assert all(math.isfinite(metric.value) for metric in metrics)  # type: ignore[attr-defined]


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=200))
def test_the_percentile_is_the_nearest_rank(microseconds: list[int]) -> None:
    script = f"{figures.LATENCIES}\nlatencies things 0.000001"
    lines = "".join(f"{value}\n" for value in microseconds)
    done = run(["sh", "-ec", script], timeout=30, stdin=lines.encode())
    told = figures.parse_figures("s", done.stdout, "things", "latency_mean", "latency_p99")
    rank = math.ceil(len(microseconds) * 99 / 100)
    assert told["things"] == len(microseconds)
    assert told["latency_p99"] == pytest.approx(sorted(microseconds)[rank - 1] / 1e6, abs=1e-9)
    mean = sum(microseconds) / len(microseconds) / 1e6
    assert told["latency_mean"] == pytest.approx(mean, abs=1e-8)
