"""diskproof-states on recordings of real writers: what it says is lost is what the log shows.

Requires root, /dev/fuse, QEMU and the built native programs.
"""

import json
import os
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from diskproof.errors import RunFailure
from diskproof.process.native import require_native
from diskproof.process.start import run, start_process
from support.recording import (
    DEADLINE,
    Places,
    make_places,
    needs_fuse,
    start_recording,
    wait_until_unmounted,
)

pytestmark = needs_fuse

CHECK_ROWS = """
import os, sqlite3, sys
wanted = [int(line) for line in open(os.environ["DISKPROOF_ACKNOWLEDGED"])]
try:
    found = {row[0] for row in sqlite3.connect("rows.db").execute("SELECT number FROM rows")}
except sqlite3.DatabaseError as error:
    print(0, error)
    sys.exit(2)
lost = len([number for number in wanted if number not in found])
print(lost)
sys.exit(1 if lost else 0)
"""


CHECK_ROWS_STAYING = """
import os, sqlite3, sys
for line in sys.stdin:
    state, promises = line.rstrip("\\n").split("\\t")
    wanted = [int(line) for line in open(promises)]
    database = sqlite3.connect(state + "/rows.db")
    try:
        found = {row[0] for row in database.execute("SELECT number FROM rows")}
    except sqlite3.DatabaseError as error:
        print(2, 0, error, flush=True)
        continue
    finally:
        database.close()
    lost = len([number for number in wanted if number not in found])
    print(1 if lost else 0, lost, flush=True)
"""


