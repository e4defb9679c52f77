"""What the layers of a disk mean for what its guest was promised: one row a rule, each with its
source.

Pure. A rule speaks of what was read and of nothing else: what is not known is ``unknown``.
Keys of the layers ``guest`` and ``below`` are those of ``advice.observed``.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from diskproof.advice import observed
from diskproof.advice.mend import mend_cache
from diskproof.records.virtual_machines import (
    EFFECTS,
    Change,
    DiskJudgement,
    Effect,
    LayerName,
    Levels,
    Machine,
    MachineDisk,
    MachineJudgement,
    Remark,
)
from diskproof.study.factors import CACHE_MODES, DIRECT

QEMU = "qemu(1) -drive cache=, qemu-block-drivers(7)"
_WRITTEN: tuple[LayerName, ...] = ("configured", "pending", "running")
_YES = ("on", "yes", "true", "1")


@dataclass(frozen=True)
class Said:
    """What a rule says of one layer."""

    layer: LayerName
    effect: Effect
    what: str
    change: Change | None = None


@dataclass(frozen=True)
class DiskRule:
    """``find`` yields what there is to say of a disk, nothing where the rule does not apply."""

    name: str
    source: str
    find: Callable[[MachineDisk], Iterable[Said]]


def in_force(disk: MachineDisk) -> dict[str, str]:
    """The levels as they run; what was not seen running, as it is written."""
    return {
        **(disk.configured.levels if disk.configured else {}),
        **(disk.running.levels if disk.running else {}),
    }


def _written(disk: MachineDisk) -> Iterator[tuple[LayerName, Levels]]:
    layers = disk.layers
    yield from ((name, layers[name].levels) for name in _WRITTEN if name in layers)


def drops_flushes(levels: Levels) -> bool:
    """Whether flushes are not carried out at these levels, as far as they are known."""
    mode = CACHE_MODES.get(levels.get("cache", ""))
    told = levels.get("no-flush", levels.get("cache.no-flush", "off"))
    return bool(mode and mode.no_flush) or told in _YES


def writes_through(levels: Levels) -> bool | None:
    """Whether each write is flushed before it is acknowledged; None where nobody knows."""
    mode = CACHE_MODES.get(levels.get("cache", ""))
    return mode.write_through if mode else None


# -- what is set and what runs --------------------------------------------------------------


def _find_no_flush(disk: MachineDisk) -> Iterator[Said]:
    for name, levels in _written(disk):
        if drops_flushes(levels):
            what = "flushes are not carried out (cache=unsafe)" + _WHEN[name]
            yield Said(name, "loses", f"{what}: a power cut takes what was acknowledged")


_WHEN: dict[LayerName, str] = {
    "configured": "",
    "pending": ", from the change that is pending on",
    "running": "",
}


def _find_native(disk: MachineDisk) -> Iterator[Said]:
    if disk.kind == "network":
        return
    for name, levels in _written(disk):
        cache = levels.get("cache")
        if levels.get("aio") == "native" and cache in CACHE_MODES and cache not in DIRECT:
            what = f"aio=native with cache={cache}: QEMU refuses it, native needs direct I/O"
            yield Said(name, "will not start", what)


def _find_pending(disk: MachineDisk) -> Iterator[Said]:
    if disk.pending is None:
        return
    now = in_force(disk)
    told = [
        f"{factor} {now.get(factor, 'not known')} -> {level}"
        for factor, level in disk.pending.levels.items()
        if now.get(factor) != level and not (factor not in now and factor in disk.pending.assumed)
    ]
    if told:
        what = f"a change waits for the next start: {', '.join(told)}"
        yield Said("pending", "note", what)


def _find_difference(disk: MachineDisk) -> Iterator[Said]:
    set_, runs = disk.configured, disk.running
    if set_ is None or runs is None:
        return
    said = {remark.rule for remark in disk.remarks}
    for factor, level in set_.levels.items():
        if factor == "aio" and "aio-fell-back" in said:
            continue
        found = runs.levels.get(factor, level)
        if found != level and factor not in set_.assumed | runs.assumed:
            yield Said("running", "ignored", f"{factor}={level} is set, {factor}={found} runs")


def _find_shared(disk: MachineDisk) -> Iterator[Said]:
    for name, levels in _written(disk):
        cache = levels.get("cache")
        if disk.facts.get("shareable", "") in _YES and cache in CACHE_MODES and cache not in DIRECT:
            what = f"several machines write on it, and cache={cache} keeps pages of its own on each"
            yield Said(name, "may lose", f"{what} host")


def _find_not_advertised(disk: MachineDisk) -> Iterator[Said]:
    for name, levels in _written(disk):
        if levels.get("flush") == "not advertised":
            what = "the device offers no flush, so the guest sends none: a power cut takes what was"
            yield Said(name, "loses", f"{what} acknowledged")


def _find_wce(disk: MachineDisk) -> Iterator[Said]:
    levels, guest = in_force(disk), disk.guest
    if not writes_through(levels) or levels.get("bus") != "virtio-blk":
        return
    if guest is not None and guest.levels.get(observed.WRITE_CACHE) == "write back":
        what = f"cache={levels['cache']} is set, and the guest has switched its disk to write back"
        yield Said("guest", "ignored", f"{what}: writes without a flush are no longer durable")
    elif levels.get("config-wce", disk.facts.get("config-wce", "on")) in _YES:
        what = "a guest may switch write-through off again (Windows' driver does): config-wce=off"
        yield Said("running" if disk.running else "configured", "note", f"{what} forbids it")


def _find_network(disk: MachineDisk) -> Iterator[Said]:
    if disk.kind != "network":
        return
    driver = (
        disk.facts.get("protocol")
        or disk.facts.get("driver")
        or disk.image.partition(":")[0].partition("+")[0]
    )
    if driver == "rbd":
        cache = in_force(disk).get("cache", "not known")
        what = f"cache={cache} of RBD is librbd's own cache, not the host's page cache"
        yield Said("below", "unknown", f"{what}: no verdict of a file holds for it")


def _find_network_backing(disk: MachineDisk) -> Iterator[Said]:
    if disk.kind == "network" and not any(_find_network(disk)):
        yield Said("below", "unknown", "what its server does with a flush cannot be seen from here")


def _find_unknown(disk: MachineDisk) -> Iterator[Said]:
    levels = in_force(disk)
    running = disk.running
    if any(remark.effect == "unknown" and remark.layer != "below" for remark in disk.remarks):
        return  # its reader has said why
    if levels.get("cache") in CACHE_MODES or drops_flushes(levels):
        return
    if levels.get("flush") in ("advertised", "not advertised"):
        return
    where: LayerName = "running" if running is not None else "configured"
    word = levels.get("cache")
    what = (
        f"its cache mode {word!r} is none that we know" if word else "its cache mode is not known"
    )
    yield Said(where, "unknown", f"{what} in any layer: whether flushes are carried out is open")


# -- what the guest sees --------------------------------------------------------------------


def _find_guest_write_cache(disk: MachineDisk) -> Iterator[Said]:
    if disk.guest is None or disk.guest.levels.get(observed.WRITE_CACHE) != "write through":
        return
    through = writes_through(in_force(disk))
    device = disk.guest.levels.get(observed.DEVICE, "DISK")
    change = Change(
        f"echo 'write back' > /sys/block/{device.removeprefix('/dev/')}/queue/write_cache",
        "at once, in the guest; remove what sets it at boot (udev, rc.local)",
    )
    if through is None:
        what = "the guest's kernel sends no flush (queue/write_cache is write through); whether "
        yield Said("guest", "unknown", f"{what}the disk needs one is not known", change)
    elif not through:
        what = "the guest's kernel sends no flush (queue/write_cache is write through), and the "
        yield Said("guest", "loses", f"{what}disk is write back", change)


def _find_guest_barrier(disk: MachineDisk) -> Iterator[Said]:
    for mount, text in observed.mounts(disk.guest):
        if word := observed.no_barrier(text):
            what = f"{mount} is mounted with {word}: its fsync sends no flush"
            change = Change(
                f"mount -o remount,barrier=1 {mount}", f"at once; and take {word} out of /etc/fstab"
            )
            yield Said("guest", "loses", what, change)


def _find_setting(setting: observed.Setting) -> Callable[[MachineDisk], Iterator[Said]]:
    def find(disk: MachineDisk) -> Iterator[Said]:
        for place, value in observed.settings(disk.guest, setting.key):
            if value.lower() in setting.bad:
                what = f"{setting.key} = {value} ({place}): {setting.what}"
                change = Change(f"{setting.key} = {setting.good}", setting.takes_effect)
                yield Said("guest", setting.effect, what, change)

    return find


# -- what lies below ------------------------------------------------------------------------


def _find_host_barrier(disk: MachineDisk) -> Iterator[Said]:
    for mount, text in observed.mounts(disk.below):
        if word := observed.no_barrier(text):
            what = (
                f"{mount}, where the image lies, is mounted with {word}: no fsync reaches the disk"
            )
            change = Change(
                f"mount -o remount,barrier=1 {mount}", f"at once; and take {word} out of /etc/fstab"
            )
            yield Said("below", "loses", what, change)
        if "volatile" in observed.options(text):
            yield Said("below", "loses", f"{mount} is an overlay with volatile: it drops fsync")


def _find_place(effect: Effect, table: dict[str, str]) -> Callable[[MachineDisk], Iterator[Said]]:
    def find(disk: MachineDisk) -> Iterator[Said]:
        for mount, text in observed.mounts(disk.below):
            kind = text.partition(" ")[0]
            word = kind if kind in table else kind.partition(".")[0]
            if word in table:
                yield Said("below", effect, f"the image lies on {kind} ({mount}): {table[word]}")

    return find


def _find_zfs(disk: MachineDisk) -> Iterator[Said]:
    for dataset, value in observed.entries(disk.below, observed.ZFS_SYNC):
        if value == "disabled":
            what = f"ZFS has sync=disabled on {dataset}: fsync is answered and not carried out"
            change = Change(f"zfs set sync=standard {dataset}", "at once")
            yield Said("below", "loses", what, change)
        elif value not in ("standard", "always"):
            what = f"the property sync of {dataset} was not read ({value}): disabled would lose"
            yield Said("below", "unknown", what)


def _find_host_write_cache(disk: MachineDisk) -> Iterator[Said]:
    told = dict(observed.entries(disk.below, observed.CACHE_TYPE))
    for device, value in observed.entries(disk.below, observed.QUEUE):
        if value == "write through" and told.get(device) == "write back":
            what = f"the host's kernel sends {device} no flush: its queue/write_cache was set to "
            change = Change(f"echo 'write back' > /sys/block/{device}/queue/write_cache", "at once")
            yield Said("below", "loses", f"{what}write through, and it has a write cache", change)


def _find_target(disk: MachineDisk) -> Iterator[Said]:
    for device, store in observed.entries(disk.below, observed.TARGET):
        if effect := observed.TARGETS.get(store):
            yield Said("below", effect[0], f"{device} is served by {store}: {effect[1]}")


def _find_unseen(disk: MachineDisk) -> Iterator[Said]:
    for place, why in observed.entries(disk.below, observed.UNSEEN):
        yield Said("below", "unknown", f"what lies below {place} was not seen: {why}")


KERNEL_QUEUE = "Linux Documentation/ABI/stable/sysfs-block, queue/write_cache"
EXT4 = "Linux Documentation/admin-guide/ext4.rst, barrier"

RULES = (
    DiskRule("no-flush", QEMU, _find_no_flush),
    DiskRule(
        "not-advertised", "Firecracker docs/api_requests/block-caching.md", _find_not_advertised
    ),
    DiskRule("unknown-cache", "no layer says it", _find_unknown),
    DiskRule(
        "native-without-direct", "qemu(1) -blockdev aio=, QEMU block/file-posix.c", _find_native
    ),
    DiskRule("pending-change", "the configuration as found", _find_pending),
    DiskRule("running-differs", "the configuration and what runs", _find_difference),
    DiskRule("shared-writeback", "libvirt formatdomain, shareable; qemu(1) share-rw", _find_shared),
    DiskRule("guest-may-write-back", "virtio 1.2, 5.2.5 VIRTIO_BLK_F_CONFIG_WCE", _find_wce),
    DiskRule("rbd-cache", "Ceph librbd, qemu-block-drivers(7)", _find_network),
    DiskRule("network-backing", "docs/backings.md", _find_network_backing),
    DiskRule("guest-write-cache", KERNEL_QUEUE, _find_guest_write_cache),
    DiskRule("guest-no-barrier", EXT4, _find_guest_barrier),
    *(DiskRule(each.rule, each.source, _find_setting(each)) for each in observed.SETTINGS),
    DiskRule("host-no-barrier", EXT4, _find_host_barrier),
    DiskRule("in-memory", "tmpfs(5)", _find_place("loses", observed.IN_MEMORY)),
    DiskRule(
        "network-filesystem", "nfs(5), exports(5) async", _find_place("unknown", observed.ELSEWHERE)
    ),
    DiskRule("zfs-sync-disabled", "zfsprops(7), sync", _find_zfs),
    DiskRule("host-write-cache", KERNEL_QUEUE, _find_host_write_cache),
    DiskRule("lying-target", "docs/backings.md, measured with tgt 1.0.85 and LIO", _find_target),
    DiskRule("backing-unseen", "the host", _find_unseen),
)
_LOSSES = ("may lose", "loses")


def judge_machine(machine: Machine) -> MachineJudgement:
    """Every disk of a machine, with the lines that would mend it."""
    return MachineJudgement(machine, tuple(judge_disk(disk, machine) for disk in machine.disks))


def judge_disk(disk: MachineDisk, machine: Machine) -> DiskJudgement:
    """All rules on one disk. Of a disk that nobody writes on nothing can be lost."""
    told = [*disk.remarks, *_apply(disk)]
    if disk.read_only:
        told = [remark for remark in told if EFFECTS.index(remark.effect) < _UNKNOWN]
        what = "it is read-only: there is nothing to lose"
        told.append(Remark("read-only", "configured", "note", what, "the configuration as found"))
    told = [mend_cache(remark, disk, machine) for remark in told]
    judged = replace(disk, remarks=tuple(told))
    worst = max(told, key=lambda remark: EFFECTS.index(remark.effect), default=None)
    if worst is not None and worst.effect not in ("keeps", "note", "ignored"):
        certainty = "unknown" if worst.effect == "unknown" else worst.certainty
        return DiskJudgement(judged, worst.effect, certainty, worst.what, worst.source)
    what = "nothing is written" if disk.read_only else _KEEPS[bool(writes_through(in_force(disk)))]
    if disk.below is None and not disk.read_only:
        what += ", as far as its settings say: what lies below was not looked at"
    return DiskJudgement(judged, "keeps", "by rule", what, QEMU)


_UNKNOWN = EFFECTS.index("unknown")
_KEEPS = {False: "it keeps what is flushed", True: "it keeps each write that was acknowledged"}


def _apply(disk: MachineDisk) -> Iterator[Remark]:
    """What the rules say that its reader has not said already."""
    known = {(remark.rule, remark.layer) for remark in disk.remarks}
    for rule in RULES:
        for said in rule.find(disk):
            if (rule.name, said.layer) not in known:
                yield Remark(
                    rule.name, said.layer, said.effect, said.what, rule.source, change=said.change
                )
