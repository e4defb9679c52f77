"""The blocks' part of the model ``log value = cell + block + error``, the cells eliminated.

Every fit of that model rests on it: ``model`` (with a variance for each cell), ``cell_means`` (for
contrasts of cells) and ``race_fit`` (for cells that left early).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

RESOLVED = 1e-10
"""Smaller eigenvalues, relative to the largest, are none: one is always 0, for only differences of
blocks are told, and each further group of blocks without a common cell adds one."""


@dataclass(frozen=True)
class BlockEquations:
    """``normal @ effects = right side``, blocks x blocks; ``inverse`` is the pseudo-inverse, which
    lets the effects add up to nought."""

    normal: Array
    inverse: Array


def eliminate_cells(present: Array, weights: Array) -> BlockEquations:
    """The equations of least squares for the block effects.

    ``present`` counts the runs of each cell in each block (cells x blocks); ``weights`` are the
    precision of a run, by cell. A cell without a run takes no part.
    """
    runs = np.maximum(present.sum(axis=1), 1.0)
    normal = np.diag(weights @ present) - (present * (weights / runs)[:, None]).T @ present
    return BlockEquations(normal, np.linalg.pinv(normal, rcond=RESOLVED, hermitian=True))
