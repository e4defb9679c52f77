"""``diskproof crash`` from the command line to the store, tables, page and back to a state.

Requires root, /dev/fuse, qemu-storage-daemon, fio and the native programs.
"""

import json
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from diskproof.cli import run_command_line
from diskproof.crash import program
from diskproof.crash.end_state import check_folder
from diskproof.crash.verdict import Loss
from diskproof.errors import RunFailure
from diskproof.store import open_store
from support.recording import needs_fuse
from support.renaming import CHECK, renaming_writer

pytestmark = [needs_fuse, pytest.mark.long]
STUDY = """
name = "mine"
workloads = "sync-write-4k"
[factors]
frontend = "daemon"
format = "raw"
cache = ["none", "unsafe"]
[crash]
records = 32
explore_seconds = "2s"
[protocol]
blocks = 2
size = "64MiB"
runtime = "1s"
ramp = "0s"
"""
WRITER = renaming_writer(3)


READ_PAST_THE_END = """
with open("page", "w+b") as page:
    page.write(bytes(4096))
    page.flush()
    mapped = mmap.mmap(page.fileno(), 4096)
    os.ftruncate(page.fileno(), 0)
    mapped[0]
"""
DEATHS = {
    "SIGABRT": "os.abort()",
    "SIGSEGV": "ctypes.string_at(0)",
    "SIGBUS": READ_PAST_THE_END,
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
}
GIVES_UP = """
import os, pathlib, sys
data, seen = pathlib.Path("data"), pathlib.Path(sys.argv[1])
if data.is_file() and data.read_bytes():
    sys.exit(0)
with seen.open("a") as marks:
    marks.write("x")
if seen.stat().st_size > 2:
    print("no memory")
    sys.exit(9)
print("no data")
sys.exit(2)
"""
DIES = """
import ctypes, mmap, os, pathlib, signal, sys
data = pathlib.Path("data")
if not data.is_file() or not data.read_bytes():
    print("no data", file=sys.stderr, flush=True)
    exec(os.environ["DEATH"])
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text(STUDY)
    (tmp_path / "writer.py").write_text(WRITER)
    (tmp_path / "check.py").write_text(CHECK)
    (tmp_path / "data").mkdir()
    return tmp_path


def crash(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    """Exit code and JSON of one call."""
    code, answer, _ = crash_with_notes(capsys, *arguments)
    return code, answer


def crash_with_notes(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any, str]:
    """Those, and what was said beside."""
    capsys.readouterr()
    code = run_command_line(["crash", *arguments, "--json"])
    said = capsys.readouterr()
    return code, json.loads(said.out), " ".join(said.err.split())


def crash_for_seconds(
    capsys: pytest.CaptureFixture[str], writer: str, check: str
) -> tuple[int, Any]:
    """The same of a writer's folder, as far as a search comes in some seconds."""
    return crash(capsys, "--writer", writer, "--check", check, "--budget", "12s", "data")


def has_kept(rows: list[dict[str, Any]], fault: str = "power") -> bool:
    """Whether nothing was lost; a busy host may not come to all that decides."""
    (row,) = (row for row in rows if row["fault"] == fault)
    return row["verdict"] == "keeps" or row["kept_so_far"]


