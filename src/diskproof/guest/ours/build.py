"""Make the guest once, and find it again.

Two levels, each named by a hash of its inputs: a folder with kernel, modules and root (packages,
suite, recipe), and in it one initramfs for each build of our programs. A new one costs a second,
not a minute.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from diskproof.errors import HostError
from diskproof.guest.ours import cache_folder as cache
from diskproof.guest.ours import cpio, kernel, packages, root, server_root, zfs_modules
from diskproof.guest.ours.kernel import unpack_kernel
from diskproof.process.native import find_native, require_native
from diskproof.process.start import require_tool
from diskproof.records import content_id
from diskproof.study.guest_root import describe_root, root_options, split_root

RECIPE = 1  # raise it when the steps below change what comes out
IMPORTED = "imported.json"
"""In the folder of a guest that came as a file: it is wanted, whatever suite the host has."""
AGENT = "diskproof-agent"
# Beside it in the initramfs, in the guest in PROGRAM_FOLDER.
PROGRAMS = ("diskproof-ledger", "diskproof-tree", "diskproof-writeback")
PROGRAM_FOLDER = "/run/diskproof"
MINIMAL = "minimal"
"""The kind of a guest that is made of what the host has (``minimal.py``)."""
SPACE_NEEDED = 2 << 30
_IN_INITRAMFS = kernel.CHANNEL + kernel.DRIVES


@dataclass(frozen=True)
class GuestFiles:
    """A built guest. ``id`` names it in results.

    ``root_modules`` are those that lie in the root: name to paths in the guest, in load order.
    ``kind`` is ``debian`` or ``minimal``; of a minimal one ``has`` names programs and
    ``module NAME``, and ``lacks`` says what it cannot do.
    """

    kernel: Path
    initrd: Path
    root: Path
    id: str
    kernel_release: str
    root_modules: Mapping[str, tuple[str, ...]]
    kind: str = "debian"
    lacks: tuple[str, ...] = ()
    has: frozenset[str] = frozenset()


def find_guest(extra: str = "") -> GuestFiles | None:
    """The guest for these programs, suite and recipe if it was built; else the minimal one if that
    was, which has no extras.

    ``extra`` names further packages in its root (``study/guest_root.py``).
    """
    found = find_whole(extra)
    if found is None and not extra:
        newest = _newest(_find_cached(f"{MINIMAL}-*"))
        return read_guest(newest) if newest and _is_ready(newest) else None
    return found


def find_whole(extra: str = "") -> GuestFiles | None:
    """As ``find_guest``, but never the minimal one."""
    folder = find_base(extra)
    return read_guest(folder) if folder and _is_ready(folder) else None


def find_listed() -> tuple[str, ...]:
    """The guests that are built with packages that somebody listed, by their words."""
    found = []
    for file in _find_cached("*/guest.json"):
        extra = json.loads(file.read_text()).get("extra", "")
        if extra and find_base(extra) == file.parent and _is_ready(file.parent):
            found.append(extra)
    return tuple(sorted(found))


def _is_ready(folder: Path) -> bool:
    """Whether it has an initramfs of our programs that we may read."""
    if None in [find_native(name) for name in (AGENT, *PROGRAMS)]:
        return False
    return os.access(folder / f"initrd-{programs_of_guest()}.cpio", os.R_OK)


def read_guest(folder: Path) -> GuestFiles:
    """The guest in a folder of the cache."""
    programs_id = programs_of_guest()
    facts = json.loads((folder / "guest.json").read_text())
    return GuestFiles(
        kernel=folder / "kernel",
        initrd=folder / f"initrd-{programs_id}.cpio",
        root=folder / "root.squashfs",
        id=f"{folder.name}-{programs_id}",
        kernel_release=str(facts["kernel_release"]),
        root_modules={name: tuple(paths) for name, paths in facts["root_modules"].items()},
        kind=facts.get("kind", "debian"),
        lacks=tuple(facts.get("lacks", ())),
        has=frozenset(facts.get("has", ())),
    )


def find_base(extra: str = "") -> Path | None:
    """The folder with kernel, modules and root, whether it is there or not: the one that was
    imported last, else that of the host's suite. None where a host without one is not Debian."""
    imported = [
        mark
        for mark in _find_cached(f"*/{IMPORTED}")
        if mark.parent.name == base_id(_suite_of(mark.parent), extra)
    ]
    if (last := _newest(imported)) is not None:
        return last.parent
    suite = packages.find_suite()
    return cache.cache_folder() / base_id(suite, extra) if suite else None


