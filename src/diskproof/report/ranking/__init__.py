"""Who is fastest under each workload."""
