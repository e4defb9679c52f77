"""PostgreSQL commits in a guest: a server of the guest's own on a file system of the disk.

File system and cluster are made in a guest of their own before the recording begins (``initdb``
takes 16 s under emulation); recorded is what follows: mount, server, a commit a row. The guest
is one with further packages, see ``guest/ours/packages.py``.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from diskproof.crash.writers import WriterContext, postgres
from diskproof.crash.writers import promised_rows as rows
from diskproof.crash.writers.guest_disk import (
    MOUNT_POINT,
    make_file_system,
    mount,
    require_done,
    require_guest_drive,
    throwaway_cell,
    write_in_guest,
)
from diskproof.crash.writers.promised_rows import CORRUPTS, Found
from diskproof.drive import DiskImage
from diskproof.errors import RunFailure
from diskproof.guest.ours.boot import Guest, start_guest
from diskproof.guest.ours.build import require_guest
from diskproof.process.scratch import start_scratch_dir
from diskproof.qemu.disk import guest_disk_args, image_format
from diskproof.qemu.machine import GuestMachine
from diskproof.records import Cell

CLUSTER = f"{MOUNT_POINT}/{postgres.FOLDER}"
EXTRA = postgres.NAME
MAX_ROWS = 800  # their statements fit one request
_LOG = "/tmp/postgres.log"
_SECONDS = 180.0  # for a server under emulation on a busy host; no verdict after that
_PATIENCE = 3600  # of PostgreSQL's own tools: longer than ours, whose end is no verdict
_NOBODY = 65534  # of the guest: nothing else runs there
_AS_SERVER = f"setpriv --reuid {_NOBODY} --regid {_NOBODY} --clear-groups --"
_PATH = "set -e; cd /tmp; PATH=$(echo /usr/lib/postgresql/*/bin):$PATH"
_CLIENT = f"psql -h /tmp -U {postgres.USER} -d postgres -X -q -A -t -v ON_ERROR_STOP=1"
_KILLED_BY_TIMEOUT = 124

# Without the templates, of which nothing is made: two thirds of the pages that are looked at.
_MAKE = f"""{_PATH}
mkdir -m 700 {CLUSTER}
chown {_NOBODY}:{_NOBODY} {CLUSTER}
{_AS_SERVER} initdb {" ".join(postgres.INITDB_OPTIONS)} --no-sync -D {CLUSTER}
printf '%s\\n' "CREATE EXTENSION amcheck" "UPDATE pg_database SET datistemplate = false" \
  "DROP DATABASE template0" "DROP DATABASE template1" |
  {_AS_SERVER} postgres --single -F -D {CLUSTER} postgres >/dev/null
[ $(ls {CLUSTER}/base | wc -l) = 1 ] || {{ echo "its templates are still there" >&2; exit 1; }}
umount {MOUNT_POINT}
"""
# $1: the server's settings. It says nothing on our descriptors, or they would never close.
_START = f"""{_PATH}
{_AS_SERVER} pg_ctl -D {CLUSTER} -s -w -t {_PATIENCE} -l {_LOG} -o "-k /tmp $1" start \
  </dev/null || {{ tail -n 5 {_LOG} >&2; exit 1; }}
