"""A machine of the user's own in a study: its table, its argv, its command's figure."""

import json
import os
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.errors import StudyError
from diskproof.frontends.own_guest import find_disk
from diskproof.qemu.machine import GuestMachine
from diskproof.qemu.own_machine import OwnDescriptors, own_machine_args
from diskproof.records import WorkloadSpec
from diskproof.study.guest import OwnGuest
from diskproof.study.load import Study, parse_study
from diskproof.workloads.command import find_figure

OWN = '[factors]\nfrontend = "own-guest"\n'
DISKSPD = b"""\
Total IO
thread |       bytes     |     I/Os     |    MiB/s   |  I/O per s |  file
------------------------------------------------------------------------------
     0 |      1048576000 |       256000 |      33.33 |    8533.33 | #1 (16GiB)
------------------------------------------------------------------------------
total:        1048576000 |       256000 |      33.33 |    8533.33

Read IO
total:                 0 |            0 |       0.00 |       0.00
"""


def read(folder: Path, keys: str = "", image: str = "vm.qcow2", more: str = OWN) -> Study:
    return parse_study(f'[guest]\nimage = "{image}"\n{keys}\n{more}', folder=folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "vm.qcow2").write_bytes(b"QFI\xfb" + bytes(100))
    return tmp_path


def test_a_study_is_known_by_what_its_image_holds(folder: Path) -> None:
    before = read(folder).id
    os.link(folder / "vm.qcow2", folder / "same.qcow2")
    assert read(folder, image="same.qcow2").id == before
    assert read(folder, 'bus = "ahci"').id != before
    stat = (folder / "vm.qcow2").stat()
    (folder / "vm.qcow2").write_bytes(b"QFI\xfb" + bytes(99) + b"x")
    os.utime(folder / "vm.qcow2", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    changed = read(folder).id
    assert changed != before
    os.utime(folder / "vm.qcow2", ns=(0, 0))
    assert read(folder).id not in (before, changed)


@pytest.mark.parametrize(
    ("keys", "more", "said"),
    [
        ('image = "gone"', OWN, ":2: image: cannot read .*gone: No such file"),
        ('image = "."', OWN, "image: cannot read .* (it is not a file|Is a directory)"),
        ('image = "pipe"', OWN, "it is not a file"),
        ('format = "raw"', OWN, ':2: image: vm.qcow2 begins as qcow2.*say format = "qcow2"'),
        ('image = "luks"\nformat = "raw"', OWN, "begins as luks.*decrypt it first"),
        ('initrd = "vm.qcow2"', OWN, "initrd: this goes with a kernel"),
        ('append = "quiet"', OWN, "append: this goes with a kernel"),
        ('machine = "q35"\nbus = "ide"', OWN, "a q35 machine has no ide"),
        ('machine = "q35"', OWN + 'bus = ["nvme", "ide"]', "a q35 machine has no ide"),
        ('firmware = "efi"', OWN, "guest.firmware"),
        ('frmware = "uefi"', OWN, "unknown key 'frmware'; did you mean 'firmware'"),
        ("", "", 'guest: nobody uses it without frontend = "own-guest"'),
        ('os = "windows"', 'workloads = "seq-read"\n' + OWN, "a workload is a command"),
    ],
)
def test_each_mistake_of_the_table_is_named(folder: Path, keys: str, more: str, said: str) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "luks").write_bytes(b"LUKS\xba\xbe" + bytes(100))
    head = "" if keys.startswith("image") else 'image = "vm.qcow2"\n'
    workloads, _, factors = more.rpartition("[factors]")
    text = f"{workloads}[guest]\n{head}{keys}\n[factors]{factors}" if more else f"[guest]\n{head}"
    with pytest.raises(StudyError, match="(?s)" + said):
        parse_study(text, folder=folder)


def test_the_frontend_needs_a_table() -> None:
    with pytest.raises(StudyError, match=r"study.toml:2: frontend: own-guest needs a table"):
        parse_study(OWN)


def make_own(**changed: object) -> OwnGuest:
    given = {
        "image": "/vm",
        "format": "qcow2",
        "os": "linux",
        "machine": "q35",
        "firmware": "bios",
        "bus": "virtio-blk",
        "settle": 0.0,
        "boot_timeout": 9.0,
        "kernel": "",
        "initrd": "",
        "append": "",
        "digest": "d",
        **changed,
    }
    return OwnGuest(**given)  # type: ignore[arg-type]


def nodes(argv: list[str]) -> dict[str, dict[str, object]]:
    texts = [b for a, b in zip(argv, argv[1:], strict=False) if a == "-blockdev"]
    return {node["node-name"]: node for node in map(json.loads, texts)}


def test_the_users_images_are_read_only_descriptors() -> None:
    fds = OwnDescriptors(qmp=3, agent=4, console=5, layers=((6, "qcow2"), (7, "raw")))
    argv = own_machine_args(make_own(), GuestMachine("tcg"), fds, firmware="", sandbox=True)
    made = nodes(argv)
    for place, number in enumerate((6, 7)):
        assert f"fd={number},set={200 + place}" in argv
        file = made[f"diskproof-layer{place}-file"]
        assert (file["filename"], file["read-only"]) == (f"/dev/fdset/{200 + place}", True)
        assert made[f"diskproof-layer{place}"]["read-only"] is True
    assert made["diskproof-layer0"]["backing"] == "diskproof-layer1"
    assert "backing" not in made["diskproof-layer1"]
    assert made["diskproof-system"]["backing"] == "diskproof-layer0"
    assert "/vm" not in " ".join(argv)


