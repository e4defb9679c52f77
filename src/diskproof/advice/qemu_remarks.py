"""What only a QEMU command line tells of its disks: nodes that disagree, settings without effect.

Each rule names its source. What holds of a disk whoever manages it is judged elsewhere.
"""

from collections.abc import Callable, Iterator

from diskproof.advice.qemu_disks import CommandLine, DiskOptions
from diskproof.advice.qemu_edit import edit_options
from diskproof.records.virtual_machines import Change, Effect, Remark
from diskproof.study.factors import CACHE_MODES

_FLUSH = "QEMU 7.2, block/io.c bdrv_co_flush; seen with strace"
_OPEN = "QEMU 7.2, block/file-posix.c raw_parse_flags"
_NEXT_START = "at the next start of QEMU"


def _remark(
    rule: str, effect: Effect, what: str, source: str, change: Change | None = None
) -> Remark:
    return Remark(rule, "configured", effect, what, source, change=change)


def _change(disk: DiskOptions, **levels: str) -> Change | None:
    """The disk's own options with those levels, whole."""
    options = edit_options(disk, levels, disk.name)
    if options is None:
        return None
    return Change(" \\\n".join(option.render() for option in options), _NEXT_START)


def _cache_mode(disk: DiskOptions, direct: str) -> str:
    """The mode that carries flushes out, else as the disk has it."""
    through = write_back(disk) == "off"
    modes = {(mode.direct, mode.no_flush, mode.write_through): n for n, mode in CACHE_MODES.items()}
    return modes[direct == "on", False, through]


def find_remarks(disk: DiskOptions, line: CommandLine) -> tuple[Remark, ...]:
    """All that is to be said of a disk of that command line."""
    return tuple(remark for find in _RULES for remark in find(disk, line))


def _uneven_flags(disk: DiskOptions, line: CommandLine) -> Iterator[Remark]:
    """The lowest node decides; what stands above it says something else."""
    end = disk.node.end
    below = end.keys.get("cache.no-flush", "off")
    for node in disk.node.path[:-1]:
        above = node.keys.get("cache.no-flush", "off")
        if above == below or "?" in (above, below):
            continue
        effect: Effect = "loses" if below == "on" else "note"
        ends = "end there" if below == "on" else "are carried out all the same"
        what = (
            f"the {node.driver or 'upper'} node has cache.no-flush={above}, the {end.driver} node "
            f"below it {below}: the lowest decides, flushes {ends}"
        )
        direct = end.keys.get("cache.direct", "off")
        change = _change(disk, cache=_cache_mode(disk, direct)) if below == "on" else None
        yield _remark("uneven-no-flush", effect, what, _FLUSH, change)
        break
    uneven = {node.keys.get("cache.direct", "off") for node in disk.node.path}
    if uneven == {"on", "off"}:
        direct = end.keys.get("cache.direct", "off")
        passes = "bypass" if direct == "on" else "go through"
        what = (
            f"the block nodes disagree on cache.direct; the {end.driver} node has it {direct} and "
            f"decides: reads and writes {passes} the host's page cache"
        )
        yield _remark("uneven-direct", "note", what, _OPEN)


def _backing_chain(disk: DiskOptions, line: CommandLine) -> Iterator[Remark]:
    """Images below the one that is written, with a cache of their own."""
    direct = disk.node.end.keys.get("cache.direct", "off")
    node, seen = disk.node, 0
    for upper in disk.node.path:
        node = upper.backing or node
    while node is not disk.node and seen < 64:
        own = node.end.keys.get("cache.direct", "off")
        image = node.end.image or "the backing image"
        if node.end.keys.get("cache.no-flush") == "on":
            what = f"{image}, in the backing chain, has cache.no-flush=on: what is committed into "
            yield _remark("backing-no-flush", "may lose", what + "it is not flushed", _FLUSH)
        if own != direct and "?" not in (own, direct):
            what = (
                f"{image}, in the backing chain, has cache.direct={own} and the disk above it "
                f"{direct}: what is read from it goes {'around' if own == 'on' else 'through'} the "
                "host's page cache"
            )
            yield _remark("backing-direct", "note", what, _OPEN)
        if node.backing is None:
            return
        node, seen = node.backing, seen + 1


def _half_discard(disk: DiskOptions, line: CommandLine) -> Iterator[Remark]:
    """A discard that stops on its way down."""
    asked = [node.keys.get("discard", "ignore") for node in disk.node.path]
    if "?" in asked or asked[0] != "unmap" or set(asked) == {"unmap"}:
        return
    what = "the upper block node has discard=unmap and one below it ignores discards: no room is "
    source = "qemu(1) 7.2, -blockdev discard; each named node has its own"
    change = _change(disk, discard="unmap")
    yield _remark("half-discard", "ignored", what + "given back to the host", source, change)


def _snapshot(disk: DiskOptions, line: CommandLine) -> Iterator[Remark]:
    """Writes to a file that is gone at QEMU's end."""
    if disk.is_cdrom or not (line.snapshot or disk.drive.get("snapshot") in ("on", "yes")):
        return
    what = "snapshot=on: all that the guest writes goes to a temporary file without flushes, and "
    yield _remark("snapshot", "loses", what + "is gone when QEMU ends", "qemu(1) 7.2, -snapshot")


def _guest_write_cache(disk: DiskOptions, line: CommandLine) -> Iterator[Remark]:
    """Write-through that the guest's driver may switch off."""
    if disk.bus != "virtio-blk" or write_back(disk) != "off":
        return
    if disk.device.get("config-wce") in ("off", "no", "false"):
        return
    what = (
        "write-through is set, and the guest's virtio driver may turn it into writeback; "
        "config-wce=off on the device keeps it"
    )
    source = "QEMU 7.2, hw/block/virtio-blk.c virtio_blk_set_status, virtio_blk_get_features"
    yield _remark("guest-may-write-back", "note", what, source)


def _iothread_device(disk: DiskOptions, line: CommandLine) -> Iterator[Remark]:
    """An iothread where QEMU has none, or that is not there."""
    source = "QEMU 7.2, -device DRIVER,help"
    driver = str(disk.device.get("driver") or "")
    if disk.device.get("iothread") and not driver.startswith("virtio-blk"):
        what = f"{driver} takes no iothread: QEMU does not start"
        yield _remark("iothread-refused", "will not start", what, source)
    elif disk.iothread not in ("", "*") and disk.iothread not in line.iothreads:
        what = f"there is no -object iothread,id={disk.iothread}: QEMU does not start"
        yield _remark("iothread-missing", "will not start", what, source)


def _errors_ignored(disk: DiskOptions, line: CommandLine) -> Iterator[Remark]:
    """Failed writes of which the guest is not told."""
    if "ignore" in (disk.device.get("werror"), disk.drive.get("werror")):
        what = "werror=ignore: the guest is told of a failed write that it succeeded"
        yield _remark("werror-ignore", "may lose", what, "qemu(1) 7.2, -drive werror=")


_RULES: tuple[Callable[[DiskOptions, CommandLine], Iterator[Remark]], ...] = (
    _uneven_flags,
    _backing_chain,
    _half_discard,
    _snapshot,
    _guest_write_cache,
    _iothread_device,
    _errors_ignored,
)


def write_back(disk: DiskOptions) -> str:
    """``on``, ``off`` or ``?``: whether the device acknowledges before a flush."""
    asked = disk.device.get("write-cache") or "auto"
    spelt = {"on": "on", "off": "off", "true": "on", "false": "off", "auto": ""}.get(asked, "?")
    return spelt or disk.node.keys.get("cache.writeback", "on")
