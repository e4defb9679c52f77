"""What audit prints: the table for 80 columns, the summary, JSON that says the same."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from diskproof.advice.judge import judge_machine
from diskproof.cli.app import run_verb
from diskproof.cli.audit_verb import read_file
from diskproof.records.virtual_machines import Layer, Machine, MachineDisk, MachineJudgement
from diskproof.report.machines.table import Whole, layer_text, render_machines, summarise
from support.layer_files import read_layers

ROOT = Path(__file__).parent / "fixtures" / "machines"


def all_judged() -> list[MachineJudgement]:
    judged = [judge_machine(read_layers(path)) for path in sorted(ROOT.glob("layers/*-*.toml"))]
    files = [path for path in sorted(ROOT.glob("*/*")) if path.name.endswith((".conf", ".xml"))]
    return judged + [judge_machine(each) for path in files for each in read_file(path)]


def shown(judged: list[MachineJudgement], *obstacles: str) -> tuple[str, list[str]]:
    """The text on a terminal of 80 columns, and the lines to paste."""
    screen = Console(file=io.StringIO(), width=80, color_system=None)
    pastes = []
    for part in render_machines(judged, obstacles):
        if isinstance(part, Whole):
            pastes.append(part.text)
        else:
            screen.print(part)
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue(), pastes


def test_80_columns_hold_everything_but_lines_to_paste() -> None:
    judged = all_judged()
    text, pastes = shown(judged, "one QEMU belongs to another user")
    assert len(judged) > 60 and max(map(len, text.splitlines())) <= 80
    assert "not seen: one QEMU belongs to another user" in text
    assert len(pastes) >= 10 and not any("cache=unsafe" in paste for paste in pastes)
    assert text.count("Nobody can see whether a device") == 1


def test_a_line_to_paste_stands_for_each_disk_that_a_manager_would_lose() -> None:
    """Where the cache is to blame, and the manager has words for another one."""
    for judged in all_judged():
        for disk in judged.disks:
            blamed = [r for r in disk.disk.remarks if r.rule == "no-flush" and r.effect == "loses"]
            rules = {remark.rule for remark in disk.disk.remarks}
            if "commandline-override" in rules:  # QEMU's own arguments, in nobody's words
                continue
            if judged.machine.manager in ("proxmox", "libvirt") and blamed:
                change = blamed[0].change
                assert change is not None and change.takes_effect, disk
                assert "unsafe" not in change.text


def test_the_summary_names_who_loses() -> None:
    layer = Layer({"cache": "unsafe"}, "test")
    disks = tuple(MachineDisk(f"vd{letter}", "", configured=layer) for letter in "ab")
    judged = [judge_machine(Machine("web", "none", "test", disks))]
    assert summarise(judged) == "2 disks: 2 lose or may lose what was promised (web vda, web vdb)."
    sound = Machine(
        "web", "none", "x", (MachineDisk("a", "", "file", Layer({"cache": "none"}, "")),)
    )
    assert "it keeps what is flushed" in summarise([judge_machine(sound)])
    assert "No virtual machine was found" in summarise([])


def test_levels_that_nobody_wrote_stand_in_brackets() -> None:
    layer = Layer({"cache": "none", "aio": "threads"}, "test", frozenset({"aio"}))
    assert layer_text(layer) == "cache=none (aio=threads)"
    below = {"mount /srv": "ext4 rw,relatime,nobarrier", "queue sda": "write back"}
    below["cache_type sda"] = "write back"
    assert layer_text(Layer(below, "test")) == "/srv: ext4 nobarrier; sda: write back"


def test_json_has_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    path = ROOT / "proxmox" / "105.conf"
    assert run_verb(["audit", str(path), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    (machine,) = answer["machines"]
    disk = next(each for each in machine["disks"] if each["name"] == "scsi0")
    assert disk["verdict"] == "loses" and disk["certainty"] == "by rule"
    assert set(disk["layers"]) >= {"configured", "pending"}
    assert all(remark["source"] and remark["what"] for remark in disk["remarks"])
    assert answer["obstacles"] == [] and "scsi0" in answer["summary"]


def test_a_configuration_of_proxmox_is_read_with_its_storages(tmp_path: Path) -> None:
    """On the node itself they lie beside it: what a storage is decides on defaults."""
    folder = tmp_path / "qemu-server"
    folder.mkdir()
    text = "name: web\nscsihw: virtio-scsi-pci\nscsi0: ceph:vm-100-disk-0,size=8G\n"
    (folder / "100.conf").write_text(text)
    (alone,) = read_file(folder / "100.conf")
    (tmp_path / "storage.cfg").write_text("rbd: ceph\n\tpool vms\n\tcontent images\n")
    (told,) = read_file(folder / "100.conf")
    assert any("storage.cfg" in note for note in alone.notes)
    assert not any("storage.cfg" in note for note in told.notes)
    assert told.disks[0].kind == "network" and alone.disks[0].kind != "network"
