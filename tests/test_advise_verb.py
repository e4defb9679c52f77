"""The verb ``advise``: what it finds in a store, what it prints, how it ends."""

import json
import platform
from dataclasses import replace
from pathlib import Path

import pytest

from diskproof.cli.advise_verb import (
    MAX_FILES,
    find_filesystems,
    find_manager,
    find_study_file,
    find_target,
)
from diskproof.cli.app import run_verb
from diskproof.records import HostRecord, StudyRecord
from diskproof.report.view import StudyView
from diskproof.store import open_store
from diskproof.study.load import load_study
from support.advice_views import EQUAL
from support.crashing import make_crash_run, make_verdict
from support.simulated_stores import fill, simulated_cells

FACTORS = {"frontend": ("daemon",), "cache": ("none", "writeback", "unsafe")}
STUDY = 'name = "mine"\nworkloads = ["seq-read"]\n[factors]\nfrontend = "daemon"\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def fill_here(
    *,
    judged: bool = True,
    name: str = "simulated",
    started: float = 1e9,
    host: HostRecord | None = None,
) -> None:
    path, cells = Path("diskproof.sqlite"), simulated_cells(FACTORS, ("a-load",))
    given = {"host": host} if host else {}
    fill(path, cells, blocks=4, name=name, started=started, **given)  # type: ignore[arg-type]
    with open_store(str(path)) as store:
        if judged:
            for number, cell in enumerate(cells):
                verdicts = make_verdict("power"), make_verdict()
                run = make_crash_run(number, *verdicts, **cell.levels_dict())
                owner = store.hosts()[0].id
                store.add_crash_run(replace(run, study_id=f"{name}-1", host_id=owner))


def advise(*arguments: str) -> int:
    return run_verb(["advise", *arguments])


def test_the_line_stands_alone_and_whole(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill_here()
    assert advise("--for", "qemu") == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    pasted = [line for line in lines if line.startswith("-blockdev")]
    assert len(pasted) == 2 and all(len(line) > 80 for line in pasted)
    for line in pasted:
        assert json.loads(line.split("'")[1])["cache"]["no-flush"] is False
    assert all(len(line) <= 80 for line in lines if not line.startswith(("-", "qemu-img")))
    assert "loses" not in out.split("-blockdev")[0]
    assert "With cache=unsafe it would be" in out.replace("\n", " ")


def test_json_is_the_same_answer(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill_here()
    assert advise("--for", "qemu") == 0
    text = capsys.readouterr().out
    assert advise("--for", "qemu", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    (answer,) = told["answers"]
    assert answer["paste"]["text"] in text
    assert answer["chosen"]["cell"]["cache"] == "writeback" and answer["keeps"] is True
    assert answer["faster"][0]["against"][0]["why"] == "rule"


def test_what_nobody_judged_ends_with_one(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill_here(judged=False)
    assert advise("--for", "qemu") == 1
    assert "`diskproof crash" in capsys.readouterr().out
    assert advise("--for", "qemu", "--keep", "none") == 0


def test_a_disposable_disk_may_be_unsafe(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill_here()
    assert advise("--for", "qemu", "--disposable") == 0
    assert '"no-flush":true' in capsys.readouterr().out


def test_without_results_the_way_to_some_is_told(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store("diskproof.sqlite", create=True):
        pass
    assert advise() == 2
    assert "diskproof run studies/quick.toml" in capsys.readouterr().err
    with open_store("diskproof.sqlite") as store:
        cells = simulated_cells(FACTORS)
        store.add_study(StudyRecord("s9", "planned", "run", "", 1, 2, cells))
    assert advise("planned") == 2
    err = capsys.readouterr().err
    assert "study planned has no results" in err and "diskproof run" in err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nothing",), "no study 'nothing'"),
        (("--workload", "x"), "there are a-load"),
        (("--for", "vmware"), "there are"),
        (("--keep", "all"), "power, qemu-kill, none"),
        (("--store", "missing.sqlite"), "missing.sqlite"),
    ],
)
def test_a_name_that_is_not_there(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    fill_here(judged=False)
    assert advise(*arguments) == 2
    assert told in capsys.readouterr().err


def test_the_latest_study_with_results_is_taken_and_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill_here(name="newer", started=2e9, judged=False)
    fill_here(name="older", started=1e9, judged=False)
    with open_store("diskproof.sqlite") as store:
        empty = StudyRecord("s9", "planned", "run", "", 1, 2, simulated_cells(FACTORS), created=3e9)
        store.add_study(empty)
    advise("--for", "qemu")
    assert "study newer, host simulated" in capsys.readouterr().out
    advise("older", "--for", "qemu")
    assert "study older" in capsys.readouterr().out


def test_a_study_may_be_named_by_its_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill_here(judged=False)
    file = here / "mine.toml"
    file.write_text(STUDY)
    loaded = load_study(file)
    with open_store("diskproof.sqlite") as store:
        study = store.studies()[0]
        store.add_study(replace(study, id=loaded.id, name="mine", text=STUDY))
        assert find_study_file(replace(study, id=loaded.id)) == "mine.toml"
        assert find_study_file(study) is None
    assert advise("mine.toml") == 2
    assert "study mine has no results" in capsys.readouterr().err
    file.write_text("nonsense = [")
    assert advise("mine.toml") == 2
    assert "mine.toml: not valid TOML" in capsys.readouterr().err


def test_strangers_beside_the_study_s_file_are_passed_over(here: Path) -> None:
    (here / "a.toml").write_bytes(b"\xff\xfe")
    (here / "b.toml").mkdir()
    (here / "c.toml").write_text("x = [" * 1000)
    for number in range(MAX_FILES):
        (here / f"d{number}.toml").symlink_to("a.toml")
    study = StudyRecord("s", "s", "run", "", 1, 1, ())
    assert find_study_file(study) is None


def test_of_several_hosts_the_one_with_most_runs(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill_here(judged=False)
    other = HostRecord("h2", "second", {})
    path = Path("diskproof.sqlite")
    cells = simulated_cells(FACTORS, ("a-load",))
    fill(path, cells, blocks=9, seed=2, name="simulated", host=other, speed=EQUAL)
    advise("simulated-2", "--for", "qemu")
    assert "host second" in capsys.readouterr().out


def test_the_file_system_of_a_study_made_here_is_told(here: Path) -> None:
    text = '[backings.mine]\npath = "/"\n[backings.net]\nkind = "nbd"\n'
    study = StudyRecord("s", "s", "run", text, 1, 1, ())
    mine = StudyView(study, HostRecord("h", platform.node(), {}), ())
    found = find_filesystems(mine)
    assert found["mine"] not in ("", "unknown") and set(found) == {"mine", "net"}
    bare = replace(mine, study=replace(study, text='name = "s"'))
    assert set(find_filesystems(bare)) == {"directory"}
    assert find_filesystems(replace(mine, host=HostRecord("h", "elsewhere", {}))) == {}


def test_the_manager_of_this_host_is_one_that_can_be_written_for() -> None:
    assert find_manager() in ("proxmox", "libvirt", "incus", "qemu")


def test_a_machine_that_is_not_here_is_named_in_the_line_all_the_same() -> None:
    target = find_target("proxmox", "local:1/disk.raw", "no-such-machine-4711", "scsi0")
    assert (target.machine, target.disk, target.existing) == ("no-such-machine-4711", "scsi0", "")
