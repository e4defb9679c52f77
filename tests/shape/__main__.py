"""``python -m shape``: every figure at the base, now, its ceiling and its bar."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from shape.ceilings import Ceilings, check_figures, lower, read_ceilings, write_ceilings
from shape.figures import Figure, measure_static, measure_walks
from shape.tree import Tree


def main() -> int:
    """Ends with 1 when a figure is not where its ceiling says."""
    wish = _parse()
    tree = Tree(wish.root)
    figures = [*measure_static(tree), *([] if wish.static else measure_walks(tree))]
    held = read_ceilings()
    if wish.lower:
        held = lower(figures, held)
        write_ceilings(held)
    print_table(figures, held)
    if wish.verbose:
        for figure in figures:
            print(f"\n{figure.name}: {figure.value:g}", *figure.found, sep="\n  ")
    wrong = check_figures(figures, held)
    print("", *wrong, sep="\n" if wrong else "")
    return 1 if wrong else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make shape", description=__doc__)
    parser.add_argument(
        "--root", type=Path, default=Path(__file__).parents[2], help="the tree to measure"
    )
    parser.add_argument("--verbose", action="store_true", help="list what was counted")
    parser.add_argument("--static", action="store_true", help="run nothing")
    parser.add_argument("--lower", action="store_true", help="lower the ceilings to what is now")
    return parser.parse_args()


def print_table(figures: Sequence[Figure], held: Ceilings) -> None:
    width = max(len(figure.name) for figure in figures)
    heads = (f"at {held.base_commit}", "now", "ceiling", "bar")
    print(f"{'figure':<{width}}  " + "  ".join(f"{head:>10}" for head in heads))
    for figure in figures:
        row = held.figures[figure.name]
        cells = (row.base, figure.value, row.ceiling, row.bar)
        print(f"{figure.name:<{width}}  " + "  ".join(f"{_number(each):>10}" for each in cells))


def _number(value: float) -> str:
    return f"{value:,.2f}" if value % 1 else f"{value:,.0f}"


if __name__ == "__main__":
    sys.exit(main())
