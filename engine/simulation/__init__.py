"""Arrivals replayed on a recorded cluster, under a model of the scheduler and under policies."""
