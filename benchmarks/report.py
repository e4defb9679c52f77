"""How large and how quick the page is: 500 cells, in three shapes. Targets: 2 MB and 3 s.

Usage: PYTHONPATH=src:tests python benchmarks/report.py
Each shape is timed in a fresh interpreter, imports and the first use of the chart engine included.
"""

import subprocess
import sys
import time

SHAPES = {
    "2 workloads of 250 cells": (2, {"cluster_size": 5, "l2-cache-size": 5, "vcpus": 5}),
    "10 workloads of 50 cells": (10, {"cluster_size": 5, "l2-cache-size": 5}),
    "20 workloads of 25 cells": (20, {"cluster_size": 5, "l2-cache-size": 5}),
}


def measure(name: str) -> None:
    """Print seconds, megabytes and cells of one shape."""
    from support.report_views import make_view

    workloads, axes = SHAPES[name]
    factors = {axis: [f"{2**level}M" for level in range(count)] for axis, count in axes.items()}
    if "20" not in name:
        factors["cache"] = ["none", "writeback"]
    view = make_view(factors, [f"load-{number}" for number in range(workloads)])
    cells = sum(len(load.lines) for load in view.workloads)
    began = time.perf_counter()
    from diskproof.report.page import render_page

    size = len(render_page([view]).encode())
    seconds = time.perf_counter() - began
    print(f"{name}: {cells} cells, {size / 1e6:.2f} MB, {seconds:.2f} s")


def main() -> None:
    if len(sys.argv) > 1:
        measure(sys.argv[1])
        return
    for name in SHAPES:
        subprocess.run([sys.executable, __file__, name], check=True)


if __name__ == "__main__":
    main()
