"""Latencies, time series and single runs of a workload."""
