"""The wheel on clean systems, as root and as an ordinary user: what a new user does with it.

In the order of the file: a person installs, is told what the distribution has to add, measures,
judges, and takes all of it away.
"""

import json
import logging
import shutil
import time
from pathlib import Path

from support.install_systems import COMPILERS, SUITES, Person, newest
from support.install_tries import ONE_CELL

ROOT = Path(__file__).parent.parent.parent
TOOLS = ("monitor", "nocache", "states", "sync-drop", "sync-trace", "sync-ways")
PARTS = ("bridge", "confine", "ledger", "recordfs", "switch", "tree")
WANTED = ("FUSE", "accelerator", "guest build")
"""What the quick study takes: recordings, and guests."""
BAR_SECONDS = 300
"""From nothing to the ranked table, on a quiet machine: printed, and held against nothing here."""
SPENT: dict[str, dict[str, float]] = {}
"""By person: how long each step towards the table took."""


def timed(person: Person, step: str, *argv: str) -> str:
    began = time.monotonic()
    told = person.run(*argv, expected=(0, 1))
    SPENT.setdefault(str(person), {})[step] = time.monotonic() - began
    return told


def say(text: str) -> None:
    logging.getLogger(__name__).warning(text)


def test_one_line_installs_it_where_nothing_could_compile(person: Person) -> None:
    for name in COMPILERS:
        person.run("sh", "-c", f"! command -v {name}")
    assert person.run("python3", "--version").split()[1].startswith(SUITES[person.system.suite])
    wheel = f"/mnt/dist/{newest('*.whl')}"
    if person.user:
        person.run("pipx", "install", "uv")
        timed(person, "install", "uv", "tool", "install", wheel)
    else:
        first = (ROOT / "README.md").read_text().partition("\n$ ")[2].partition("#")[0]
        assert first.startswith("pipx install ./")
        timed(person, "install", "sh", "-c", f"cd /mnt/dist && {first}")
    assert person.run("diskproof", "--version").startswith("diskproof ")


def test_every_python_finds_its_libraries_as_wheels(person: Person) -> None:
    """Of those that are not here, too: 3.12 is in neither Debian."""
    if not person.user:
        return  # it was uv that could say so
    wheel = f"diskproof[report,parquet,postgres,fleet] @ file:///mnt/dist/{newest('*.whl')}"
    (person.home / "wanted").write_text(wheel)
    for version in ("3.11", "3.12", "3.13"):
        words = ("--only-binary", ":all:", "--python-version", version, "wanted")
        assert "scipy==" in person.run("uv", "pip", "compile", "--quiet", *words)


def test_every_tool_explains_itself(person: Person) -> None:
    for tool in TOOLS:
        assert "Usage" in person.run(f"diskproof-{tool}", "--help")
    # Ours to start; they lie beside the interpreter.
    folder = person.run("sh", "-c", 'head -1 "$(readlink -f "$(command -v diskproof)")"')
    place = Path(folder.split('"')[-2] if '"' in folder else folder[2:].strip()).parent
    for tool in PARTS:
        assert f"diskproof-{tool}" in person.run(str(place / f"diskproof-{tool}"), "--help")


def test_doctor_names_what_the_distribution_must_add(person: Person) -> None:
    """Its lines are typed as they are, by root, until nothing that measuring needs is missing."""
    began = time.monotonic()
    for _ in range(4):
        lacks = [
            each["hint"]
            for each in person.findings().values()
            if each["ok"] != "yes" and (each["needed"] or each["name"] in WANTED)
        ]
        lines = [line for line in dict.fromkeys(lacks) if line.startswith("apt-get install ")]
        if not lines:
            break
        person.system.run("apt-get", "-qq", "update")
        for line in lines:
            person.system.run("sh", "-c", line.replace("install", "--yes -qq install", 1))
    SPENT[str(person)]["apt"] = time.monotonic() - began
    found = person.findings()
    assert [each for each in found.values() if each["needed"] and each["ok"] == "no"] == []
    assert {found[name]["ok"] for name in ("FUSE", "guest build")} == {"yes"}, found
    assert found["containers"]["hint"] == "apt-get install crun"  # named, and nobody needs it
    say(f"{person}: {found['qemu-system-x86_64']['what']}; {found['fio']['what']}")


def test_from_nothing_to_a_ranked_table(person: Person) -> None:
    shutil.copy(ROOT / "studies" / "quick.toml", person.home)
    timed(person, "guest", "diskproof", "guest", "build")
    told = timed(person, "quick study", "diskproof", "run", "quick.toml")
    steps = ", ".join(f"{name} {took:.0f} s" for name, took in SPENT[str(person)].items())
    all_of_it = sum(SPENT[str(person)].values())
    say(f"{person}: {steps}: {all_of_it:.0f} s of {BAR_SECONDS} to the ranked table")
    assert "sync-write-4k: IOPS, higher is better" in told
    assert "48 runs, none failed" in told
    assert "8 of 9 crash cells kept all acknowledged writes" in told
    ranked = person.run("diskproof", "rank")
    assert "guest qcow2 writeback" in ranked and "daemon raw none" in ranked


