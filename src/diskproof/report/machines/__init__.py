"""Machines that were found, with what is to be said of their disks."""