"""
# $1: seconds. The client's output, line by line as it comes, is the promises. Time that is up is
# no error. The server ends as in a crash: it has been promised one.
_WRITE = f"""{_PATH}
status=0
timeout "$1" stdbuf -oL {_CLIENT} || status=$?
{_AS_SERVER} pg_ctl -D {CLUSTER} -s -m immediate stop >&2
[ $status = {_KILLED_BY_TIMEOUT} ] || exit $status
"""
# The server ends in order, for the checksums of a running one's pages cannot be read.
_END = f"""{_PATH}
{_AS_SERVER} pg_ctl -D {CLUSTER} -s -w -t {_PATIENCE} -m fast stop </dev/null
{_AS_SERVER} pg_checksums --check -D {CLUSTER}
"""
# Of a server that recovers, is asked, and ends: none of its processes but those for that.
_LOOKING = {
    "fsync": "off",
    "full_page_writes": "off",
    "bgwriter_lru_maxpages": "0",
    "max_logical_replication_workers": "0",
    "track_counts": "off",
    "update_process_title": "off",
}
_AMCHECK = "-- amcheck --"
# One client for all: each takes longer to start than its questions to be answered.
_LOOK = f"""SELECT to_regclass('{rows.TABLE}') IS NOT NULL AS there \\gset
\\if :there
{rows.SELECT};
\\echo {_AMCHECK}
CREATE EXTENSION IF NOT EXISTS amcheck;
SELECT bt_index_check('{rows.TABLE}_pkey', true);
SELECT msg FROM verify_heapam('{rows.TABLE}');
\\endif
"""


def prepare_disk(cell: Cell, folder: Path) -> None:
    """Make file system and cluster on the cell's new image. Raises RunFailure ``guest``."""
    form, spec = image_format(cell), cell.workload
    image = DiskImage(Path(f"disk.{form}"), form, 0)
    arguments = tuple(guest_disk_args(throwaway_cell(form, "virtio-blk"), image))
    machine = GuestMachine(accel="tcg", bus="virtio-blk", disk_args=arguments)
    with start_scratch_dir() as room:
        files = require_guest(EXTRA)
        with start_guest(files, machine, run_dir=room, disk_folder=folder) as guest:
            disk = guest.started.disk
            if disk is None:
                raise RunFailure("guest", "the guest names no disk under test")
            make_file_system(guest, disk.device, spec.option("filesystem", "ext4"))
            require_done(guest, ["sh", "-c", _MAKE], seconds=_SECONDS)
            guest.power_off(sync=True)


def write_rows(context: WriterContext) -> None:
    """Raises RunFailure ``guest``, ``workload`` or ``space``."""
    spec = context.cell.workload
    drive = require_guest_drive(context.drive, spec.name)
    kind = spec.option("filesystem", "ext4")
    drive.guest.load_modules([kind])
    mount(drive.guest, drive.disk.device, kind, spec.option("mount"))
    unsafe = {"fsync": "off"} if spec.option("durable") == "write" else {}
    start_cluster(drive.guest, unsafe)
    argv = ["sh", "-c", _WRITE, "sh", spec.option("seconds")]
    script = render_script(int(spec.option("records")))
    write_in_guest(drive, argv, context, stdin=script.encode())


def start_cluster(guest: Guest, settings: dict[str, str]) -> None:
    """Start the server; it recovers first. Raises RunFailure ``guest`` when it does not come up."""
    named = {**postgres.SETTINGS, **settings}
    options = " ".join(f"-c {name}={value}" for name, value in named.items())
    require_done(guest, ["sh", "-c", _START, "sh", options], seconds=_SECONDS)


def render_script(records: int) -> str:
    """Statements for the client; it prints each promise after the commit it is about."""
    lines = [f"{rows.CREATE};"]
    for number in range(1, min(records, MAX_ROWS) + 1):
        lines.append(f"{rows.insert_text(number)};")
        lines.append(f"\\echo {rows.promise_line(postgres.NAME, number)}")
    return "\n".join(lines) + "\n"


def look(guest: Guest, promises: Sequence[str]) -> Found:
    """Recovered by a server of the guest, read row by row; amcheck, and all page checksums.

    It syncs nothing: its disk is a copy. Raises RunFailure ``timeout`` when it has no end.
    """
    try:
        start_cluster(guest, _LOOKING)
        found = _read_table(guest, rows.read_promised(promises, postgres.NAME))
        require_done(guest, ["sh", "-c", _END], seconds=_SECONDS)
        return found
    except RunFailure as failure:
        if failure.kind != "guest":
            raise
        return Found(CORRUPTS, why=f"PostgreSQL: {failure.why or failure.what}")


def _read_table(guest: Guest, promised: int) -> Found:
    argv = ["sh", "-c", f"{_PATH}; {_CLIENT}"]
    output = require_done(guest, argv, seconds=_SECONDS, stdin=_LOOK.encode())
    table, marker, said = output.decode("utf-8", "replace").partition(f"{_AMCHECK}\n")
    if not marker:
        return rows.all_lost(promised, "the table is not there")
    if said := said.strip():
        return Found(CORRUPTS, why=f"amcheck: {said[:300]}")
    left = re.findall(r"^(\d{1,18})\|(.*)$", table, re.ASCII | re.MULTILINE)
    return rows.judge_rows({int(number): content for number, content in left}, promised)
