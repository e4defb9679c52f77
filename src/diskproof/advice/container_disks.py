"""The disks of container images that start a QEMU by their environment (DISK_CACHE and others)."""

import re
from collections.abc import Iterator, Mapping

from diskproof.advice.qemu_options import split_commands
from diskproof.advice.qemu_read import read_command_line
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import Change, Layer, MachineDisk, Remark
from diskproof.study.factors import CACHE_MODES, DIRECT, FACTOR_BY_NAME

SOURCE = (
    "qemus/qemu v7.48 (5eb8878e, 2026-08-21) src/disk.sh; dockur/windows v6.05 and dockur/macos "
    "v3.12, which are built on it"
)
IMAGES = {
    "qemux/qemu": "scsi",
    "qemus/qemu": "scsi",
    "dockurr/windows": "",
    "dockur/windows": "",
    "dockurr/macos": "blk",
    "dockur/macos": "blk",
}
"""Images by repository, with the type of a disk that none is set for; that of Windows follows its
version."""
_BUSES = {
    **dict.fromkeys(("blk", "virtio-blk"), "virtio-blk"),
    **dict.fromkeys(("scsi", "virtio-scsi"), "virtio-scsi"),
    **dict.fromkeys(("ide", "sata"), "ahci"),
    "nvme": "nvme",
}
_YES = ("y", "yes", "true", "1", "on")
_NO = ("n", "no", "false", "0", "off")
_MOST = 6
_OVERRIDES = re.compile(r"(?:^|\s)-(?:-)?(?:global|set|readconfig)\b")
_DEVICE = re.compile(r"\b(write-cache|config-wce|iothread)=")


def read_disks(
    repository: str,
    env: Mapping[str, str],
    mounts: Mapping[str, str],
    devices: Mapping[str, str],
) -> tuple[MachineDisk, ...] | None:
    """The disks that an image makes of its environment; None where the image is none of these."""
    if repository not in IMAGES:
        return None
    env = {key: value.strip().strip("\"'") for key, value in env.items()}
    found = []
    if env.get("DISK_DISABLE", "").lower() not in _YES:
        found = [
            _read_disk(f"disk{number}", *place, env, IMAGES[repository])
            for number in range(1, _MOST + 1)
            if (place := _find_place(number, env, mounts, devices))
        ]
    return (*found, *_read_arguments(env.get("ARGUMENTS", "")))


def _find_place(
    number: int, env: Mapping[str, str], mounts: Mapping[str, str], devices: Mapping[str, str]
) -> tuple[str, bool] | None:
    """What a disk is on, by the host's name, and whether that is a device: a device, else an image
    that is mounted, else one in the folder of images. Only the first disk is there always."""
    given = env.get(f"DEVICE{number}" if number > 1 else "DEVICE", "")
    plain = ("/disk",) if number == 1 else ()
    inside = (given, *plain, f"/disk{number}", f"/dev/disk{number}")
    if device := next((path for path in inside if path and (path == given or path in devices)), ""):
        return devices.get(device, device), True
    name = env.get("DISK_NAME", "") or "data"
    stems = ["disk1", "disk", name] if number == 1 else [f"disk{number}", f"{name}{number}"]
    for path, host in mounts.items():
        stem, _, ending = path.removeprefix("/").rpartition(".")
        if stem in stems and ending in ("img", "raw", "qcow2"):
            return host, False
    folder = "/storage" if number == 1 else f"/storage{number}"
    if number > 1 and folder not in mounts:
        return None
    ending = "qcow2" if env.get("DISK_FMT", "").lower() == "qcow2" else "img"
    file = f"{name}{number if number > 1 else ''}.{ending}"
    return f"{mounts.get(folder, folder).rstrip('/')}/{file}", False


