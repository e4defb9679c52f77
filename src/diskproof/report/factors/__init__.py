"""Which setting matters how much."""
