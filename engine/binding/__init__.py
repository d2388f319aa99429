"""Decisions at the moment of binding: the scheduler's node is kept or replaced.

What becomes of one binding, what is known of those on their way, what room one must leave, and how
a decision is written on a Binding belong here. Which node is better does not: that is
`engine.pipeline`.
"""

from engine.binding.decision import (
    BINDING_REASON_ANNOTATION,
    NO_LIMITS,
    REASON_TEXTS,
    SCHEDULER_NODE_ANNOTATION,
    BindingAction,
    BindingCycle,
    BindingDecision,
    BindingReason,
    MoveLimits,
    decide_binding,
    decide_by_amounts,
    decide_in_haste,
    decide_unseen,
    encode_binding,
)
from engine.binding.kept_room import AwaitedRoom, missing_of_place, takes_nominated_room
from engine.binding.ledger import BindingCounters, BindingLedger, BindingTicket, Landing

__all__ = [
    "BINDING_REASON_ANNOTATION",
    "NO_LIMITS",
    "REASON_TEXTS",
    "SCHEDULER_NODE_ANNOTATION",
    "AwaitedRoom",
    "BindingAction",
    "BindingCounters",
    "BindingCycle",
    "BindingDecision",
    "BindingLedger",
    "BindingReason",
    "BindingTicket",
    "Landing",
    "MoveLimits",
    "decide_binding",
    "decide_by_amounts",
    "decide_in_haste",
    "decide_unseen",
    "encode_binding",
    "missing_of_place",
    "takes_nominated_room",
]
