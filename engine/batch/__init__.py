"""Decisions for many pods in order, each as if those before it were on their nodes already.

What pods of a template share, and what changes when one of them takes a node, belongs here. How a
node is judged does not: that is `engine.policy`, and `engine.pipeline` decides for one pod.
"""

from engine.batch.deciding import decide_batch
from engine.batch.outcome import BatchOutcome

__all__ = ["BatchOutcome", "decide_batch"]
