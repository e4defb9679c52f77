"""Cells in the words of those who run virtual machines, and their words as cells.

Pure: text in, records out and back. One file a dialect, both ways from one table; whoever reads
what is on a machine is in ``host/machines``.
"""