def _find_cached(pattern: str) -> list[Path]:
    """Paths in the cache; none where it is another user's."""
    folder = cache.cache_folder()
    return [*folder.glob(pattern)] if os.access(folder, os.R_OK | os.X_OK) else []


def _newest(paths: Sequence[Path]) -> Path | None:
    return max(paths, key=lambda path: path.stat().st_mtime_ns, default=None)


def _suite_of(folder: Path) -> str:
    return str(json.loads((folder / "guest.json").read_text())["suite"])


def require_guest(extra: str = "") -> GuestFiles:
    """The built guest, or HostError with the command that builds it."""
    _require_programs()
    found = find_guest(extra)
    if found is None:
        raise HostError(
            f"the guest with {describe_root(extra)} is not built"
            if extra
            else "the guest is not built",
            f"it is not in {cache.cache_folder()}",
            f"diskproof guest build {root_options(extra)}".strip(),
        )
    return found


def build_guest(progress: Callable[[str], None] = lambda _: None, extra: str = "") -> GuestFiles:
    """Build what is missing of the guest; ``progress`` gets a line for each step.

    Raises HostError when the host lacks a tool, space or packages.
    """
    _require_programs()
    found = find_whole(extra)
    if found is not None:
        return found
    if find_base(extra) is None:
        packages.require_suite()
    with cache.build_lock(cache.cache_folder(), progress):
        if (found := find_whole(extra)) is not None:
            return found  # another builder was first
        cache.remove_unfinished(cache.cache_folder())
        base = find_base(extra)
        if base is None or not base.is_dir():
            suite = packages.require_suite()
            base = cache.cache_folder() / base_id(suite, extra)
            with _named_way_out():
                _build_base(base, suite, extra, progress)
        progress("initramfs: agent, our programs and the modules for every bus")
        add_initrd(base)
    return read_guest(base)


def add_initrd(folder: Path) -> None:
    """The initramfs of our programs and a folder's modules, into that folder."""
    programs = {path.name: path.read_bytes() for path in _require_programs()}
    content = render_initrd(programs.pop(AGENT), folder / "modules", programs)
    cache.write_file(folder / f"initrd-{programs_of_guest()}.cpio", content)


@contextmanager
def _named_way_out() -> Iterator[None]:
    """What a host cannot build it can import."""
    try:
        yield
    except packages.UnknownPackage:
        raise
    except HostError as error:
        raise HostError(error.what, error.why, f"{error.hint}; {packages.OTHER_WAY}") from error


