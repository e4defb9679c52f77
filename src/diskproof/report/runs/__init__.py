"""What did not work, and what was in force."""
