"""Who runs as what: doctor's table of programs that really run, against what docs/security.md says.

Requires root, FUSE, QEMU's programs and fio; tgtd, qemu-nbd and crun where they are installed.
"""

import os
from io import StringIO

import psutil
import pytest
from rich.console import Console

from diskproof.cli.walls_verb import look_at_walls
from diskproof.host.walls_seen import read_walls
from diskproof.process.start import find_tool
from diskproof.records.walls import RUN_USER, Walls
from diskproof.report.walls_table import render_walls
from support.recording import needs_fuse

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up"),
    pytest.mark.long,
]

NO_RIGHTS = {"fio", "qemu-io", "qemu-nbd", "qemu-storage-daemon", "tgtd"}
"""They read what strangers wrote or said, whenever they run."""
OF_ROOT = {
    *("cp", "crun", "diskproof-ledger", "diskproof-monitor", "ip", "mount", "qemu-img", "sync"),
    *("tar", "umount"),
}
"""They have all of the caller's rights, and read nothing that a stranger wrote."""
KEPT = {
    "diskproof-recordfs": {"chown", "dac_override", "fowner", "fsetid", "setfcap"},
    "diskproof-recordfs, its guardian": {"sys_admin"},
    "diskproof-states": {
        *("dac_read_search", "kill", "setgid", "setpcap", "setuid"),
        "sys_admin",
    },
    "diskproof-states, its guardian": {"sys_admin"},
}


def require_no_rights(walls: Walls) -> None:
    assert (walls.user, walls.capabilities, walls.attainable) == (RUN_USER, (), ()), walls
    assert walls.no_new_privs and walls.seccomp == "filter" and "net" in walls.namespaces, walls
    if "pid" in walls.namespaces:  # a container: its root holds only what it was given
        assert {"mnt", "user"} <= set(walls.namespaces), walls
    else:
        assert walls.files and walls.core == 0 and walls.memory is not None, walls


@needs_fuse
def test_every_program_has_its_walls_while_it_runs() -> None:
    seen, missing = look_at_walls(guest=False)
    programs = {walls.program for walls in seen}
    installed = {"tgtd", "qemu-nbd"} - {name for name in NO_RIGHTS if not find_tool(name)}
    assert {"fio", "qemu-storage-daemon", *KEPT, *installed} <= programs, missing
    for walls in seen:
        if walls.program in NO_RIGHTS or walls.user == RUN_USER and walls.program != "tgtadm":
            require_no_rights(walls)
        elif walls.program in KEPT:
            assert set(walls.capabilities) == KEPT[walls.program], walls
            assert walls.no_new_privs and walls.core == 0 and walls.memory is not None, walls
    unbound = {walls.program for walls in seen if not walls.no_new_privs}
    assert unbound <= {*OF_ROOT, "tgtadm"}
    shown = StringIO()
    Console(file=shown, width=160).print(render_walls(seen, missing))
    assert all(name in shown.getvalue() for name in programs)
    assert psutil.Process().children() == []


@pytest.mark.parametrize(
    ("argv", "user", "rights"),
    [([], "root", True), (["--reuid=65534", "--clear-groups"], RUN_USER, False)],
)
def test_a_program_without_walls_is_seen_as_one(argv: list[str], user: str, rights: bool) -> None:
    with psutil.Popen(["setpriv", *argv, "--", "sleep", "600"]) as process:
        try:
            while process.cmdline()[:1] != ["sleep"]:
                assert process.poll() is None
            walls = read_walls(process.pid)
        finally:
            process.kill()
    assert walls is not None
    assert (walls.program, walls.user, bool(walls.capabilities)) == ("sleep", user, rights)
    assert not walls.no_new_privs and walls.seccomp == "no" and not walls.files
    assert walls.attainable and walls.namespaces == ()