def _build_base(base: Path, suite: str, extra: str, progress: Callable[[str], None]) -> None:
    require_tool("mmdebstrap", "mmdebstrap")
    require_tool("mksquashfs", "squashfs-tools")
    cache.require_space(base.parent, SPACE_NEEDED)
    with cache.new_folder(base) as folder:
        scratch = folder / "scratch"
        tree = scratch / "root"
        scratch.mkdir()
        kind, listed = split_root(extra)
        more = f", {', '.join(listed)} among them" if listed else ""
        progress(f"packages: fetching and unpacking Debian {suite}'s{more} (about a minute)")
        component = packages.EXTRA_COMPONENT.get(kind, "")
        packages.extract_packages(suite, packages.packages_of(extra), tree, component)
        packages.require_unpacked(tree, listed)
        progress("kernel: unpacking, sorting its modules")
        found = kernel.find_modules(tree)
        image = (tree / "boot" / f"vmlinuz-{found.release}").read_bytes()
        unpacked = unpack_kernel(image, scratch)
        (folder / "kernel").write_bytes(unpacked)
        if kind == zfs_modules.EXTRA:
            found = zfs_modules.with_zfs(found, unpacked, tree, suite, progress)
        write_modules(folder / "modules", found, _IN_INITRAMFS)
        placed = root.place_modules(tree, found, kernel.root_modules(extra))
        facts = {"kernel_release": found.release, "suite": suite, "root_modules": placed}
        facts |= {"extra": extra} if listed else {}
        (folder / "guest.json").write_text(json.dumps(facts, indent=1))
        progress("root: packing the tools")
        root.prepare_root(tree, extra)
        root.pack_root(tree, folder / "root.squashfs")
        shutil.rmtree(scratch)


def write_modules(folder: Path, found: kernel.KernelModules, names: Sequence[str]) -> None:
    """The folder ``/modules`` of the initramfs, as docs/guest-protocol.md lays it out."""
    folder.mkdir()
    orders = {name: kernel.load_order(found, name) for name in names}
    for needed in {needed for order in orders.values() for needed in order}:
        (folder / f"{needed}.ko").write_bytes(kernel.read_module(found.files[needed]))
    boot = dict.fromkeys(needed for name in kernel.CHANNEL for needed in orders[name])
    (folder / "boot.list").write_text("".join(f"{needed}.ko\n" for needed in boot))
    lines = (
        " ".join([f"{name}:", *(f"{needed}.ko" for needed in order)])
        for name, order in orders.items()
    )
    (folder / "deps.list").write_text("\n".join(lines) + "\n")


def render_initrd(
    init: bytes, module_folder: Path | None, programs: Mapping[str, bytes] | None = None
) -> bytes:
    """An initramfs with ``init`` and, unless None, the modules and programs by name.

    Not packed: an emulated processor unpacks more slowly than QEMU reads.
    """
    entries = [
        cpio.directory_entry("dev"),
        cpio.device_entry("dev/console", 5, 1),
        cpio.device_entry("dev/null", 1, 3),
        cpio.file_entry("init", init, 0o755),
    ]
    if module_folder is not None:
        entries.append(cpio.directory_entry("modules"))
        for path in sorted(module_folder.iterdir()):
            entries.append(cpio.file_entry(f"modules/{path.name}", path.read_bytes()))
    if programs:
        entries.append(cpio.directory_entry("programs"))
        for name, content in programs.items():
            entries.append(cpio.file_entry(f"programs/{name}", content, 0o755))
    return cpio.render_cpio(entries)


def base_id(suite: str, extra: str) -> str:
    """The name of the folder for these inputs."""
    kind, listed = split_root(extra)
    inputs: list[object] = [
        RECIPE,
        suite,
        packages.packages_of(extra),
        _IN_INITRAMFS,
        kernel.root_modules(extra),
        root.COMPRESSION,
    ]
    if listed:
        inputs.append(root.UNUSED_BESIDE)
    elif kind:
        inputs.append(root.EXTRA_UNUSED.get(kind, ()))
    if kind in root.EXTRA_USED:
        inputs.append(root.EXTRA_USED[kind])
    if kind == root.SERVERS:
        inputs.append(server_root.INPUTS)
    if kind == zfs_modules.EXTRA:
        inputs.append(zfs_modules.INPUTS)
    return content_id(inputs)


def _require_programs() -> list[Path]:
    """Our programs for the guest, the agent first. Raises HostError when one is not built."""
    return [require_native(name) for name in (AGENT, *PROGRAMS)]


def programs_of_guest() -> str:
    """What names our programs in the id of a guest."""
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in _require_programs()]
    return content_id(hashes)
