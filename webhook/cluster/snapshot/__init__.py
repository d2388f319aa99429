"""Snapshots of live clusters in files, on request without the names that people gave.

What belongs here: the choice of the data to keep. What never does: writing to a cluster.
"""
