"""What a crash leaves, and what of it stands beside a speed."""
