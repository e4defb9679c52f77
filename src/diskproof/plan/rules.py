"""What cannot work, each rule with its reason: one function, one row in ``RULES``."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from diskproof.records import HostFacts, WorkloadSpec
from diskproof.study.boots import count_boots, memory_bytes, parse_scale
from diskproof.study.factors import DIRECT, FACTORS, Factor, Need
from diskproof.study.programs import (
    PROGRAM_BY_KIND,
    SECOND_DISK_ON,
    has_own_system,
    programs_in_guest,
)
from diskproof.units import parse_bytes, render_bytes


@dataclass(frozen=True)
class Rule:
    """``find`` gets those of ``factors`` that mean something to the cell, and says why they
    cannot work together on this host, or None."""

    factors: tuple[str, ...]
    find: Callable[[Mapping[str, str], HostFacts], str | None]


def _backing_works(levels: Mapping[str, str], facts: HostFacts) -> str | None:
    name = levels["backing"]
    reason = facts.backings[name].obstacle
    return f"backing {name} does not work here: {reason}" if reason else None


def _directory_takes_direct(levels: Mapping[str, str], facts: HostFacts) -> str | None:
    backing = facts.backings[levels["backing"]]
    if levels.get("cache") in DIRECT and not backing.o_direct:
        where = f"{backing.path} ({backing.filesystem})"
        return f"cache={levels['cache']} needs O_DIRECT on {where}: {backing.o_direct_reason}"
    return None


def _preallocation_of_device(levels: Mapping[str, str], facts: HostFacts) -> str | None:
    mode = levels.get("preallocation", "off")
    if facts.backings[levels["backing"]].device and mode not in ("off", "metadata"):
        return f"preallocation={mode} reserves space in a file, and this disk is a block device"
    return None


def _format_over_network(levels: Mapping[str, str], facts: HostFacts) -> str | None:
    backing, form = facts.backings[levels["backing"]], levels.get("format", "raw")
    if backing.network and form != "raw":
        return f"format={form} is for files, and a disk over {backing.network} is raw"
    return None


def _preallocation_over_network(levels: Mapping[str, str], facts: HostFacts) -> str | None:
    backing, mode = facts.backings[levels["backing"]], levels.get("preallocation", "off")
    if backing.network and mode != "off":
        return f"preallocation={mode} is for files, and this disk is reached over {backing.network}"
    return None


def _client_over_network(levels: Mapping[str, str], facts: HostFacts) -> str | None:
    backing, frontend = facts.backings[levels["backing"]], levels["frontend"]
    if not backing.network or frontend in ("daemon", "guest"):
        return None
    if frontend == "host":
        why = "fio has no client for it, and the kernel's initiator is not used"
        return None if backing.fio else f"frontend=host does not reach {backing.network}: {why}"
    return f"frontend={frontend} takes disks of this host only, not over {backing.network}"


def _iothread_of_bus(levels: Mapping[str, str], facts: HostFacts) -> str | None:
    bus = levels.get("bus")
    if levels.get("iothread") == "on" and bus and bus not in facts.iothread_buses:
        return f"bus={bus} takes no iothread in this QEMU"
    return None


def _iothread_of_daemon(levels: Mapping[str, str], facts: HostFacts) -> str | None:
    fault = facts.reasons.get("frontend=daemon,iothread=on")
    if fault and levels["frontend"] == "daemon" and levels.get("iothread") == "on":
        return f"iothread=on does not work with frontend=daemon: {fault}"
    return None


def _memory_of_host(levels: Mapping[str, str], facts: HostFacts) -> str | None:
    asked = levels.get("memory")
    if asked is None or parse_bytes(asked) < facts.memory_bytes:
        return None
    return f"memory={asked} is not less than this host's {render_bytes(facts.memory_bytes)}"


def _accel_of_host(levels: Mapping[str, str], facts: HostFacts) -> str | None:
    if levels.get("accel") == "kvm" and facts.accel != "kvm":
        return f"accel=kvm does not work here: {facts.accel_reason}"
    return None


def _find_lack(needed: Iterable[str], levels: Mapping[str, str], facts: HostFacts) -> str | None:
    """Why the minimal guest, where it is the one that is used, cannot do what needs these."""
    if levels.get("frontend") != "guest" or facts.minimal_guest is None:
        return None
    lacking = [name for name in needed if name not in facts.minimal_guest]
    what = f"the minimal guest lacks {', '.join(lacking)}"
    return f"{what}: `diskproof guest build` makes the whole one" if lacking else None


def workload_rules(workload: WorkloadSpec) -> tuple[Rule, ...]:
    """What a workload needs."""
    needed = programs_in_guest(workload)
    started = Rule(("frontend",), lambda levels, facts: _find_lack(needed, levels, facts))
    return (started, *_program_rules(workload))


def _program_rules(workload: WorkloadSpec) -> Iterator[Rule]:
    """What it needs that is not one fio job."""
    program = PROGRAM_BY_KIND.get(workload.kind)
    if program is None:
        return
    needs = {"frontend": program.frontends, **program.levels}
    yield from (_works_with(workload.name, factor, levels) for factor, levels in needs.items())
    files_only = "host" in program.frontends and "daemon" not in program.frontends
    if program.own_system or files_only:
        yield Rule(("backing", "frontend"), lambda at, facts: _local(workload, at, facts))
    if program.own_system:
        yield Rule(("memory",), lambda levels, facts: _memory(workload, levels))
        yield Rule(("frontend",), lambda levels, facts: _boots(workload))
    if workload.option(SECOND_DISK_ON):
        yield Rule(("backing", "frontend"), lambda at, facts: _copied_from(workload, at, facts))
    if program.own_backing:
        yield Rule(("backing",), lambda levels, facts: _own(workload.name, levels, facts))


def _works_with(workload: str, factor: str, wanted: tuple[str, ...]) -> Rule:
    def find(levels: Mapping[str, str], facts: HostFacts) -> str | None:
        level = levels.get(factor)
        if level is None or level in wanted:
            return None
        return f"{workload} works with {factor}={' or '.join(wanted)} only, not with {level}"

    return Rule((factor,), find)


def _memory(workload: WorkloadSpec, levels: Mapping[str, str]) -> str | None:
    scale = workload.option("scale")
    least = memory_bytes(parse_scale(scale))
    if "memory" not in levels or parse_bytes(levels["memory"]) >= least:
        return None
    block = f"the guest holds a whole block of zeroes at scale={scale}"
    return f"memory={levels['memory']} is less than {render_bytes(least)}: {block}"


def _boots(workload: WorkloadSpec) -> str | None:
    if count_boots(workload):
        return None
    return f"{workload.name} has neither read nor write boots: there is nothing to measure"


def _local(workload: WorkloadSpec, levels: Mapping[str, str], facts: HostFacts) -> str | None:
    """A guest has a disk with a name whatever is behind it; the host has none over a network."""
    network = facts.backings[levels["backing"]].network
    if not network or (levels["frontend"] != "host" and not has_own_system(workload.kind)):
        return None
    return f"{workload.name} needs a disk of this host, and this one is reached over {network}"


def _copied_from(workload: WorkloadSpec, levels: Mapping[str, str], facts: HostFacts) -> str | None:
    """What a source on a backing of its own cannot be."""
    name = workload.option(SECOND_DISK_ON)
    source = facts.backings[name]
    if source.network:
        return f"{workload.name} copies from {name}, which is reached over {source.network}"
    if source.device and levels["backing"] == name:
        return f"{workload.name} copies from {name}, which is one device, and the target's"
    if source.device and levels["frontend"] == "host":
        return f"{workload.name} copies from {name}, a bare device: on the host it has no files"
    return None


def _own(workload: str, levels: Mapping[str, str], facts: HostFacts) -> str | None:
    name = levels["backing"]
    if facts.backings[name].own:
        return None
    return f"{workload} fills its backing up, and {name} is not one that the study makes"


def _needs(factor: Factor, need: Need) -> Rule:
    def find(levels: Mapping[str, str], facts: HostFacts) -> str | None:
        level, other = levels.get(factor.name), levels.get(need.factor)
        if level not in need.levels or other is None or other in need.wanted:
            return None
        wanted = f"{need.factor}={' or '.join(need.wanted)}"
        return f"{factor.name}={level} needs {wanted}, not {other}"

    return Rule((factor.name, need.factor), find)


def _offered(factor: str, usable: Callable[[HostFacts], frozenset[str]]) -> Rule:
    def find(levels: Mapping[str, str], facts: HostFacts) -> str | None:
        level = levels.get(factor)
        if level is None or level in usable(facts):
            return None
        key = f"{factor}={level}"
        return f"{key} does not work here: {facts.reasons.get(key, 'not offered by this host')}"

    return Rule((factor,), find)


# As a person would want to hear them: what the host lacks, then what never works.
RULES: tuple[Rule, ...] = (
    _offered("frontend", lambda facts: facts.frontends),
    _offered("format", lambda facts: facts.formats),
    _offered("aio", lambda facts: facts.aio),
    _offered("bus", lambda facts: facts.buses),
    Rule(("accel",), _accel_of_host),
    Rule(("memory",), _memory_of_host),
    Rule(("backing",), _backing_works),
    Rule(("backing", "frontend"), _client_over_network),
    Rule(("backing", "format"), _format_over_network),
    Rule(("backing", "preallocation"), _preallocation_over_network),
    *(_needs(factor, need) for factor in FACTORS for need in factor.needs),
    Rule(("backing", "preallocation"), _preallocation_of_device),
    Rule(("backing", "cache"), _directory_takes_direct),
    Rule(("iothread", "bus"), _iothread_of_bus),
    Rule(("bus", "frontend"), lambda at, facts: _find_lack((f"bus={at.get('bus')}",), at, facts)),
    Rule(("frontend", "iothread"), _iothread_of_daemon),
)


def find_obstacle(levels: Mapping[str, str], facts: HostFacts) -> str:
    """Why a combination of levels cannot work on this host; empty where it can."""
    for rule in RULES:
        known = {name: levels[name] for name in rule.factors if name in levels}
        if reason := rule.find(known, facts):
            return reason
    return ""
