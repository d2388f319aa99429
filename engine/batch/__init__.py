"""Decisions for many pods in order, each as if those before it were on their nodes already.

What pods of a template share, and what changes when one of them takes a node, belongs here. How a
node is judged does not: that is `engine.policy`, and `engine.pipeline` decides for one pod.
"""

from engine.batch.deciding import decide_batch
from engine.batch.gang_placement import GangPlacement, StartingGang, domains_of_gang, place_gang
from engine.batch.outcome import BatchOutcome
from engine.batch.trial import Trial, place_all

__all__ = [
    "BatchOutcome",
    "GangPlacement",
    "StartingGang",
    "Trial",
    "decide_batch",
    "domains_of_gang",
    "place_all",
    "place_gang",
]
