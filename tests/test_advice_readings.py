"""What a text is, is told in time, whatever the text."""

import time

import pytest

from diskproof.advice.dialect import Reading
from diskproof.advice.dialects import READINGS
from diskproof.errors import UsageError

SIZE = 64 << 10
PIECES = ("\n", " ", "\t\n", "-", "{ ", "[\n", "<", "<!--", "'\"", "a=", ": :", "\0", "services:\n",
          "[libvirt]\n", "- apiVersion: ", "cloud-hypervisor x ", "crosvm x ", "/kvm \\\n",
          "qemu-system-x86_64 ", "scsi0: a\n", '"drives" ', '[ "Config" ', "<domain ")  # fmt: skip


@pytest.mark.parametrize("reading", READINGS, ids=lambda reading: reading.name)
def test_a_text_of_one_piece_over_and_over_is_claimed_or_not_in_time(reading: Reading) -> None:
    for piece in PIECES:
        text = (piece * SIZE)[:SIZE]
        start = time.process_time()
        reading.claims(text)
        assert time.process_time() - start < 5, repr(piece)


def machine(disks: str) -> str:
    return (
        f'{{"kind": "VirtualMachine", "spec": {{"domain": {{"devices": {{"disks": [{disks}]}}}}}}}}'
    )


LARGE = {
    "kubevirt": (
        machine('{"name": "a", "x": [' + "0," * 250_000 + "0]}"),
        machine(",".join(f'{{"name": "a{n}"}}' for n in range(20_000))),
        machine(",".join(f'{{"name": "a{n}", "x": {[0] * 50}}}' for n in range(4000))),
        "apiVersion: kubevirt.io/v1\na: " + "[" * 100_000,
    ),
    "nova": (
        "[libvirt]\ndisk_cachemodes = " + "file=x," * 500_000,
        "[libvirt]\n" + "a=b\n" * (2 * 10**6),
    ),
    "firecracker": ('{"drives": [' + ",".join(['{"drive_id": "a"}'] * 20_000) + "]}",),
    "cloud-hypervisor": (
        '{"disks": [' + ",".join(['{"path": "a"}'] * 20_000) + "]}",
        "cloud-hypervisor --disk " + "a=b " * 500_000,
        "cloud-hypervisor --disk " + "a=b " * 20_000,
        "cloud-hypervisor --disk path=" + "[a" * 100_000,
    ),
    "crosvm": ("crosvm run " + "-b a " * 20_000, "crosvm run --block " + "a," * 10**6),
    "containers": (
        "services:\n" + "".join(f"  a{n}: {{image: qemux/qemu}}\n" for n in range(20_000)),
        "services: {a: {image: qemux/qemu, environment: {ARGUMENTS: '"
        + "-drive a " * 50_000
        + "'}}}",
        '[{"Config": {}, "Path": "sh", "Args": ["' + "qemu-system-i386 -hda a;" * 20_000 + '"]}]',
    ),
}


@pytest.mark.parametrize(
    ("reading", "text"),
    [(each, text) for each in READINGS for text in LARGE.get(each.name, ())],
    ids=lambda given: getattr(given, "name", "text"),
)
def test_what_is_larger_than_any_machine_is_refused_in_time(reading: Reading, text: str) -> None:
    start = time.process_time()
    with pytest.raises(UsageError):
        reading.read_machines(text, "x")
    assert time.process_time() - start < 5
