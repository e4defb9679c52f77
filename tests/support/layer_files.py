"""Machines as layers in TOML: what readers of a guest and of a host below find, as fixtures."""

import tomllib
from pathlib import Path
from typing import Any

from diskproof.records.virtual_machines import Layer, Machine, MachineDisk

LAYERS = ("configured", "pending", "running", "guest", "below")


def read_layers(path: Path) -> Machine:
    content = tomllib.loads(path.read_text())
    disks = tuple(_disk(each) for each in content["disks"])
    return Machine(content["name"], content["manager"], path.name, disks)


def _disk(table: dict[str, Any]) -> MachineDisk:
    layers = {name: Layer(table.pop(name), name) for name in LAYERS if name in table}
    return MachineDisk(**table, **layers)
