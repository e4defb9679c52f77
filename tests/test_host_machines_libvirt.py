"""libvirt's machines found by its files, where no daemon runs."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from diskproof.host.machines import find_machines
from diskproof.host.machines.libvirt import LibvirtHome, find_at, find_live_socket, session
from diskproof.records.virtual_machines import Machine

FIXTURES = Path(__file__).parent / "fixtures" / "machines" / "libvirt"
UUID = "7b1f0a62-93e7-4dc5-8b5f-3f3c5e3d1bbb"


@pytest.fixture
def place(tmp_path: Path) -> LibvirtHome:
    found = session("qemu:///session", tmp_path / "config", tmp_path / "run")
    found.configured.mkdir(parents=True)
    found.status.mkdir(parents=True)
    return found


@pytest.fixture
def pid() -> Iterator[int]:
    """A process with the machine's uuid in its command line, as its QEMU has."""
    argv = [sys.executable, "-c", "print(flush=True); input()", f"-uuid={UUID}"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()  # its command line can be read from here on
        yield child.pid
        child.kill()


def fixture(name: str) -> str:
    return (FIXTURES / name).read_text()


def machines(place: LibvirtHome) -> list[Machine]:
    found = list(find_at(place))
    assert [item for item in found if isinstance(item, str)] == []
    return [item for item in found if isinstance(item, Machine)]


def test_configured_machines_are_found(place: LibvirtHome) -> None:
    (place.configured / "web.xml").write_text(fixture("virt-manager-web.xml"))
    (place.configured / "networks").mkdir()
    (machine,) = machines(place)
    assert (machine.name, machine.pid) == ("web", None)
    assert machine.source == str(place.configured / "web.xml")
    assert machine.disks[0].configured is not None and machine.disks[0].running is None


def test_what_runs_is_joined_with_its_configuration(place: LibvirtHome, pid: int) -> None:
    status = fixture("chain.xml").replace("pid='4711'", f"pid='{pid}'")
    (place.status / "desktop.xml").write_text(status)
    begin, end = status.index("<domain "), status.index("</domstatus>")
    kept = status[begin:end].replace(" id='5'", "").replace("'writeback'", "'none'")
    (place.configured / "desktop.xml").write_text(kept)
    (machine,) = machines(place)
    assert (machine.pid, machine.id) == (pid, UUID)
    (disk,) = machine.disks
    assert disk.running is not None and disk.running.levels["cache"] == "writeback"
    assert disk.pending is not None and disk.pending.levels["cache"] == "none"


def test_the_status_of_a_machine_that_is_gone_is_left_out(place: LibvirtHome) -> None:
    status = fixture("chain.xml").replace("pid='4711'", f"pid='{os.getpid()}'")
    (place.status / "desktop.xml").write_text(status)
    assert machines(place) == []


def test_a_file_that_cannot_be_read_hides_no_other(place: LibvirtHome) -> None:
    (place.configured / "a.xml").write_text("<domain>")
    (place.configured / "b.xml").write_bytes(b"\xff\xfe")
    (place.configured / "c.xml").write_text("<domain/>" + " " * (4 << 20))
    (place.configured / "d.xml").symlink_to(place.configured / "gone")
    (place.configured / "web.xml").write_text(fixture("virt-manager-web.xml"))
    found = list(find_at(place))
    assert [item.name for item in found if isinstance(item, Machine)] == ["web"]
    told = [item for item in found if isinstance(item, str)]
    assert len(told) == 4
    assert all(any(f"{name}.xml" in each for each in told) for name in "abcd")


AS_NOBODY = """
import dataclasses, os
from pathlib import Path
from diskproof.host.machines.libvirt import find_at, session
place = session("x", Path("/nonexistent"), Path("/nonexistent"))
if os.geteuid() == 0:
    os.setgid(65534); os.setuid(65534)
print(*find_at(dataclasses.replace(place, status=Path("/proc/1/fd"))))
"""


def test_without_rights_it_is_said() -> None:
    done = subprocess.run([sys.executable, "-c", AS_NOBODY], capture_output=True, text=True)
    assert done.stdout.startswith("/proc/1/fd cannot be read (Permission denied)"), done.stderr


def test_a_stale_socket_and_a_foreign_process_are_no_daemon(place: LibvirtHome) -> None:
    socket = place.sockets[1]
    socket.write_text("")
    place.pid_files[1].write_text(str(os.getpid()))
    assert find_live_socket(place) is None
    place.pid_files[1].write_text("../../etc/passwd")
    assert find_live_socket(place) is None


def test_thousands_of_machines_are_read_in_time(place: LibvirtHome) -> None:
    text = fixture("virt-manager-web.xml")
    for number in range(1000):
        uuid = f"5a3f4a1e-7f0b-4c53-9d6f-{number:012d}"
        changed = text.replace("5a3f4a1e-7f0b-4c53-9d6f-0d0f5c8e4a11", uuid)
        (place.configured / f"web{number}.xml").write_text(changed)
    began = time.process_time()
    assert len(machines(place)) == 1000
    assert time.process_time() - began < 5


def test_the_registry_looks_here_too(monkeypatch: pytest.MonkeyPatch, place: LibvirtHome) -> None:
    (place.configured / "web.xml").write_text(fixture("virt-manager-web.xml"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place.configured.parents[1]))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place.status.parents[2]))
    found = [each for each in find_machines().machines if each.name == "web"]
    assert [each.manager for each in found] == ["libvirt"]
