"""Samba as a server of one share, SMB 3 only, and the kernel's client for it.

Settings are Samba's own but for where files lie, what a network of guests has no use for (NetBIOS,
printers) and the one user.
"""

from collections.abc import Mapping

from diskproof.tiles.roles import MOUNT_POINT

SERVER_MODULES: tuple[str, ...] = ()
CLIENT_MODULES: tuple[str, ...] = ("cifs",)
ACCOUNT = "user"
PASSWORD = "tile"  # of a network that ends at its own bridge
SHARE = "share"
SHARED = f"{MOUNT_POINT}/{SHARE}"
STATE = f"{MOUNT_POINT}/samba"
PROCESS = "smbd"
LOG = f"{STATE}/log.smbd"
_CONFIG = "/run/smb.conf"

FILES: Mapping[str, bytes] = {
    _CONFIG: f"""[global]
server role = standalone server
netbios name = files
disable netbios = yes
smb ports = 445
server min protocol = SMB3
passdb backend = tdbsam
private dir = {STATE}/private
state directory = {STATE}/state
cache directory = {STATE}/cache
lock directory = /run/samba
pid directory = /run/samba
ncalrpc dir = /run/samba/ncalrpc
load printers = no
disable spoolss = yes
printcap name = /dev/null
[{SHARE}]
path = {SHARED}
read only = no
""".encode()
}
START = f"""mkdir -p /run/samba {STATE}/private {STATE}/state {STATE}/cache {SHARED}
chown {ACCOUNT}:{ACCOUNT} {SHARED}
printf '%s\\n' {PASSWORD} {PASSWORD} | smbpasswd -c {_CONFIG} -s -a {ACCOUNT} >/dev/null
smbd -D -s {_CONFIG} -l {STATE} </dev/null >/run/smbd.log 2>&1 || {{
  tail -n 5 /run/smbd.log {LOG} >&2
  exit 1
}}
"""


def mount_command(host: str, folder: str) -> str:
    # The server judges rights: all that the client does is done by the share's user.
    options = f"vers=3.1.1,username={ACCOUNT},password={PASSWORD},noperm,hard"
    return f"mount -t cifs -o {options} //{host}/{SHARE} {folder}"
