"""What we start, what it may open, and where its private folders are."""
