"""Single rules, proofs from a store, and what is read below a disk and in a guest; all pure."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.advice import guest_files, observed
from diskproof.advice.judge import RULES, in_force, judge_disk
from diskproof.host.guest_view import find_agent_socket, match_devices, parent_device
from diskproof.host.iscsi_session import find_lio_store, find_tgt_store, is_ours
from diskproof.records import Cell, WorkloadSpec
from diskproof.records.verdicts import Verdict, VerdictRow
from diskproof.records.virtual_machines import DiskJudgement, Layer, Machine, MachineDisk
from diskproof.report.machines.proof import prove_disk
from diskproof.study.factors import CACHE_MODES

MACHINE = Machine("web", "none", "test", ())
SEEN = Layer({"queue sda": "write back"}, "sysfs")
LEVELS = {
    "format": "raw",
    "cache": "none",
    "aio": "threads",
    "discard": "ignore",
    "detect-zeroes": "off",
    "bus": "virtio-blk",
    "preallocation": "off",
}


def judge(levels: dict[str, str], **more: object) -> DiskJudgement:
    disk = MachineDisk("vda", "/srv/a.raw", "file", running=Layer(levels, "QMP"), below=SEEN)
    return judge_disk(replace(disk, **more), MACHINE)  # type: ignore[arg-type]


# -- rules ----------------------------------------------------------------------------------


def test_every_rule_has_a_name_of_its_own_and_a_source() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(rule.source for rule in RULES)
    text = (Path(__file__).parents[1] / "docs" / "audit.md").read_text()
    assert [rule.name for rule in RULES if f"`{rule.name}`" not in text] == []


ANY = st.sampled_from(["none", "writeback", "unsafe", "directsync", "turbo", "on", "write through"])
KEYS = st.sampled_from(["cache", "aio", "bus", "write_cache", "mount /", "fsync x", "zfs-sync a"])
LAYER = st.none() | st.dictionaries(KEYS, ANY, max_size=4).map(lambda d: Layer(d, "any"))


@given(LAYER, LAYER, LAYER, LAYER, LAYER, st.sampled_from(["file", "block", "network", ""]))
def test_whatever_is_read_is_judged_and_unknown_is_never_safe(
    configured: Layer | None,
    pending: Layer | None,
    running: Layer | None,
    guest: Layer | None,
    below: Layer | None,
    kind: str,
) -> None:
    layers = (configured, pending, running, guest)
    disk = MachineDisk("vda", "/a", kind, *layers, below=below)  # type: ignore[arg-type]
    judged = judge_disk(disk, MACHINE)
    cache = in_force(disk).get("cache")
    if judged.effect == "keeps":
        assert cache in CACHE_MODES and cache != "unsafe" and kind != "network"
    if cache == "unsafe":
        assert judged.effect == "loses"


# -- proofs ---------------------------------------------------------------------------------


def verdict(word: str = "keeps", durable: str = "flush", **levels: str) -> VerdictRow:
    cell_levels = {"frontend": "guest", "accel": "tcg", "memory": "256M", **LEVELS, **levels}
    options = (("durable", durable),)
    cell = Cell(tuple(sorted(cell_levels.items())), WorkloadSpec("ledger", "crash", options))
    made = Verdict("power", word, lost=3 * (word == "loses"), states_checked=9, states_total=9)  # type: ignore[arg-type]
    return VerdictRow("s", "h", "run12345", cell, made, ended=1.8e9)


def test_a_verdict_about_such_a_disk_proves_it() -> None:
    proved = prove_disk(judge(LEVELS), [verdict()])
    assert (proved.effect, proved.certainty) == ("keeps", "proved")
    assert "all 9 states" in proved.what and "power" in proved.what and "2027-" in proved.what
    assert "run12345" in proved.source
    broken = prove_disk(judge({**LEVELS, "cache": "unsafe"}), [verdict("loses", cache="unsafe")])
    assert (broken.effect, broken.certainty) == ("loses", "proved")


def test_what_no_configuration_says_is_taken_at_its_default_and_told() -> None:
    levels = {name: level for name, level in LEVELS.items() if name != "preallocation"}
    proved = prove_disk(judge(levels), [verdict()])
    assert proved.certainty == "proved" and "preallocation=off" in proved.what
    assert prove_disk(judge(levels), [verdict(preallocation="full")]).certainty == "by rule"


@pytest.mark.parametrize("factor", ["format", "cache", "aio", "discard", "detect-zeroes", "bus"])
def test_no_verdict_about_another_disk_proves_anything(factor: str) -> None:
    other = {"format": "qcow2", "cache": "writeback", "aio": "io_uring", "discard": "unmap"}
    other |= {"detect-zeroes": "on", "bus": "nvme"}
    assert prove_disk(judge(LEVELS), [verdict(**{factor: other[factor]})]).certainty == "by rule"
    less = {name: level for name, level in LEVELS.items() if name != factor}
    assert prove_disk(judge(less), [verdict()]).certainty != "proved"


def test_what_is_not_seen_or_wrong_elsewhere_is_never_proved() -> None:
    row = verdict()
    for more in (
        {"kind": "network"},
        {"below": None},
        {"below": Layer({"unseen /a": "no rights"}, "x")},
        {"guest": Layer({"write_cache": "write through"}, "x")},
        {"below": Layer({"mount /": "ext4 nobarrier"}, "x")},
    ):
        assert prove_disk(judge(LEVELS, **more), [row]).certainty != "proved"
    assert prove_disk(judge(LEVELS), [verdict("undecided")]).certainty == "by rule"


def test_a_writer_that_never_flushes_asks_of_write_through_only() -> None:
    assert prove_disk(judge(LEVELS), [verdict("loses", "write")]).effect == "keeps"
    through = {**LEVELS, "cache": "directsync"}
    row = verdict("keeps", "write", cache="directsync")
    assert prove_disk(judge(through), [row]).certainty == "proved"


def test_what_a_program_of_somebodys_loses_may_be_its_own_fault() -> None:
    """Its verdict is about the program, too: one that never syncs loses on any disk."""

    def by_program(word: str) -> VerdictRow:
        row = verdict(word)
        options = (*row.cell.workload.options, ("check", "./look"))
        return replace(row, cell=replace(row.cell, workload=WorkloadSpec("app", "crash", options)))

    assert prove_disk(judge(LEVELS), [by_program("loses")]).certainty == "by rule"
    assert prove_disk(judge(LEVELS), [by_program("keeps")]).certainty == "proved"


def test_keeps_is_no_proof_against_a_rule() -> None:
    unsafe = {**LEVELS, "cache": "unsafe"}
    judged = prove_disk(judge(unsafe), [verdict("keeps", cache="unsafe")])
    assert (judged.effect, judged.certainty) == ("loses", "by rule")


# -- below ----------------------------------------------------------------------------------

TGT = """Target 1: iqn.2026-11.org.example:one
    LUN information:
        LUN: 0
            Type: controller
            Backing store type: null
        LUN: 1
            Type: disk
            Backing store type: aio
