"""A tree of files copied over a share, and after a rest copied back.

The one who drives it has the tree on its disk, cold. It mounts the share of the other with the
kernel's own client, copies with ``cp -r``, syncs and unmounts; all of that is timed, and the same
on the way back. A mount of its own on the way back leaves the client nothing to remember: the files
come from the server. Both copies are read and compared, each where it lies.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from diskproof.errors import RunFailure
from diskproof.guest.ours.build import PROGRAM_FOLDER
from diskproof.records import Metric
from diskproof.study.tiles import TileWork
from diskproof.tiles.roles import MOUNT_POINT, script_args
from diskproof.tiles.roles.file_server import SERVERS
from diskproof.tiles.steps import TileContext, TileStep, host_variable
from diskproof.units import parse_bytes, parse_seconds

TREE = f"{PROGRAM_FOLDER}/diskproof-tree"
_WAYS = ("there", "back")
# $1: the tree, $2...: its numbers. Written, on the disk, and out of memory again.
_MAKE = f"""tree=$1
shift
{TREE} make "$tree" "$@"
sync -f "$tree"
told=$({TREE} cache "$tree" "$@" --drop)
case $told in
  *'"cached":0'[,'}}']*) ;;
  *) echo "the tree is still in memory: $told" >&2; exit 1 ;;
esac
"""
# $1: the folder that the share is mounted on; $2, $3: from where to where.
_COPY = """mkdir -p "$1"
{mount}
cp -rT "$2" "$3"
sync -f "$3"
umount "$1"
"""


@dataclass(frozen=True)
class Places:
    """Where the trees of one workload lie: the source's own, the copy on the share as the source
    and as the server see it, and what came back."""

    own: str
    mounted: str
    shared: str
    returned: str


class CopyLoad:
    """The load ``copy``."""

    def steps(self, work: TileWork, context: TileContext) -> tuple[TileStep, ...]:
        places = find_places(work.name, context.share)
        make = TileStep(
            f"{work.name}.make",
            work.source,
            "setup",
            script_args(_MAKE, places.own, *shape_args(work, context)),
            work=work.name,
            timeout=work.timeout,
        )
        there = copy_step(work, context, "there", (places.own, places.mounted), ())
        rest = TileStep(
            f"{work.name}.rest",
            work.source,
            "load",
            (),
            after=(there.name,),
            work=work.name,
            idle=parse_seconds(work.option("idle")) * float(context.scale),
        )
        back = copy_step(work, context, "back", (places.mounted, places.returned), (rest.name,))
        checks = (
            check_step(work, context, "there", work.target, places.shared),
            check_step(work, context, "back", work.source, places.returned),
        )
        return make, there, rest, back, *checks

    def read(
        self, outputs: Mapping[str, bytes], seconds: Mapping[str, float]
    ) -> tuple[Metric, ...]:
        checked = [read_check(name, output) for name, output in outputs.items() if _is(name)]
        took = {name.rpartition(".")[2]: value for name, value in seconds.items()}
        if len(checked) != len(_WAYS) or checked[0] != checked[1]:
            raise RunFailure("workload", "the copies were not both compared", f"{checked}")
        (files, size), total = checked[0], max(took["there"] + took["back"], 1e-9)
        return (
            Metric("seconds", "s", total, False, primary=True),
            Metric("throughput", "1/s", 2 * files / total, True),
            Metric("bandwidth", "MiB/s", 2 * size / total / (1 << 20), True),
            Metric("copy_there", "s", took["there"], False),
            Metric("copy_back", "s", took["back"], False),
        )


def find_places(name: str, share: str) -> Places:
    """A folder for each workload, so that several can have the same ends."""
    return Places(
        f"{MOUNT_POINT}/trees/{name}/own",
        f"{_mounted(name)}/{name}",
        f"{SERVERS[share].SHARED}/{name}",
        f"{MOUNT_POINT}/trees/{name}/returned",
    )


def _mounted(name: str) -> str:
    return f"/tmp/mounted-{name}"


def shape_args(work: TileWork, context: TileContext) -> tuple[str, ...]:
    """What ``diskproof-tree`` makes and compares: every level of folders keeps a file."""
    depth = int(work.option("depth"))
    files = max(depth, context.scaled(int(work.option("files"))))
    size = context.scaled(parse_bytes(work.option("bytes")))
    return (f"--files={files}", f"--bytes={size}", f"--depth={depth}")


def copy_step(
    work: TileWork,
    context: TileContext,
    way: str,
    ends: tuple[str, str],
    after: tuple[str, ...],
) -> TileStep:
    server = SERVERS[context.share]
    host = f'"${host_variable(work.target)}"'
    script = _COPY.format(mount=server.mount_command(host, '"$1"'))
    return TileStep(
        f"{work.name}.{way}",
        work.source,
        "load",
        script_args(script, _mounted(work.name), *ends),
        after=after,
        work=work.name,
        timeout=work.timeout,
        modules=server.CLIENT_MODULES,
    )


def check_step(work: TileWork, context: TileContext, way: str, guest: str, tree: str) -> TileStep:
    return TileStep(
        f"{work.name}.check-{way}",
        guest,
        "check",
        (TREE, "check", tree, *shape_args(work, context)),
        work=work.name,
        timeout=work.timeout,
    )


def _is(name: str) -> bool:
    return name.rpartition(".")[2].startswith("check-")


def read_check(step: str, output: bytes) -> tuple[int, int]:
    """Files and bytes that were compared. Raises RunFailure ``workload`` unless all were right."""
    try:
        told = json.loads(output)
        files, size, wrong = (int(told[key]) for key in ("files", "bytes", "wrong"))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise RunFailure("workload", f"{step} does not say what it compared") from None
    if wrong or files < 1:
        raise RunFailure("workload", f"{step}: {wrong} of {files} files are not as they were")
    return files, size


LOAD = CopyLoad()
