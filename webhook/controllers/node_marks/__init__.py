"""Marks on nodes, kept by the leader: what the filters of policies find of a node, for a while.

Hysteresis, and writes of the soft taint and of labels that are ours, belong here; what a filter
finds is the engine's, and whatever else stands on a node is never touched.
"""
