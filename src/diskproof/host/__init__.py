"""What this host is, what it can do, and how undisturbed it is: probed, never assumed."""
