"""What runs under QEMU: our own guest, a Debian that boots, the user's machine."""
