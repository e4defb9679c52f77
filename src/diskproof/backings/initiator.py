"""The kernel's iSCSI initiator by way of open-iscsi: log in, find the disk, log out."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from diskproof.backings.place import read_device_bytes
from diskproof.errors import HostError, RunFailure
from diskproof.process.start import Completed, find_tool, require_tool, run, start_process

SECONDS = 60.0
INITIATOR = "iqn.2024-01.diskproof:initiator"
USER = "diskproof"
LOG = "iscsid.log"
_SESSIONS = Path("/sys/class/iscsi_session")
_CONTROL = "@ISCSIADM_ABSTRACT_NAMESPACE"
"""The socket of the one iscsid that a host has (open-iscsi, mgmt_ipc.h)."""
_PAUSE = 0.05
_RETRY = 1.0


def require_initiator() -> None:
    """Raises HostError where open-iscsi or its module is missing."""
    require_tool("iscsiadm", "open-iscsi")
    require_tool("iscsid", "open-iscsi")
    module = Path("/sys/module/iscsi_tcp")
    if not module.exists():
        run(["modprobe", "--quiet", "iscsi_tcp"], timeout=SECONDS, check=False)
    if not module.exists():
        hint = "boot a kernel that has it (apt-get install linux-image-amd64)"
        raise HostError("there is no iSCSI initiator here", "the kernel has no iscsi_tcp", hint)


@contextmanager
def start_daemon(folder: Path) -> Iterator[None]:
    """iscsid for the length of a block: the host's where one runs, else one of our own. A session
    outlives it; the next one first connects it anew."""
    if _is_served():
        yield
        return
    name = folder / "initiatorname.iscsi"
    name.write_text(f"InitiatorName={INITIATOR}\n")
    settings = folder / "iscsid.conf"
    settings.write_text("node.startup = manual\n")
    argv = [
        *(require_tool("iscsid", "open-iscsi"), "--foreground", "--no-pid-file"),
        *("--config", str(settings), "--initiatorname", str(name)),
    ]
    with start_process(argv, name="iscsid", log=folder / LOG) as process:
        deadline = time.monotonic() + SECONDS
        while not _is_served():
            if process.wait(_PAUSE) is not None or time.monotonic() > deadline:
                why = process.read_log(2000).decode("utf-8", "replace").strip()
                raise HostError("iscsid does not start", why)
        yield


def _is_served() -> bool:
    lines = Path("/proc/net/unix").read_text(errors="replace").splitlines()
    return any(line.split()[-1] == _CONTROL for line in lines[1:])


def _iscsiadm(*arguments: str) -> Completed:
    argv = [require_tool("iscsiadm", "open-iscsi"), "--mode", "node", *arguments]
    return run(argv, timeout=SECONDS, check=False)


def log_in(target: str, portal: str, secret: str) -> None:
    """Open the one session of a target; ``portal`` is ADDRESS:PORT, ``secret`` that of CHAP.
    iscsid must run. Raises HostError.
    """
    settings = {
        "node.startup": "manual",
        "node.session.auth.authmethod": "CHAP",
        "node.session.auth.username": USER,
        "node.session.auth.password": secret,
    }
    at = ("--targetname", target, "--portal", portal)
    steps = (
        ("--op", "new"),
        *(("--op", "update", "--name", key, "--value", value) for key, value in settings.items()),
        ("--login",),
    )
    for step in steps:
        done = _iscsiadm(*at, *step)
        if done.returncode != 0:
            why = done.error_text or done.text
            raise HostError(f"the initiator cannot reach {target}", why[-2000:])


def find_session(target: str) -> Path | None:
    """The kernel's folder of a target's session, if there is one."""
    for session in _SESSIONS.glob("session*"):
        try:
            if (session / "targetname").read_text().strip() == target:
                return session
        except OSError:  # it ended meanwhile
            continue
    return None


def find_disk(target: str, size: int) -> Path:
    """The node of the disk that a session has brought, once it has its size in bytes.

    Raises HostError when none appears.
    """
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        session = find_session(target)
        found = sorted(session.glob("device/target*/*/block/*")) if session else []
        for entry in found:
            node = Path("/dev") / entry.name
            with suppress(OSError):  # a node may precede its disk, or outlive another one
                if node.is_block_device() and read_device_bytes(node) == size:
                    return node
        time.sleep(_PAUSE)
    raise HostError(f"the disk of {target} does not appear", f"within {SECONDS:.0f} s")


def log_out(folder: Path, target: str) -> str:
    """End the session of a target and forget it, as far as there is one. Gives why it is still
    there, or nothing."""
    if find_tool("iscsiadm") is None or os.geteuid() != 0:
        return ""
    if find_session(target):
        try:
            with start_daemon(folder):
                left = _end_session(target)
        except (HostError, RunFailure) as error:
            left = f"{error.what}: {error.why}"
        if left:
            return left
    _iscsiadm("--targetname", target, "--op", "delete")  # fails where it is not known
    return ""


def _end_session(target: str) -> str:
    """A daemon that has just started may still be connecting the session: it is asked again."""
    deadline = time.monotonic() + SECONDS
    while True:
        done = _iscsiadm("--targetname", target, "--logout")
        if not find_session(target):
            return ""
        if time.monotonic() > deadline:
            return done.error_text or done.text
        time.sleep(_RETRY)
