"""Decisions at the moment of binding: the scheduler binds a pod, and is asked where to.

What belongs here: the pods that wait for the scheduler, the answer to each binding, what the watch
says became of it, and how that is seen: metrics, Events, records. What never does: which node is
better and whether it has room, which `engine.binding` says; or who leads.
"""

from webhook.binding.decider import BindingDecider, DeciderParts, SeenBindings, nothing_reserved
from webhook.binding.records import BindingRecord, BindingRecords, ReboundEvents
from webhook.binding.reviews import BindingCollector, BindingReviews

__all__ = [
    "BindingCollector",
    "BindingDecider",
    "BindingRecord",
    "BindingRecords",
    "BindingReviews",
    "DeciderParts",
    "ReboundEvents",
    "SeenBindings",
    "nothing_reserved",
]
