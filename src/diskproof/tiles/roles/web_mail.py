"""A web and mail server: nginx, PHP, MariaDB behind them, Postfix."""

from collections.abc import Mapping

from diskproof.study.tiles import TileGuest
from diskproof.tiles.roles import disk_step, script_args
from diskproof.tiles.servers import mariadb, postfix, web
from diskproof.tiles.steps import TileContext, TileStep

_SECONDS = 300.0  # the slowest takes 5 s under emulation on an idle host


class WebMailRole:
    """The role ``web-mail``. There is a mailbox for each workload that mails to the guest."""

    def setup(self, guest: TileGuest, context: TileContext) -> tuple[TileStep, ...]:
        boxes = [
            work.name
            for work in context.tile.works
            if work.load == "mail" and work.target == guest.name
        ]
        disk = disk_step(guest)
        start_mariadb = _start(guest, "mariadb", disk, mariadb.START, mariadb.FILES)
        start_web = _start(guest, "web", start_mariadb, web.START, web.FILES)
        start_postfix = _start(
            guest, "postfix", start_web, postfix.START, postfix.start_files(boxes)
        )
        return (disk, start_mariadb, start_web, start_postfix)


def _start(
    guest: TileGuest, server: str, after: TileStep, script: str, files: Mapping[str, bytes]
) -> TileStep:
    return TileStep(
        f"{guest.name}.{server}",
        guest.name,
        "setup",
        script_args(script),
        after=(after.name,),
        timeout=_SECONDS,
        files=files,
    )


ROLE = WebMailRole()
