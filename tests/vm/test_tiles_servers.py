"""All servers of a tile and the loads on them, at a small scale, in one guest that plays both ends.

Builds the guest with servers where it is missing (a minute).
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest

from diskproof.guest.ours.build import build_guest
from diskproof.study.tile_file import built_in_tile
from diskproof.tiles.loads import http, mail, pgbench
from diskproof.tiles.servers import mariadb, postfix, postgres
from diskproof.tiles.steps import Load, TileContext, TileStep, tile_steps
from support.tile_guests import TileGuestUnderTest, start_tile_guest

pytestmark = pytest.mark.long

TILE = built_in_tile()
SCALE = Fraction(1, 1000)
MEMORY, DISK = 384 << 20, 512 << 20
STEPS = {step.name: step for step in tile_steps(TileContext(TILE, "smb", SCALE))}


@pytest.fixture(scope="module")
def under(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TileGuestUnderTest]:
    folder = tmp_path_factory.mktemp("servers")
    files = build_guest(extra="servers")
    with start_tile_guest(files, TILE, SCALE, folder, memory=MEMORY, disk=DISK) as guest:
        guest.run([STEPS["web.disk"]])
        yield guest


def run_load(under: TileGuestUnderTest, name: str, load: Load) -> dict[str, float]:
    """The steps of a workload; what they say."""
    steps = [step for step in STEPS.values() if step.work == name]
    under.run(steps)
    outputs = {step.name: under.outputs[step.name] for step in steps}
    return {metric.name: metric.value for metric in load.read(outputs, under.seconds)}


def spoil(under: TileGuestUnderTest, script: str) -> None:
    under.run([TileStep("spoil", "web", "check", ("sh", "-ec", script))])


def fail(under: TileGuestUnderTest, step: TileStep) -> str:
    status, said = under.try_step(step)
    assert status not in (0, None), said
    return said


def test_web(under: TileGuestUnderTest) -> None:
    under.run([STEPS["web.mariadb"], STEPS["web.web"]])
    told = run_load(under, "web", http.LOAD)
    assert told["requests"] == 2
    assert 0 < told["latency_p99"] < told["seconds"] and told["throughput"] > 0
    assert "of 3 requests the server's log has 2" in fail(under, with_word(STEPS["web.check"], "3"))
    spoil(under, f"mariadb -S {mariadb.SOCKET} shop -e 'UPDATE items SET stock = 99 LIMIT 900'")
    assert "not the page:" in fail(under, STEPS["web.page"])


def test_mail(under: TileGuestUnderTest) -> None:
    under.run([STEPS["web.postfix"]])
    told = run_load(under, "mail", mail.LOAD)
    assert told["mails"] == 6 and 0 < told["latency_p99"] < told["seconds"]
    assert told["throughput"] == pytest.approx(6 / told["seconds"])
    assert told["batches_seconds"] + told["burst_seconds"] == pytest.approx(told["seconds"])
    check, new = STEPS["mail.check"], f"{postfix.BOXES}/mail/new"
    spoil(under, f'set -- {new}/*; cp "$1" {new}/copied; printf more >>"$2"')
    said = fail(under, check)
    assert "(twice)" in said and "7 mails, not 6" in said and "57024 bytes" not in said
    assert f"bytes, not {mail.body_bytes(56 << 10)})" in said


def test_a_mail_that_cannot_be_delivered(under: TileGuestUnderTest) -> None:
    """Nobody waits for it to the end of the step's time."""
    spoil(under, f"rm -r {postfix.BOXES}/mail; touch {postfix.BOXES}/mail")
    under.run([STEPS["mail.burst"]])
    arrived = with_word(STEPS["mail.burst-arrived"], "7")
    assert "status=" in fail(under, arrived)


def test_transactions(under: TileGuestUnderTest) -> None:
    under.run([STEPS["db.postgres"]])
    told = run_load(under, "database", pgbench.LOAD)
    assert told["transactions"] == 12 and 0 < told["latency_mean"] <= told["latency_p99"]
    assert told["latency_p99"] < told["seconds"] and told["throughput"] > 0
    settings = f"{postgres.CLIENT} -h 127.0.0.1 -d postgres -c "
    names = ("fsync", "synchronous_commit", "full_page_writes")
    values = "; ".join(f"SHOW {name}" for name in names)
    under.run([TileStep("settings", "db", "check", ("sh", "-ec", f"{settings} '{values}'"))])
    assert under.outputs["settings"].split() == [b"on"] * 3
    check = STEPS["database.check"]
    assert "12|t" in fail(under, with_word(check, "13"))
    change = "UPDATE pgbench_tellers SET tbalance = tbalance + 1 WHERE tid = 1"
    spoil(under, f"{postgres.CLIENT} -h 127.0.0.1 -d database -c '{change}'")
    assert "12|f" in fail(under, check)


def with_word(step: TileStep, word: str) -> TileStep:
    """The step, its script given another number of what it counts."""
    return replace(step, argv=(*step.argv[:5], word, *step.argv[6:]), timeout=60.0)
