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
_UNPACK = f"import tarfile; tarfile.open('/tmp/work.tar.xz').extractall('{WORK}')"


def bring_sources(channel: Channel, files: Mapping[Path, str] | None = None) -> None:
    """Put our code below ``WORK``/src, and ``files`` where their names say."""
    channel.write_file("/tmp/work.tar.xz", _pack_sources(files or {}))
    done = channel.exec(["sh", "-ec", f'{_MOUNT}; python3 -c "{_UNPACK}"'], timeout=60)
    assert done.exit.code == 0, done.stderr


def _pack_sources(files: Mapping[Path, str]) -> bytes:
    source = Path(diskproof.__file__).parent
    ours = {path: f"src/diskproof/{path.relative_to(source)}" for path in source.rglob("*.py")}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        for path, name in (ours | dict(files)).items():
            archive.add(path, name)
    return packed.getvalue()
