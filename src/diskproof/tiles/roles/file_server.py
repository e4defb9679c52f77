"""A file server: a folder of its disk, served by Samba or by the kernel's NFS server. It is ready
when it has mounted its own share."""

from collections.abc import Mapping
from typing import Protocol

from diskproof.study.tiles import TileGuest
from diskproof.tiles.roles import disk_step, script_args
from diskproof.tiles.servers import nfs, samba
from diskproof.tiles.steps import TileContext, TileStep


class FileServer(Protocol):
    """A module of ``tiles/servers`` that serves the folder ``SHARED``: a script that starts it,
    files of its settings, kernel modules, the process that must live, what that last said."""

    START: str
    FILES: Mapping[str, bytes]
    SERVER_MODULES: tuple[str, ...]
    CLIENT_MODULES: tuple[str, ...]
    SHARED: str
    PROCESS: str
    LOG: str

    def mount_command(self, host: str, folder: str) -> str:
        """A line of a script that mounts the share; both may be variables of the script."""
        ...


SERVERS: Mapping[str, FileServer] = {"smb": samba, "nfs": nfs}
"""By the level ``share`` of a study."""
_SECONDS = 300.0
# A server that does not listen yet refuses at once; one that never will is no longer there, and
# what it said last tells why.
_PROBE = """mkdir -p /tmp/probe
tries=100
until {mount} 2>/run/refused; do
  tries=$((tries - 1))
  if [ $tries = 0 ] || ! pidof {process} >/dev/null; then
    tail -n 30 {log} /run/refused >&2
    exit 1
  fi
  sleep 0.1
done
umount /tmp/probe
"""


class FileServerRole:
    """The role ``file-server``."""

    def setup(self, guest: TileGuest, context: TileContext) -> tuple[TileStep, ...]:
        server, disk = SERVERS[context.share], disk_step(guest)
        mount = server.mount_command('"$SELF"', "/tmp/probe")
        probe = _PROBE.format(mount=mount, process=server.PROCESS, log=server.LOG)
        serve = TileStep(
            f"{guest.name}.serve",
            guest.name,
            "setup",
            script_args(server.START + probe),
            after=(disk.name,),
            timeout=_SECONDS,
            files=server.FILES,
            modules=(*server.SERVER_MODULES, *server.CLIENT_MODULES),
        )
        return disk, serve


ROLE = FileServerRole()
