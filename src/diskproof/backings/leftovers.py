"""What a dead study has left in the kernel: volumes, arrays and loop devices outlive a process."""

from pathlib import Path

from diskproof.backings import lio, lvm, md, zfs
from diskproof.backings.loop import find_loops
from diskproof.backings.volumes import find_standing_on, read_note, take_down


def remove_leftovers(folder: Path) -> str:
    """Take down what stands on files in the folder of a dead owner, and what a note there names.

    A device is the dead owner's when all that it is made of is, down to loop devices over files
    in the folder, or when it has the noted name, which nobody else has. Loop devices go with
    their last user. Gives why something is still there, or nothing.
    """
    loops = find_loops(folder)
    volume = read_note(folder)
    if volume and volume.kind == "lio":  # it holds what it stands on
        return lio.remove_target(folder, volume.name) or take_down(find_standing_on(loops))
    left = take_down(find_standing_on(loops))
    if left or volume is None:
        return left
    if volume.kind == "lvm":
        return lvm.remove_group(folder, volume.name, volume.devices)
    if volume.kind == "md":
        return md.remove_array(volume.name, volume.devices)
    return zfs.remove_pool(volume.name, volume.devices)
