"""Disks over NBD: qemu-nbd of the study's own, and servers that a study names.

Requires root, fio with its nbd engine, qemu-nbd, qemu-img, qemu-io, qemu-storage-daemon, FUSE.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from diskproof.backings import NO_CONSENT, probe_backing, start_place
from diskproof.backings.consent import give_consent
from diskproof.backings.nbd import find_silence, parse_uri
from diskproof.backings.place import start_run_dir
from diskproof.backings.server import make_room
from diskproof.errors import HostError, RunFailure
from diskproof.host.janitor import sweep
from diskproof.process.run_user import require_run_user
from diskproof.process.start import run, start_process
from diskproof.records import BackingSpec, RunRecord
from support.running import (
    artefacts,
    assert_nothing_left,
    execute,
    has_fio_at_work,
    make_spec,
    plan_run,
    start_executor,
    under_load,
)
from support.volumes import MIB, backing, folder

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="servers run as another user")
PROOF = "server: flushes passed on"


def checks(record: RunRecord) -> dict[str, str]:
    return {check.name: check.effective for check in record.checks}


@pytest.mark.parametrize(
    ("cache", "durable"),
    [
        ("writeback", (5, 5, 0)),
        ("none", (5, 5, 0)),
        ("writethrough", (5, 5, 5)),
        ("unsafe", (0, 0, 0)),
    ],
)
def test_what_a_server_does_with_flushes_is_measured(
    tmp_path: Path, cache: str, durable: tuple[int, int, int]
) -> None:
    ways = ("flushes passed on", "FUA writes made durable", "plain writes made durable")
    facts = probe_backing(backing("nbd", folder(tmp_path), cache=cache), NO_CONSENT)
    told = ", ".join(f"{way}: {count} of 5" for way, count in zip(ways, durable, strict=True))
    assert facts.flushes == told and told in facts.filesystem
    assert (facts.network, facts.fio, facts.own) == ("nbd", True, False)
    assert_nothing_left(tmp_path)


@pytest.mark.parametrize("frontend", ["host", "daemon"])
def test_a_run_over_nbd(tmp_path: Path, frontend: str) -> None:
    """Writes that arrive in the server's file, with its own settings and the client's."""
    spec = make_spec("sync-write-4k", size="16MiB", runtime="1s", ramp="0s")
    levels = {"format": "raw", "cache": "none"} if frontend == "daemon" else {}
    on = backing("nbd", cache="none", aio="native")
    record = execute(tmp_path, spec, on=on, frontend=frontend, **levels)
    assert record.failure is None
    told = checks(record)
    assert (told["server: O_DIRECT"], told["server: aio"]) == ("on", "aio")
    assert told[PROOF] == "5 of 5" and told["network size"] == str(16 * MIB)
    if frontend == "daemon":
        assert told["server"] == "nbd+unix:///disk?socket=server.sock"
        assert told["file: drv"] == "nbd" and told["file: cache.direct"] == "on"


def test_the_disk_is_filled_through_the_server(tmp_path: Path) -> None:
    spec = make_spec("rand-read-4k-d1", size="16MiB", runtime="1s", ramp="0s")
    record = execute(tmp_path, spec, on=backing("nbd"), frontend="host")
    assert record.failure is None
    assert "fill" in dict(record.phases)


def test_a_server_that_goes_in_the_middle_is_the_reason(tmp_path: Path) -> None:
    spec = make_spec("rand-write-4k-d32", size="16MiB", runtime="20s")
    levels = {"frontend": "daemon", "format": "raw", "cache": "none"}
    with under_load("qemu-nbd", lambda child: child.kill(), has_fio_at_work):
        record = execute(tmp_path, spec, timeout=60, on=backing("nbd"), **levels)
    assert record.failure and record.failure.kind == "tool"
    assert record.failure.what == (
        "qemu-nbd, which serves the disk under test, was killed by signal 9"
    )
    assert "qemu-nbd.log" in artefacts(record)


# -- servers that a study names -----------------------------------------------------------------


@contextmanager
def start_server(room: Path, *arguments: str) -> Iterator[Path]:
    """Somebody else's server of a 32 MiB disk."""
    file = room / "theirs.raw"
    with file.open("xb") as stream:
        stream.truncate(32 * MIB)
    argv = ["qemu-nbd", "-t", "-e", "8", "-f", "raw", "-x", "lent", *arguments, str(file)]
    with start_process(argv, name="qemu-nbd", log=room / "log", cwd=room) as process:
        address: Path | tuple[str, int] = room / "sock"
        if "--port" in arguments:
            address = "127.0.0.1", int(arguments[arguments.index("--port") + 1])
        while find_silence(address):
            assert process.wait(0.02) is None
        if isinstance(address, Path):
            address.chmod(0o666)
        yield file


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(("where", "frontend"), [("tcp", "daemon"), ("unix", "host")])
def test_a_named_server_is_used(
    public_file: Path, tmp_path: Path, where: str, frontend: str
) -> None:
    room, port = public_file.parent, free_port()
    given = {
        "tcp": (("--bind", "127.0.0.1", "--port", str(port)), f"nbd://127.0.0.1:{port}/lent"),
        "unix": (("--socket", str(room / "sock")), f"nbd+unix:///lent?socket={room}/sock"),
    }
    arguments, uri = given[where]
    spec = make_spec("seq-write", size="16MiB", runtime="1s", ramp="0s")
    levels = {"format": "raw", "cache": "writeback"} if frontend == "daemon" else {}
    with start_server(room, *arguments) as file:
        on = backing("nbd", uri=uri)
        assert on.targets
        with start_executor(tmp_path, backing=on) as executor:
            record = executor.execute(plan_run(spec, frontend=frontend, **levels))
        assert record.failure is None
        assert file.stat().st_blocks * 512 >= 16 * MIB
    assert checks(record)["server: flushes"] == "not measured"


