"""How steady a host, a cell and a run were."""
