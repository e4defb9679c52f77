"""``diskproof tiles`` as a user meets it: two plain guests with commands, one and two tiles, two
cache modes, Ctrl-C in the middle and on again.

Requires qemu-system-x86, qemu-utils and what builds the guest (setup/packages-demo.txt).
"""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from diskproof.process.start import Process
from diskproof.store import open_store
from support.commands import diskproof, left_behind, start_diskproof

pytestmark = pytest.mark.long

TILE = """
[guests.writer]
memory = "192MiB"
disk = "32MiB"

[guests.files-b]
memory = "192MiB"
disk = "32MiB"

[workloads.write]
from = "writer"
command = ["dd", "if=/dev/zero", "of=/mnt/written", "bs=64k", "count=32", "conv=fsync"]
check = ["sh", "-c", "test $(stat -c %s /mnt/written) -eq 2097152"]

[workloads.tell]
from = "files-b"
to = "writer"
after = ["write"]
command = ["sh", "-c", 'echo "$HOST_WRITER" >/mnt/it && printf %s "{\\"of\\": $TILES}"']
check = ["sh", "-c", "test $(cat /mnt/it) = 10.77.$TILE.1"]
"""

STUDY = """
name = "pairs"
[backings.here]
path = "images"
[factors]
format = "raw"
cache = ["none", "writeback"]
[tiles]
tile = "pair.toml"
counts = [1, 2]
runs = 1
"""


def write_tiles(folder: Path, tile: str = TILE, study: str = STUDY) -> Path:
    (folder / "pair.toml").write_text(tile)
    (folder / "images").mkdir()
    path = folder / "study.toml"
    path.write_text(study.replace('"images"', f'"{folder}/images"'))
    return path


def wait_for_log(folder: Path, text: str, running: Process) -> str:
    """Until the command has printed ``text``; it must still run then."""
    while text not in (log := (folder / "log").read_text()):
        assert running.wait(0.05) is None, log
    return log


def test_a_study_of_tiles_is_cut_goes_on_and_tells(tmp_path: Path) -> None:
    study = write_tiles(tmp_path)
    with start_diskproof("tiles", study, cwd=tmp_path) as running:
        wait_for_log(tmp_path, "[1/4, at most ", running)
        wait_for_log(tmp_path, "starting\n  setup: ", running)
        os.kill(running.pid, signal.SIGINT)
        assert running.wait(60) == 130
        said = running.read_log().decode()
    assert f"To go on: diskproof tiles {study}\n" in said and "Traceback" not in said
    assert "  now: " in said and "guests: starting\n" in said
    assert left_behind(tmp_path) == []

    rest = diskproof("tiles", study, "--json", cwd=tmp_path, timeout=900)
    assert rest.returncode == 0, rest.error_text
    assert "FAILED" not in rest.error_text and re.search(r"\[4/4, took .+ m?s\] ", rest.error_text)
    # Where somebody has switched KSM between the two, the first run is told not to count.
    again = "do not count here: 1\n" in rest.error_text
    made = [len(re.findall(r"^\[./4, ", text, re.M)) for text in (said, rest.error_text)]
    assert made == [1, 4 if again else 3]
    assert "the page with all of it: diskproof report -o study.html" in rest.error_text
    check_cells(json.loads(rest.text))
    check_stored(tmp_path)
    assert left_behind(tmp_path) == []

    shown = diskproof("tiles", study, cwd=tmp_path, timeout=900)
    assert shown.returncode == 0 and (
        "/4, " not in shown.error_text or "do not count" in shown.error_text
    )
    assert "study pairs" in shown.text and "writeback" in shown.text and "4 runs" in shown.text


def check_cells(cells: list[dict[str, Any]]) -> None:
    """Each cache mode with one and two tiles, and the figures of both workloads."""
    assert {cell["cell"]["cache"] for cell in cells} == {"none", "writeback"}
    for cell in cells:
        assert cell["guests"] == ["writer", "files-b"]
        one, two = cell["numbers"]
        assert (one["tiles"], two["tiles"]) == (1, 2) and not one["failed"] + two["failed"]
        works = {(figure["workload"], figure["metric"]) for figure in two["workloads"]}
        assert {("write", "seconds"), ("tell", "seconds"), ("tell", "of")} <= works
        assert two["seconds"]["mean"] > 0