def test_a_named_server_that_goes_in_the_middle_is_a_failure(
    public_file: Path, tmp_path: Path
) -> None:
    room, spec = public_file.parent, make_spec("rand-write-4k-d32", size="16MiB", runtime="120s")
    on = backing("nbd", uri=f"nbd+unix:///lent?socket={room}/sock")
    levels = {"frontend": "daemon", "format": "raw", "cache": "none"}
    with start_server(room, "--socket", str(room / "sock")):
        with start_executor(tmp_path, timeout=240, backing=on) as executor:
            with under_load("qemu-nbd", lambda child: child.kill(), has_fio_at_work):
                record = executor.execute(plan_run(spec, **levels))
    assert record.failure and record.failure.kind == "workload"
    assert dict(record.phases)["workload"] < 100


def refuse(spec: BackingSpec, match: str) -> HostError:
    """Why it is no backing."""
    with (
        pytest.raises(HostError, match=match) as caught,
        start_place(spec, give_consent([spec])),
    ):
        pass
    return caught.value


def test_a_named_server_with_something_on_it_is_refused(public_file: Path, tmp_path: Path) -> None:
    room = public_file.parent
    on = backing("nbd", folder(tmp_path), uri=f"nbd+unix:///lent?socket={room}/sock")
    with start_server(room, "--socket", str(room / "sock")) as file:
        with start_place(on, give_consent([on])) as place:
            assert place.free_bytes() == 32 * MIB
        run(["mkfs.ext4", "-q", "-F", "-L", "family", str(file)], timeout=60)
        refusal = refuse(on, "is not empty")
        assert "ext4 family" in refusal.why and "qemu-io" in refusal.hint
        assert run(["fsck.ext4", "-fn", str(file)], timeout=60).returncode == 0
        (room / "sock").chmod(0o600)
        refusal = refuse(on, "cannot be a backing")
        assert "Permission denied" in refusal.why
        assert "QEMU runs as an unprivileged user" in refusal.hint


@contextmanager
def start_babbler(says: bytes, *, closes: bool) -> Iterator[int]:
    """A server on loopback that says something to everybody."""
    held = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        done = threading.Event()

        def answer() -> None:
            while not done.is_set():
                try:
                    stream, _ = listener.accept()
                except TimeoutError:
                    continue
                stream.sendall(says)
                stream.close() if closes else held.append(stream)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            done.set()
            thread.join()
            for stream in held:
                stream.close()


