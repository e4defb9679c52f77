"""Study files to start from, one for each kind of study, with what to know about it."""

from importlib.resources import files

from diskproof.study.tile_file import read_built_in

EXAMPLES = {
    "measure": "which settings are fast: factors, workloads, blocks",
    "managers": "is what my manager gives a new disk good?",
    "crash": "which settings keep the data in a power cut?",
    "race": "the same with as few runs as decide it",
    "boots": "whole boots from the disk under test",
    "own-guest": "in a virtual machine of your own",
    "network": "a disk behind a server (NBD)",
    "device": "a whole block device, which loses what it holds",
    "tiles": "how many virtual machines does this host carry?",
    "tile": "not a study but a group of guests for one, as TOML of its own",
}
"""Kinds of study by the names of their files, and what each asks."""


def read_example(kind: str) -> str:
    """The text of an example."""
    if kind == "tile":
        return read_built_in()
    return files(__name__).joinpath(f"{kind}.toml").read_text()
