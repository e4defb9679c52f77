"""What the monitor recorded, as a page and as a table."""
