"""The dialects and the readings. To add one, add its file and its row."""

from importlib import import_module

from diskproof.advice.dialect import Dialect, Reading
from diskproof.errors import UsageError

_DIALECTS: tuple[str, ...] = ("qemu", "proxmox", "kubevirt", "libvirt", "incus", "nova", "virt_install")
_READINGS: tuple[str, ...] = ("libvirt", "qemu_read", "proxmox_config", "kubevirt_objects", "incus_instance", "nova_hosts")
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
