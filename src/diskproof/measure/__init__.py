"""The experiment that measures: one run of a cell."""
