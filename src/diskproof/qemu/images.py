"""Disk images with qemu-img: made, filled, read back.

Every image lies in a folder that only this run uses. Images are opened with their format named,
never probed: a guest may have written any header into a raw one.
"""

import json
import math
import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from diskproof.drive import DiskImage, NetworkDisk
from diskproof.errors import HostError, RunFailure, tells_no_space
from diskproof.process.cage import NAMES, TOOL_CAGE, Cage
from diskproof.process.owner import hand_over
from diskproof.process.start import Completed, require_tool, run, write_back
from diskproof.qemu.disk import (
    clone_image_args,
    create_image_args,
    image_format,
    image_options,
    image_opts,
)
from diskproof.records import Cell, Check
from diskproof.units import render_bytes

FILL_SEED = 20090722
SERVER_SECONDS = 30.0
_CHUNK = 1 << 20
_SLOWEST = 8 << 20  # bytes/s that even a slow disk writes


def create_image(
    folder: Path,
    cell: Cell,
    size: int,
    *,
    device: Path | None = None,
    timeout: float = math.inf,
) -> DiskImage:
    """Make the cell's image of ``size`` bytes in ``folder`` (or on ``device``, a node there),
    written back to the disk.

    Raises RunFailure ``space`` when the whole image would not fit, ``tool`` when qemu-img fails.
    """
    form = image_format(cell)
    if device:
        return _create_on_device(device, cell, size, timeout)
    image = DiskImage((folder / f"disk.{form}").absolute(), form, size)
    require_space(folder, full_size(size))
    _qemu_img(create_image_args(cell, str(image.path), size), size, timeout)
    hand_over(image.path)
    _write_back(image.path)
    return image


def clone_image(
    folder: Path, cell: Cell, base: Path, *, device: Path | None = None, timeout: float = math.inf
) -> DiskImage:
    """``create_image``, then a copy of the raw file ``base`` into it."""
    size = base.stat().st_size
    image = create_image(folder, cell, size, device=device, timeout=timeout)
    _qemu_img(clone_image_args(image, str(base)), size, timeout)
    _write_back(image.path)
    return image


def _create_on_device(device: Path, cell: Cell, size: int, timeout: float) -> DiskImage:
    """A raw disk is the device, emptied where it can be; other formats lie on it."""
    image = DiskImage(device.absolute(), image_format(cell), size, device=True)
    needed = size if image.format == "raw" else full_size(size)
    with device.open("rb") as stream:
        room = stream.seek(0, os.SEEK_END)
    if room < needed:
        raise RunFailure(
            "space",
            f"the disk under test does not fit on its device of {render_bytes(room)}",
            f"it may take {render_bytes(needed)}",
            "set a smaller size, or a larger device",
        )
    # Not every device can discard; without, the disk holds what the last run left.
    run([require_tool("blkdiscard", "util-linux"), "--force", str(device)], timeout=60, check=False)
    if image.format != "raw":
        _qemu_img(create_image_args(cell, str(image.path), size), size, timeout)
    _write_back(image.path)
    return image


def full_size(size: int) -> int:
    """What an image of ``size`` bytes may take at most, mapping tables included.

    The smallest qcow2 clusters (512 bytes) need 10 bytes of tables each, 2 %.
    """
    return size + size // 32 + (16 << 20)


def require_space(folder: Path, needed: int) -> None:
    """Raises RunFailure ``space`` when an ordinary user has less than ``needed`` bytes there."""
    stat = os.statvfs(folder)
    free = stat.f_bavail * stat.f_frsize
    if free < needed:
        raise RunFailure(
            "space",
            f"no space for the disk under test in {folder}",
            f"it may take {render_bytes(needed)}, {render_bytes(free)} are free",
            "set a smaller size, or a backing with more room",
        )


def ensure_fill_source(folder: Path, size: int) -> Path:
    """A raw file of ``size`` pseudo-random bytes in ``folder``; made at the first call.

    It appears whole or not at all. Raises RunFailure ``space``.
    """
    final = folder / f"fill-{size}.raw"
    if final.exists() and final.stat().st_size == size:
        return final
    require_space(folder, size)
    source = random.Random(FILL_SEED)
    handle, name = tempfile.mkstemp(prefix="fill-", suffix=".part", dir=folder)
    try:
        os.fchmod(handle, 0o444)  # no secret: who fills a server's disk with it has no rights
        with os.fdopen(handle, "wb") as stream:
            for start in range(0, size, _CHUNK):
                stream.write(source.randbytes(min(_CHUNK, size - start)))
        _write_back(Path(name))
        Path(name).rename(final)
    except OSError as error:
        raise RunFailure(
            "space", f"cannot write the data to fill disks with: {error.strerror}", name
        ) from error
    finally:
        Path(name).unlink(missing_ok=True)
    return final


