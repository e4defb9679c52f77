"""Transactions of pgbench, its usual mix (TPC-B, sort of): three updates, a read, an insert."""

from collections.abc import Mapping

from diskproof.records import Metric
from diskproof.records.tiles import Phase
from diskproof.study.tiles import TileWork
from diskproof.tiles.loads.figures import LATENCIES, find_step, parse_figures, require_match
from diskproof.tiles.roles import script_args
from diskproof.tiles.servers import postgres
from diskproof.tiles.steps import TileContext, TileStep, host_variable

# $1: the database, $2: scale factor.
_INIT = f"""{postgres.CLIENT} -h "$SELF" -d postgres -c "CREATE DATABASE \\"$1\\""
pgbench -i -q -s "$2" -U {postgres.ACCOUNT} -h "$SELF" "$1" >/dev/null 2>/run/pgbench-init.log \\
  || {{ tail -n 5 /run/pgbench-init.log >&2; exit 1; }}
"""
# $1: the database, $2: the variable with its server's address, $3: clients, $4: transactions of
# each. The tables have just been vacuumed.
_RUN = f"""eval "server=\\$$2"
cd /tmp
pgbench -n -c "$3" -j 1 -t "$4" -l --log-prefix="pgbench-$1" -U {postgres.ACCOUNT} \\
  -h "$server" "$1"
"""
# $1: the database. Of each line of the log: client, number, microseconds, ...
_LATENCY = f"""{LATENCIES}
cat "/tmp/pgbench-$1".[0-9]* | awk '{{ print $3 }}' | latencies transactions 0.000001
"""
# $1: the database, $2: transactions that were promised.
_CHECK = f"""found=$({postgres.CLIENT} -h "$SELF" -d "$1" -c "
    SELECT count(*), coalesce(sum(delta), 0) = (SELECT sum(abalance) FROM pgbench_accounts)
        AND coalesce(sum(delta), 0) = (SELECT sum(tbalance) FROM pgbench_tellers)
        AND coalesce(sum(delta), 0) = (SELECT sum(bbalance) FROM pgbench_branches)
    FROM pgbench_history")
[ "$found" = "$2|t" ] && exit
echo "of $2 transactions there are, and are the balances right: $found" >&2
exit 1
"""


class PgbenchLoad:
    """The load ``pgbench``: a database of its own, of as many branches as it has clients."""

    def steps(self, work: TileWork, context: TileContext) -> tuple[TileStep, ...]:
        """Transactions are rounded up to a whole number for each client."""
        total = context.scaled(int(work.option("transactions")))
        clients = min(int(work.option("clients")), total)
        each = -(-total // clients)
        branches = str(context.scaled(clients))
        server = host_variable(work.target)

        def step(name: str, guest: str, phase: Phase, script: str, *words: str) -> TileStep:
            argv = script_args(script, work.name, *words)
            return TileStep(
                f"{work.name}.{name}", guest, phase, argv, work=work.name, timeout=work.timeout
            )

        return (
            step("setup", work.target, "setup", _INIT, branches),
            step("run", work.source, "load", _RUN, server, str(clients), str(each)),
            step("latency", work.source, "check", _LATENCY),
            step("check", work.target, "check", _CHECK, str(clients * each)),
        )

    def read(
        self, outputs: Mapping[str, bytes], seconds: Mapping[str, float]
    ) -> tuple[Metric, ...]:
        """Throughput is pgbench's own, without the time to connect."""
        run, latency = find_step(outputs, "run"), find_step(outputs, "latency")
        tps = require_match(run, r"^tps = ([0-9]{1,12}\.[0-9]{1,9}) ", outputs[run])
        names = ("transactions", "latency_mean", "latency_p99")
        found = parse_figures(latency, outputs[latency], *names)
        return (
            Metric("seconds", "s", seconds[run], False, primary=True),
            Metric("throughput", "1/s", tps, True),
            Metric("latency_mean", "s", found["latency_mean"], False),
            Metric("latency_p99", "s", found["latency_p99"], False),
            Metric("transactions", "1", found["transactions"], True),
        )


LOAD = PgbenchLoad()
