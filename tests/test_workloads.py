"""What is asked of fio and how its ends are told apart; real fio is in integration/test_fio.py."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.drive import Command, Drive, DriveFacts, Execution
from diskproof.errors import HostError, RunFailure, StudyError, UsageError
from diskproof.fio_output.parse import parse_fio_output
from diskproof.records import Check, WorkloadSpec
from diskproof.study.job_file import ENGINES
from diskproof.study.load import parse_study
from diskproof.study.presets import PRESETS
from diskproof.workloads import WorkloadResult, load_workload
from diskproof.workloads.fio import render_job
from diskproof.workloads.fio_job import read_sections, render_jobs
from diskproof.workloads.fio_series import parse_iops_log

SIZE = 64 << 20


class Answering(Drive):
    """A drive on which every command ends as given."""

    def __init__(self, engine: str = "libaio", **end: object) -> None:
        fio = {"ioengine": engine, "filename": "/disk", "direct": "1"}
        super().__init__(DriveFacts(SIZE, fio))
        self.end = {"returncode": 0, "stdout": b"", "stderr": b"", "seconds": 1.0, **end}
        self.error: Exception | None = None

    def run(self, command: Command) -> Execution:
        if self.error:
            raise self.error
        return Execution(**self.end)  # type: ignore[arg-type]

    def read_back(self) -> tuple[Check, ...]:
        return ()


def spec(name: str, **options: str) -> WorkloadSpec:
    lines = [f'{key} = "{value}"' for key, value in options.items() if key != "iodepth"]
    lines += [f"iodepth = {options['iodepth']}"] if "iodepth" in options else []
    text = "\n".join([f"[workloads.{name}]", *lines, '[protocol]\nsize="64MiB"\nramp="500ms"'])
    return parse_study(text).workloads[0]


def options(job: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in job.splitlines()[1:])


def answer(**changes: object) -> dict[str, object]:
    """What fio says of one second of reads at depth 32, as far as it is read."""
    side = {"total_ios": 100, "io_bytes": 409600, "iops": 100.0, "bw_bytes": 409600}
    read = {**side, "runtime": 1000, "clat_ns": {"N": 100, "mean": 5.0}}
    depths = {"1": 0.1, "16": 0.0, "32": 99.9}
    job = {"jobname": "rand-read-4k-d32", "error": 0, "read": read, "job_runtime": 1000}
    return {"fio version": "fio-3.33", "jobs": [{**job, "iodepth_level": depths, **changes}]}


def run(drive: Answering, name: str = "rand-read-4k-d32") -> WorkloadResult:
    return load_workload("fio").run(spec(name, runtime="1s"), drive)


def failure(drive: Answering) -> RunFailure:
    with pytest.raises(RunFailure) as caught:
        run(drive)
    return caught.value


def wrong(result: WorkloadResult) -> list[str]:
    return [check.name for check in result.checks if not check.ok]


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_every_preset_says_all_that_shapes_its_load(preset: object) -> None:
    name = getattr(preset, "name")  # noqa: B009 - parametrize hides the type
    job = options(render_job(spec(name), Answering()))
    assert {"rw", "bs", "iodepth", "size", "runtime", "time_based", "randseed"} <= job.keys()
    assert job["size"] == str(SIZE)
    assert ("ramp_time" in job) is (name != "zipf-read")
    assert ("fsync" in job) is (name == "sync-write-4k")
    assert job.get("rwmixread") == ("70" if name == "mixed-70-30" else None)
    assert job.get("random_distribution") == ("zipf:1.2" if name == "zipf-read" else None)


def test_times_are_whole_milliseconds_and_a_disk_is_never_exceeded() -> None:
    drive = Answering()
    drive.facts = replace(drive.facts, size=32 << 20)
    job = options(render_job(spec("seq-read", runtime="1500ms"), drive))
    assert (job["runtime"], job["ramp_time"]) == ("1500ms", "500ms")
    assert job["size"] == str(32 << 20)


def test_a_good_answer_behind_a_warning_is_a_result_with_all_that_was_said() -> None:
    output = b"fio: careful\n" + json.dumps(answer()).encode()
    result = run(Answering(stdout=output, stderr=b"fio: really\n"))
    assert [m.value for m in result.metrics if m.primary] == [100.0]
    assert wrong(result) == []
    assert result.measured_seconds == 1.0
    kept = {artefact.name: artefact.content for artefact in result.artefacts}
    assert json.loads(kept["fio.json"]) == answer()
    assert kept["fio.stderr"] == b"fio: careful\nfio: really"
    assert b"rw=randread" in kept["fio.job"]


def test_a_skewed_load_without_a_ramp_tells_how_caches_warm_up() -> None:
    log = "".join(f"{100 * n}, {min(1000, 100 * n)}, 0, 4096\n" for n in range(1, 61)).encode()
    end = {"stdout": json.dumps(answer(jobname="zipf-read")).encode()}
    drive = Answering(files={"load_iops.log": log}, **end)
    told = {m.name: m.value for m in load_workload("fio").run(spec("zipf-read"), drive).metrics}
    assert (told["cold_iops"], told["warm_iops"]) == (350.0, 1000.0)
    assert told["warm_up_seconds"] == pytest.approx(0.9)
    for other in (spec("rand-read-4k-d1"), spec("zipf-read", ramp="1s")):
        plain = load_workload("fio").run(other, drive)
        assert plain.series and "warm_iops" not in {metric.name for metric in plain.metrics}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"iodepth_level": {"1": 100.0, "32": 0.0}}, "rand-read-4k-d32: queue depth"),
        ({"iodepth_level": {}}, "rand-read-4k-d32: queue depth"),
        ({"iodepth_level": {"16": 60.0, "32": 40.0}}, "rand-read-4k-d32: queue depth"),
        ({"job_runtime": 500}, "rand-read-4k-d32: measured time"),
    ],
)
def test_another_load_than_the_one_asked_for_is_found_out(
    changes: dict[str, object], name: str
) -> None:
    assert wrong(run(Answering(stdout=json.dumps(answer(**changes)).encode()))) == [name]


def test_submissions_that_fill_the_queue_are_not_held_against_a_slow_disk() -> None:
    """305 writes in a second, as a busy host's disk took: 31 of them came before it was full."""
    levels = {"1": 1, "2": 2, "4": 4, "8": 8, "16": 16, "32": 274}
    side = {"total_ios": 305, "io_bytes": 305 * 4096, "iops": 305.0, "bw_bytes": 305 * 4096}
    read = {**side, "runtime": 1000, "clat_ns": {"N": 305, "mean": 5.0}}
    filled = answer(iodepth_level=levels, read=read)
    assert wrong(run(Answering(stdout=json.dumps(filled).encode()))) == []
    levels |= {"16": 50, "32": 240}
    ragged = answer(iodepth_level=levels, read=read)
    found = wrong(run(Answering(stdout=json.dumps(ragged).encode())))
    assert found == ["rand-read-4k-d32: queue depth"]


