"""Numbers from numbers: intervals, ranking, merged histograms. Pure: no files, no processes."""
