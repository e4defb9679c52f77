"""What a study file may say: one file a table, and how it is read."""