def fill_image(image: DiskImage, source: Path, timeout: float = math.inf) -> None:
    """Write the whole disk once with ``source`` and wait until that is on the disk below.

    In order, every block, zeroes too (none are skipped). Raises RunFailure ``space`` or ``tool``.
    """
    if source.stat().st_size != image.size:
        raise ValueError(f"{source} does not have the size of the disk, {image.size}")
    target = ["-O", image.format, "--", str(source), str(image.path)]
    if image.network:
        target = ["--target-image-opts", "--"]
    arguments = ["convert", "-q", "-n", "-S", "0", "-t", "writeback", "-f", "raw", *target]
    if image.network:
        _fill_server(arguments, source, image.network, image.size, timeout)
    else:
        _qemu_img(arguments, image.size, timeout)
    for path in image.local:
        _write_back(path)


def inspect_image(image: DiskImage, cell: Cell) -> tuple[Check, ...]:
    """What the image file is against what was asked for; before it is filled.

    Needs no lock and writes nothing, so the image may be in use.
    """
    arguments = ["info", "--output=json", "-U", "-f", image.format, "--", str(image.path)]
    facts = parse_info(_qemu_img(arguments, 0))
    asked = image_options(cell)
    checks = []
    if image.format != "raw" or not image.device:
        checks.append(_equal("image size", str(image.size), str(facts.get("virtual-size"))))
    preallocation = asked.pop("preallocation", None)
    told = {**facts.get("format-specific", {}).get("data", {}), **facts}
    for name, wanted in asked.items():
        found = told.get(name.replace("_", "-"))
        if isinstance(found, bool):
            found = "on" if found else "off"
        checks.append(_equal(f"image {name}", wanted, str(found)))
    if preallocation and not image.device:
        checks.append(_check_preallocation(image, preallocation))
    return tuple(checks)


def network_image(disk: NetworkDisk, size: int) -> DiskImage:
    """The first ``size`` bytes of a network disk as the disk under test."""
    return DiskImage(disk.folder / "disk.raw", "raw", size, network=disk)


def inspect_network(image: DiskImage) -> tuple[Check, ...]:
    """What the server hands out, asked as QEMU asks. Raises RunFailure ``tool``."""
    assert image.network
    size = read_network_size(image.network)
    source = f"qemu-img info over {image.driver}"
    wanted = f"{image.size} or more"
    return (
        *image.network.checks,
        Check("network size", wanted, str(size), source, size >= image.size),
    )


def read_network_size(disk: NetworkDisk) -> int:
    """Bytes that a server hands out. Raises RunFailure ``tool`` when it does not say so."""
    done = _ask_server(image_opts(disk), disk.namespace, disk.folder)
    if done.returncode != 0:
        raise RunFailure("tool", f"no disk is handed out over {disk.driver}", done.error_text)
    size = parse_info(done.stdout).get("virtual-size")
    if not isinstance(size, int):
        raise RunFailure("tool", "qemu-img info does not tell a size", repr(done.stdout[:200]))
    return size


def require_block_driver(driver: str, package: str) -> None:
    """Raises HostError when this QEMU does not have a network block driver; it is asked for a
    server where there is none."""
    nowhere = {"iscsi": "transport=tcp,portal=127.0.0.1:1,target=iqn.2024-01.diskproof:none,lun=1"}
    done = _ask_server(f"driver={driver},{nowhere[driver]}", None, None)
    if "Failed to connect" not in done.error_text:
        why = "\n".join(done.error_text.splitlines()[-3:])
        hint = f"apt-get install {package}"
        raise HostError(f"this QEMU has no block driver for {driver}", why, hint)


def _ask_server(opts: str, namespace: Path | None, folder: Path | None) -> Completed:
    """qemu-img info by somebody without rights: what answers is not to be trusted."""
    argv = [require_tool("qemu-img", "qemu-utils"), "info", "--output=json", "--image-opts", opts]
    return run(
        argv,
        timeout=SERVER_SECONDS,
        cwd=folder,
        env=_quiet(),
        check=False,
        confined=True,
        cage=client_cage(namespace),
        network=namespace,
    )


