"""The command line as a user meets it: real runs through host and daemon, wrong input, Ctrl-C.

Requires fio, qemu-utils and qemu-system-common (setup/packages-demo.txt); a full disk and a
read-only one need root.
"""

import csv
import io
import json
import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from diskproof.process import start as proc
from diskproof.store import open_store
from support.commands import STUDY, diskproof, left_behind, start_diskproof, write_study
from support.memory_disks import start_memory_disk

pytestmark = pytest.mark.long

SAMPLE = Path(__file__).parents[1] / "golden" / "kvm-perf-sample.txt"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, proc.Completed]:
    """A folder with a measured study, and what ``run`` printed."""
    folder = tmp_path_factory.mktemp("measured")
    return folder, diskproof("run", write_study(folder), cwd=folder)


def test_run_ends_with_the_ranking(measured: tuple[Path, proc.Completed]) -> None:
    folder, done = measured
    assert done.returncode == 0, done.error_text
    assert "sync-write-4k: IOPS, higher is better" in done.text
    for label in ("host", "daemon raw", "daemon qcow2"):
        assert label in done.text
    assert done.error_text.count("IOPS  in ") == 6
    assert "[6/6, " in done.error_text
    assert left_behind(folder / "images") == []


def test_a_second_run_has_nothing_to_do(measured: tuple[Path, proc.Completed]) -> None:
    folder, first = measured
    again = diskproof("run", folder / "study.toml", cwd=folder)
    assert again.returncode == 0, again.error_text
    assert again.text == first.text
    assert "IOPS  in " not in again.error_text


def test_every_run_is_stored_with_its_evidence(measured: tuple[Path, proc.Completed]) -> None:
    folder, _ = measured
    with open_store(str(folder / "diskproof.sqlite")) as store:
        (study,) = store.studies()
        for row in store.runs(study.id):
            run = store.run(row.id)
            assert run.status == "ok" and all(check.ok for check in run.checks)
            assert {"iops", "latency_p99", "flush_p99"} <= {each.name for each in run.metrics}
            assert "fio.json" in {each.name for each in run.artefacts}
            assert {"host", "fio"} <= {each.source for each in run.series}
            checked = {check.name for check in run.checks}
            if run.cell.level("frontend") == "daemon":
                assert "cache" in " ".join(checked)


def test_show_as_table_json_and_csv(measured: tuple[Path, proc.Completed]) -> None:
    folder, _ = measured
    rows = json.loads(diskproof("show", "--json", cwd=folder).text)
    assert len(rows) == 3
    for row in rows:
        assert row["workload"] == "sync-write-4k" and row["metric"] == "iops"
        assert row["n"] == len(row["runs"]) == 2
        assert row["mean"] == pytest.approx(sum(row["runs"]) / 2)
        assert row["cell"]["frontend"] in ("host", "daemon")
    assert [row["geomean"] for row in rows] == sorted((r["geomean"] for r in rows), reverse=True)
    table = list(csv.DictReader(io.StringIO(diskproof("show", "--csv", cwd=folder).text)))
    assert [float(row["mean"]) for row in table] == [row["mean"] for row in rows]
    assert {row["format"] for row in table} == {"", "raw", "qcow2"}
    everything = json.loads(diskproof("show", "--all", "--json", cwd=folder).text)
    assert {"iops", "flush_p99"} <= {row["metric"] for row in everything}
    wrong = diskproof("show", "--metric", "speed", cwd=folder)
    assert wrong.returncode == 2 and "there are iops" in wrong.error_text


def test_rank_status_report_export(measured: tuple[Path, proc.Completed]) -> None:
    folder, _ = measured
    (ranked,) = json.loads(diskproof("rank", "--json", cwd=folder).text)
    assert len(ranked["rankings"][0]["cells"]) == 3
    (status,) = json.loads(diskproof("status", "--json", cwd=folder).text)
    assert (status["state"], status["done"], status["total"]) == ("done", 6, 6)
    assert diskproof("report", "-o", "page.html", cwd=folder).returncode == 0
    page = (folder / "page.html").read_text()
    assert "daemon qcow2" in page and "http://" not in page.replace("http://www.w3.org/", "")
    for name in ("results.csv", "results.json", "results.parquet"):
        done = diskproof("export", "-o", name, cwd=folder)
        assert done.returncode == 0, done.error_text
        assert (folder / name).stat().st_size > 100
    wrong = diskproof("export", "-o", "results.xls", cwd=folder)
    assert wrong.returncode == 2 and "parquet" in wrong.error_text


