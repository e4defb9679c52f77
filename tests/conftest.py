"""Settings for every test."""

from __future__ import annotations

import signal

from hypothesis import settings

# A busy machine is not a defect: no example fails for being slow.
settings.register_profile("diskproof", deadline=None, print_blob=True)
settings.load_profile("diskproof")

# Started in the background of a script, we inherit that Ctrl-C is ignored; our children must not.
signal.signal(signal.SIGINT, signal.default_int_handler)
