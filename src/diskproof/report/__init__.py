"""Tables, charts and the page; sentences for people. Reads the store, never QEMU."""