def test_imported_results_are_like_our_own(tmp_path: Path) -> None:
    done = diskproof("import", "kvm-perf", SAMPLE, cwd=tmp_path)
    assert done.returncode == 0, done.error_text
    rows = json.loads(diskproof("show", "--json", cwd=tmp_path).text)
    assert {row["workload"] for row in rows} == {"read", "write"}
    assert {row["metric"] for row in rows} == {"seconds"}
    assert diskproof("rank", cwd=tmp_path).returncode == 0
    assert diskproof("report", "-o", "page.html", cwd=tmp_path).returncode == 0
    assert json.loads(diskproof("status", "--json", cwd=tmp_path).text)[0]["state"] == "imported"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ('format = ["raw", "qcow2"]|format = ["raw", "qcow"]', "qcow2"),
        ("blocks = 2|bloks = 2", "blocks"),
        ('"sync-write-4k"|"sync-write"', "sync-write-4k"),
        ("[protocol]|[protocol", "TOML"),
    ],
)
def test_a_wrong_study_names_line_and_cure(tmp_path: Path, change: str, told: str) -> None:
    before, after = change.split("|")
    text = STUDY.replace(before, after)
    done = diskproof("run", write_study(tmp_path, text), cwd=tmp_path)
    assert done.returncode == 2
    assert "study.toml:" in done.error_text and told in done.error_text
    assert "Traceback" not in done.error_text
    assert list((tmp_path / "images").iterdir()) == []


def test_a_folder_that_is_not_there_is_made_for_those_who_say_so(tmp_path: Path) -> None:
    study = write_study(tmp_path, STUDY.replace('"images"', f'"{tmp_path}/not/mounted"'))
    refused = diskproof("run", study, cwd=tmp_path)
    assert refused.returncode == 3 and "--make" in refused.error_text
    assert f"backing here: {tmp_path}/not/mounted is not there" in refused.error_text
    made = diskproof("plan", study, "--make", cwd=tmp_path)
    assert made.returncode == 0 and f"lies in {tmp_path}/not/mounted: " in made.text.replace(
        "\n", ""
    )
    assert not (tmp_path / "not").exists()


def test_a_plan_that_does_not_fit_is_shown_with_the_size_that_does(tmp_path: Path) -> None:
    study = write_study(tmp_path, STUDY.replace("16MiB", "900TiB"))
    done = diskproof("plan", study, cwd=tmp_path)
    assert done.returncode == 3 and done.text.startswith("study small: 3 cells x 2 blocks")
    what, why, how = done.error_text.splitlines()
    assert "does not fit" in what and "are needed at the peak" in why
    (fits,) = re.findall(r'size = "(\d+MiB)" fits', how)
    half = f"{int(fits.removesuffix('MiB')) // 2}MiB"  # others use the disk meanwhile
    study.write_text(study.read_text().replace("900TiB", half))
    assert diskproof("plan", study, cwd=tmp_path).returncode == 0


def test_a_study_that_was_cut_off_is_none(tmp_path: Path) -> None:
    done = diskproof("plan", write_study(tmp_path, ""), cwd=tmp_path)
    assert done.returncode == 2 and "asks for nothing" in done.error_text


def test_wrong_commands(tmp_path: Path) -> None:
    for arguments in (["rum"], ["run"], ["run", "none.toml"], ["show"], ["show", "--sort", "x"]):
        done = diskproof(*arguments, cwd=tmp_path)
        assert done.returncode == 2, arguments
        assert done.error_text.startswith("diskproof: ") and "Traceback" not in done.error_text
    assert not list(tmp_path.iterdir())


