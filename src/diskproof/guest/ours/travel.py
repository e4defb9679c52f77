"""A built guest to a file, and from one into the cache of another host."""

import json
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diskproof.errors import NO_SPACE, HostError, UsageError
from diskproof.guest.ours import build
from diskproof.guest.ours import cache_folder as cache
from diskproof.guest.ours.build import GuestFiles
from diskproof.guest.ours.packages import EXTRA_PACKAGES
from diskproof.guest.ours.parcel import Manifest, Parcel, Tell, damaged, list_items, write_parcel
from diskproof.process.plain_file import open_plain
from diskproof.study.guest_root import split_root

_INITRD_SPACE = 128 << 20
_MAX_ROOT_MODULES, _MAX_PATHS = 100, 100
_RELEASE = re.compile(r"[\w.+~-]{1,100}")
_PATH = re.compile(r"[\w./+-]{1,200}")


@dataclass(frozen=True)
class Departure:
    """The file, its digest (of the file, not of what is in it) and length, and what it holds."""

    file: Path
    sha256: str
    size: int
    manifest: Manifest


@dataclass(frozen=True)
class Arrival:
    """The guest as it is here. ``there`` says that it was here before; ``manifest.id`` is another
    than its id where our programs are others than the exporter's."""

    guest: GuestFiles
    manifest: Manifest
    sha256: str
    there: bool


def export_guest(output: Path, extra: str, tell: Tell) -> Departure:
    """Write the built guest to a file, which appears whole or not at all.

    Raises HostError when there is no guest or no space, UsageError when the file cannot be written.
    """
    guest = build.require_guest(extra)
    if guest.kind == build.MINIMAL:
        raise HostError(
            "a minimal guest stays here",
            "it is made of this host's own files",
            "diskproof guest build, and export that",
        )
    folder = guest.kernel.parent
    suite = json.loads((folder / "guest.json").read_text())["suite"]
    manifest = Manifest(folder.name, guest.id, suite, extra, list_items(folder))
    if output.exists() and not output.is_file():
        raise UsageError(f"cannot write {output}", "there is something else than a file")
    try:
        handle, name = tempfile.mkstemp(prefix=f"{output.name}.", dir=output.parent)
    except OSError as error:
        raise UsageError(f"cannot write {output}", error.strerror or "") from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            sha256 = write_parcel(manifest, folder, stream, tell)
            stream.flush()
            os.fsync(handle)
            size = stream.tell()
        temporary.chmod(0o644)
        temporary.rename(output)
    except OSError as error:
        raise _cannot_write(output, error) from None
    finally:
        temporary.unlink(missing_ok=True)
    return Departure(output, sha256, size, manifest)


def _cannot_write(output: Path, error: OSError) -> HostError:
    hint = "name a file on another file system" if error.errno in NO_SPACE else ""
    return HostError(f"cannot write {output}", error.strerror or "", hint)


def import_guest(file: Path, sha256: str | None, tell: Tell) -> Arrival:
    """Bring a guest from a file into the cache, where it appears whole or not at all.

    ``sha256`` is what the file's digest has to be, if somebody said. Raises UsageError for a file
    that is damaged, foreign, or of another diskproof, HostError when there is no space or another
    guest of that name.
    """
    try:
        handle = open_plain(file)
    except OSError as error:
        raise UsageError(f"cannot read {file}", error.strerror or "") from None
    folder = cache.cache_folder()
    with os.fdopen(handle, "rb") as stream, cache.full_disk_told(folder):
        parcel = Parcel(stream)
        manifest = _require_ours(parcel.read_manifest())
        with cache.build_lock(folder, lambda _: None):
            cache.remove_unfinished(folder)
            base = folder / manifest.base
            there = base.is_dir()
            (_compare if there else _unpack)(parcel, manifest, base, sha256, tell)
            if build.find_base(manifest.extra) != base:
                cache.write_file(base / build.IMPORTED, _mark(manifest))
            if build.find_whole(manifest.extra) is None:
                build.add_initrd(base)
    return Arrival(build.require_guest(manifest.extra), manifest, parcel.sha256, there)


def _require_ours(manifest: Manifest) -> Manifest:
    """Raises UsageError for a guest that this diskproof would make otherwise."""
    kind, _ = split_root(manifest.extra)
    known = kind in ("", *EXTRA_PACKAGES)
    if not known or manifest.base != build.base_id(manifest.suite, manifest.extra):
        why = f"guest {manifest.base} is of another version of diskproof, whose recipe differs"
        raise UsageError("the guest cannot be imported", why, "export it with this version")
    return manifest


def _compare(
    parcel: Parcel, manifest: Manifest, base: Path, sha256: str | None, tell: Tell
) -> None:
    """Check a file whose guest is here. Raises HostError when the one here has other files: its
    packages are of another day."""
    if list_items(base) != manifest.items:
        why = f"{base} has packages of another day, and results would not tell them apart"
        raise HostError("another such guest is here", why, f"rm -r {base}, then import again")
    parcel.unpack(manifest, None, tell)
    _require_digest(parcel, sha256)


def _unpack(parcel: Parcel, manifest: Manifest, base: Path, sha256: str | None, tell: Tell) -> None:
    cache.require_space(base.parent, manifest.size + _INITRD_SPACE)
    with cache.new_folder(base) as folder:
        parcel.unpack(manifest, folder, tell)
        _require_digest(parcel, sha256)
        _check_content(folder, manifest)
        (folder / build.IMPORTED).write_bytes(_mark(manifest))


def _require_digest(parcel: Parcel, sha256: str | None) -> None:
    if sha256 is not None and sha256.lower() != parcel.sha256:
        why = f"its sha256 is {parcel.sha256}"
        raise UsageError("this is not the file that was asked for", why)


def _mark(manifest: Manifest) -> bytes:
    return json.dumps({"id": manifest.id}).encode()


def _check_content(folder: Path, manifest: Manifest) -> None:
    """That what we read ourselves, and what QEMU starts, is what it should be."""
    with (folder / "kernel").open("rb") as kernel, (folder / "root.squashfs").open("rb") as root:
        begin, magic = kernel.read(20), root.read(4)
    if begin[:6] != b"\x7fELF\x02\x01" or begin[18:20] != b"\x3e\x00" or magic != b"hsqs":
        raise damaged("its kernel or its root is none of this machine")
    try:
        facts = json.loads((folder / "guest.json").read_bytes())
    except (ValueError, RecursionError):
        raise damaged("its guest.json cannot be read") from None
    if not _is_facts(facts) or facts["suite"] != manifest.suite:
        raise damaged("its guest.json describes no guest")
    if facts.get("extra", manifest.extra) != manifest.extra:
        raise damaged("its guest.json describes no guest")


def _is_facts(facts: Any) -> bool:
    match facts:
        case {"kernel_release": str(release), "suite": str(), "root_modules": dict(modules)}:
            lists = [isinstance(paths, list) for paths in modules.values()]
            if len(lists) > _MAX_ROOT_MODULES or not all(lists):
                return False
            paths = [path for paths in modules.values() for path in paths[: _MAX_PATHS + 1]]
            plain = all(isinstance(path, str) and _PATH.fullmatch(path) for path in paths)
            short = all(len(paths) <= _MAX_PATHS for paths in modules.values())
            return plain and short and _RELEASE.fullmatch(release) is not None
    return False
