"""SQLite commits in a guest: its own program on a new file system, fed with statements."""

from diskproof.crash.writers import WriterContext, sqlite
from diskproof.crash.writers import promised_rows as rows
from diskproof.crash.writers.guest_disk import (
    MOUNT_POINT,
    make_file_system,
    require_guest_drive,
    write_in_guest,
)

DATABASE = f"{MOUNT_POINT}/{sqlite.FILE}"
MAX_ROWS = 800  # their statements fit one request
_KILLED_BY_TIMEOUT = 124
# The program's output, line by line as it comes, is the promises; it ends in time without an error.
_SCRIPT = (
    f'timeout "$1" stdbuf -oL sqlite3 -batch -bail {DATABASE}; status=$?; '
    f"[ $status = {_KILLED_BY_TIMEOUT} ] || exit $status"
)


def write_rows(context: WriterContext) -> None:
    """Raises RunFailure ``guest``, ``workload`` or ``space``."""
    spec = context.cell.workload
    drive = require_guest_drive(context.drive, spec.name)
    kind = spec.option("filesystem", "ext4")
    make_file_system(drive.guest, drive.disk.device, kind, spec.option("mount"))
    script = render_script(int(spec.option("records")), spec.option("durable"))
    argv = ["sh", "-c", _SCRIPT, "sh", spec.option("seconds")]
    write_in_guest(drive, argv, context, stdin=script.encode())


def render_script(records: int, durable: str) -> str:
    """Statements for the program; each promise is selected after the commit it is about."""
    pragmas = sqlite.PRAGMAS | {"synchronous": sqlite.synchronous(durable)}
    # The answer of a PRAGMA is no promise; it is passed over as any line that is none.
    lines = [f"PRAGMA {name}={value};" for name, value in pragmas.items()]
    lines.append(f"{rows.CREATE};")
    for number in range(1, min(records, MAX_ROWS) + 1):
        lines.append(f"{rows.insert_text(number)};")
        lines.append(f"SELECT '{rows.promise_line(sqlite.NAME, number)}';")
    return "\n".join(lines) + "\n"