def test_firmware_and_kernel_are_given_when_they_are_asked_for() -> None:
    fds = OwnDescriptors(3, 4, 5, ((6, "qcow2"),), kernel=8, initrd=9)
    own = make_own(append="root=/dev/vda", os="windows")
    argv = own_machine_args(own, GuestMachine("tcg"), fds, firmware="/OVMF", sandbox=False)
    assert argv[argv.index("-append") + 1] == "root=/dev/vda"
    assert argv[argv.index("-machine") + 1].endswith(",pflash0=firmware,pflash1=variables")
    assert argv[argv.index("-rtc") + 1] == "base=localtime"
    assert fds.booted() == (8, 9) and set(fds.all()) == {3, 4, 5, 6, 8, 9}
    assert "bootindex" not in " ".join(argv)


def make_command(**options: str) -> WorkloadSpec:
    return WorkloadSpec("c", "command", tuple({"pattern": "", "json": "", **options}.items()))


def test_figures_are_picked_from_what_a_command_prints() -> None:
    windows = Path(__file__).parents[1] / "studies" / "windows-diskspd.toml"
    text = windows.read_text()
    patterns = [line.split("'")[1] for line in text.splitlines() if line.startswith("pattern")]
    assert [find_figure(make_command(pattern=p), DISKSPD) for p in patterns] == [8533.33, 33.33]
    fio = json.dumps({"jobs": [{"read": {"iops": 12.5}}]}).encode()
    assert find_figure(make_command(json="jobs.0.read.iops"), fio) == 12.5


@pytest.mark.parametrize(
    ("options", "output", "why"),
    [
        ({"pattern": "a (.)"}, b"b", "no line of its output matches"),
        ({"pattern": "a (.*)"}, b"a b", "is not a number"),
        ({"pattern": "a (.*)"}, b"a inf", "not a finite number"),
        ({"pattern": "(a)?b"}, b"b", "no line"),
        ({"json": "a.b"}, b'{"a": {}}', "nothing at 'b'"),
        ({"json": "a.5"}, b'{"a": []}', "nothing at '5'"),
        ({"json": "a"}, b'{"a": true}', "is no number"),
        ({"json": "a"}, b"[" * 100_000, "is not JSON"),
    ],
)
def test_what_holds_no_figure_says_why(options: dict[str, str], output: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        find_figure(make_command(**options), output)


@given(st.binary(max_size=200))
def test_any_output_is_a_figure_or_a_reason(output: bytes) -> None:
    for options in ({"pattern": r"([0-9.eE+-]+)"}, {"json": "a.0"}):
        try:
            assert isinstance(find_figure(make_command(**options), output), float)
        except ValueError as error:
            assert str(error)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ('command = "ls"', "command"),
        ("command = []", "at least 1, at most 1000"),
        ('command = ["x"]\npattern = "(a"', "is not a regular expression"),
        ('command = ["x"]\npattern = "a"', "has 0 groups; one is to hold"),
        ('command = ["x"]\nbetter = "more"', "one of higher, lower"),
        ('command = ["x"]\nbs = "4k"', "unknown key of command 'bs'"),
        ('preset = "command"', "command is missing"),
    ],
)
def test_each_mistake_of_a_command_is_named(keys: str, said: str) -> None:
    with pytest.raises(StudyError, match=said):
        parse_study(f"[workloads.c]\n{keys}\n")


class Disks:
    """A Windows agent that lists disks as its documentation says."""

    def execute(self, command: str) -> object:
        assert command == "guest-get-disks"
        system = {"name": r"\\.\PhysicalDrive0", "address": {"serial": "diskproof-system"}}
        tested = {"name": r"\\.\PhysicalDrive1", "address": {"serial": "diskproof-disk"}}
        return [None, {"name": 3}, {"name": "x", "address": []}, system, tested]


def test_a_windows_drive_is_found_by_its_serial_number() -> None:
    assert find_disk(Disks(), make_own(os="windows"), 0) == "1"  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["image", "kernel", "initrd", "bases"])
@pytest.mark.parametrize("name", [r"\u0000", "", "loop", "/dev/zero", "fifo", "x" * 5000])
def test_no_name_of_a_file_gives_more_than_a_study_error(
    tmp_path: Path, key: str, name: str
) -> None:
    """Nothing waits, and nothing but a file is read. A base is looked at when the image is."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "vm").write_bytes(bytes(512))
    os.mkfifo(tmp_path / "fifo")
    value = f'["{name}"]' if key == "bases" else f'"{name}"'
    image = "" if key == "image" else 'image = "vm"\n'
    head = 'factors.frontend = ["own-guest"]\nworkloads.a.command = ["true"]\n'
    text = f'{head}[guest]\nformat = "raw"\n{image}{key} = {value}\n'
    refused = key != "bases" or name in (r"\u0000", "", "x" * 5000)
    with pytest.raises(StudyError) if refused else nullcontext():
        parse_study(text, folder=tmp_path)