def explore(places: Places, fault: str, check: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """The explorer's lines."""
    request = {"log": str(places.log), "base": str(places.base), "fault": fault, "check": check}
    budget = {"states": 400, "seconds": 60}
    text = json.dumps({"sector": 512, "seed": 1, "budget": budget} | request | more)
    argv = [str(require_native("diskproof-states")), "explore"]
    answer = run(argv, timeout=300, stdin=text.encode())
    return [json.loads(line) for line in answer.text.splitlines()]


def write_ledger(target: str, acks: Path, *options: str, records: int = 64) -> None:
    argv = [str(require_native("diskproof-ledger")), "write", target, "--slots", "64"]
    run([*argv, "--records", str(records), "--acks", str(acks), *options], timeout=10 * DEADLINE)


@contextmanager
def start_daemon(image: Path, cache: str) -> Iterator[str]:
    """A qcow2 image behind a storage daemon; its address. The daemon is ended in order."""
    path = image.parent.parent / "nbd"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        number = listener.fileno()
        file = f"driver=file,node-name=file,filename={image},{cache}"
        disk = f"driver=qcow2,node-name=disk,file=file,{cache}"
        argv = ["qemu-storage-daemon", "--blockdev", file, "--blockdev", disk]
        argv += ["--nbd-server", f"addr.type=fd,addr.str={number}"]
        argv += ["--export", "type=nbd,id=disk,node-name=disk,name=disk,writable=on"]
        log = path.with_suffix(".log")
        with start_process(argv, name="daemon", log=log, pass_fds=[number]):
            yield f"nbd+unix:///disk?socket={path}"


def record_raw(folder: Path, *options: str) -> Places:
    places = make_places(folder)
    (places.backing / "disk").write_bytes(bytes(64 * 4096))
    acks = folder / "acks"
    with start_recording(places, "--acks", str(acks)) as recording:
        write_ledger(str(recording.mount / "disk"), acks, *options)
        recording.unmount()
    return places


def record_qcow2(folder: Path, cache: str) -> Places:
    places = make_places(folder)
    image = places.backing / "disk"
    run(["qemu-img", "create", "-q", "-f", "qcow2", str(image), "8M"], timeout=DEADLINE)
    acks = folder / "acks"
    with start_recording(places, "--acks", str(acks)) as recording:
        with start_daemon(recording.mount / "disk", cache) as disk:
            write_ledger(disk, acks)
        recording.unmount()
    return places


def left_behind() -> list[str]:
    """Mounts and folders of explorations."""
    table = Path("/proc/self/mounts").read_text().splitlines()
    return [line for line in table if line.startswith("diskproof-states ")]


@pytest.mark.parametrize(
    ("durable", "fault", "verdict"),
    [
        ("flush", "power", "keeps"),
        ("fua", "power", "keeps"),
        ("write", "power", "loses"),
        ("write", "kill", "keeps"),
        ("flush", "lying-device", "loses"),
    ],
)
def test_a_ledger_on_a_raw_image(tmp_path: Path, durable: str, fault: str, verdict: str) -> None:
    places = record_raw(tmp_path, "--durable", durable)
    summary = explore(places, fault, {"kind": "ledger", "target": "disk"})[-1]
    assert summary["verdict"] == verdict
    assert summary["states"]["checked"] > 10
    assert len(summary["missing"]) == (1 if verdict == "loses" else 0)


def test_the_smallest_loss_is_made_again_by_its_command(tmp_path: Path) -> None:
    places = record_raw(tmp_path, "--durable", "write")
    lines = explore(places, "power", {"kind": "ledger", "target": "disk"})
    smallest = next(line for line in lines if line["type"] == "minimised")
    assert smallest["is_minimal"] and smallest["lost"] == 1
    program, *arguments = smallest["command"]
    to = tmp_path / "state"
    arguments[-1] = str(to)
    run([str(require_native(program)), *arguments], timeout=DEADLINE)
    said = smallest["ledger"]
    argv = [str(require_native("diskproof-ledger")), "verify", str(to / "disk"), "--json"]
    argv += ["--acknowledged", str(said["acknowledged"])]
    found = json.loads(run(argv, timeout=DEADLINE, check=False).text)
    assert found.items() >= said.items()


@pytest.mark.parametrize(
    ("cache", "verdict"),
    [
        ("cache.direct=on,cache.no-flush=off", "keeps"),
        ("cache.direct=off,cache.no-flush=off", "keeps"),
        ("cache.direct=off,cache.no-flush=on", "loses"),
    ],
)
def test_a_ledger_on_qcow2_through_qemu(tmp_path: Path, cache: str, verdict: str) -> None:
    places = record_qcow2(tmp_path, cache)
    check = {"kind": "ledger", "target": "disk", "format": "qcow2"}
    before = set(left_behind())
    summary = explore(places, "power", check)[-1]
    assert summary["verdict"] == verdict
    assert summary["states"]["checked"] > 10
    new = set(left_behind()) - before
    deadline = time.monotonic() + DEADLINE  # those of other tests go as well
    while left := new & set(left_behind()):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def test_an_image_that_qemu_flushed_is_never_corrupt(tmp_path: Path) -> None:
    places = record_qcow2(tmp_path, "cache.direct=on,cache.no-flush=off")
    check = {"kind": "image", "target": "disk", "format": "qcow2"}
    assert explore(places, "power", check)[-1]["verdict"] == "keeps"


def test_an_image_that_was_never_flushed_is_corrupt(tmp_path: Path) -> None:
    places = record_qcow2(tmp_path, "cache.direct=off,cache.no-flush=on")
    check = {"kind": "image", "target": "disk", "format": "qcow2"}
    summary = explore(places, "power", check)[-1]
    assert summary["verdict"] == "corrupts"
    assert len(summary["missing"]) == 1


def write_rows(folder: Path, acks: Path, synchronous: str) -> None:
    """Each row is acknowledged when its transaction has been committed."""
    database = sqlite3.connect(folder / "rows.db", isolation_level=None)
    database.execute(f"PRAGMA synchronous = {synchronous}")
    with socket.socket(socket.AF_UNIX) as told:
        told.connect(str(acks))
        for number in range(8):
            database.execute("INSERT INTO rows VALUES (?)", (number,))
            told.sendall(f"{number}\n".encode())
    database.close()


def record_rows(folder: Path, synchronous: str) -> Places:
    places = make_places(folder)
    database = sqlite3.connect(places.backing / "rows.db")
    database.execute("CREATE TABLE rows (number INTEGER)")
    database.close()
    acks = folder / "acks"
    with start_recording(places, "--acks", str(acks)) as recording:
        write_rows(recording.mount, acks, synchronous)
        recording.unmount()
    return places


@pytest.mark.parametrize(("synchronous", "keeps"), [("EXTRA", True), ("OFF", False)])
def test_a_program_judges_a_database(tmp_path: Path, synchronous: str, keeps: bool) -> None:
    places = record_rows(tmp_path, synchronous)
    check = {"kind": "command", "argv": [sys.executable, "-c", CHECK_ROWS]}
    budget = {"states": 150, "seconds": 120, "minimise": 50}
    summary = explore(places, "power", check, budget=budget)[-1]
    assert (summary["verdict"] == "keeps") is keeps, summary
    if not keeps:
        assert summary["minimal"]


@pytest.mark.parametrize("synchronous", ["EXTRA", "OFF"])
def test_a_check_that_stays_finds_the_same(tmp_path: Path, synchronous: str) -> None:
    places = record_rows(tmp_path, synchronous)
    budget = {"states": 150, "seconds": 120, "minimise": 50}
    found = []
    for stays, text in ((False, CHECK_ROWS), (True, CHECK_ROWS_STAYING)):
        check = {"kind": "command", "argv": [sys.executable, "-c", text], "stays": stays}
        summary = explore(places, "power", check, budget=budget)[-1]
        found.append([summary[name] for name in ("verdict", "lost", "age_ns", "state", "missing")])
    assert found[0] == found[1] and (found[0][0] == "keeps") is (synchronous == "EXTRA")


def test_a_check_that_stays_and_ends_is_started_again(tmp_path: Path) -> None:
    """After each answer; and one that a state makes crash has found a corrupt one."""
    places = record_rows(tmp_path, "OFF")
    once = CHECK_ROWS_STAYING.replace("flush=True)", "flush=True); sys.exit(5)")
    crash = CHECK_ROWS_STAYING.replace("print(1 if", "os.abort() if lost else print(1 if")
    budget = {"states": 12, "seconds": 120, "minimise": 0}
    for text, verdict in ((once, "loses"), (crash, "corrupts")):
        check = {"kind": "command", "argv": [sys.executable, "-c", text], "stays": True}
        assert explore(places, "power", check, budget=budget)[-1]["verdict"] == verdict


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("for line in sys.stdin: print('fine', flush=True)", 'it answered "fine"'),
        ("for line in sys.stdin: print('0\\n0', flush=True); time.sleep(0.3)", "nothing was asked"),
        ("for line in sys.stdin: time.sleep(60)", "it took longer than 1 s"),
        ("sys.exit('no such table')", "no such table"),
        ("for line in sys.stdin: print('0' * 10**6, flush=True)", 'it answered "000'),
    ],
)
def test_a_check_that_stays_and_is_wrong_ends_the_search(
    tmp_path: Path, text: str, why: str
) -> None:
    places = record_rows(tmp_path, "OFF")
    argv = [sys.executable, "-c", f"import sys, time\n{text}"]
    check = {"kind": "command", "argv": argv, "stays": True}
    check["timeout_seconds"] = 1 if "longer" in why else 60
    with pytest.raises(RunFailure) as told:
        explore(places, "power", check, threads=1)
    assert why in told.value.why and len(told.value.why) < 1000