def test_a_study_is_judged_once_and_stands_beside_its_speeds(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, rows = crash(capsys, "s.toml")
    assert code == 1  # unsafe lost something
    verdicts = {(row["cell"]["cache"], row["fault"]): row["verdict"] for row in rows}
    assert len(rows) == len(verdicts) == 8
    assert verdicts["none", "power"] == "keeps" and verdicts["unsafe", "power"] == "loses"
    assert crash(capsys, "s.toml") == (1, rows)  # nothing is made again
    assert list(here.glob("diskproof-images/*")) == []

    assert run_command_line(["run", "s.toml", "--quiet"]) == 0
    text = capsys.readouterr().out
    assert "crash" in text and "keeps" in text and "loses" in text
    assert run_command_line(["rank", "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)[0]["rankings"][0]["cells"]
    beside = {cell["cell"]["cache"]: cell["durability"][0]["verdict"] for cell in cells}
    assert beside == {"none": "keeps", "unsafe": "loses"}
    assert run_command_line(["report", "-o", "page.html"]) == 0
    page = Path("page.html").read_text()
    assert (
        "What does a crash leave of each cell?" in page
        and "The smallest loss that was found" in page
    )

    lost = next(r for r in rows if r["verdict"] == "loses" and r["fault"] == "power")
    command = lost["reproduce"].split()
    code, again = crash(capsys, *command[2:], "--to", "state")
    assert code == 1 and again["lost"] > 0
    assert [each["record"] for each in again["missing"]] == lost["missing"]
    assert Path("state", "disk.raw").is_file()
    with open_store("diskproof.sqlite") as store:
        kept = {each.name: each.content for each in store.crash_run(command[3]).artefacts}
    assert json.loads(kept["audit.json"])["after"]["total_seconds"] > 0


def test_more_verdicts_are_made_where_the_study_asks_for_more(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    less = STUDY.replace("[crash]", '[crash]\nfaults = "qemu-kill"').replace(', "unsafe"', "")
    Path("s.toml").write_text(less)
    code, rows = crash(capsys, "s.toml")
    assert (code, [row["fault"] for row in rows]) == (0, ["qemu-kill"])
    Path("s.toml").write_text(less.replace('"qemu-kill"', '["power", "qemu-kill"]'))
    code, more = crash(capsys, "s.toml")
    assert (code, [row["fault"] for row in more]) == (0, ["qemu-kill", "power"])
    assert more[0] == rows[0]


def test_a_budget_that_is_too_small_starts_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["crash", "s.toml", "--budget", "1s"]) == 1
    told = capsys.readouterr().err
    assert "nothing was made, the budget is too small" in told and "give --budget more" in told


@pytest.mark.parametrize(("how", "code", "verdict"), [("synced", 0, "keeps"), ("bare", 1, "loses")])
def test_anybodys_program(
    here: Path, capsys: pytest.CaptureFixture[str], how: str, code: int, verdict: str
) -> None:
    commands = (f"python3 {here}/writer.py {how}", f"python3 {here}/check.py")
    budget = "20s" if how == "synced" else "9s"
    options = ("--writer", commands[0], "--check", commands[1], "--budget", budget)
    found, rows, warned = crash_with_notes(
        capsys, *options, "--sector", "4096", "--seed", "9", "data"
    )
    by_fault = {row["fault"]: row["verdict"] for row in rows}
    assert set(by_fault) == {"power", "qemu-kill", "lying-device"}
    assert has_kept(rows, "qemu-kill")
    so_far = any(row["kept_so_far"] for row in rows)  # of a busy host: nothing to go by
    assert found == (1 if so_far else code)
    assert by_fault["lying-device"] in ("loses", "corrupts")
    if how == "synced":
        assert has_kept(rows)
    else:
        assert by_fault["power"] in ("loses", "corrupts")
    assert list(Path("data").iterdir()) == [], "the program works on a copy"
    assert ("no flush of it reached the disk" in warned) == (how == "bare")
    with open_store("diskproof.sqlite") as store:
        assert [study.origin for study in store.studies()] == ["program"]
        (cell,) = {row.cell for row in store.verdicts(store.studies()[0].id)}
    assert (cell.workload.option("sector"), cell.workload.option("seed")) == ("4096", "9")


def test_a_writer_of_a_virtual_environment_finds_what_is_installed_there(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    venv.create("venv", symlinks=True)
    assert Path("venv/bin/python").is_symlink()
    (packages,) = Path("venv/lib").glob("python*/site-packages")
    (packages / "only_there.py").write_text(WRITER)
    _, rows = crash_for_seconds(
        capsys, "venv/bin/python -m only_there synced", f"python3 {here}/check.py"
    )
    assert has_kept(rows), rows


def test_a_program_of_many_names_is_called_by_the_one_that_was_typed(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "many").mkdir()
    (here / "many" / "box").write_text(
        f'#!/bin/sh\ncase "${{0##*/}}" in\nwrite) exec python3 {here}/writer.py synced ;;\n'
        f"check) exec python3 {here}/check.py ;;\nesac\necho this is no applet >&2\nexit 9\n"
    )
    (here / "many" / "box").chmod(0o755)
    for name in ("write", "check"):
        Path(name).symlink_to("many/box")
    _, rows = crash_for_seconds(capsys, "./write", "./check")
    assert has_kept(rows), rows


def test_what_a_writer_said_before_it_failed_stands_in_the_reason(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "fails").write_text("#!/bin/sh\necho no such database >&2\nexit 3\n")
    (here / "fails").chmod(0o755)
    code, rows = crash(capsys, "--writer", "./fails", "--check", "true", "data")
    assert code == 1
    wanted = "workload: the writer ended with status 3: no such database"
    assert {row["reason"] for row in rows} == {wanted}


@pytest.mark.parametrize("name", ["SIGABRT", "SIGSEGV", "SIGBUS"])
def test_a_state_that_a_check_crashes_on_is_corrupt(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (here / "dies.py").write_text(DIES)
    monkeypatch.setenv("DEATH", DEATHS[name])
    code, rows = crash_for_seconds(
        capsys, f"python3 {here}/writer.py bare", f"python3 {here}/dies.py"
    )
    power = next(row for row in rows if row["fault"] == "power")
    assert (code, power["verdict"]) == (1, "corrupts")
    assert power["reason"] == f"the check crashed with {name}\nno data"
    code, again = crash(capsys, *power["reproduce"].split()[2:], "--to", "state")
    assert (code, again["corrupt"]) == (1, True)


@pytest.mark.parametrize("name", DEATHS)
def test_a_folder_that_a_check_crashes_on_is_corrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What an end in order leaves is checked without the explorer. Who was ended told nothing."""
    (tmp_path / "files").mkdir()
    monkeypatch.setenv("DEATH", DEATHS[name])
    check = {"kind": "command", "argv": [sys.executable, "-c", DIES]}
    if name == "SIGTERM":
        with pytest.raises(RunFailure, match="status -15"):
            check_folder(tmp_path / "files", tmp_path, (), check, 30.0)
    else:
        loss = check_folder(tmp_path / "files", tmp_path, (), check, 30.0)
        assert loss == Loss(0, (), 0, 0.0, "corrupts", f"the check crashed with {name}\nno data")


@pytest.mark.parametrize(
    ("death", "told"),
    [
        ("os.kill(os.getpid(), signal.SIGTERM)", "signal: 15 (SIGTERM): no data"),
        ("signal.pause()", "it took longer than"),
        ("import nowhere", "it did not say how much is lost"),  # a traceback, and code 1
    ],
)
def test_a_check_that_was_ended_decides_nothing(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    death: str,
    told: str,
) -> None:
    (here / "dies.py").write_text(DIES)
    monkeypatch.setenv("DEATH", death)
    monkeypatch.setattr(program, "CHECK_SECONDS", 0.5 if "pause" in death else 10.0)
    commands = (f"python3 {here}/writer.py bare", f"python3 {here}/dies.py")
    code, rows = crash(
        capsys, "--writer", commands[0], "--check", commands[1], "--budget", "40s", "data"
    )
    assert code == 1
    power = next(row for row in rows if row["fault"] == "power")
    assert power["verdict"] == "undecided" and told in power["reason"]


def test_what_a_killed_program_had_stored_in_a_mapping_is_not_called_lost(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its pages outlive it, and the recorder sees them later."""
    (here / "data" / "page").write_bytes(b"0" * 4096)
    (here / "stores.py").write_text(
        "import mmap, time\nwith open('page', 'r+b') as page:\n"
        "    mapped = mmap.mmap(page.fileno(), 4096)\n"
        "    mapped[0] = ord('1')\n    print(1, flush=True)\n"
        "    slow_to_end = bytearray(b'x') * (1 << 29)\n    time.sleep(60)\n"
    )
    (here / "reads.py").write_text(
        "import os, sys\nstored = open('page').read(1) == '1'\n"
        "if not stored and open(os.environ['DISKPROOF_ACKNOWLEDGED']).read():\n"
        "    print(1)\n    sys.exit(1)\n"
    )
    _, rows = crash_for_seconds(capsys, f"python3 {here}/stores.py", f"python3 {here}/reads.py")
    rows = {row["fault"]: row for row in rows}
    assert rows["power"]["verdict"] == "loses"
    assert rows["qemu-kill"]["verdict"] == "undecided"
    assert "writes through mapped files" in rows["qemu-kill"]["reason"]


def test_why_a_search_broke_off_is_told_beside_the_loss_that_it_found(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two states are corrupt before the check gives up, as it does when memory runs out."""
    (here / "gives_up.py").write_text(GIVES_UP)
    crashing = ("--writer", f"python3 {here}/writer.py bare", "--budget", "3s", "data", "--check")
    code, rows = crash(capsys, *crashing, f"python3 {here}/gives_up.py {here}/once")
    power = next(row for row in rows if row["fault"] == "power")
    assert (code, power["verdict"]) == (1, "corrupts") and power["states_checked"] >= 1
    assert power["reason"].startswith("no data; the search broke off: running python3")
    assert "exit status: 9: no memory" in power["reason"]
    twice = f"python3 {here}/gives_up.py {here}/twice"
    assert run_command_line(["crash", *crashing, twice]) == 1
    assert "the search broke off" in " ".join(capsys.readouterr().out.split())
    assert run_command_line(["report", "-o", "page.html"]) == 0
    assert "the search broke off: running python3" in Path("page.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--writer", "true", "data"], 2, "--writer and --check go together"),
        (["--writer", "'", "--check", "true", "data"], 2, "cannot be read"),
        (["--writer", "", "--check", "true", "data"], 2, "is no command"),
        (["--writer", "true", "--check", "true", "no-such-folder"], 2, "is no folder"),
        (["--writer", "false", "--check", "true", "data"], 1, "ended with status 1"),
        (["--writer", "/no/such/program", "--check", "true", "data"], 2, "is no program"),
        (["--writer", "true", "--check", "true", "data"], 1, "promised nothing"),
        (["--writer", "true", "--check", "true", "data", "--sector", "513"], 2, "no sector"),
        (["--block-log", "s.toml", "data"], 2, "--check is missing"),
        (["--block-log", "s.toml", "--check", "true", "data"], 2, "does not hold one file"),
        (["--block-log", "s.toml", "--writer", "true", "data"], 2, "not both"),
        (["s.toml", "--seed", "0"], 2, "--seed goes with --writer"),
        (["s.toml", "--stays"], 2, "--stays goes with --writer"),
        (["--writer", "true", "--check", "true", "data", "--make"], 2, "--make goes with a study"),
        (["s.toml", "--causes", "3s"], 2, "--causes goes with --writer"),
        (["s.toml", "--old-content"], 2, "--old-content goes with --writer"),
        (["s.toml", "--cluster", "host:8786"], 2, "no address of a cluster"),
        (["no-such-study.toml"], 2, "cannot read the study"),
        (["reproduce", "no-such-run"], 2, "no crash run"),
        (["s.toml", "--budget", "soon"], 2, "--budget"),
    ],
)
def test_what_cannot_be_is_said(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, told: str
) -> None:
    with open_store("diskproof.sqlite", create=True):
        pass
    assert run_command_line(["crash", *arguments]) == code
    said = capsys.readouterr()
    assert told in " ".join((said.out + said.err).split())
    assert "Traceback" not in said.err


RIGHTS = """
import os, resource, sys
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
bits = int(status["CapEff"], 16)
limits = [resource.getrlimit(which) for which in (resource.RLIMIT_CORE, resource.RLIMIT_DATA)]
gains, modules, files = status["NoNewPrivs"].strip(), bits >> 16 & 1, bits >> 1 & 1
sys.exit(f"{os.geteuid()} {gains} {modules} {files} {limits[0]} {limits[1][1] > 0}")
"""


def test_a_check_is_the_callers_and_gains_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The explorer's and the one after an end in order: all files, no modules, no core."""
    told = "0 1 0 1 (0, 0) True"
    (here / "rights.py").write_text(f"{RIGHTS.replace('sys.exit', 'print')}sys.exit(2)\n")
    _, rows = crash_for_seconds(
        capsys, f"python3 {here}/writer.py bare", f"python3 {here}/rights.py"
    )
    assert told in next(row for row in rows if row["fault"] == "power")["reason"]
    check = {"kind": "command", "argv": ["python3", str(here / "rights.py")]}
    loss = check_folder(here / "data", here, (), check, 30.0)
    assert loss is not None and loss.text == told
