"""What guests of a tile do to each other: one file a load."""