def client_cage(network: Path | None) -> Cage:
    """What qemu-img and qemu-io may open that ask a server; its name is looked up where it has one
    and there is a network."""
    return TOOL_CAGE.reading(*NAMES) if network else TOOL_CAGE


def parse_info(text: bytes) -> dict[str, Any]:
    """``qemu-img info --output=json``. Raises RunFailure ``tool`` when it is something else."""
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        raise RunFailure("tool", "qemu-img info did not answer in JSON", repr(text[:200]))
    return facts


def find_preallocation(image: DiskImage) -> str:
    """The preallocation that an image's file shows, before anything was written into it.

    ``full`` has data everywhere, ``falloc`` blocks without data, ``metadata`` only the length.
    """
    stat = image.path.stat()
    if count_data(image.path) >= image.size:
        return "full"
    if stat.st_blocks * 512 >= image.size:
        return "falloc"
    if image.format != "raw" and stat.st_size >= image.size:
        return "metadata"
    return "off"


def count_data(path: Path) -> int:
    """Bytes of a file that are data and not a hole, as its file system tells (SEEK_DATA)."""
    with path.open("rb") as stream:
        end = os.fstat(stream.fileno()).st_size
        return sum(stop - start for start, stop in data_ranges(stream.fileno(), 0, end))


def data_ranges(handle: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Where there is data in a part of a file, as its file system tells (SEEK_DATA)."""
    while start < stop:
        try:
            data = os.lseek(handle, start, os.SEEK_DATA)
        except OSError:  # ENXIO: no data behind here
            return
        if data >= stop:
            return
        start = os.lseek(handle, data, os.SEEK_HOLE)
        yield data, min(start, stop)


def _check_preallocation(image: DiskImage, asked: str) -> Check:
    found = find_preallocation(image)
    # A file system that does not tell holes calls everything data; fewer blocks than bytes are
    # then a sparse file, or a compressed one.
    untold = found == "full" and image.path.stat().st_blocks * 512 < image.size
    ok = found == asked or (asked, found) == ("falloc", "full") or untold
    source = "length, blocks and SEEK_DATA of the image file"
    return Check("image preallocation", asked, found, source, ok)


def _equal(name: str, requested: str, effective: str) -> Check:
    return Check(name, requested, effective, "qemu-img info", requested == effective)


def _qemu_img(arguments: Sequence[str], size: int, timeout: float = math.inf) -> bytes:
    """Run qemu-img on files of ours; by ``timeout``, or in the time that ``size`` bytes of writing
    may take."""
    argv = [require_tool("qemu-img", "qemu-utils"), *arguments]
    within = min(timeout, _writing_seconds(size))
    return _require_done(run(argv, timeout=within, env=_quiet(), check=False))


def _fill_server(
    arguments: Sequence[str], source: Path, disk: NetworkDisk, size: int, timeout: float
) -> None:
    """As ``_qemu_img``, by somebody without rights, who has ``source`` by its descriptor."""
    tool = require_tool("qemu-img", "qemu-utils")
    with source.open("rb") as stream:
        name = f"/proc/self/fd/{stream.fileno()}"
        done = run(
            [tool, *arguments, name, image_opts(disk, size)],
            timeout=min(timeout, _writing_seconds(size)),
            cwd=disk.folder,
            env=_quiet(),
            check=False,
            pass_fds=(stream.fileno(),),
            confined=True,
            cage=client_cage(disk.namespace).reading(name),
            network=disk.namespace,
        )
    _require_done(done)


def _writing_seconds(size: int) -> float:
    return 60 + size / _SLOWEST


def _quiet() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C"}


def _require_done(done: Completed) -> bytes:
    """What qemu-img printed. Raises RunFailure ``space`` or ``tool`` when it failed."""
    if done.returncode != 0:
        no_space = tells_no_space(done.error_text)
        command = next(word for word in done.argv[1:] if not word.startswith("-"))
        raise RunFailure(
            "space" if no_space else "tool",
            f"qemu-img {command} failed" + (": no space left" if no_space else ""),
            "\n".join(done.error_text.splitlines()[-5:]),
        )
    return done.stdout


def _write_back(path: Path) -> None:
    """Have everything of a file on the disk below, so that no run pays for it."""
    done = write_back(path)
    if done.returncode != 0:
        raise RunFailure("space", f"cannot write back {path}", done.error_text)
