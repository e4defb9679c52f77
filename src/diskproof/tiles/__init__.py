"""Groups of guests that load each other, and how many of them a host carries."""
