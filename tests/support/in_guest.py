"""Our own code inside a guest that has Python: what this host's kernel lacks, that one's has."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import diskproof
from diskproof.guest.ours.channel import Channel

WORK = "/run/work"
# The guest's /tmp has no device nodes (nodev).
_MOUNT = f"mkdir {WORK} && mount -t tmpfs -o size=768m work {WORK}"
_PACKED = "/tmp/work.tar.xz"
_UNPACK = f"import tarfile; tarfile.open('{_PACKED}').extractall('{WORK}')"
_PIECE = 512 << 10  # well below what the agent takes at once


def bring_sources(channel: Channel, files: Mapping[Path, str] | None = None) -> None:
    """Put our code below ``WORK``/src, and ``files`` where their names say."""
    packed = _pack_sources(files or {})
    for begin in range(0, len(packed), _PIECE):
        channel.write_file(f"{_PACKED}.{begin:010}", packed[begin : begin + _PIECE])
    join = f"cat {_PACKED}.* > {_PACKED}; rm {_PACKED}.*"
    done = channel.exec(["sh", "-ec", f'{join}; {_MOUNT}; python3 -c "{_UNPACK}"'], timeout=60)
    assert done.exit.code == 0, done.stderr


def _pack_sources(files: Mapping[Path, str]) -> bytes:
    source = Path(diskproof.__file__).parent
    ours = {path: f"src/diskproof/{path.relative_to(source)}" for path in source.rglob("*.py")}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        for path, name in (ours | dict(files)).items():
            archive.add(path, name)
    return packed.getvalue()
