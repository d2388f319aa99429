"""The vocabulary: frozen data about pods, nodes, usage, quotas and decisions, in int64 base units.

What belongs here: what things are and how they are read from the Kubernetes API. What never does:
columns, rules, or anything that changes.
"""
