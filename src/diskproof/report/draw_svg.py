"""A program of its own: charts in JSON on its input become SVG in JSON on its output; with the
word ``scripts`` it gives what draws them in a browser.

The drawing library holds a whole browser engine, and a fault in it ends its process. It works
within limits here, and knows nothing but the charts.
"""

import json
import resource
import sys

DATA_BYTES = 1 << 30
CPU_SECONDS = 60


def main() -> None:
    _limit(resource.RLIMIT_DATA, DATA_BYTES)
    _limit(resource.RLIMIT_CPU, CPU_SECONDS)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    import vl_convert

    if sys.argv[1:] == ["scripts"]:
        sys.stdout.write(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
        return
    charts = json.load(sys.stdin)
    json.dump([vl_convert.vegalite_to_svg(chart) for chart in charts], sys.stdout)


def _limit(of: int, most: int) -> None:
    """What whoever started us may have at most is kept to; what the report set for itself is not
    ours."""
    _, hard = resource.getrlimit(of)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(of, (most, most))


if __name__ == "__main__":
    main()
