"""What this host's kernel lets diskproof do, found out by doing it in namespaces of its own.

A namespace ends with its last process, and with it what was mounted there: nothing is left behind,
however the probe ends.
"""

import errno
import os
import platform
import pwd
import tempfile
from collections.abc import Sequence
from pathlib import Path

from diskproof.errors import DiskproofError, HostError
from diskproof.host.audit import read_state
from diskproof.process import start
from diskproof.process.cage import QEMU_CAGE
from diskproof.process.run_user import require_run_user
from diskproof.records import Finding

SECONDS = 20.0
FUSE_DEVICE = Path("/dev/fuse")
KSM_SWITCH = Path("/sys/kernel/mm/ksm/run")
_LANDLOCK = "boot a kernel from 5.13 on with lsm=landlock,... (Debian 12's has it)"
_MOUNT = (
    'exec 9<>"$1"; exec mount -i -t fuse -o fd=9,rootmode=40000,user_id=0,group_id=0 diskproof "$2"'
)
_IN_CONTAINER = "run diskproof outside the container, or give it more rights"


def is_root() -> bool:
    return os.geteuid() == 0


def try_command(argv: Sequence[str]) -> str:
    """Run a program; gives why it failed, or nothing when it did not."""
    try:
        done = start.run(argv, timeout=SECONDS, check=False)
    except DiskproofError as error:
        return error.what
    if done.returncode == 0:
        return ""
    words = [line.strip() for line in done.error_text.splitlines() if "dmesg(1)" not in line]
    return words[-1] if words else f"it ended with status {done.returncode}"


def namespace_args(*kinds: str) -> list[str]:
    """Run a program in namespaces of its own; a user who is not root becomes root of one."""
    own = [] if is_root() else ["--user", "--map-root-user"]
    return [start.require_tool("unshare", "util-linux"), *own, *kinds, "--"]


def find_module(name: str) -> str:
    """How the kernel has a module: ``loaded``, ``built in``, ``can be loaded``, or empty."""
    if (Path("/sys/module") / name).exists():
        return "loaded"
    folder = Path("/lib/modules") / platform.release()
    for listing, how in (("modules.builtin", "built in"), ("modules.dep", "can be loaded")):
        try:
            lines = (folder / listing).read_text(errors="replace").splitlines()
        except OSError:
            continue
        files = {Path(line.split(":")[0]).name.split(".ko")[0].replace("-", "_") for line in lines}
        if name in files:
            return how
    return ""


def examine_confinement() -> Finding:
    """QEMU's cage, as every run has it."""
    name = "confined QEMU"
    try:
        obstacle = start.find_cage_obstacle()
        argv = start.lifeline_args(confined=True, cage=QEMU_CAGE)
    except HostError as error:
        return Finding(name, "no", error.what, error.hint, needed=True)
    if failed := try_command([*argv, "true"]):
        return Finding(name, "no", failed, _IN_CONTAINER, needed=True)
    what = "it runs as you, and cannot gain rights"
    if is_root():
        user = f"user {require_run_user()}, who is nobody else"
        what = f"it runs as {user}, without rights, in a network namespace of its own"
    if obstacle:
        what = f"{what}, but can open all that its user can: {obstacle}"
        return Finding(name, "limited", what, _LANDLOCK, needed=True)
    return Finding(name, "yes", f"{what}; it opens the files of its run only", needed=True)


def examine_network_namespaces() -> Finding:
    failed = try_command([*namespace_args("--net"), "true"])
    if failed:
        return Finding("network namespaces", "no", failed, _IN_CONTAINER)
    return Finding("network namespaces", "yes", "one was made")


def examine_user_namespaces() -> Finding:
    """User namespaces, and ranges of ids for those who are not root (subuid(5))."""
    name = "user namespaces"
    unshare = start.require_tool("unshare", "util-linux")
    if failed := try_command([unshare, "--user", "--map-root-user", "--", "true"]):
        return Finding(name, "no", failed, "sysctl -w user.max_user_namespaces=10000")
    if is_root():
        return Finding(name, "yes", "one was made; root needs no range of ids")
    failed = try_command([unshare, "--user", "--map-root-user", "--map-auto", "--", "true"])
    if not failed:
        return Finding(name, "yes", "one with a range of ids was made")
    hint = f"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {_user_name()}"
    if start.find_tool("newuidmap") is None:
        hint = "apt-get install uidmap"
    return Finding(name, "limited", f"one was made, but none with a range of ids: {failed}", hint)


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def examine_fuse() -> Finding:
    """Mount a FUSE file system that nobody serves, in a mount namespace."""
    try:
        os.close(os.open(FUSE_DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        hint = "modprobe fuse" if error.errno in (errno.ENOENT, errno.ENODEV) else ""
        hint = f"chmod a+rw {FUSE_DEVICE}" if error.errno == errno.EACCES else hint
        return Finding("FUSE", "no", f"{FUSE_DEVICE}: {error.strerror}", hint)
    # The kernel mounts for the user namespace only in which the device was opened.
    failed = try_command(
        [
            *namespace_args("--mount"),
            "sh",
            "-c",
            _MOUNT,
            "sh",
            str(FUSE_DEVICE),
            tempfile.gettempdir(),
        ]
    )
    if failed:
        return Finding("FUSE", "no", failed, _IN_CONTAINER)
    if not is_root() and start.find_tool("fusermount3") is None:
        what = "a file system was mounted, but only in a namespace"
        return Finding("FUSE", "limited", what, "apt-get install fuse3")
    return Finding("FUSE", "yes", "a file system was mounted")


def examine_ksm() -> Finding:
    """Kernel samepage merging: memory that guests share."""
    try:
        state = KSM_SWITCH.read_text().strip()
    except OSError as error:
        hint = "boot a kernel with CONFIG_KSM"
        return Finding("KSM", "no", f"{KSM_SWITCH}: {error.strerror}", hint)
    what = {"0": "off", "1": "on"}.get(state, f"state {state}")
    if not os.access(KSM_SWITCH, os.W_OK):
        return Finding("KSM", "limited", f"{what}; you may not switch it", "run diskproof as root")
    return Finding("KSM", "yes", f"{what}; it can be switched")


def examine_governor() -> Finding:
    """The clock of the processors: whether it follows the load."""
    state = read_state()
    name, governors = "CPU clock", ", ".join(state.governors)
    turbo = {True: "; turbo is on", False: "; turbo is off", None: ""}[state.turbo]
    if not governors:
        hint = "in a virtual machine: look at the host that runs it"
        return Finding(name, "limited", "this host does not tell how it is governed", hint)
    if governors == "performance":
        return Finding(name, "yes", f"governor performance{turbo}")
    hint = "cpupower frequency-set -g performance   (apt-get install linux-cpupower)"
    return Finding(name, "limited", f"governor {governors}: runs will vary more{turbo}", hint)
