"""fio's files as a study. The last tests run the real fio (it must be installed)."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.errors import UsageError
from diskproof.fio_output import parse_fio_documents
from diskproof.process import start as proc
from diskproof.store import open_store
from diskproof.store.formats.fio import import_fio
from diskproof.store.formats.imported import Imported
from diskproof.store.show import show_rows


def side(operations: int, seconds: float, bs: int = 4096) -> dict[str, Any]:
    return {
        "total_ios": operations,
        "io_bytes": operations * bs,
        "iops": operations / seconds,
        "bw_bytes": operations * bs / seconds,
        "runtime": int(seconds * 1000),
        "clat_ns": {"N": operations, "mean": 1e9 * seconds / max(1, operations)},
    }


def job(
    name: str = "job",
    operations: int = 1000,
    error: int = 0,
    seconds: float = 2.0,
    **options: str,
) -> dict[str, Any]:
    direction = "write" if "write" in options.get("rw", "read") else "read"
    return {
        "jobname": name,
        "error": error,
        "elapsed": int(seconds) + 1,
        "job_runtime": int(seconds * 1000),
        "job options": {"name": name, **options},
        direction: side(operations, seconds),
    }


def document(*jobs: Mapping[str, Any], ended: float = 1e9, **shared: str) -> bytes:
    content = {
        "fio version": "fio-3.33",
        "timestamp_ms": int(ended * 1000),
        "global options": shared,
        "jobs": list(jobs),
    }
    return json.dumps(content).encode() + b"\n"


def imported(*files: bytes) -> Imported:
    return import_fio([(f"run-{n}.json", data) for n, data in enumerate(files)], "study")


def iops(found: Imported) -> list[tuple[str, int, float]]:
    """(workload, block, IOPS) of the good runs."""
    return [
        (run.cell.workload.name, run.block, metric.value)
        for run in found.runs
        for metric in run.metrics
        if metric.name == "iops"
    ]


def test_files_are_repeats_of_the_same_job() -> None:
    found = imported(*(document(job(operations=n, bs="4k"), ended=1e9 + n) for n in (10, 20, 30)))
    assert iops(found) == [("job", 0, 5.0), ("job", 1, 10.0), ("job", 2, 15.0)]
    assert len(found.study.cells) == 1 and found.study.blocks == 3
    assert [run.ended for run in found.runs] == [1e9 + 10, 1e9 + 20, 1e9 + 30]
    assert found.runs[0].started == 1e9 + 8
    assert found.host.facts["fio"] == ["fio-3.33"]


def test_how_the_disk_is_reached_is_a_level_what_is_done_to_it_the_workload() -> None:
    found = imported(
        document(
            job("load", rw="randread", bs="4k", iodepth="32", ioengine="libaio", direct="1"),
            filename="/dev/one",
        ),
        document(job("load", rw="randread", bs="4096", iodepth="32"), filename="/dev/two"),
    )
    first, second = found.study.cells
    assert first.levels == (("direct", "1"), ("ioengine", "libaio"))
    assert second.levels == (("direct", "default"), ("ioengine", "default"))
    expected = {"rw": "randread", "bs": "4096", "iodepth": "32"}
    assert first.workload == second.workload and dict(first.workload.options) == expected


def test_buffered_is_the_contrary_of_direct() -> None:
    found = imported(document(job("a", buffered="0"), job("b", direct="1")))
    assert [cell.level("direct") for cell in found.study.cells] == ["1", "1"]


def test_jobs_of_one_name_and_different_loads_are_not_one_workload() -> None:
    found = imported(document(job("t", bs="4k"), job("t", bs="64k")), document(job("t", bs="8k")))
    names = [cell.workload.name for cell in found.study.cells]
    assert names == ["t bs=4KiB", "t bs=64KiB", "t bs=8KiB"]
    assert len(found.runs) == 3


def test_jobs_of_one_load_and_different_names_are_compared() -> None:
    found = imported(
        document(
            job("p", rw="randread", bs="4k", ioengine="psync"),
            job("l", rw="randread", bs="4k", ioengine="libaio"),
        )
    )
    assert {cell.workload.name for cell in found.study.cells} == {"randread 4KiB"}
    assert [cell.level("ioengine") for cell in found.study.cells] == ["psync", "libaio"]
    assert all(cell.level("job") == "" for cell in found.study.cells)


def test_jobs_that_differ_in_their_name_only_stay_apart() -> None:
    found = imported(document(job("disk1", bs="4k"), job("disk2", bs="4k")))
    assert [cell.level("job") for cell in found.study.cells] == ["disk1", "disk2"]
    assert [run.block for run in found.runs] == [0, 0]


def test_clones_are_one_run() -> None:
    found = imported(document(*[job("j", numjobs="3", operations=100)] * 3))
    assert iops(found) == [("j", 0, 150.0)]


def test_errors_become_failed_runs_that_say_why(tmp_path: Path) -> None:
    found = imported(document(job("good"), job("bad", error=28, bs="1m"), job("idle", 0, bs="2m")))
    good, bad, idle = found.runs
    assert (good.status, bad.status, idle.status) == ("ok", "failed", "failed")
    assert bad.failure and "No space left" in bad.failure.why and bad.metrics == ()
    assert idle.failure and "did no I/O" in idle.failure.why
    with open_store(str(tmp_path / "s.sqlite"), create=True) as store:
        store.add_imported(found.study, found.host, found.runs)
        assert len(store.failures(found.study.id)) == 2


def test_reports_of_a_run_that_went_on_are_left_out_separate_runs_are_not() -> None:
    interim = [document(job(operations=n, seconds=n), ended=1e9 + n + 0.1) for n in (1, 2, 3)]
    final = document(job(operations=3, seconds=3.1), ended=1e9 + 3.2)
    found = imported(b"".join([*interim, final]))
    assert [run.ended for run in found.runs] == [1e9 + 3.2]
    assert "3 reports" in found.notes[0]
    apart = [document(job(operations=n, seconds=1), ended=1e9 + 1.2 * n) for n in (1, 2, 3)]
    assert len(imported(b"".join(apart)).runs) == 3


def test_a_copy_of_a_file_is_no_repeat() -> None:
    found = imported(document(job()), document(job()))
    assert len(found.runs) == 1 and "copy of run-0.json" in found.notes[0]


def test_files_are_kept_whole_with_what_fio_printed_before(tmp_path: Path) -> None:
    data = b"fio: this option is old\n" + document(job("a"), job("b", bs="8k"))
    found = imported(data)
    assert [[a.content for a in run.artefacts] for run in found.runs] == [[data], []]


def test_a_second_import_adds_nothing(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "s.sqlite"), create=True) as store:
        for _ in range(2):
            found = imported(document(job("a"), job("b", bs="8k")), document(job("a")))
            store.add_imported(found.study, found.host, found.runs)
        assert len(store.runs(found.study.id)) == len(found.runs) == 3


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no JSON of fio"),
        (b"{", "cannot be read"),
        (b'{"jobs": 3}', "not a list"),
        (b'{"jobs": [{"jobname": 3}]}', "no 'jobname'"),
        (b'{"jobs": [{"jobname": "x", "read": {"total_ios": -1}}]}', "fio before 3.0"),
    ],
)
def test_what_is_not_fio_is_refused_with_its_name(data: bytes, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        import_fio([("good.json", document(job())), ("bad\x1b.json", data)], "x")
    assert caught.value.what == "bad?.json: not imported" and why in caught.value.why


def test_no_job_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing was imported"):
        imported(b'{"jobs": []}')
    with pytest.raises(UsageError, match="nothing was imported"):
        import_fio([], "x")


def test_damage_is_read_in_proportion_to_its_length() -> None:
    """Each of 900 lines begins an object that ends megabytes later, if at all: to read every one
    would take minutes. What stands whole behind a damaged document is still found."""
    deep = b'{"a":\n' * 900 + b"[" + b"0," * 4_000_000
    began = time.process_time()
    with pytest.raises(ValueError, match="cannot be read"):
        parse_fio_documents(deep)
    assert time.process_time() - began < 20  # 100 times as long before
    whole = document(job("a"))
    (found,) = parse_fio_documents(b'{"fio version": "3", "jobs": [\n' + whole)
    assert [each.name for each in found.jobs] == ["a"]


OPTIONS = st.dictionaries(
    st.sampled_from(["rw", "bs", "iodepth", "direct", "ioengine", "size", "mem", "filename"])
    | st.text(max_size=4),
    st.sampled_from(["", "1", "4k", "4096", "libaio", "x" * 300]) | st.text(max_size=4),
    max_size=5,
)
JOBS = st.lists(st.tuples(st.sampled_from(["a", "b"]) | st.text(max_size=4), OPTIONS), max_size=5)


@given(st.lists(JOBS, min_size=1, max_size=4))
def test_every_job_becomes_a_run_of_its_own_and_can_be_stored(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[tuple[str, dict[str, str]]]]
) -> None:
    documents = []
    for number, jobs in enumerate(files):
        made = [job(name, 7 + place) for place, (name, _) in enumerate(jobs)]
        for each, (_, options) in zip(made, jobs, strict=True):
            each["job options"] = options
        documents.append(document(*made, ended=1e9 + 100 * number))
    # Jobs of one file with the same name and options are clones, and those are one run.
    expected = sum(
        len({(name, tuple(sorted(options.items()))) for name, options in jobs}) for jobs in files
    )
    if not expected:
        return
    found = imported(*documents)
    assert len(found.runs) == expected
    assert len({(run.cell.id, run.block) for run in found.runs}) == expected
    by_name: dict[str, object] = {}
    for cell in found.study.cells:
        assert by_name.setdefault(cell.workload.name, cell.workload) == cell.workload
    folder = tmp_path_factory.mktemp("store")
    with open_store(str(folder / "s.sqlite"), create=True) as store:
        store.add_imported(found.study, found.host, found.runs)


# -- the real fio ---------------------------------------------------------------------------


def run_fio(folder: Path, *args: str) -> bytes:
    common = [f"--directory={folder}", "--size=1M", "--bs=4k"]
    return proc.run(["fio", *common, *args], timeout=60, check=False).stdout


@pytest.mark.parametrize("kind", ["json", "json+"])
def test_what_the_real_fio_wrote(tmp_path: Path, kind: str) -> None:
    args = [f"--output-format={kind}", "--name=r", "--rw=randread", "--name=w", "--rw=write"]
    found = imported(*(run_fio(tmp_path, *args) for _ in range(2)))
    rows = [row for row in _shown(tmp_path, found) if row["primary"]]
    assert [(row["workload"], row["metric"], row["n"]) for row in rows] == [
        ("r", "iops", 2),
        ("w", "iops", 2),
    ]
    assert all(run.histograms for run in found.runs) == (kind == "json+")
    content = json.loads(found.runs[0].artefacts[0].content)
    assert rows[0]["runs"][0] == content["jobs"][0]["read"]["iops"]  # type: ignore[index]


def _shown(folder: Path, found: Imported) -> Any:
    with open_store(str(folder / "s.sqlite"), create=True) as store:
        store.add_imported(found.study, found.host, found.runs)
        results = store.results("study")
        return show_rows(results, store.figures(results), [])


def test_status_reports_of_the_real_fio_are_one_run(tmp_path: Path) -> None:
    args = ["--status-interval=1", "--time_based", "--runtime=2500ms", "--rate_iops=50"]
    data = run_fio(tmp_path, "--output-format=json", "--name=r", "--rw=read", *args)
    found = imported(data)
    assert len(found.runs) == 1 and found.notes
    (value,) = (metric.value for metric in found.runs[0].metrics if metric.name == "iops")
    assert value == pytest.approx(50, rel=0.4)  # all reports together would be thrice as many


def test_a_job_that_failed_in_the_real_fio_is_a_failed_run(tmp_path: Path) -> None:
    data = run_fio(tmp_path, "--output-format=json", "--name=r", "--rw=read", "--filename=/")
    assert [run.status for run in imported(data).runs] == ["failed"]