def check_stored(folder: Path) -> None:
    """Every run is whole: steps in their order, each guest's use, all levels read back."""
    with open_store(str(folder / "diskproof.sqlite")) as store:
        (study,) = store.studies()
        stored = store.tile_runs(study.id)
    runs = [run for run in stored if run.host_id == stored[-1].host_id]
    assert sorted(run.tiles for run in runs) == [1, 1, 2, 2]
    for run in runs:
        assert run.failure is None and len(run.uses) == 2 * run.tiles
        written = {use.tile for use in run.uses if use.guest == "writer"}
        assert written == set(range(1, run.tiles + 1))
        ended = {(step.tile, step.step): step for step in run.steps}
        for tile in range(1, run.tiles + 1):
            assert ended[tile, "tell.run"].started >= ended[tile, "write.run"].ended >= 0
            assert ended[tile, "write.check"].status == 0
        of = [work.value("of") for work in run.works if work.work == "tell"]
        assert of == [float(run.tiles)] * run.tiles


def test_a_tile_that_fails_is_a_result_and_not_made_again(tmp_path: Path) -> None:
    tile = TILE.replace('"conv=fsync"]', '"conv=fsink"]')
    text = STUDY.replace('cache = ["none", "writeback"]', 'cache = "none"')
    study = write_tiles(tmp_path, tile, text.replace("[1, 2]", "[1]"))
    failed = diskproof("tiles", study, cwd=tmp_path, timeout=900)
    assert failed.returncode == 1, failed.error_text
    told = "FAILED (workload): tile 1 writer, load, step write.run: it ended with 1"
    assert told in failed.error_text and "fsink" in failed.error_text
    assert "failed runs" in failed.text and "write.run" in failed.text
    again = diskproof("tiles", study, cwd=tmp_path)
    assert again.returncode == 1 and "FAILED" not in again.error_text
    assert again.text == failed.text
    assert left_behind(tmp_path) == []


def test_the_plan_shows_tiles_with_their_sum(tmp_path: Path) -> None:
    study = write_tiles(tmp_path)
    planned = diskproof("plan", study, "--json", cwd=tmp_path)
    assert planned.returncode == 0, planned.error_text
    content = json.loads(planned.text)
    tiles = content["tiles"]
    assert content["cells"] == [] and len(tiles["cells"]) == 2
    assert (tiles["counts"], tiles["runs"]) == ([1, 2], 4)
    assert tiles["memory_bytes"] > 2 * (192 << 20)
    shown = diskproof("plan", study, cwd=tmp_path)
    assert "tiles of study pairs: 2 cells, 1, 2 tiles of 2 guests, 4 runs" in shown.text
    assert not (tmp_path / "diskproof.sqlite").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--scale", "0.5"], "'0.5' is not 1 or 1/N"),
        (["--most", "0"], "--most"),
        (["--budget", "soon"], "--budget"),
        ([], "pair.toml:11: "),
    ],
)
def test_what_is_wrong_is_told_before_anything_starts(
    tmp_path: Path, arguments: list[str], told: str
) -> None:
    tile = TILE if arguments else TILE.replace('from = "writer"', 'from = "writter"')
    done = diskproof("tiles", write_tiles(tmp_path, tile), *arguments, cwd=tmp_path)
    assert done.returncode == 2 and told in done.error_text, done.error_text
    assert "Traceback" not in done.error_text
    assert list((tmp_path / "images").iterdir()) == []


def test_a_tile_that_does_not_fit_is_refused_with_the_sum(tmp_path: Path) -> None:
    tile = TILE.replace('memory = "192MiB"', 'memory = "512GiB"')
    done = diskproof("tiles", write_tiles(tmp_path, tile), cwd=tmp_path)
    assert done.returncode == 3, done.error_text
    assert "2 guests, 1 TiB + " in done.error_text and " for each QEMU = " in done.error_text
    assert left_behind(tmp_path) == []
