"""Decisions for many pods in order, each as if those before it were on their nodes already.

What pods of a template share, and what changes when one of them takes a node, belongs here. How a
node is judged does not: that is `engine.policy`, and `engine.pipeline` decides for one pod.
"""

from engine.batch.batch import BatchOutcome, Trial, place_all
from engine.batch.gang_placement import GangPlacement, StartingGang, domains_of_gang, place_gang

__all__ = [
    "BatchOutcome",
    "GangPlacement",
    "StartingGang",
    "Trial",
    "domains_of_gang",
    "place_all",
    "place_gang",
]
