"""Names of managers in all that is told of a store, which alone knows them."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from diskproof.cli import run_command_line
from diskproof.cli.conduct import study_record
from diskproof.plan import make_crash_plan, make_plan
from diskproof.plan.like import tell_of_names
from diskproof.plan.schedule import make_schedule
from diskproof.records import StudyRecord
from diskproof.records.verdicts import CrashRun
from diskproof.report.plan_tables import plan_json, render_plan
from diskproof.store import open_store
from diskproof.study.load import Study, parse_study
from support.crashing import make_crash_run
from support.plain_dialects import use_plain_dialects
from support.planning import FACTS
from support.simulate import SIMULATED_HOST, SimulatedExecutor, Simulation

STUDY = """
name = "mine"
like = ["qemu", "proxmox"]
workloads = ["rand-read-4k-d32", "sync-write-4k"]
[factors]
frontend = "guest"
cache = ["none", "unsafe"]
"""
PROXMOX = "none io_uring zeroes=on iothread=on virtio-scsi (proxmox 9 default)"
QEMU = "writeback threads virtio-blk (qemu 9 default)"


@pytest.fixture(scope="module")
def study() -> Study:
    return parse_study(STUDY)


@pytest.fixture(scope="module")
def record(study: Study) -> StudyRecord:
    with pytest.MonkeyPatch.context() as patch:
        use_plain_dialects(patch)
        return study_record(study, make_plan(study, FACTS))


@pytest.fixture(scope="module")
def stored(study: Study, record: StudyRecord, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with all runs of the study, and then a crash run of it."""
    place = tmp_path_factory.mktemp("like") / "s.sqlite"
    with open_store(str(place), create=True) as store:
        store.add_study(record)
        store.add_host(SIMULATED_HOST)
        executor = SimulatedExecutor(record.id, Simulation(seed=7))
        for planned in make_schedule(record.cells, record.blocks, record.seed):
            store.add_run(executor.execute(planned))
        with pytest.MonkeyPatch.context() as patch:
            use_plain_dialects(patch)
            cells, _ = make_crash_plan(study, FACTS)
            told = tuple(tell_of_names(study, cells, FACTS))
        store.add_study(study_record(study, told=told))
        cell = next(each for each in cells if each.names == ("proxmox 9",))
        run = make_crash_run(1, study_id=record.id, host_id=SIMULATED_HOST.id)
        store.add_run(CrashRun(**vars(run) | {"cell": cell}))
    return place


def printed(capsys: pytest.CaptureFixture[str], place: Path, *words: str) -> str:
    assert run_command_line([*words, "--store", str(place)]) == 0
    return capsys.readouterr().out


def squeezed(text: str) -> str:
    """Text without the folds of a table."""
    return re.sub(r"\s+", " ", text)


def test_the_store_knows_the_names(stored: Path, record: StudyRecord) -> None:
    with open_store(str(stored)) as store:
        (study,) = store.studies()
        assert [cell.names for cell in study.cells] == [cell.names for cell in record.cells]
        assert {cell.names for cell in study.cells} == {(), ("qemu 9",), ("proxmox 9",)}
        assert {row.cell.names for row in store.results()} == {(), ("qemu 9",), ("proxmox 9",)}
        assert {row.cell.names for row in store.verdicts()} == {("proxmox 9",)}
        names = {store.run(row.id).cell.names for row in store.runs(study.id)}
        assert names == {(), ("qemu 9",), ("proxmox 9",)}
        # What the plan told stays, though crash, which has no cells there, told its own.
        assert study.dropped == record.dropped
        assert set(record.warnings) <= set(study.warnings)


def test_a_ranking_bears_the_names(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(printed(capsys, stored, "rank", "--json"))
    cells = [cell for load in told[0]["rankings"] for cell in load["cells"]]
    labels = {tuple(cell["default_of"]): cell["label"] for cell in cells}
    assert labels["proxmox 9",] == PROXMOX
    assert "default" not in labels[()]
    text = printed(capsys, stored, "rank")
    assert "(proxmox" in text and "(qemu 9" in text
    words = squeezed(text)
    assert words.count("Default of proxmox 9: ") == words.count("Default of qemu 9: ") == 2
    assert "; a crash: loses" in words and "; nobody has judged what it keeps." in words
    assert "warning: a new disk" not in text and max(map(len, text.splitlines())) <= 120


def test_a_default_is_compared_with_what_could_take_its_place(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a disk that drops flushes nor another way to drive it: `unsafe` is the fastest."""
    words = squeezed(printed(capsys, stored, "rank"))
    told = re.findall(r"Default of [^:]+: ([^;]+);", words)
    assert len(told) == 4 and "unsafe" not in " ".join(told)
    assert any(re.search(r"times the IOPS of |the best mean", each) for each in told)


def test_show_and_the_page_bear_them(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = json.loads(printed(capsys, stored, "show", "--json"))
    assert {tuple(row.get("default_of", ())) for row in rows} == {(), ("qemu 9",), ("proxmox 9",)}
    assert "(proxmox 9" in squeezed(printed(capsys, stored, "show"))
    page = tmp_path / "page.html"
    printed(capsys, stored, "report", "--output", str(page))
    html = page.read_text()
    assert PROXMOX in html and QEMU in html
    assert (
        "a new disk of proxmox 9" in html
        and "virtio-scsi on directory (proxmox&#39;s source)" in html
    )


def test_a_cell_is_compared_by_its_label_with_the_name_or_without(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for asked in (PROXMOX, PROXMOX.partition(" (")[0]):
        words = ["compare", asked, QEMU, "--json", "--store", str(stored)]
        assert run_command_line(words) in (0, 1)
        found = json.loads(capsys.readouterr().out)
        assert found["comparisons"]


def plan_text(record: StudyRecord, width: int) -> str:
    text = io.StringIO()
    Console(width=width, file=text).print(render_plan(record, 60.0, 1 << 30))
    return text.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_plan_tells_whose_defaults_they_are(record: StudyRecord, width: int) -> None:
    text = plan_text(record, width)
    assert max(map(len, text.splitlines())) <= width
    assert "what a new disk gets" in text and "warning: a new disk" not in text
    words = squeezed(text)
    assert "qemu's source" in words if width == 120 else "source" in words


def test_the_plan_as_json(record: StudyRecord) -> None:
    told: dict[str, Any] = plan_json(record, 60.0, 1 << 30)
    assert {each["manager"]: each["levels"] for each in told["defaults"]} == {
        "qemu": {
            "cache": "writeback",
            "aio": "threads",
            "discard": "ignore",
            "detect-zeroes": "off",
        },
        "proxmox": {
            "cache": "none",
            "aio": "io_uring",
            "detect-zeroes": "on",
            "iothread": "on",
            "bus": "virtio-scsi",
        },
    }
    assert all(each["source"] and each["version"] == "9" for each in told["defaults"])
    assert not any("a new disk" in text for text in told["warnings"])
    names = [cell["default_of"] for cell in told["cells"]]
    assert names.count(["proxmox 9"]) == names.count(["qemu 9"]) == 2 and [] in names