def test_a_missing_extra_is_told_with_the_line_that_brings_it(person: Person) -> None:
    for package, words in {
        "'psycopg[binary]'": ("plan", "quick.toml", "--store", "postgresql://x/y"),
        "distributed": ("crash", "study", "quick.toml", "--cluster", "tcp://127.0.0.1:1"),
        "pyarrow": ("export", "--output", "all.parquet"),
        "vl-convert-python": ("report", "--output", "all.html"),
    }.items():
        told = person.run("diskproof", *words, expected=(3,))
        assert f"pipx inject diskproof {package} " in told
    assert "all." not in person.run("ls")


def test_advice_is_a_line_to_paste(person: Person) -> None:
    told = person.run("diskproof", "advise", "--for", "qemu", expected=(0, 1))
    assert "-blockdev" in told


def test_a_crash_of_one_cell(person: Person) -> None:
    (person.home / "one.toml").write_text(ONE_CELL)
    asked = ("diskproof", "crash", "study", "one.toml", "--quiet", "--json")
    found = person.run_json(*asked, "--store", "one.sqlite", expected=(0, 1))
    verdicts = {each["cell"]["cache"]: each["verdict"] for each in found}
    assert verdicts == {"none": "keeps", "unsafe": "loses"}


def test_the_tools_do_their_main_job(person: Person) -> None:
    job = ("dd", "if=/dev/zero", "of=written", "bs=4k", "count=8", "oflag=dsync")
    dropped = person.run("diskproof", "sync", "drop", "--json", "-", *job)
    assert '"' in dropped
    waited = person.run("diskproof", "sync", "trace", "--json", "--", "sync", "written")
    assert "fsync" in waited
    person.run("diskproof", "nocache", "--", *job)
    seen = person.run("diskproof", "monitor", "--json", "0.1", "2")
    assert [json.loads(line) for line in seen.splitlines() if line.startswith("{")]
    ways = person.run_json("diskproof-sync-ways", "--json", "--dir", ".", expected=(0, 1))
    assert "reached" in {each["result"] for each in ways["ways"]}
    person.run("mkdir", "tree")
    size = ("--files", "20", "--bytes", "100000")
    person.run(
        "sh",
        "-c",
        'cd "$(dirname "$(readlink -f "$(command -v diskproof)")")" && '
        f"./diskproof-tree make ~/tree {' '.join(size)} && "
        f"./diskproof-tree check ~/tree {' '.join(size)}",
    )


FAKE = """set -e
mkdir -p fake/DEBIAN
printf '%s\\n' "Package: pve-qemu-kvm" "Version: 11.0.0-1" "Architecture: all" \\
    "Maintainer: Nobody <nobody@localhost>" "Description: conflicts as the real one does" \\
    "Conflicts: qemu-system-x86, qemu-utils, qemu-system-common" \\
    "Provides: qemu-system-x86, qemu-utils, qemu-system-common" >fake/DEBIAN/control
dpkg-deb --build fake /tmp/fake.deb
apt-get --yes -qq install /tmp/fake.deb
"""


def test_a_proxmox_host_is_left_alone(person: Person) -> None:
    """apt would take the hypervisor away for what its package conflicts with."""
    if person.user:
        return  # the system is root's to change, once the others are done
    person.run("sh", "-c", FAKE)
    simulated = person.run("apt-get", "--simulate", "install", "qemu-utils")
    assert "Remv pve-qemu-kvm" in simulated
    shutil.copytree(ROOT / "setup", person.system.root / "opt" / "setup")
    before = person.run("dpkg-query", "--show")
    told = person.run("/opt/setup/packages", "setup/packages-demo.txt", expected=(1,))
    assert "Proxmox" in told and "cargo" in told and "pipx install" in told
    lines = [each["hint"] for each in person.findings().values()]
    assert "apt-get install --reinstall pve-qemu-kvm" in lines
    assert not any("install" in line and " qemu-" in line for line in lines)
    assert person.run("dpkg-query", "--show") == before


def test_it_goes_without_a_trace(person: Person) -> None:
    if person.user:
        person.run("uv", "tool", "uninstall", "diskproof")
    else:
        person.run("pipx", "uninstall", "diskproof")
    assert "diskproof" not in person.run("ls", "-A", ".local/bin")
    found = person.system.run("find", "/", "-xdev", "-name", "*diskproof*", "-prune", "-print")
    said = ("/home/user/", "/mnt/dist/", "/root/", "/run/diskproof", "/var/lib/diskproof")
    assert [path for path in found.splitlines() if not path.startswith(said)] == []
