"""diskproof: which virtual-disk settings are fast on a host, and which keep your data."""

__version__ = "0.1.0"
