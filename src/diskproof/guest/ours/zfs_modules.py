"""OpenZFS's modules for the guest's kernel, made of Debian's sources by Debian's compiler.

Debian has them as sources only (zfs-dkms, in contrib). They are built once for each version of
kernel and ZFS, in a root that is thrown away, and stay in the cache beside the guests.
"""

import gzip
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from diskproof.errors import HostError, RunFailure
from diskproof.guest.ours import cache_folder as cache
from diskproof.guest.ours import packages, root
from diskproof.guest.ours.kernel import KernelModules
from diskproof.process.start import require_tool, run
from diskproof.records import content_id

EXTRA = "zfs"
SPACE_NEEDED = 4 << 30
"""Bytes of the compiler's root, what it makes, and the guest's own root."""
BUILD_SECONDS = 7200.0
_TOOLS = (
    *("bash", "coreutils", "dash", "diffutils", "findutils", "gcc", "grep", "gzip", "make", "mawk"),
    *("perl", "sed"),
)
_ENTER = """
mount --rbind /dev "$1/dev"
exec chroot "$1" /bin/sh -ec "$2" sh "$3" "$4"
"""
# As zfs-dkms would; $1 is the kernel's release.
_BUILD = """
export PATH=/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=/tmp KCFLAGS=-g0
ln -sf mawk /usr/bin/awk
mkdir -p /tmp
cd /usr/src/zfs-[0-9]*
TEST_JOBS=$2 ./configure --prefix=/usr --with-config=kernel \
    --with-linux="/lib/modules/$1/source" --with-linux-obj="/lib/modules/$1/build"
make "-j$2"
find module -name '*.ko' -exec strip --strip-debug {} +
"""
INPUTS: Sequence[object] = (1, _TOOLS, _BUILD)
"""All that makes one build differ from another, beside the versions."""


def with_zfs(
    modules: KernelModules,
    image: bytes,
    tree: Path,
    suite: str,
    progress: Callable[[str], None],
) -> KernelModules:
    """The modules of a guest's kernel, and those of OpenZFS, of the version of the tools in its
    tree. ``image`` is the unpacked kernel. Raises HostError when they cannot be built."""
    pins = find_pins(modules.release, image, tree)
    folder = cache.cache_folder() / f"{EXTRA}-{content_id([*INPUTS, suite, pins])}"
    if not folder.is_dir():
        cache.require_space(folder.parent, SPACE_NEEDED)
        with cache.new_folder(folder) as unfinished:
            _build(unfinished, modules.release, suite, pins, progress)
    built = {path.stem: path for path in sorted(folder.glob("*.ko"))}
    return replace(modules, files={**modules.files, **built})


def find_pins(release: str, image: bytes, tree: Path) -> tuple[str, str]:
    """The packages, with their versions, that fit a kernel and the tools in a tree: headers and
    sources. Raises HostError."""
    kernel = re.search(rb"Linux version [^\n]{1,400} Debian ([0-9][^\s()]*) \(", image)
    log = tree / "usr/share/doc/zfsutils-linux/changelog.Debian.gz"
    said = gzip.decompress(log.read_bytes()) if log.exists() else b""
    tools = re.match(rb"zfs-linux \(([^\s()]+)\)", said)
    if not (kernel and tools):
        raise HostError("OpenZFS cannot be built for the guest", "its kernel tells no version")
    headers = f"linux-headers-{release}={kernel[1].decode('ascii', 'replace')}"
    return headers, f"zfs-dkms={tools[1].decode('ascii', 'replace')}"


def _build(
    folder: Path, release: str, suite: str, pins: Sequence[str], progress: Callable[[str], None]
) -> None:
    scratch = folder / "scratch"
    tree = scratch / "root"
    scratch.mkdir()
    progress(f"ZFS: fetching a compiler, {' and '.join(pins)}")
    packages.extract_packages(suite, (*_TOOLS, *pins), tree, packages.EXTRA_COMPONENT[EXTRA])
    root.merge_usr(tree)
    progress("ZFS: building its modules, once for this kernel (some minutes)")
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    spaces = ["--mount", "--net", "--pid", "--fork", "--kill-child"]
    jobs = str(len(os.sched_getaffinity(0)))
    argv = [require_tool("unshare", "util-linux"), *own, *spaces, "--", "/bin/sh", "-ec", _ENTER]
    try:
        run(
            [*argv, "sh", str(tree), _BUILD, release, jobs],
            timeout=BUILD_SECONDS,
            env=packages.environment(os.environ),
        )
    except RunFailure as failure:
        what = f"OpenZFS cannot be built for Linux {release}"
        hint = "apt-get update, and try again"
        raise HostError(what, failure.why or failure.what, hint) from failure
    for path in tree.glob("usr/src/zfs-*/module/**/*.ko"):
        shutil.copyfile(path, folder / path.name)
    shutil.rmtree(scratch)