Target 2: iqn.2026-11.org.example:two
    LUN information:
        LUN: 1
            Backing store type: rdwr
"""


def test_tgts_store_is_found() -> None:
    assert find_tgt_store(TGT, "iqn.2026-11.org.example:one", 1) == "tgt aio"
    assert find_tgt_store(TGT, "iqn.2026-11.org.example:two", 1) == "tgt rdwr"
    assert find_tgt_store(TGT, "iqn.2026-11.org.example:two", 3) == ""
    assert find_tgt_store("", "iqn", 1) == ""


@pytest.mark.parametrize(
    ("info", "told", "expected"),
    [
        ("TCM FILEIO ID: 0  File: /x  Size: 1  Mode: Buffered-WCE Async: 0", "0", "LIO buffered"),
        ("TCM FILEIO ID: 0  File: /x  Size: 1  Mode: Buffered-WCE Async: 0", "1", "LIO fileio"),
        ("TCM FILEIO ID: 0  File: /x  Size: 1  Mode: O_DSYNC Async: 0", "0", "LIO fileio"),
    ],
)
def test_lios_store_is_found(tmp_path: Path, info: str, told: str, expected: str) -> None:
    store = tmp_path / "core" / "fileio_0" / "disk"
    (store / "attrib").mkdir(parents=True)
    (store / "info").write_text(info)
    (store / "attrib" / "emulate_write_cache").write_text(told + "\n")
    lun = tmp_path / "iscsi" / "iqn.x" / "tpgt_1" / "lun" / "lun_0"
    lun.mkdir(parents=True)
    (lun / "abc").symlink_to(store)
    assert find_lio_store(tmp_path, "iqn.x", 0) == expected
    assert find_lio_store(tmp_path, "iqn.y", 0) == ""


def test_our_own_addresses() -> None:
    assert is_ours("127.0.0.1") and is_ours("::1")
    assert not is_ours("203.0.113.7") and not is_ours("rubbish") and not is_ours("")


# -- the guest ------------------------------------------------------------------------------


def test_settings_of_postgres() -> None:
    text = "#fsync = off\nfsync = on\nFSYNC = 'off' # no\nsynchronous_commit off\n"
    text += "data_directory = '/mnt/a''b'\nport = 5432\nbroken\n"
    found = guest_files.parse_postgres(text)
    assert found["fsync"] == "off" and found["synchronous_commit"] == "off"
    assert found["data_directory"].startswith("/mnt/a") and "port" not in found


def test_settings_of_mysql() -> None:
    text = "[client]\ninnodb_flush_log_at_trx_commit = 0\n[mysqld]\ndatadir=/data # here\n"
    text += "innodb-flush-log-at-trx-commit = 2\n[mysqldump]\ndatadir=/no\n"
    found = guest_files.parse_mysql(text)
    assert found == {"datadir": "/data", "innodb_flush_log_at_trx_commit": "2"}


@given(st.text(max_size=400))
def test_any_text_is_read_from_a_guest(text: str) -> None:
    guest_files.parse_postgres(text)
    guest_files.parse_mysql(text)
    for mount in guest_files.parse_guest_mounts(text):
        observed.no_barrier(mount.text)
    find_agent_socket(["-chardev", text, "-device", text])


def test_the_agents_socket_on_a_command_line() -> None:
    name = "org.qemu.guest_agent.0"
    chardev = "socket,path=/run/a,,b.sock,server=on,wait=off,id=qga0"
    for device in (
        f"virtserialport,chardev=qga0,name={name}",
        f'{{"driver":"virtserialport","chardev":"qga0","name":"{name}"}}',
    ):
        argv = ["qemu", "-chardev", chardev, "-device", device]
        assert find_agent_socket(argv) == "/run/a,b.sock"
    assert find_agent_socket(["qemu", "-chardev", chardev]) == ""


def test_disks_of_a_guest_are_told_apart_or_not_at_all() -> None:
    def disk(name: str, bus: str, serial: str = "") -> MachineDisk:
        facts = {"serial": serial} if serial else {}
        return MachineDisk(name, "", configured=Layer({"bus": bus}, "x"), facts=facts)

    disks = (disk("a", "virtio-blk"), disk("b", "virtio-scsi"), disk("c", "virtio-blk", "S3"))
    devices = {"vda": "", "vdb": "virtio_S3", "sda": ""}
    assert match_devices(disks, devices) == {"a": "vda", "b": "sda", "c": "vdb"}
    assert match_devices(disks[:1], {"vda": "", "vdb": ""}) == {}
    assert parent_device("/dev/vda1", {}) == "vda" and parent_device("/dev/dm-0", {}) == ""
    assert parent_device("/dev/nvme0n1p2", {"nvme0n1": ""}) == "nvme0n1"
    assert parent_device("/dev/sdb", {"sda": ""}) == ""
