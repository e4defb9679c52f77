"""The dialects and the readings. To add one, add its file and its row."""

from importlib import import_module

from diskproof.advice.dialect import Dialect, Reading
from diskproof.errors import UsageError

_DIALECTS: tuple[str, ...] = (
    "kubevirt",
    "nova",
    "qemu",
    "libvirt",
    "virt_install",
    "incus",
    "proxmox",
)
_READINGS: tuple[str, ...] = (
    "containers",  # before QEMU's: they tell of command lines too
    "kubevirt_objects",
    "nova_hosts",
    "qemu_read",
    "libvirt",
    "incus_instance",
    "proxmox_config",
    "firecracker",
    "cloud_hypervisor",
    "crosvm",
)
DIALECTS: dict[str, Dialect] = {
    (found := import_module(f"diskproof.advice.{name}").DIALECT).name: found for name in _DIALECTS
}
READINGS: tuple[Reading, ...] = tuple(
    import_module(f"diskproof.advice.{name}").READING for name in _READINGS
)


def require_dialect(name: str) -> Dialect:
    """The dialect of that name. Raises UsageError for an unknown one."""
    if name not in DIALECTS:
        raise UsageError(f"no dialect {name!r}", f"there are {', '.join(DIALECTS)}")
    return DIALECTS[name]
