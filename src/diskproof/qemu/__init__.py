"""QEMU's command lines: pure functions from records to argument lists.

``disk`` is the disk under test (image options, block nodes, guest devices, the storage daemon's
export), ``machine`` the guest around it.
"""
