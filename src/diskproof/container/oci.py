"""The OCI bundle of one container: its config.json and the folder that it stands in. Pure but for
``make_bundle``.

The container's root is whoever drives the disk on the host without rights (``run_user``, or
we): one id is mapped, all others are nobody's. It has no capabilities, cannot gain any, sees its
own processes, network and mounts, and the host's programs read-only.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from diskproof.process.owner import AS_USUAL, start_umask

NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts")
DISK = "/disk"
SCRATCH = "/scratch"
BUNDLE = "container"
CONFIG = "config.json"
_OCI_NAMES = {"mnt": "mount", "net": "network"}
_PROGRAMS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Beside /usr: links into it, or folders of their own where the host still has them apart."""
_FILES = ("/etc/ld.so.cache",)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CAPABILITY_SETS = ("bounding", "effective", "inheritable", "permitted", "ambient")
_CLONE_NEWUSER = 0x10000000
_ENOSYS = 38
# What profiles of container engines refuse: the host's kernel, clock, keys, other processes,
# mounts, namespaces, and io_uring, which passes a filter by.
FORBIDDEN = (
    *("acct", "add_key", "bpf", "clock_adjtime", "clock_settime", "delete_module"),
    *("fanotify_init", "finit_module", "fsconfig", "fsmount", "fsopen", "fspick", "init_module"),
    *("io_uring_enter", "io_uring_register", "io_uring_setup", "ioperm", "iopl", "kcmp"),
    *("kexec_file_load", "kexec_load", "keyctl", "lookup_dcookie", "mount", "mount_setattr"),
    *("move_mount", "move_pages", "nfsservctl", "open_by_handle_at"),
    *("open_tree", "perf_event_open", "pivot_root", "process_vm_readv"),
    *("process_vm_writev", "ptrace", "quotactl", "quotactl_fd", "reboot", "request_key", "setns"),
    *("settimeofday", "stime", "swapoff", "swapon", "syslog", "umount", "umount2", "unshare"),
    *("userfaultfd", "vhangup"),
)
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
_MASKED = ("/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/scsi", "/proc/timer_list")


@dataclass(frozen=True)
class Bundle:
    """``disk`` and ``scratch`` are paths as the runtime finds them; ``host_id`` is the host's user
    and group that the container's root is; ``argv`` its only program."""

    disk: str
    scratch: str
    host_id: tuple[int, int]
    argv: tuple[str, ...]


def make_bundle(folder: Path, bundle: Bundle) -> None:
    """Write ``config.json`` and an empty root with what is mounted over."""
    with start_umask(AS_USUAL):  # the container's root is no root here, and is to enter its own
        _make_root(folder / "rootfs")
    (folder / CONFIG).write_text(json.dumps(render_config(bundle), indent=1))


def _make_root(root: Path) -> None:
    for name in ("usr", "proc", "dev", "tmp", "etc", SCRATCH[1:]):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in (DISK[1:], *(file[1:] for file in _FILES)):
        (root / name).touch()
    for name in _PROGRAMS:
        host = Path("/", name)
        if host.is_symlink():
            (root / name).unlink(missing_ok=True)
            (root / name).symlink_to(host.readlink())
        elif host.is_dir():
            (root / name).mkdir(exist_ok=True)


def render_config(bundle: Bundle) -> dict[str, object]:
    """``config.json`` of the OCI runtime specification 1.0."""
    return {
        "ociVersion": "1.0.2",
        "hostname": "diskproof",
        "root": {"path": "rootfs", "readonly": True},
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": list(bundle.argv),
            "env": [f"PATH={_PATH}", "LC_ALL=C"],
            "cwd": SCRATCH,
            "capabilities": {name: [] for name in _CAPABILITY_SETS},
            "noNewPrivileges": True,
        },
        "mounts": [*_system_mounts(), *_own_mounts(bundle)],
        "linux": {
            "namespaces": [{"type": _OCI_NAMES.get(name, name)} for name in NAMESPACES],
            "uidMappings": [_map_root_to(bundle.host_id[0])],
            "gidMappings": [_map_root_to(bundle.host_id[1])],
            "seccomp": render_seccomp(),
            "maskedPaths": list(_MASKED),
            "readonlyPaths": list(_READ_ONLY),
        },
    }


def _map_root_to(host_id: int) -> Mapping[str, int]:
    return {"containerID": 0, "hostID": host_id, "size": 1}


def _system_mounts() -> Sequence[Mapping[str, object]]:
    folders = [f"/{name}" for name in _PROGRAMS if _is_folder(f"/{name}")]
    options = ["nosuid", "nodev"]
    small = [*options, "mode=1777", "size=64m"]
    return [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "dev", "options": ["nosuid"]},
        {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": small},
        {"destination": "/tmp", "type": "tmpfs", "source": "tmp", "options": small},
        *(_bind(path, path, "rbind", "ro", *options) for path in ("/usr", *folders)),
        *(_bind(path, path, "bind", "ro", *options) for path in _FILES if Path(path).exists()),
    ]


def _own_mounts(bundle: Bundle) -> Sequence[Mapping[str, object]]:
    return [
        _bind(bundle.disk, DISK, "bind", "rw"),  # a device node too
        _bind(bundle.scratch, SCRATCH, "bind", "rw", "nosuid", "nodev"),
    ]


def _bind(source: str, destination: str, *options: str) -> Mapping[str, object]:
    return {
        "destination": destination,
        "type": "bind",
        "source": source,
        "options": list(options),
    }


def _is_folder(path: str) -> bool:
    return Path(path).is_dir() and not Path(path).is_symlink()


def render_seccomp() -> dict[str, object]:
    """Everything but ``FORBIDDEN`` and further user namespaces; clone3 hides its flags from a
    filter, and programs go back to clone when it is not there."""
    new_user = {
        "index": 0,
        "value": _CLONE_NEWUSER,
        "valueTwo": _CLONE_NEWUSER,
        "op": "SCMP_CMP_MASKED_EQ",
    }
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            {"names": list(FORBIDDEN), "action": "SCMP_ACT_ERRNO"},
            {"names": ["clone"], "action": "SCMP_ACT_ERRNO", "args": [new_user]},
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS},
        ],
    }