@pytest.mark.parametrize(
    ("says", "closes", "why"),
    [
        (b"SSH-2.0-OpenSSH\r\n", False, "which is not NBD"),
        (b"", True, "it closes the connection"),
        (b"NBDMAGIC" + b"nonsense" * 64, True, "no disk is handed out over nbd"),
        (b"NBDMAGICIHAVEOPT\xff\xff" + b"\0" * 4096, True, "no disk is handed out over nbd"),
    ],
)
def test_a_server_that_answers_nonsense_is_refused(
    tmp_path: Path, says: bytes, closes: bool, why: str
) -> None:
    with start_babbler(says, closes=closes) as port:
        on = backing("nbd", folder(tmp_path), uri=f"nbd://127.0.0.1:{port}/disk")
        refusal = refuse(on, "cannot be a backing")
    assert why in refusal.why
    assert_nothing_left(tmp_path)


def test_a_mute_server_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diskproof.backings.nbd.ANSWER_SECONDS", 0.3)
    with start_babbler(b"", closes=False) as port:
        assert find_silence(("127.0.0.1", port)).startswith("nothing was said")
    assert find_silence(("127.0.0.1", port)) == "Connection refused"


@pytest.mark.parametrize(
    "uri",
    ["nbd:///disk", "nbd://h:port/d", "nbd://[::1/d", "nbd+unix:///d", "nbd+unix:///d?socket=a&x"],
)
def test_what_is_no_uri(uri: str) -> None:
    with pytest.raises(RunFailure, match="names no NBD server"):
        parse_uri(uri)


def test_what_is_a_uri() -> None:
    inet = {"type": "inet", "host": "::1", "port": "10809"}
    assert parse_uri("nbd://[::1]/a%20b") == (
        {"server": inet, "export": "a b"},
        ("::1", 10809),
    )
    options, address = parse_uri("nbd+unix:///?socket=/run/s")
    assert options["export"] == "" and address == Path("/run/s")


# -- nothing is left ----------------------------------------------------------------------------

OWNER = """
import sys
sys.path[:0] = sys.argv[1:3]
from pathlib import Path
from diskproof.backings import NO_CONSENT, start_place
from diskproof.backings.place import start_run_dir
from diskproof.process.start import Process
from diskproof.records import BackingSpec
with start_place(eval(sys.argv[3]), NO_CONSENT) as place, start_run_dir(place) as folder:
    with place.service.start(folder, 16 << 20) as disk:
        print(*disk.pids, flush=True)
        sys.stdin.read()
"""


def test_nothing_is_left_after_kill_9(tmp_path: Path) -> None:
    assert_killed_owner_leaves_nothing(tmp_path, backing("nbd", folder(tmp_path)))


def assert_killed_owner_leaves_nothing(path: Path, spec: BackingSpec) -> None:
    tests = Path(__file__).parent.parent
    argv = [sys.executable, "-c", OWNER, str(tests), str(tests.parent / "src"), repr(spec)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout
        server = psutil.Process(int(owner.stdout.readline()))
        owner.send_signal(signal.SIGKILL)
    swept = sweep([path])
    assert [each.kept for each in swept] == [""]
    server.wait(10)
    assert list(path.glob("diskproof-*")) == []


def test_a_server_outside_the_run_is_ended_by_the_sweep(tmp_path: Path) -> None:
    """Whatever a server has become: it works in the run's folder."""
    with start_run_dir_left(tmp_path) as (room, server):
        swept = sweep([tmp_path])
        assert [(each.kept, each.killed) for each in swept] == [("", (server.pid,))]
        server.wait(10)
        assert not room.exists()


@contextmanager
def start_run_dir_left(path: Path) -> Iterator[tuple[Path, psutil.Process]]:
    """A folder whose owner is dead, and a server at work in it that nobody ends."""
    from diskproof.backings.directory import DirectoryBacking

    spec = BackingSpec("d", "directory", (("path", str(path)),), make=True)
    with DirectoryBacking().start(spec, None) as place, start_run_dir(place) as made:
        copy = path / "diskproof-run-dead"
        copy.mkdir(mode=0o710)
        (copy / "lock").touch(mode=0o600)
        (copy / "disk.raw").touch()
        assert made.exists()
    user = ["setpriv", "--reuid", str(require_run_user()), "--clear-groups"]
    argv = [*user, "qemu-nbd", "-r", "-t", "-f", "raw", "-k", "/proc/self/cwd/s/sock", "disk.raw"]
    make_room(copy).rename(copy / "s")
    server = subprocess.Popen(argv, cwd=copy, start_new_session=True)
    while find_silence(copy / "s/sock"):
        assert server.poll() is None
    try:
        yield copy, psutil.Process(server.pid)
    finally:
        server.kill()
        server.wait()