def test_killed_it_leaves_no_mount_and_no_process(tmp_path: Path) -> None:
    """SIGKILL in the middle: its guard takes the mount away, a check dies with its parent."""
    places = record_qcow2(tmp_path, "cache.direct=on,cache.no-flush=off")
    told = tmp_path / "told"
    os.mkfifo(told)
    script = f"echo $PPID $$ > {told}; exec sleep 600"
    check = {"kind": "command", "argv": ["sh", "-c", script], "timeout_seconds": 900}
    request = {"log": str(places.log), "base": str(places.base), "fault": "power"}
    path = tmp_path / "request.json"
    path.write_text(json.dumps(request | {"check": check, "threads": 1}))
    room = tmp_path / "room"
    room.mkdir()
    argv = ["env", f"TMPDIR={room}", str(require_native("diskproof-states")), "explore", str(path)]
    with start_process(argv, name="states", log=tmp_path / "out"):
        explorer, checker = map(int, told.read_text().split())
        (place,) = room.iterdir()
        descriptor = os.pidfd_open(checker)
        os.kill(explorer, signal.SIGKILL)
        ended = select.select([descriptor], [], [], DEADLINE)[0]
        os.close(descriptor)
        assert ended
        wait_until_unmounted(place / "view")


def test_killed_while_its_programs_start_it_leaves_none_of_them(tmp_path: Path) -> None:
    """One that enters the view, which nobody answers for any more, would wait for ever."""
    places = record_raw(tmp_path, "--durable", "write")
    check = {"kind": "command", "argv": ["true"], "timeout_seconds": 60}
    request = {"log": str(places.log), "base": str(places.base), "fault": "power", "check": check}
    budget = {"states": 5000, "seconds": 60}
    path, room = tmp_path / "request.json", tmp_path / "room"
    path.write_text(
        json.dumps({"threads": 4, "sector": 512, "seed": 1, "budget": budget} | request)
    )
    room.mkdir()
    argv = [str(require_native("diskproof-states")), "explore", str(path)]
    environment = {**os.environ, "TMPDIR": str(room)}
    quiet = subprocess.DEVNULL
    for attempt in range(40):
        explorer = subprocess.Popen(argv, env=environment, stdout=quiet, stderr=quiet)
        time.sleep(0.02 + attempt / 200)
        explorer.kill()
        explorer.wait()
    deadline = time.monotonic() + DEADLINE
    while any(room.iterdir()) or left_behind_of(path):
        assert time.monotonic() < deadline, left_behind_of(path)
        time.sleep(0.05)


def left_behind_of(request: Path) -> list[psutil.Process]:
    """Explorers of a request, their guards and programs that have not begun."""
    alive = psutil.process_iter(["cmdline", "status"])
    return [
        process
        for process in alive
        if str(request) in (process.info["cmdline"] or ())
        and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"log": "/nowhere"}', "x" * 2_000_000], ids=range(5)
)
def test_bad_requests_are_errors_in_one_line(text: str) -> None:
    argv = [str(require_native("diskproof-states")), "explore"]
    answer = run(argv, timeout=DEADLINE, stdin=text.encode(), check=False)
    assert answer.returncode == 2
    assert json.loads(answer.text)["type"] == "error"


def test_a_corrupt_log_is_an_error(tmp_path: Path) -> None:
    places = record_raw(tmp_path)
    content = bytearray(places.log.read_bytes())
    content[len(content) // 2] ^= 1
    places.log.write_bytes(content)
    request = {"log": str(places.log), "base": str(places.base), "fault": "power"}
    check = {"kind": "ledger", "target": "disk"}
    text = json.dumps(request | {"check": check})
    argv = [str(require_native("diskproof-states")), "explore"]
    answer = run(argv, timeout=DEADLINE, stdin=text.encode(), check=False)
    assert answer.returncode == 2
    assert "corrupt" in json.loads(answer.text)["why"]
