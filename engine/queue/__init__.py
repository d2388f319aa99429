"""The order in which held pods are released: one total order, built on upstream's queue sorts.

Belongs here: the queue sorts of kube-scheduler and scheduler-plugins, one file each, and the order
that is built on one of them. Never: whether a pod may be released, and where it goes.
"""

from engine.queue.queue_order import QUEUE_SORTS, QueueOrder, QueueSortName
from engine.queue.queue_sort import AppGroups, QueueFacts, QueueSort, SortKey

__all__ = [
    "QUEUE_SORTS",
    "AppGroups",
    "QueueFacts",
    "QueueOrder",
    "QueueSort",
    "QueueSortName",
    "SortKey",
]