GOOD = json.dumps(answer()).encode()


@pytest.mark.parametrize(
    ("end", "kind", "text"),
    [
        ({"returncode": -9, "stdout": GOOD}, "killed", "SIGKILL"),
        ({"returncode": -40, "stdout": GOOD}, "killed", "signal 40"),
        ({"returncode": 127, "stderr": b"no fio"}, "tool", "no fio"),
        ({"returncode": 1, "stderr": b"fio: engine nbd not loadable"}, "workload", "not loadable"),
        ({"returncode": 0, "stdout": b""}, "workload", "no JSON"),
        ({"returncode": 0, "stdout": GOOD[: len(GOOD) // 2]}, "workload", "cannot be read"),
        ({"returncode": 0, "stdout": b'{"jobs": 3}'}, "workload", "not a list"),
        ({"returncode": 3, "stdout": GOOD, "stderr": b"odd"}, "workload", "odd"),
        ({"stdout": json.dumps(answer(error=28)).encode()}, "space", "No space left"),
        ({"stdout": json.dumps(answer(error=5)).encode()}, "workload", "Input/output error"),
        ({"stdout": json.dumps(answer(read=None)).encode()}, "workload", "did no I/O"),
        ({"stdout": b'{"jobs": []}'}, "workload", "0 jobs"),
    ],
)
def test_every_bad_end_is_told_apart_and_keeps_what_fio_said(
    end: dict[str, object], kind: str, text: str
) -> None:
    found = failure(Answering(**end))
    assert found.kind == kind
    assert text in str(found)
    kept = dict(found.evidence)
    assert b"rw=randread" in kept["fio.job"]
    assert kept.get("fio.json", b"") == end.get("stdout", b"")


def test_fio_that_is_not_installed_is_named_with_its_package() -> None:
    drive = Answering()
    drive.error = HostError("fio is not installed", "it was not found on PATH")
    assert (failure(drive).kind, failure(drive).hint) == ("tool", "apt-get install fio")


def test_a_failure_of_the_drive_passes_through_with_the_job_as_evidence() -> None:
    drive = Answering()
    drive.error = RunFailure("qemu", "it ended", evidence=(("log", b"x"),))
    assert failure(drive) is drive.error
    assert [name for name, _ in failure(drive).evidence][:2] == ["log", "fio.job"]


def test_unknown_kind() -> None:
    with pytest.raises(UsageError, match="unknown kind of workload"):
        load_workload("fio ")


# -- logs -----------------------------------------------------------------------------------


def test_a_log_of_one_direction_and_one_of_two() -> None:
    (iops,) = parse_iops_log(b"100, 50, 0, 0, 0\n200, 60, 0, 0, 0\n", 100)
    assert (iops.name, iops.times, iops.values) == ("iops", (0.1, 0.2), (50.0, 60.0))
    both = parse_iops_log(b"100, 50, 0, 0\n100, 7, 1, 0\nnonsense\n1, 2\n", 100)
    assert [(s.name, s.values) for s in both] == [("read_iops", (50.0,)), ("write_iops", (7.0,))]


def test_clones_of_a_job_are_added_up_where_all_of_them_were_logged() -> None:
    text = b"100,5,0,0\n201,6,0,0\n300,7,0,0\n" + b"99,10,0,0\n200,20,0,0\n"
    (iops,) = parse_iops_log(text, 100)
    assert (iops.times, iops.values) == ((0.1, 0.2), (15.0, 26.0))


@given(st.binary(max_size=200) | st.text("0123456789, \n-", max_size=200).map(str.encode))
def test_any_log_is_read(text: bytes) -> None:
    for series in parse_iops_log(text, 100):
        assert len(series.times) == len(series.values) > 0


# -- job files ------------------------------------------------------------------------------


def job_spec(folder: Path, text: str) -> WorkloadSpec:
    (folder / "a.fio").write_text(text)
    study = '[workloads.app]\njob="a.fio"\n[protocol]\nsize="64MiB"\nruntime="3s"'
    return parse_study(study, folder=folder).workloads[0]


def sections_of(folder: Path, text: str, engine: str = "libaio") -> list[dict[str, str]]:
    found, drive = job_spec(folder, text), Answering(engine)
    job = render_jobs(found, read_sections(found, drive), drive)
    return [options(part) for part in job.split("\n\n")]


def test_a_job_gets_the_disk_and_what_it_leaves_open(tmp_path: Path) -> None:
    own, silent = sections_of(
        tmp_path, "[global]\ndirect=0\n[a]\nruntime=9\nsize=50%\nioengine=psync\n[b]\nrw=read"
    )
    assert own["filename"] == silent["filename"] == "/disk"
    assert (own["runtime"], own["size"], own["ioengine"]) == ("9", "50%", "psync")
    assert "time_based" not in own
    assert (silent["runtime"], silent["time_based"]) == ("3000ms", "1")
    assert (silent["size"], silent["ioengine"]) == (str(SIZE), "libaio")
    assert own["direct"] == silent["direct"] == "0"
    assert own["write_iops_log"] != silent["write_iops_log"]


def test_over_nbd_the_engine_is_that_of_the_disk_and_a_flush_is_a_flush(tmp_path: Path) -> None:
    (job,) = sections_of(tmp_path, "[a]\nrw=write\nioengine=libaio\nfdatasync=4", "nbd")
    assert (job["ioengine"], job["fsync"]) == ("nbd", "4")
    assert "fdatasync" not in job


def test_a_job_larger_than_the_disk_is_refused(tmp_path: Path) -> None:
    found = job_spec(tmp_path, "[a]\nrw=write\nsize=65m")
    with pytest.raises(RunFailure, match="cannot be run") as caught:
        load_workload("fio-job").run(found, Answering())
    assert "line 1: job a is larger than the disk" in caught.value.why


def test_an_answer_with_other_jobs_is_not_taken(tmp_path: Path) -> None:
    found = job_spec(tmp_path, "[a]\nrw=read\n[b]\nrw=read")
    with pytest.raises(RunFailure) as caught:
        load_workload("fio-job").run(found, Answering(stdout=GOOD))
    assert "not those of the job file" in caught.value.why


def test_a_study_names_the_line_of_the_job_file_and_what_belongs_there(tmp_path: Path) -> None:
    (tmp_path / "a.fio").write_text("[a]\nrw=read\nfilename=/dev/sda\n")
    study = '[workloads.app]\njob = "a.fio"\nbs = "4k"\n'
    with pytest.raises(StudyError) as caught:
        parse_study(study, folder=tmp_path)
    assert "a.fio:3: filename: the disk under test is filled in" in str(caught.value)
    assert "study.toml:3: bs: this goes into the fio job file" in str(caught.value)


def test_the_page_on_workloads_names_every_preset_and_engine() -> None:
    page = (Path(__file__).parent.parent / "docs" / "workloads.md").read_text()
    assert [preset.name for preset in PRESETS if f"`{preset.name}`" not in page] == []
    assert [engine for engine in ENGINES if f"`{engine}`" not in page] == []


@pytest.mark.parametrize(
    ("printed", "told"), [(0, ""), (22, "Invalid argument"), (2**32 - 1, "Unknown error -1")]
)
def test_an_error_of_a_job_has_a_text_however_fio_prints_it(printed: int, told: str) -> None:
    result = parse_fio_output(json.dumps(answer(error=printed)).encode())
    assert result.jobs[0].error_text == told
