"""Frozen data about pods, nodes, usage, quotas and decisions, in int64 base units.

What belongs here: what objects are, how they are read from the Kubernetes API (`kinds` lists those
that are), and pure arithmetic on them. What never does: columns, rules, or anything that changes.
"""
