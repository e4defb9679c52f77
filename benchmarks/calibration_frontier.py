"""How far any rule can get that finds differences and does not fall for one wild cell.

    PYTHONPATH=src:tests python benchmarks/calibration_frontier.py

A rule judges a pair of cells by the difference of their means and by the scatter that each of them
shows. The most powerful one is a linear program: of all such rules, randomised ones too, the one
that proves the most pairs of a cell that is ahead of equal ones, while of cells that are equal any
is claimed to differ in at most 5 % of studies: where all scatter alike, and where one of them
scatters more, by any of ``TIMES``. It is told what the calm cells scatter by and what blocks did:
no real rule is better. Beside it Tukey's test that is told the same (docs/statistics.md).
"""

import sys

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, kron, vstack
from scipy.stats import chi2, studentized_range

from calibration_power import head, row
from support.noise_shapes import Array

BAR = 0.05
TIMES = (1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 50.0)
DRAWS = 100_000
DISTANCES = np.linspace(0, 9, 60)
"""In standard deviations of a calm run."""


def beyond(distances: Array) -> Array:
    """How often a distance is at least each of DISTANCES."""
    return 1 - np.searchsorted(np.sort(distances), DISTANCES) / len(distances)


def scatter_bins(blocks: int) -> Array:
    """Edges of the sums of squares that a cell is judged by."""
    shares = [*np.linspace(0.07, 0.93, 14), 0.96, 0.98, 0.995]
    return np.array([0.0, *chi2.ppf(shares, blocks - 1), np.inf])


def frontier(cells: int, blocks: int, ahead: float) -> tuple[float, float]:
    """The power of the best rule and of Tukey's test. ``ahead`` is in standard deviations of a calm
    run."""
    rng, edges = np.random.default_rng([cells, blocks]), scatter_bins(blocks)

    def shown(times: float) -> Array:
        return np.diff(chi2.cdf(edges / times**2, blocks - 1))

    def claimed(distances: Array, one: float, other: float) -> Array:
        return np.einsum("d,i,j->dij", beyond(distances), shown(one), shown(other)).ravel()

    calm = rng.standard_normal((DRAWS, cells)) / np.sqrt(blocks)
    wild = calm[:, 0]
    low, high = calm[:, 1:].min(axis=1), calm[:, 1:].max(axis=1)
    apart = np.abs(ahead + rng.standard_normal(DRAWS) * np.sqrt(2 / blocks))
    errors = [claimed(np.ptp(calm, axis=1), 1, 1)]
    for times in TIMES:
        farthest = np.maximum(np.abs(times * wild - low), np.abs(times * wild - high))
        errors += [claimed(farthest, times, 1), claimed(farthest, 1, times)]
    # By what both cells show a rule claims from some distance on: where it begins is unknown.
    begins = kron(np.ones((1, len(DISTANCES))), np.eye((len(edges) - 1) ** 2))
    bounds = np.append(np.full(len(errors), BAR), np.ones(begins.shape[0]))
    bars = vstack([csr_matrix(np.array(errors)), begins]).tocsr()
    found = linprog(-claimed(apart, 1, 1), A_ub=bars, b_ub=bounds, method="highs")
    tukey = (apart > studentized_range.ppf(0.95, cells, np.inf) / np.sqrt(blocks)).mean()
    return -found.fun, float(tukey)


def main() -> None:
    sizes = [int(each) for each in sys.argv[1:]] or [8, 24, 80]
    head("cells, blocks, scatter, ahead", ("best rule", "Tukey", "of it"))
    for cells in sizes:
        for blocks in (2, 3, 5):
            for sd, ahead in ((0.03, 1.2), (0.04, 1.2), (0.05, 1.2), (0.05, 1.3)):
                best, tukey = frontier(cells, blocks, np.log(ahead) / sd)
                told = (f"{each:.0%}" for each in (best, tukey, best / tukey))
                row(f"{cells}, {blocks}, {sd:.0%}, {ahead}", told)


if __name__ == "__main__":
    main()
