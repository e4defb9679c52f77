"""A program of its own: charts in JSON on its input become SVG in JSON on its output.

The drawing library holds a whole browser engine, and a fault in it ends its process. It works
within limits here, and knows nothing but the charts.
"""

import json
import resource
import sys

DATA_BYTES = 1 << 30
CPU_SECONDS = 60


def main() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES, DATA_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    import vl_convert

    charts = json.load(sys.stdin)
    json.dump([vl_convert.vegalite_to_svg(chart) for chart in charts], sys.stdout)


if __name__ == "__main__":
    main()
