"""A virtual machine of the user's own: its image, QEMU for it, and its guest agent."""
