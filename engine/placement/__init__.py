"""A decision as it is written on a pod: node affinity, and annotations with the reasons.

Each encoder has its own file: required labels, exclusion of nodes, preferred terms, annotations,
and of a pod that is decided later its hold and its promises. `encode` runs those of a decision,
`patch` assembles their parts and tries them on the pod. Nothing of the user's is ever changed.
Which node is better is never decided here.
"""

from engine.model.advice import ADVICE_ANNOTATION, Advice
from engine.placement.affinity import Operation, and_into_required, graft
from engine.placement.annotations import (
    ANNOTATIONS,
    ESTIMATED_USAGE_ANNOTATION,
    REASON_ANNOTATION,
    advice_id,
    release_annotations,
)
from engine.placement.encoder import encode
from engine.placement.hold import hold_patch
from engine.placement.patch import Encoder, Patch
from engine.placement.promises import encode_promises
from engine.placement.scheduler_sample import nodes_to_find
from engine.placement.shared_patch import PatchTemplate, SharedPatch
from engine.placement.submitted import as_submitted

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
