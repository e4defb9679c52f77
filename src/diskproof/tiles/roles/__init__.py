"""What a guest of a tile is: one file a role."""
