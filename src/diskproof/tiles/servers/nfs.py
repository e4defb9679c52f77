"""The kernel's NFS server, version 4 only, and its client.

Exported ``sync``, the default of exports(5): a write that the client asked to keep is on the disk
before the answer, and a client asks when it closes a file.
"""

from collections.abc import Mapping

from diskproof.tiles.roles import MOUNT_POINT

SERVER_MODULES: tuple[str, ...] = ("nfsd",)
CLIENT_MODULES: tuple[str, ...] = ("nfsv4",)
SHARED = f"{MOUNT_POINT}/share"
PROCESS = "rpc.mountd"
LOG = "/run/mountd.log"
THREADS = 8
FILES: Mapping[str, bytes] = {}
# Its lists are in /var/lib/nfs. Nobody has files open from before, so nobody is waited for at the
# end of a grace period.
START = f"""mkdir -p {MOUNT_POINT}/var {SHARED}
mount --bind {MOUNT_POINT}/var /var
mkdir -p /var/lib/nfs/v4recovery
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
mount -t nfsd nfsd /proc/fs/nfsd
exportfs -o rw,no_root_squash,insecure,no_subtree_check,fsid=0 '*:{SHARED}'
rpc.mountd -N 3 </dev/null >{LOG} 2>&1
rpc.nfsd -N 3 {THREADS}
echo Y >/proc/fs/nfsd/v4_end_grace
"""


def mount_command(host: str, folder: str) -> str:
    return f"mount -t nfs4 -o vers=4.2,sec=sys {host}:/ {folder}"
