"""What the root of a guest with servers has beyond the packages: accounts, names, links.

Their maintainer scripts would have made it, and none runs. What a server writes (``/var``) and
how it is configured is the business of who starts it: the root is read-only.
"""

import re
from collections.abc import Mapping
from pathlib import Path

# Perl and Python come with tools that no server runs; a tool of MariaDB's is 5 MiB, of which two
# or three are used.
UNUSED = (
    *("usr/lib/*/libLLVM*", "usr/lib/*/libz3.so*", "usr/lib/llvm*"),
    *("usr/lib/postgresql/*/lib/bitcode", "usr/lib/postgresql/*/lib/llvmjit*"),
    *("usr/bin/perl*", "usr/lib/*/perl*", "usr/lib/*/libperl*", "usr/bin/python3*"),
    *("usr/lib/*/libpython3*", "usr/include", "usr/lib/*/*.a"),
    *("usr/bin/aria_*", "usr/bin/myisam*", "usr/bin/innochecksum", "usr/bin/perror"),
    *("usr/bin/mariadb-binlog", "usr/bin/mariadb-check", "usr/bin/mariadb-conv"),
    *("usr/bin/mariadb-import", "usr/bin/mariadb-plugin", "usr/bin/mariadb-show"),
    *("usr/bin/mariadb-tzinfo-to-sql", "usr/bin/mariadb-upgrade", "usr/bin/mariadb-waitpid"),
    *("usr/bin/mariadbd-safe-helper", "usr/bin/replace", "usr/bin/resolve_stack_dump"),
    *("usr/lib/libgalera*", "usr/lib/galera", "usr/lib/file", "usr/share/i18n"),
    *("usr/bin/systemd*", "usr/lib/*/systemd", "usr/lib/systemd", "usr/lib/udev"),
    *("bin/systemd*", "lib/systemd", "lib/udev"),
)
MOUNT_POINTS = ("srv", "var")
# Further than root and nobody: name and number of user and group. ``user`` is who mails go to and
# whom a share belongs to. postfix insists on a group of its own for its queue.
USERS = {
    "daemon": 1,
    "mail": 8,
    "www-data": 33,
    "mysql": 101,
    "postfix": 102,
    "postgres": 103,
    "user": 1000,
}
GROUPS = {**USERS, "postdrop": 104}
ACCOUNTS = {
    "etc/passwd": "".join(
        f"{name}:x:{number}:{number}::/nonexistent:/bin/false\n" for name, number in USERS.items()
    ),
    "etc/group": "".join(f"{name}:x:{number}:\n" for name, number in GROUPS.items()),
}
# There is no name server; a script may mount a longer list of hosts over this one. exportfs wants
# its list to be there.
FILES = {
    "etc/exports": "",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\nservices: files\n",
}
# Alternatives and wrappers: a link to what there is one of. Wrappers of psql are in Perl.
LINKS = {
    "usr/bin/awk": "usr/bin/?awk",
    "usr/bin/php": "usr/bin/php[0-9]*",
    "usr/sbin/php-fpm": "usr/sbin/php-fpm[0-9]*",
    **{
        f"usr/bin/{name}": f"usr/lib/postgresql/*/bin/{name}"
        for name in ("initdb", "pg_ctl", "pg_isready", "pgbench", "psql")
    },
}


def link_programs(root: Path) -> None:
    for name, pattern in LINKS.items():
        (found, *_) = sorted(root.glob(pattern))
        (root / name).unlink(missing_ok=True)
        (root / name).symlink_to(f"/{found.relative_to(root)}")


def enable_php_modules(root: Path) -> None:
    """Each in the order that its file names, for all ways to start PHP (``php.ini`` is none of
    them: what it would set is built in)."""
    folders = list(root.glob("etc/php/*/*/conf.d"))
    for file in root.glob("usr/share/php[0-9]*/*/*.ini"):
        order = re.search(r"^; priority=(\d+)", file.read_text(), re.MULTILINE)
        for folder in folders:
            link = folder / f"{order[1] if order else '20'}-{file.name}"
            link.symlink_to(f"/{file.relative_to(root)}")


def complete_root(root: Path) -> None:
    """All of the above but what is unused and the accounts."""
    for name in MOUNT_POINTS:
        (root / name).mkdir(exist_ok=True)
    for name, content in FILES.items():
        (root / name).write_text(content)
    link_programs(root)
    enable_php_modules(root)


INPUTS: Mapping[str, object] = {
    "accounts": ACCOUNTS,
    "files": FILES,
    "links": LINKS,
    "mount_points": MOUNT_POINTS,
}
"""All that makes one root differ from another, beside UNUSED."""
