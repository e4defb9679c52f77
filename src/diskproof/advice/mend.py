"""The line that mends a disk: its configuration as found, with what is wrong in it put right."""

from dataclasses import replace

from diskproof.advice.dialect import Target
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import Change, Machine, MachineDisk, Remark
from diskproof.study.factors import CACHE_MODES, DIRECT

_BY_CACHE = ("no-flush", "native-without-direct", "shared-writeback", "not-advertised")
_SAFE = "none"


def mend_cache(remark: Remark, disk: MachineDisk, machine: Machine) -> Remark:
    """A remark that another cache mode answers, with the whole line to paste."""
    if remark.rule not in _BY_CACHE or remark.change is not None:
        return remark
    change = find_change(disk, machine, need_direct=remark.rule != "no-flush")
    return replace(remark, change=change) if change else remark


def find_change(disk: MachineDisk, machine: Machine, need_direct: bool = True) -> Change | None:
    """The manager's own safe default in the words of the manager; None where it has no words of
    ours. Everything else in the line stays."""
    from diskproof.advice.dialects import DIALECTS  # most machines need none of them

    dialect = DIALECTS.get(machine.manager)
    if dialect is None:
        return None
    target = Target(
        image=disk.image,
        block=disk.kind == "block",
        machine=machine.name,
        disk=disk.name,
        existing=disk.line,
        filesystem=disk.facts.get("filesystem", ""),
    )
    try:
        usual = dialect.defaults(target).get("cache", "")
        safe = usual in CACHE_MODES and not CACHE_MODES[usual].no_flush
        fits = safe and (usual in DIRECT or not need_direct)
        levels = _known(disk) | {"cache": usual if fits else _SAFE}
        if levels.get("aio") == "native" and levels["cache"] not in DIRECT:
            levels["cache"] = _SAFE
        if dialect.find_obstacles(levels, target):
            levels = {"cache": levels["cache"]}
        paste = dialect.write(levels, target)
    except (UsageError, ValueError):  # a line that was not understood is not written anew
        return None
    return Change(paste.text, paste.takes_effect)


def _known(disk: MachineDisk) -> dict[str, str]:
    """What the configuration itself says; what nobody wrote stays unwritten."""
    layer = disk.pending or disk.configured or disk.running
    if layer is None:
        return {}
    return {name: level for name, level in layer.levels.items() if name not in layer.assumed}
