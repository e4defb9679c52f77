"""A guest without servers: its disk has a file system, mounted at /mnt."""

from diskproof.study.tiles import TileGuest
from diskproof.tiles.roles import disk_step
from diskproof.tiles.steps import TileContext, TileStep


class PlainRole:
    """The role ``plain``."""

    def setup(self, guest: TileGuest, context: TileContext) -> tuple[TileStep, ...]:
        return (disk_step(guest),)


ROLE = PlainRole()
