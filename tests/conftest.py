"""Settings for every test."""

from __future__ import annotations

from hypothesis import settings

# A busy machine is not a defect: no example fails for being slow.
settings.register_profile("diskproof", deadline=None, print_blob=True)
settings.load_profile("diskproof")
