"""What every experiment shares."""
