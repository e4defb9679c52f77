"""Grids, thin disks, warm-ups and lives of caches."""
