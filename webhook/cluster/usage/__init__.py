"""Measured usage of nodes and pods, polled from `metrics.k8s.io` or Prometheus.

What belongs here: sources that have no watch, and their history. What never does: Koordinator's
NodeMetrics, which are watched like any other kind.
"""
