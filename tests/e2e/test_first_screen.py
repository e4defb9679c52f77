"""What one sees first: `diskproof` alone, the plan and the end of a study that is judged too.

Requires fio, qemu-utils, qemu-system-common, /dev/fuse and the native programs.
"""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from diskproof.process.start import Completed, run
from diskproof.store import open_store, parts
from diskproof.study.load import load_study
from support.commands import STUDY, diskproof, left_behind, write_study
from support.recording import needs_fuse
from support.simulated_stores import fill, simulated_cells
from support.verb_places import COLUMNS, Place, plain_lines
from support.verbs import find_commands

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
CRASH = '[crash]\nrecords = 16\nseconds = "1s"\nexplore_seconds = "1s"\n'
JUDGED = STUDY.replace('["host", "daemon"]', '"daemon"\ncache = ["none", "unsafe"]')
JUDGED = JUDGED.replace('["raw", "qcow2"]', '"raw"').replace("[protocol]", f"{CRASH}[protocol]")

# -- diskproof alone ------------------------------------------------------------------------


def commands_in(text: str) -> list[str]:
    return re.findall(r"^diskproof ([a-z]+)", text, re.MULTILINE)


def test_alone_in_an_empty_folder(tmp_path: Path) -> None:
    done = diskproof(cwd=tmp_path)
    assert done.returncode == 0 and done.error_text == ""
    for text in ("this host", "QEMU 7", "fio 3", "machines", "none yet in diskproof.sqlite"):
        assert text in done.text
    assert commands_in(done.text)[-1] == "run"
    assert "diskproof --help" in done.text and not list(tmp_path.iterdir())


def test_alone_in_the_sources_names_the_demo() -> None:
    if not (ROOT / "diskproof.sqlite").exists():
        assert "diskproof run studies/quick.toml" in diskproof(cwd=ROOT).text


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A folder with the results of a study, and nothing else."""
    for name in ("here", "tmp", "home", "cache"):
        (tmp_path / name).mkdir()
    made = Place(tmp_path)
    fill(made.store, simulated_cells(), blocks=3)
    return made


def test_alone_on_a_terminal_with_studies(place: Place) -> None:
    """Studies are named with what is known of them, and every command that is named is one."""
    for _ in range(3):  # on a busy host the store may be read too late
        call = place.call_on_terminal([], NO_COLOR="1")
        if "does not answer" not in call.out:
            break
    lines = plain_lines(call.out)
    assert call.code == 0 and max(map(len, lines)) <= COLUMNS
    assert call.left == ()
    text = "\n".join(line.rstrip() for line in lines)
    assert re.search(r"simulated \(\d+ runs\) in diskproof.sqlite", " ".join(text.split()))
    named = commands_in(text)
    assert {"advise", "rank", "report", "run"} <= set(named) <= set(find_commands())
    call.assert_no_traceback()


def test_alone_with_a_store_that_is_none(place: Place) -> None:
    place.store.write_bytes(b"no store" * 1000)
    call = place.call([])
    assert call.code == 0 and "diskproof.sqlite" in call.out
    call.assert_no_traceback()


def test_alone_beside_a_store_that_is_locked(place: Place) -> None:
    with closing(sqlite3.connect(place.store, isolation_level=None)) as owner:
        owner.execute("PRAGMA locking_mode = EXCLUSIVE")
        owner.execute("BEGIN EXCLUSIVE")
        owner.execute("UPDATE diskproof_schema SET version = version")
        call = place.call([])
        owner.execute("ROLLBACK")
    assert call.code == 0 and "diskproof.sqlite does not answer" in " ".join(call.out.split())
    call.assert_no_traceback()


# -- one command measures and judges --------------------------------------------------------


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Completed]:
    folder = tmp_path_factory.mktemp("judged")
    return folder, diskproof("run", write_study(folder, JUDGED), cwd=folder)


@needs_fuse
def test_run_measures_and_judges_and_begins_with_the_answer(judged: tuple[Path, Completed]) -> None:
    folder, done = judged
    assert done.returncode == 0, done.error_text  # that unsafe loses is an answer
    assert done.text.startswith("For sync-write-4k ")
    assert "kept every acknowledged write in a power cut" in " ".join(done.text.split())
    rows = [row for row in done.text.splitlines() if re.match(r"[12?]=? +(none|unsafe)", row)]
    # Both cells have a verdict, and the one that drops flushes its mark.
    assert sorted(" ! " in row for row in rows) == [False, True]
    assert all(("loses " if " ! " in row else "keeps") in row for row in rows)
    assert left_behind(folder / "images") == []


@needs_fuse
def test_a_judged_study_goes_on_from_what_is_there(judged: tuple[Path, Completed]) -> None:
    folder, first = judged
    again = diskproof("run", folder / "study.toml", cwd=folder)
    assert (again.returncode, again.text) == (0, first.text)
    assert "ledger" not in again.error_text
    (told,) = json.loads(diskproof("rank", "--json", cwd=folder).text)
    (answer,) = told["answer"]
    assert answer["chosen"]["cache"] == "none" and answer["keeps"] is True
    assert " ".join(answer["sentences"]) in " ".join(diskproof("rank", cwd=folder).text.split())


@needs_fuse
def test_the_plan_of_what_has_run_tells_what_that_took(judged: tuple[Path, Completed]) -> None:
    """Phase by phase, from the store's own runs; the rest is what is around them."""
    folder, _ = judged
    told = json.loads(diskproof("plan", folder / "study.toml", "--json", cwd=folder).text)
    with open_store(str(folder / "diskproof.sqlite")) as store:
        runs = store.runs(told["id"])
        crashes = store.counted_runs(parts.CRASH, told["id"])
    phases, verdicts = told["estimated_phases"], told["verdicts"]
    assert sum(phases.values()) == pytest.approx(told["estimated_seconds"], abs=1.0)
    around = phases["prepare"] + phases["report"]
    took = sum(run.ended - run.started for run in runs)
    whole = max(run.ended for run in runs) - min(run.started for run in runs)
    assert took - 1.0 < told["estimated_seconds"] - around < whole + 1.0
    assert told["estimated_from_runs"] == len(runs) + len(crashes) > len(runs)
    took = sum(run.ended - run.started for run in crashes)
    assert verdicts["estimated_seconds"] == pytest.approx(took, abs=1.0)
    assert {"record", "explore_power"} < set(verdicts["estimated_phases"])


@needs_fuse
def test_a_spent_budget_leaves_the_verdicts_for_later(tmp_path: Path) -> None:
    study = write_study(tmp_path, JUDGED)
    done = diskproof("run", study, "--budget", "1s", cwd=tmp_path)
    assert done.returncode == 1 and "power: " not in done.error_text
    assert "nothing was made, the budget is too small" in done.error_text


def test_the_plan_tells_of_the_verdicts(tmp_path: Path) -> None:
    study = write_study(tmp_path, JUDGED)
    assert "then 8 verdicts on 2 cells" in diskproof("plan", study, cwd=tmp_path).text
    told = json.loads(diskproof("plan", study, "--json", cwd=tmp_path).text)["verdicts"]
    assert (told["cells"], told["verdicts"]) == (2, 8) and told["at_most_seconds"] > 0


def test_the_demo_is_one_command_that_does_both() -> None:
    """The demo itself takes longer than a test may; what it types is this."""
    lines = run(["make", "-n", "demo"], timeout=60, cwd=ROOT).text
    assert "run studies/quick.toml" in lines and "report -o diskproof-quick.html" in lines
    assert load_study(ROOT / "studies" / "quick.toml").names_crash
