"""Requests for a page that PHP makes from what the database says, by ab."""

import re
from collections.abc import Mapping

from diskproof.errors import RunFailure
from diskproof.records import Metric
from diskproof.records.tiles import Phase
from diskproof.study.tiles import TileWork
from diskproof.tiles.loads.figures import find_step, require_match
from diskproof.tiles.roles import script_args
from diskproof.tiles.servers import web
from diskproof.tiles.steps import TileContext, TileStep, host_variable

# $1: the workload, $2: the variable with the server's address, $3: requests, $4: clients, $5:
# seconds that the server may say nothing. The name tells its lines in the server's log.
_RUN = """eval "server=\\$$2"
ab -q -s "$5" -n "$3" -c "$4" -e "/tmp/http-$1.csv" "http://$server/?$1"
"""
# The page as it is now, against the one there must be; then the times by percent of the requests.
_PAGE = """eval "server=\\$$2"
ab -q -v 4 -s "$3" -n 1 "http://$server/" >"/tmp/http-$1.answer"
page=$(awk '/^<!DOCTYPE html>/ { inside = 1 } inside { print } /^<\\/table>/ { inside = 0 }' \\
  "/tmp/http-$1.answer")
[ "$page" = "$(cat "/tmp/http-$1.page")" ] || { echo "not the page: $page" >&2; exit 1; }
cat "/tmp/http-$1.csv"
"""
# $1: the workload, $2: requests that were answered.
_COUNT = f"""found=$(awk -v path="/?$1" '
    $7 == path && $9 == 200 {{ count++ }}
    END {{ print count + 0 }}' {web.ACCESS_LOG})
[ "$found" = "$2" ] || {{ echo "of $2 requests the server's log has $found" >&2; exit 1; }}
"""
_NUMBER = r"([0-9]{1,12}\.[0-9]{1,9})"
_NONE_BAD = (
    (rb"^Failed requests: +([1-9][0-9]*)$", "requests failed or had another page"),
    (rb"^Non-2xx responses: +([1-9][0-9]*)$", "answers were errors"),
)


class HttpLoad:
    """The load ``http``."""

    def steps(self, work: TileWork, context: TileContext) -> tuple[TileStep, ...]:
        requests = context.scaled(int(work.option("requests")))
        clients = str(min(int(work.option("clients")), requests))
        server, patience = host_variable(work.target), str(max(1, int(work.timeout)))

        def step(name: str, guest: str, phase: Phase, script: str, *words: str) -> TileStep:
            argv, files = script_args(script, work.name, *words), {}
            if script == _PAGE:
                files[f"/tmp/http-{work.name}.page"] = web.render_page().encode()
            full = f"{work.name}.{name}"
            return TileStep(full, guest, phase, argv, (), work.name, work.timeout, files)

        return (
            step("run", work.source, "load", _RUN, server, str(requests), clients, patience),
            step("page", work.source, "check", _PAGE, server, patience),
            step("check", work.target, "check", _COUNT, str(requests)),
        )

    def read(
        self, outputs: Mapping[str, bytes], seconds: Mapping[str, float]
    ) -> tuple[Metric, ...]:
        """Raises RunFailure ``workload`` for a request that failed."""
        run, page = find_step(outputs, "run"), find_step(outputs, "page")
        told = outputs[run]
        check_answers(run, told)
        rate = require_match(run, rf"^Requests per second: +{_NUMBER} ", told)
        requests = count_requests(run, told)
        p99 = require_match(page, rf"^{_percent(requests)},{_NUMBER}$", outputs[page])
        return (
            Metric("seconds", "s", seconds[run], False, primary=True),
            Metric("throughput", "1/s", rate, True),
            Metric("latency_p99", "s", p99 / 1000, False),
            Metric("requests", "1", requests, True),
        )


def _percent(requests: float) -> int:
    """The row of ab's file that holds the 99th percentile. Of less than 100 requests that is the
    slowest by nearest rank; and ab reads past its times for the rows before that."""
    return 99 if requests >= 100 else 100


def count_requests(step: str, told: bytes) -> float:
    return require_match(step, r"^Complete requests: +([0-9]{1,9})$", told)


def check_answers(step: str, told: bytes) -> None:
    """Raises RunFailure ``workload``."""
    for pattern, what in _NONE_BAD:
        found = re.search(pattern, told, re.MULTILINE)
        if found:
            why = f"of {count_requests(step, told):.0f} requests"
            raise RunFailure("workload", f"{step}: {int(found[1])} {what}", why)
    require_match(step, r"^Failed requests: +(0)$", told)


LOAD = HttpLoad()