def test_ctrl_c_loses_nothing_and_says_how_to_go_on(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    with start_diskproof("run", study, cwd=tmp_path) as running:
        wait_for_log(tmp_path, "[1/6, ", running)
        os.kill(running.pid, signal.SIGINT)
        assert running.wait(60) == 130
        said = running.read_log().decode()
    assert f"To go on: diskproof run {study}" in said and "Traceback" not in said
    assert left_behind(tmp_path) == []
    rest = diskproof("run", study, cwd=tmp_path)
    assert rest.returncode == 0, rest.error_text
    assert rest.error_text.count("IOPS  in ") == 6 - said.count("IOPS  in ")


def test_a_terminal_that_closes_is_a_clean_end_too(tmp_path: Path) -> None:
    with start_diskproof("run", write_study(tmp_path), cwd=tmp_path) as running:
        wait_for_log(tmp_path, "[1/6, ", running)
        os.kill(running.pid, signal.SIGHUP)
        assert running.wait(60) == 129
    assert left_behind(tmp_path) == []


def test_status_and_a_second_run_while_one_measures(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    with start_diskproof("run", study, cwd=tmp_path) as running:
        wait_for_log(tmp_path, "[1/6, ", running)
        (status,) = json.loads(diskproof("status", "--json", cwd=tmp_path).text)
        assert status["state"] == "running" and status["pid"] == running.pid
        second = diskproof("run", study, cwd=tmp_path)
        assert second.returncode == 3 and str(running.pid) in second.error_text
        followed = diskproof("status", "--follow", "--json", cwd=tmp_path)
        last = json.loads(followed.text.splitlines()[-1])
        assert last[0]["state"] == "done" and last[0]["done"] == 6
        assert running.wait(60) == 0


def test_a_budget_stops_in_time(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    study.write_text(study.read_text().replace("blocks = 2", "blocks = 100"))
    done = diskproof("run", study, "--budget", "20s", cwd=tmp_path)
    assert done.returncode == 0, done.error_text
    assert "the budget is spent" in done.error_text
    with open_store(str(tmp_path / "diskproof.sqlite")) as store:
        (recorded,) = store.studies()
        starts = [run.started for run in store.runs(recorded.id)]
    assert 1 < len(starts) < 300 and max(starts) - min(starts) < 20


def test_a_daemon_killed_in_the_middle_is_a_stored_failure(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    with start_diskproof("run", study, cwd=tmp_path) as running:
        wait_for_log(tmp_path, "[1/6, ", running)  # before that, daemons are started to probe
        victim = wait_for_child(running.pid, "qemu-storage-daemon", running)
        with pytest.raises(psutil.NoSuchProcess):
            while True:  # it may not serve yet; any moment is a fair one
                victim.kill()
                victim.wait(120)
        assert running.wait(120) == 1
    with open_store(str(tmp_path / "diskproof.sqlite")) as store:
        (recorded,) = store.studies()
        (failed,) = store.failures(recorded.id)
        assert failed.failure is not None
        assert store.counts(recorded.id).ok == 5
    assert left_behind(tmp_path) == []
    retried = diskproof("run", study, "--retry", cwd=tmp_path)
    assert retried.returncode == 0, retried.error_text
    assert retried.error_text.count("IOPS  in ") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
@pytest.mark.parametrize(("name", "options"), [("full", "size=8m"), ("fixed", "ro")])
def test_a_directory_that_takes_nothing_is_told_before_anything_is_measured(
    tmp_path: Path, name: str, options: str
) -> None:
    with start_memory_disk(tmp_path / name, options):
        text = STUDY.replace('"images"', f'"{tmp_path}/{name}"')
        done = diskproof("run", write_study(tmp_path, text), cwd=tmp_path)
        assert done.returncode == 3, done.error_text
        assert name in done.error_text and "Traceback" not in done.error_text


def wait_for_log(folder: Path, text: str, running: proc.Process) -> None:
    """Until the command has printed ``text``; it must still run then."""
    while text not in (folder / "log").read_text():
        assert running.wait(0.05) is None, running.read_log().decode()


def wait_for_child(pid: int, name: str, running: proc.Process) -> psutil.Process:
    while True:
        for child in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # short-lived ones end between list and look
                if child.name().startswith(name[:15]):
                    return child
        assert running.wait(0.02) is None, running.read_log().decode()
