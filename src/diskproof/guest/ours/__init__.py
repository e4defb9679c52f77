"""The Linux guest that measurements run in.

``build`` makes it (stock kernel, initramfs with our agent as ``/init``, read-only root with the
tools), ``boot`` runs it under QEMU for the length of a ``with`` block, ``channel`` talks to the
agent. See docs/guest.md and docs/guest-protocol.md.
"""
