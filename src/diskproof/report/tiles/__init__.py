"""How many virtual machines a host carries."""
