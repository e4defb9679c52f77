"""Measures the shape of the source: how long, how tangled, how many files a thing touches.

``python -m shape`` prints every figure beside its baseline and its ceiling (``ceilings.toml``);
``test_shape.py`` holds the ceilings. Figures come from any tree (``--root``), so that the baseline
is measured by the same program.
"""
