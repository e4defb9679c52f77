"""Studies for fresh systems, small enough to be measured there several times."""

ONE_CELL = """
name = "one"
workloads = "sync-write-4k"
[factors]
frontend = "daemon"
format = "raw"
cache = ["none", "unsafe"]
[crash]
writers = "ledger"
faults = "power"
records = 64
explore_seconds = "2s"
[protocol]
size = "64MiB"
"""
SMALL_STUDY = """
name = "small"
workloads = ["rand-read-4k-d32"]
[factors]
frontend = "daemon"
cache = ["none", "writeback"]
[protocol]
blocks = 2
size = "32MiB"
runtime = "1s"
ramp = "100ms"
"""
