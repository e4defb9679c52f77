"""A guest's network card as QEMU arguments: pure."""

from dataclasses import dataclass
from typing import Literal

DRIVER = "virtio_net"
"""The guest's kernel module for it."""


@dataclass(frozen=True)
class NetworkCard:
    """One card. ``fd`` is where its frames go: an open tap, or a connected stream socket on which
    each frame follows its length in 4 bytes, big-endian (QEMU's netdev ``socket``)."""

    mac: str
    via: Literal["tap", "socket"]
    fd: int


def card_args(card: NetworkCard | None) -> list[str]:
    """The card on its descriptor. It has no boot ROM: guests start from their kernel."""
    if card is None:
        return []
    # A tap of QEMU's would run scripts for one it makes; one that it is given it only uses.
    return [
        *("-netdev", f"{card.via},id=net,fd={card.fd}"),
        *("-device", f"virtio-net-pci,netdev=net,mac={card.mac},romfile="),
    ]
