"""Postfix: takes mail by SMTP into its queue and delivers it to one Maildir for each workload,
both on the disk under test. Nothing about durability is changed: queue files and delivered mails
are synced."""

from collections.abc import Iterable, Mapping

from diskproof.tiles.roles import MOUNT_POINT

DOMAIN = "tile.test"
FOLDER = f"{MOUNT_POINT}/mail"
BOXES = f"{FOLDER}/boxes"
LOG = f"{FOLDER}/maillog"
PROBE = "_probe"
_CONFIG = "/run/postfix"
_QUEUE = f"{FOLDER}/queue"
_MAIL = 8  # user and group mail

# Delays are logged with two digits, also those of less than 10 ms. No mail is too large.
MAIN = f"""compatibility_level = 3.6
queue_directory = {_QUEUE}
data_directory = {FOLDER}/data
shlib_directory = /usr/lib/postfix
daemon_directory = /usr/lib/postfix/sbin
meta_directory = /etc/postfix
maillog_file = {LOG}
maillog_file_prefixes = {FOLDER}
myhostname = mail.{DOMAIN}
mydestination =
mynetworks =
inet_protocols = ipv4
biff = no
alias_maps =
local_recipient_maps =
disable_dns_lookups = yes
smtpd_peername_lookup = no
enable_long_queue_ids = yes
delay_logging_resolution_limit = 6
message_size_limit = 0
virtual_mailbox_limit = 0
virtual_mailbox_domains = {DOMAIN}
virtual_mailbox_base = {BOXES}
virtual_mailbox_maps = texthash:{_CONFIG}/boxes
virtual_minimum_uid = {_MAIL}
virtual_uid_maps = static:{_MAIL}
virtual_gid_maps = static:{_MAIL}
"""

# As Debian's, without what no mail of ours needs; nothing in a chroot of its own.
_SERVICES = (
    ("smtp", "inet", "n", "-", "-", "smtpd"),
    ("pickup", "unix", "n", "60", "1", "pickup"),
    ("cleanup", "unix", "n", "-", "0", "cleanup"),
    ("qmgr", "unix", "n", "300", "1", "qmgr"),
    ("rewrite", "unix", "-", "-", "-", "trivial-rewrite"),
    ("bounce", "unix", "-", "-", "0", "bounce"),
    ("defer", "unix", "-", "-", "0", "bounce"),
    ("trace", "unix", "-", "-", "0", "bounce"),
    ("flush", "unix", "n", "1000?", "0", "flush"),
    ("proxymap", "unix", "-", "-", "-", "proxymap"),
    ("error", "unix", "-", "-", "-", "error"),
    ("retry", "unix", "-", "-", "-", "error"),
    ("virtual", "unix", "-", "-", "-", "virtual"),
    ("anvil", "unix", "-", "-", "1", "anvil"),
    ("postlog", "unix-dgram", "n", "-", "1", "postlogd"),
)

_QUEUES = "active bounce corrupt defer deferred flush hold incoming private saved trace"
# A shell function that waits until the log says that so many ($2) mails are in a mailbox ($1). It
# follows the log, for a look at the mailbox time and again would load the guest. One that cannot be
# delivered now will not come in time: an error with the log's line.
ARRIVED = f"""arrived() {{
    mkfifo "/run/follow-$1"
    tail -n +1 -f {LOG} >"/run/follow-$1" 2>/dev/null &
    follower=$! status=0
    awk -v to="to=<$1@{DOMAIN}>," -v mails="$2" '
        !index($0, to) {{ next }}
        /status=sent/ && ++sent == mails {{ exit 0 }}
        /status=(bounced|deferred|expired)/ {{ print; exit 1 }}
        ' <"/run/follow-$1" >&2 || status=$?
    kill $follower
    rm "/run/follow-$1"
    return $status
}}
"""
# It is ready when it has delivered a mail, whose mailbox is no workload's.
START = f"""{ARRIVED}
echo mail.{DOMAIN} >/proc/sys/kernel/hostname
install -d {FOLDER} {_QUEUE} {_QUEUE}/pid {_CONFIG}
install -d -o mail -g mail {BOXES}
install -d -o postfix -m 700 {FOLDER}/data
cd {_QUEUE}
install -d -o postfix -m 700 {_QUEUES}
install -d -o postfix -g postdrop -m 710 public
install -d -o postfix -g postdrop -m 1730 maildrop
cp /run/main.cf /run/master.cf /run/boxes {_CONFIG}/
/usr/lib/postfix/sbin/master -c {_CONFIG} -w </dev/null >/run/postfix.out 2>&1 \\
  || {{ tail -n 5 /run/postfix.out {LOG} >&2; exit 1; }}
smtp-source -M mail.{DOMAIN} -f {PROBE}@{DOMAIN} -t {PROBE}@{DOMAIN} "$SELF" </dev/null
arrived {PROBE} 1
"""


def render_services() -> str:
    """master.cf."""
    lines = []
    for name, kind, private, wakeup, most, command in _SERVICES:
        unprivileged = "n" if name in ("virtual", "proxymap") else "-"
        lines.append(f"{name} {kind} {private} {unprivileged} n {wakeup} {most} {command}\n")
    return "".join(lines)


def render_boxes(names: Iterable[str]) -> str:
    """A Maildir for each name and for the probe; the slash makes it one."""
    return "".join(f"{name}@{DOMAIN} {name}/\n" for name in (*names, PROBE))


def start_files(boxes: Iterable[str]) -> Mapping[str, bytes]:
    return {
        "/run/main.cf": MAIN.encode(),
        "/run/master.cf": render_services().encode(),
        "/run/boxes": render_boxes(boxes).encode(),
    }
