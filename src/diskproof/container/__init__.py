"""One program in an OCI container: made for it, and gone with it."""
