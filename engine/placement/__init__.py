"""A decision as it is written on a pod: node affinity, and annotations with the reasons.

Each encoder has its own file: required labels, exclusion of nodes, preferred terms, annotations,
and of a pod that is decided later its hold and its promises. `encode` runs those of a decision,
`patch` assembles their parts and tries them on the pod. Nothing of the user's is ever changed.
Which node is better is never decided here.
"""

from engine.model.decision import ADVICE_ANNOTATION, Advice
from engine.placement.affinity import Operation, and_into_required, graft
from engine.placement.annotations import (
    ANNOTATIONS,
    ESTIMATED_USAGE_ANNOTATION,
    REASON_ANNOTATION,
    advice_id,
    release_annotations,
)
from engine.placement.encoder import encode, encode_promises
from engine.placement.patch import Encoder, Patch, PatchTemplate, SharedPatch, hold_patch
from engine.placement.preferred_terms import nodes_to_find
from engine.placement.stored_pod import as_submitted

__all__ = [
    "ADVICE_ANNOTATION",
    "ANNOTATIONS",
    "ESTIMATED_USAGE_ANNOTATION",
    "REASON_ANNOTATION",
    "Advice",
    "Encoder",
    "Operation",
    "Patch",
    "PatchTemplate",
    "SharedPatch",
    "advice_id",
    "and_into_required",
    "as_submitted",
    "encode",
    "encode_promises",
    "graft",
    "hold_patch",
    "nodes_to_find",
    "release_annotations",
]
