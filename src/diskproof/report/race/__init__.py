"""Races: which cells left when, and who leads."""
