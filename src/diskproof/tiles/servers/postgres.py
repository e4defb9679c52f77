"""PostgreSQL as Debian has it, its cluster on the disk under test. Nothing about durability is
changed: fsync, full_page_writes and synchronous_commit are on."""

from diskproof.tiles.roles import MOUNT_POINT

ACCOUNT = "postgres"
CLUSTER = f"{MOUNT_POINT}/postgres"
# What the network between guests is for; the guest's root lacks the compiler of queries.
SETTINGS = {"listen_addresses": "'*'", "unix_socket_directories": "'/run/postgres'", "jit": "off"}
CLIENT = f"psql -U {ACCOUNT} -X -q -A -t -v ON_ERROR_STOP=1"

# initdb does not wait for the disk: the sync behind it does, for all files at once.
START = f"""cd /tmp
install -d -o {ACCOUNT} -g {ACCOUNT} -m 700 {CLUSTER}
install -d -o {ACCOUNT} -g {ACCOUNT} /run/postgres
as_server="setpriv --reuid {ACCOUNT} --regid {ACCOUNT} --clear-groups --"
$as_server initdb -A trust -U {ACCOUNT} -E UTF8 --locale=C --no-instructions --no-sync \\
  -D {CLUSTER} >/run/initdb.log 2>&1 || {{ tail -n 5 /run/initdb.log >&2; exit 1; }}
sync
echo "host all all samenet trust" >>{CLUSTER}/pg_hba.conf
cat >>{CLUSTER}/postgresql.conf <<'END'
{chr(10).join(f"{name} = {value}" for name, value in SETTINGS.items())}
END
$as_server pg_ctl -D {CLUSTER} -s -w -t 3600 -l {CLUSTER}/server.log start </dev/null \\
  || {{ tail -n 5 {CLUSTER}/server.log >&2; exit 1; }}
[ "$({CLIENT} -h "$SELF" -d postgres -c 'SELECT 1')" = 1 ]
"""
