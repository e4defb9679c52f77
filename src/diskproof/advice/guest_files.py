"""Files of a guest, read for what they mean to its disks: mounts, databases' settings."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from diskproof.advice import observed

POSTGRES_FILES = (
    *(f"/etc/postgresql/{version}/main/postgresql.conf" for version in range(18, 10, -1)),
    "/var/lib/pgsql/data/postgresql.conf",
    "/var/lib/postgresql/data/postgresql.conf",
    "/var/lib/postgres/data/postgresql.conf",
)
MYSQL_FILES = (
    "/etc/my.cnf",
    "/etc/mysql/my.cnf",
    "/etc/my.cnf.d/server.cnf",
    "/etc/my.cnf.d/mariadb-server.cnf",
    "/etc/mysql/conf.d/mysql.cnf",
    "/etc/mysql/mysql.conf.d/mysqld.cnf",
    "/etc/mysql/mariadb.conf.d/50-server.cnf",
)
"""Where distributions keep them; of several files of MySQL the last one counts."""
_MYSQL_SECTIONS = ("mysqld", "server", "mariadb", "mariadbd")
_POSTGRES_LINE = re.compile(r"^\s*([A-Za-z_.]+)\s*(?:=|\s)\s*('(?:[^']|'')*'|[^#\s]+)")
_KEYS = tuple(setting.key for setting in observed.SETTINGS)


@dataclass(frozen=True)
class GuestMount:
    """A line of /proc/mounts: ``text`` is ``TYPE OPTIONS``."""

    point: str
    source: str
    text: str


def parse_guest_mounts(text: str) -> Iterator[GuestMount]:
    """The mounts of devices, at most 1000."""
    for line in text.splitlines()[:1000]:
        words = line.split()
        if len(words) >= 4 and words[0].startswith("/dev/"):
            yield GuestMount(words[1], words[0], f"{words[2]} {words[3]}")


def parse_postgres(text: str) -> dict[str, str]:
    """What ``postgresql.conf`` says of durability, and its ``data_directory``; the last line of a
    name counts. PostgreSQL, "Setting Parameters"."""
    found = {}
    for line in text.splitlines()[:20_000]:
        if match := _POSTGRES_LINE.match(line):
            name = match[1].lower()
            if name in _KEYS or name == "data_directory":
                found[name] = match[2].strip("'")[:200]
    return found


def parse_mysql(text: str) -> dict[str, str]:
    """What an option file of MySQL says of durability, and its ``datadir``. MySQL, "Using Option
    Files": dashes and underscores are one."""
    found, section = {}, ""
    for line in text.splitlines()[:20_000]:
        words = line.partition("#")[0].strip()
        if words.startswith("["):
            section = words.strip("[]").partition("-")[0].lower()
        elif section in _MYSQL_SECTIONS:
            name, _, value = words.partition("=")
            name = name.strip().lower().replace("-", "_")
            if name in (*_KEYS, "datadir"):
                found[name] = value.strip().strip("'\"")[:200]
    return found


def find_guest_mount(mounts: Mapping[str, GuestMount], path: str) -> GuestMount | None:
    """The mount that a path of the guest lies on."""
    fitting = [
        point for point in mounts if path == point or path.startswith(point.rstrip("/") + "/")
    ]
    return mounts[max(fitting, key=len)] if fitting else None
