"""Mails at an interval, then a burst; the time of each part ends when all are in their mailbox."""

from collections.abc import Mapping
from fractions import Fraction

from diskproof.records import Metric
from diskproof.records.tiles import Phase
from diskproof.study.tiles import TileWork
from diskproof.tiles.loads.figures import LATENCIES, find_step, parse_figures
from diskproof.tiles.roles import script_args
from diskproof.tiles.servers import postfix
from diskproof.tiles.steps import TileContext, TileStep, host_variable

BURST_SESSIONS = 10
"""How many connections a burst comes over at once."""
_LINE = 80  # bytes of a line that smtp-source makes, with its CR and LF

# $1: the mailbox, $2: the variable with the server's address, $3: bytes of a mail.
_SEND = f"""eval "server=\\$$2"
send() {{
    smtp-source -M "load.{postfix.DOMAIN}" -f "load@{postfix.DOMAIN}" -t "$box@{postfix.DOMAIN}" \\
      -l "$size" -m "$1" -s "$2" "$server" </dev/null
}}
box=$1 size=$3
"""
# $4: batches, $5: mails of one, $6: milliseconds from the begin of one to that of the next.
_BATCHES = f"""{_SEND}
now() {{ echo $(($(date +%s%N) / 1000000)); }}
began=$(now) number=0
while [ $number -lt "$4" ]; do
    rest=$((began + number * $6 - $(now)))
    [ $rest -le 0 ] || sleep "$((rest / 1000)).$(printf %03d $((rest % 1000)))"
    send "$5" 1
    number=$((number + 1))
done
"""
# $4: mails, $5: sessions.
_BURST = f"""{_SEND}
send "$4" "$5"
"""
# $1: the mailbox, $2: mails.
_ARRIVED = f"""{postfix.ARRIVED}
arrived "$1" "$2"
"""
# $1: the mailbox, $2: mails, $3: bytes of the body of each.
_CHECK = f"""{LATENCIES}
cd {postfix.BOXES}/"$1"/new
ls | awk -v mails="$2" -v bytes="$3" '
    {{
        file = $0; inside = size = 0; id = ""
        while ((getline line < file) > 0) {{
            if (inside) size += length(line) + 1
            else if (line == "") inside = 1
            else if (tolower(line) ~ /^message-id:/) id = line
        }}
        close(file)
        if (id == "" || seen[id]++) wrong = wrong " " file " (twice)"
        if (size != bytes) wrong = wrong " " file " (" size " bytes, not " bytes ")"
    }}
    END {{
        if (NR != mails) wrong = wrong " " NR " mails, not " mails
        if (wrong != "") {{ print "wrong:" substr(wrong, 1, 500); exit 1 }}
    }}' >&2
awk -v to="to=<$1@{postfix.DOMAIN}>," '
    index($0, to) && /status=sent/ && match($0, / delay=[0-9.]+,/) {{
        print substr($0, RSTART + 7, RLENGTH - 8)
    }}' {postfix.LOG} | latencies mails 1
"""


def body_bytes(size: int) -> int:
    """Of the body of a mail of ``size`` bytes as delivered: each line has lost its CR, and the
    last, which has no end, has got one."""
    return size - (size - 1) // _LINE + 1


class MailLoad:
    """The load ``mail``: batches sent at their interval, until all have arrived; then the burst."""

    def steps(self, work: TileWork, context: TileContext) -> tuple[TileStep, ...]:
        batches, batch = context.scaled(int(work.option("batches"))), int(work.option("batch"))
        burst, size = context.scaled(int(work.option("burst"))), int(work.option("size"))
        milliseconds = str(round(Fraction(work.option("interval")) * 1000))
        sent, total = str(batches * batch), str(batches * batch + burst)
        server = (host_variable(work.target), str(size))

        def step(name: str, guest: str, phase: Phase, script: str, *words: str) -> TileStep:
            return TileStep(
                f"{work.name}.{name}",
                guest,
                phase,
                script_args(script, work.name, *words),
                work=work.name,
                timeout=work.timeout,
                after=tuple(f"{work.name}.{before}" for before in _BEFORE.get(name, ())),
            )

        at_source, at_target = work.source, work.target
        sessions = str(min(burst, BURST_SESSIONS))
        words = (*server, str(batches), str(batch), milliseconds)
        return (
            step("batches", at_source, "load", _BATCHES, *words),
            step("batches-arrived", at_target, "load", _ARRIVED, sent),
            step("burst", at_source, "load", _BURST, *server, str(burst), sessions),
            step("burst-arrived", at_target, "load", _ARRIVED, total),
            step("check", at_target, "check", _CHECK, total, str(body_bytes(size))),
        )

    def read(
        self, outputs: Mapping[str, bytes], seconds: Mapping[str, float]
    ) -> tuple[Metric, ...]:
        """Latency is Postfix's delay of a mail, from its arrival in the queue to the mailbox."""
        check = find_step(outputs, "check")
        names = ("mails", "latency_mean", "latency_p99")
        found = parse_figures(check, outputs[check], *names)
        batches = sum(seconds[find_step(seconds, name)] for name in ("batches", "batches-arrived"))
        burst = sum(seconds[find_step(seconds, name)] for name in ("burst", "burst-arrived"))
        return (
            Metric("seconds", "s", batches + burst, False, primary=True),
            Metric("throughput", "1/s", found["mails"] / max(batches + burst, 1e-9), True),
            Metric("latency_mean", "s", found["latency_mean"], False),
            Metric("latency_p99", "s", found["latency_p99"], False),
            Metric("batches_seconds", "s", batches, False),
            Metric("burst_seconds", "s", burst, False),
            Metric("mails", "1", found["mails"], True),
        )


_BEFORE = {
    "batches-arrived": ("batches",),
    "burst": ("batches-arrived",),
    "burst-arrived": ("burst",),
}
LOAD = MailLoad()
