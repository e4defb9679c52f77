"""A database server: PostgreSQL."""

from diskproof.study.tiles import TileGuest
from diskproof.tiles.roles import disk_step, script_args
from diskproof.tiles.servers import postgres
from diskproof.tiles.steps import TileContext, TileStep

_SECONDS = 900.0  # initdb takes 14 s under emulation on an idle host, minutes on a busy one


class DatabaseRole:
    """The role ``database``."""

    def setup(self, guest: TileGuest, context: TileContext) -> tuple[TileStep, ...]:
        disk = disk_step(guest)
        start = TileStep(
            f"{guest.name}.postgres",
            guest.name,
            "setup",
            script_args(postgres.START),
            after=(disk.name,),
            timeout=_SECONDS,
        )
        return (disk, start)


ROLE = DatabaseRole()