def _read_disk(
    name: str, image: str, block: bool, env: Mapping[str, str], usual: str
) -> MachineDisk:
    levels = dict(_read_levels(env, usual, block))
    given = {"cache": "DISK_CACHE", "aio": "DISK_IO", "discard": "DISK_DISCARD", "bus": "DISK_TYPE"}
    written = {factor for factor, key in given.items() if env.get(key)}
    layer = Layer(levels, "the container's environment", frozenset(set(levels) - written))
    return MachineDisk(
        name,
        image,
        "block" if block else "file",
        configured=layer,
        line="".join(f"{key}: {env[key]!r}\n" for key in given.values() if env.get(key)),
        remarks=tuple(_find_remarks(env, levels)),
    )


def _read_levels(env: Mapping[str, str], usual: str, block: bool) -> Iterator[tuple[str, str]]:
    """What src/disk.sh gives QEMU. A variable of the shell's is not known."""
    cache = env.get("DISK_CACHE") or "none"
    if cache in CACHE_MODES:
        yield "cache", cache
    aio = (env.get("DISK_IO") or "native").lower()
    if aio in FACTOR_BY_NAME["aio"].levels:
        yield "aio", "threads" if aio == "native" and cache not in DIRECT else aio
    discard = (env.get("DISK_DISCARD") or "unmap").lower()
    if "$" not in discard:
        yield "discard", "ignore" if discard in (*_NO, "ignore") else "unmap"
    yield "detect-zeroes", "on"
    kind = (env.get("DISK_TYPE") or usual).lower()
    if kind in _BUSES:
        bus = _BUSES[kind]
        yield "bus", bus
        if not bus.startswith("virtio"):
            yield "iothread", "off"
        elif usual:  # that of Windows has none where its version is an old one
            yield "iothread", "off" if env.get("BOOT_MODE", "") == "windows_legacy" else "on"
    form = "raw" if block else env.get("DISK_FMT", "").lower()
    if form in ("raw", "qcow2"):
        yield "format", form


def _find_remarks(env: Mapping[str, str], levels: Mapping[str, str]) -> Iterator[Remark]:
    cache = env.get("DISK_CACHE") or "none"
    mend = Change('environment:\n  DISK_CACHE: "none"\n', "when the container is made anew")
    if cache == "unsafe":
        what = "DISK_CACHE=unsafe: flushes are not carried out, a power cut takes what was "
        yield Remark("no-flush", "configured", "loses", f"{what}acknowledged", SOURCE, change=mend)
    if "native" in env.get("DISK_IO", "").lower() and levels.get("aio") == "threads":
        what = f"DISK_IO=native with DISK_CACHE={cache}: the image takes threads, with a warning"
        yield Remark("native-without-direct", "configured", "ignored", what, SOURCE, change=mend)
    if "cache" not in levels and "$" not in cache:
        what = f"DISK_CACHE={cache[:40]} is no cache mode of QEMU's"
        yield Remark("unknown-cache", "configured", "will not start", what, SOURCE, change=mend)
    words = [key for key, pattern in (("ARGUMENTS", _OVERRIDES), ("DISK_OPTIONS", _DEVICE))
             if pattern.search(env.get(key, ""))]  # fmt: skip
    if words:
        what = f"{' and '.join(words)} may set the disk otherwise than the other variables say"
        yield Remark("commandline-override", "configured", "unknown", what, SOURCE, "unknown")


def _read_arguments(text: str) -> tuple[MachineDisk, ...]:
    """Disks that are put on QEMU's command line by hand."""
    if "-drive" not in text and "-blockdev" not in text:
        return ()
    try:
        words = [word for words in split_commands(text) for word in words]
        return read_command_line(["qemu-system", *words], "ARGUMENTS").disks
    except UsageError as error:
        what = f"ARGUMENTS cannot be read: {error.what}"
        remark = Remark("commandline-override", "configured", "unknown", what, SOURCE, "unknown")
        return (MachineDisk("ARGUMENTS", "", remarks=(remark,)),)
