"""A folder under record, and the log of what was written there."""
