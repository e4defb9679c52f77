"""All workloads of a study together."""
