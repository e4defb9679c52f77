"""Addresses of network disks as options of QEMU's block nodes (QAPI 7.2, BlockdevOptions*)."""

from collections.abc import Mapping
from urllib.parse import parse_qs, unquote, urlsplit

from diskproof.advice.qemu_nodes import NETWORK


def is_address(image: str) -> bool:
    """Whether a disk is reached through a server."""
    scheme, colon, _ = image.partition(":")
    return bool(colon) and scheme.partition("+")[0] in NETWORK


def server_options(image: str) -> Mapping[str, object] | None:
    """The node of an address such as ``nbd://host:10809/disk``; None for one of another kind."""
    try:
        address = urlsplit(image)
        port = address.port
    except ValueError:
        return None
    if address.scheme == "rbd":
        pool, slash, rest = address.path.lstrip("/").partition("/")
        return {"driver": "rbd", "pool": pool, "image": rest} if slash and ":" not in rest else None
    name, query = unquote(address.path.removeprefix("/")), parse_qs(address.query)
    if address.scheme == "nbd+unix" and query.get("socket"):
        server = {"type": "unix", "path": query["socket"][0]}
        return {"driver": "nbd", "server": server, **({"export": name} if name else {})}
    if address.scheme in ("nbd", "nbd+tcp") and address.hostname:
        server = {"type": "inet", "host": address.hostname, "port": str(port or 10809)}
        return {"driver": "nbd", "server": server, **({"export": name} if name else {})}
    if address.scheme in ("http", "https") and address.hostname:
        return {"driver": address.scheme, "url": image}
    if address.scheme == "iscsi" and address.hostname and "/" in name:
        target, _, lun = name.rpartition("/")
        portal = f"{address.hostname}:{port or 3260}"
        found = {"driver": "iscsi", "transport": "tcp", "portal": portal, "target": target}
        return {**found, "lun": int(lun)} if lun.isdecimal() else None
    return None
