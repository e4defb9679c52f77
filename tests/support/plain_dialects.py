"""Dialects whose defaults do not change with the next version of their managers."""

from typing import Any

import pytest

from diskproof.advice import dialects
from diskproof.advice.dialect import Dialect, Target

BY_ALL = {"cache": "none", "aio": "io_uring", "detect-zeroes": "on", "bus": "virtio-scsi"}
"""What this proxmox gives a disk wherever it is."""


def _proxmox(target: Target) -> dict[str, str]:
    if target.filesystem == "btrfs":
        return BY_ALL | {"cache": "writeback", "iothread": "on"}
    return BY_ALL | {"iothread": "on"} | ({"format": "raw"} if target.block else {})


def _made(name: str, defaults: Any) -> Dialect:
    def refuse(*_: object) -> Any:
        raise AssertionError("a plan asks a dialect for its defaults only")

    return Dialect(name, name, f"{name}'s source", refuse, refuse, refuse, defaults, "9")


def use_plain_dialects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let plans ask these."""
    plain = {"cache": "writeback", "aio": "threads", "discard": "ignore", "detect-zeroes": "off"}
    known = {
        "proxmox": _made("proxmox", _proxmox),
        "qemu": _made("qemu", lambda target: plain),
        "libvirt": _made("libvirt", lambda target: plain | {"bus": "virtio-blk"}),
        "virt-install": _made("virt-install", lambda target: plain | {"discard": "unmap"}),
    }
    for name in ("incus", "kubevirt", "nova"):
        known[name] = _made(name, lambda target: {"format": "qed", "cache": "directsync"})
    monkeypatch.setattr(dialects, "DIALECTS", known)
