"""Small guests that were built, and files of them, for tests of what becomes of such files."""

import io
import json
from pathlib import Path

import pytest

from diskproof.guest.ours import build, packages
from diskproof.guest.ours.cache_folder import cache_folder
from diskproof.guest.ours.parcel import Manifest, list_items, write_parcel

SUITE = "bookworm"
FACTS = {
    "kernel_release": "6.1.0-1-amd64",
    "suite": SUITE,
    "root_modules": {"ext4": ["/usr/lib/diskproof/modules/ext4.ko"]},
}
KERNEL = b"\x7fELF\x02\x01" + bytes(12) + b"\x3e\x00" + bytes(range(256)) * 40


def make_guest(extra: str = "") -> Path:
    """What a build leaves in the cache, with little in it, but named as a build would name it."""
    folder = cache_folder() / build.base_id(SUITE, extra)
    (folder / "modules").mkdir(parents=True)
    for name, content in {
        "guest.json": json.dumps(FACTS | ({"extra": extra} if ":" in extra else {})).encode(),
        "kernel": KERNEL,
        "root.squashfs": b"hsqs" + bytes(3000),
        "modules/boot.list": b"virtio.ko\n",
        "modules/deps.list": b"virtio: virtio.ko\n",
        "modules/virtio.ko": b"a module",
    }.items():
        (folder / name).write_bytes(content)
    build.add_initrd(folder)
    return folder


def manifest_of(folder: Path, extra: str = "") -> Manifest:
    guest = f"{folder.name}-{build.programs_of_guest()}"
    return Manifest(folder.name, guest, SUITE, extra, list_items(folder))


def parcel_of(folder: Path, manifest: Manifest | None = None) -> bytes:
    """The bytes of its file."""
    output = io.BytesIO()
    write_parcel(manifest or manifest_of(folder), folder, output, lambda done, total: None)
    return output.getvalue()


def move_to_host(patch: pytest.MonkeyPatch, cache: Path, suite: str | None = SUITE) -> None:
    """From here on this host has that cache and that release of Debian (None: another system)."""
    patch.setenv("XDG_CACHE_HOME", str(cache))
    patch.setattr(packages, "find_suite", lambda: suite)
