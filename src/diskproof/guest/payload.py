"""A tarball like that of a kernel's source, made here: the same bytes everywhere."""

from __future__ import annotations

import io
import math
import random
import tarfile
from pathlib import Path

from diskproof.study.boots import FOLDER_FILES, MEAN_BYTES, payload_files

SEED = 20120601
_SIGMA = 1.4  # of the log-normal sizes: median 4.5 KB, some above 200 KB
_LARGEST = 2 << 20


def write_payload(path: Path, scale: float) -> None:
    """Write the tarball, not packed: an emulated processor would measure its unpacking."""
    source = random.Random(SEED)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(payload_files(scale)):
            if number % FOLDER_FILES == 0:
                folder = f"linux/part{number // 1000}/dir{number // FOLDER_FILES}"
                tar.addfile(_member(folder, tarfile.DIRTYPE, 0))
            content = source.randbytes(_size(source))
            member = _member(f"{folder}/file{number}.c", tarfile.REGTYPE, len(content))
            tar.addfile(member, io.BytesIO(content))


def _size(source: random.Random) -> int:
    """Log-normal, its mean ``MEAN_BYTES``."""
    mu = math.log(MEAN_BYTES) - _SIGMA**2 / 2
    return min(_LARGEST, round(source.lognormvariate(mu, _SIGMA)))


def _member(name: str, kind: bytes, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    member.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    return member
