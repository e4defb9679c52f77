"""What guests of a tile are: one kind = one file with an object ``ROLE`` (see ``tiles/steps.py``).

Every role begins with the disk under test: an ext4 at /mnt, where all that its servers write goes.
"""

from diskproof.study.tiles import TileGuest
from diskproof.tiles.steps import TileStep

MOUNT_POINT = "/mnt"
_SETUP_SECONDS = 300.0  # mkfs under emulation, with the guests of all tiles at once
# A file system that still fills its own tables in the background would load the disk by itself.
_DISK = f"""mkfs.ext4 -q -F "$DISK"
mount -t ext4 -o noinit_itable "$DISK" {MOUNT_POINT}
"""


def script_args(script: str, *arguments: str) -> tuple[str, ...]:
    """A script of dash, which ends at the first thing that fails; ``$1`` is the first argument."""
    return ("sh", "-ec", script, "sh", *arguments)


def disk_step(guest: TileGuest) -> TileStep:
    """Make the file system of the disk under test and mount it."""
    return TileStep(
        f"{guest.name}.disk",
        guest.name,
        "setup",
        script_args(_DISK),
        timeout=_SETUP_SECONDS,
        modules=("ext4",),
    )
