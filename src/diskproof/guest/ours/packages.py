"""The guest's files, unpacked from the host's own Debian package sources."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from diskproof.errors import HostError, RunFailure
from diskproof.process.start import require_tool, run
from diskproof.study.guest_root import split_root

PACKAGES = (
    "linux-image-amd64",
    "btrfs-progs",
    "coreutils",
    "dash",
    "e2fsprogs",
    "fio",
    "iproute2",
    "kmod",
    "mount",
    "sqlite3",
    "util-linux",
    "xfsprogs",
)
EXTRA_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "postgres": ("postgresql",),
    "servers": (
        *("apache2-utils", "cifs-utils", "findutils", "grep", "mariadb-server", "nfs-common"),
        *("nfs-kernel-server", "nginx", "php-fpm", "php-mysql", "postfix", "postgresql", "samba"),
        "sed",
    ),
    "storage": (
        *("f2fs-tools", "lvm2", "mdadm", "open-iscsi"),
        *("python3", "python3-psutil", "python3-pytest"),
    ),
    "zfs": ("python3", "python3-psutil", "python3-pytest", "zfsutils-linux"),
}
"""By name, what some guests have beyond these: a root of its own, built when a study asks."""
ESSENTIAL = (
    *("base-files", "bash", "bsdutils", "coreutils", "dash", "debianutils", "diffutils", "dpkg"),
    *("findutils", "grep", "gzip", "hostname", "libc-bin", "mawk", "ncurses-base", "ncurses-bin"),
    *("perl-base", "sed", "tar", "util-linux"),
)
"""What packages count on without saying so (Debian policy 3.8), but for what starts a system."""
EXTRA_COMPONENT: Mapping[str, str] = {"zfs": "contrib"}
"""The part of Debian's archive that is wanted beside those that the host's apt uses."""
FETCH_SECONDS = 900.0
_UNKNOWN = re.compile(
    r"^E: (?:Unable to locate package|Package|Couldn't find any package by \w+) '?([^\s']+)", re.M
)
OTHER_WAY = (
    "or elsewhere `diskproof guest export FILE`, and here `diskproof guest import FILE`; "
    "or `diskproof guest build --minimal`, of what this host has"
)
"""For a host that cannot build a guest: no Debian, no tools, no network."""


class UnknownPackage(HostError):
    """A name of no package, which no other host would know better."""

    def __init__(self, name: str) -> None:
        why = "the sources of this host's apt have none"
        hint = f"apt-get update, and look for its name: apt-cache search {name}"
        super().__init__(f"there is no package {name} for the guest", why, hint)


def find_suite(path: Path = Path("/etc/os-release")) -> str | None:
    """The code name of the host's Debian release; None on another system."""
    try:
        fields = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', path.read_text(), re.MULTILINE))
    except FileNotFoundError:
        return None
    return fields.get("VERSION_CODENAME") if fields.get("ID") == "debian" else None


def require_suite() -> str:
    suite = find_suite()
    if suite is None:
        raise HostError(
            "the guest cannot be built here",
            "it is made of Debian packages, and this host is not Debian",
            f"use a Debian host, or a container of one; {OTHER_WAY}",
        )
    return suite


def packages_of(extra: str) -> tuple[str, ...]:
    """The guest's packages, with those of EXTRA_PACKAGES that ``extra`` names, if any, and those
    that it lists."""
    kind, listed = split_root(extra)
    packages = PACKAGES + EXTRA_PACKAGES[kind] if kind else PACKAGES
    return tuple(dict.fromkeys((*packages, *ESSENTIAL, *listed))) if listed else packages


def find_sources(suite: str) -> list[str]:
    """The files in which the host's apt names its Debian sources."""
    listing = run(
        [
            require_tool("apt-get", "apt"),
            "indextargets",
            "--format",
            "$(SOURCESENTRY)|$(CODENAME)|$(ORIGIN)",
            "Created-By: Packages",
        ],
        timeout=60,
    ).text
    targets = [line.split("|") for line in listing.splitlines() if line.count("|") == 2]
    wanted = {
        entry.rpartition(":")[0]
        for entry, codename, origin in targets
        if origin == "Debian" and codename.partition("-")[0] == suite
    }
    if not wanted:
        raise HostError(
            f"apt knows no packages of Debian {suite}",
            "the guest is made of them",
            "apt-get update",
        )
    return sorted(wanted)


def with_component(sources: Sequence[str], component: str, folder: Path) -> list[str]:
    """Copies of files of sources, of either format, with a further component in each entry."""
    folder.mkdir()
    copies = []
    for source in map(Path, sources):
        told = rf"(?!.*\b{component}\b)"
        text = re.sub(rf"(?mi)^(Components:{told}.*)", rf"\1 {component}", source.read_text())
        entry = rf"(?m)^(deb\s+(?:\[[^]]*\]\s*)?\S+\s+\S*[^/\s]{told}(?:[ \t]+[\w/-]+)+)"
        copies.append(folder / source.name)
        copies[-1].write_text(re.sub(entry, rf"\1 {component}", text))
    return [str(path) for path in copies]


def extract_packages(suite: str, names: Sequence[str], target: Path, component: str = "") -> None:
    """Unpack packages below ``target``; no maintainer script runs. ``component`` is one of the
    archive's that the host's own sources may lack.

    That needs no privilege, so root and an ordinary user take the same way. Raises HostError when
    packages cannot be had.
    """
    sources, hint = find_sources(suite), "check that apt-get update works and that there is space"
    if component:
        sources = with_component(sources, component, target.parent / "sources")
        hint += f", and that your mirror has Debian's {component}"
    argv = [
        require_tool("mmdebstrap", "mmdebstrap"),
        "--mode=chrootless",
        "--skip=check/chrootless",  # Debian 13 refuses root, for scripts that "extract" never runs
        "--variant=extract",
        "--format=directory",
        f"--include={','.join(map(_exactly, names))}",
        *fetch_options(target.parent / "apt.conf"),
        suite,
        str(target),
        *sources,
    ]
    try:
        run(argv, timeout=FETCH_SECONDS, env=environment(os.environ))
    except RunFailure as failure:
        require_known(failure.why)
        raise HostError(
            "the guest's packages cannot be unpacked",
            failure.why or failure.what,
            hint,
        ) from failure


def _exactly(name: str) -> str:
    """What apt takes for that name alone: one that it does not know it takes for a pattern."""
    return f"?exact-name({name})" if re.fullmatch(r"[a-z0-9-]+[.+][a-z0-9.+-]*", name) else name


def require_known(said: str) -> None:
    """Raises UnknownPackage for one that apt said it does not know."""
    if unknown := _UNKNOWN.search(said):
        raise UnknownPackage(unknown[1])


def require_unpacked(tree: Path, names: Sequence[str]) -> None:
    """Raises UnknownPackage for one that is not there: apt may say nothing of one that it does not
    know."""
    for name in names:
        if not os.path.lexists(tree / "usr/share/doc" / name):
            raise UnknownPackage(name)


def fetch_options(path: Path) -> Sequence[str]:
    """How the host's apt reaches its sources (proxies, time-outs), for mmdebstrap's apt."""
    settings = run([require_tool("apt-config", "apt"), "dump", "Acquire"], timeout=60).stdout
    path.write_bytes(settings)
    return [f"--aptopt={path}"] if settings.strip() else []


def environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Ours without its language (messages are matched by people who read English reports)."""
    return {**ours, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
