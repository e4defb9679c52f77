"""Options for QEMU that a manager passes through: what they can change of a disk."""

import re
import shlex

_DISK_DRIVERS = (
    "scsi-", "ide-", "virtio-blk", "virtio-scsi", "nvme", "usb-storage", "ahci",
)  # fmt: skip
_MAX_CHARS = 1 << 16


def split_options(text: str) -> list[tuple[str, str]]:
    """Each word of a command line with the one after it; ``--drive`` is spelt ``-drive``."""
    try:
        words = shlex.split(text[:_MAX_CHARS])
    except ValueError:
        words = text[:_MAX_CHARS].split()
    plain = [re.sub(r"^--(?=\w)", "-", word) for word in words]
    return list(zip(plain, [*plain[1:], ""], strict=False))


def find_override(text: str, disk: str) -> str:
    """The first of the options that can change how a disk is driven; empty if none does."""
    if len(text) > _MAX_CHARS:
        return "more options than are read"
    named = re.compile(rf"(^|[^A-Za-z0-9]){re.escape(disk)}([^0-9]|$)")
    for option, value in split_options(text):
        if option in ("-snapshot", "-readconfig"):
            return option
        if option in ("-set", "-device", "-drive", "-blockdev") and named.search(value):
            return f"{option} {value[:60]}"
        if option == "-global" and value.removeprefix("driver=").startswith(_DISK_DRIVERS):
            return f"{option} {value[:60]}"
    return ""
