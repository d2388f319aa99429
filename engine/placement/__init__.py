"""A decision as it is written on a pod: node affinity, and annotations with the reasons.

`affinity` has required labels and the exclusion of nodes, `preferred_terms` the preferred nodes,
`patch` annotations and what a hold adds. `encode` runs those of a decision, and `patch` assembles
their parts and tries them on the pod. Nothing of the user's is ever changed. Which node is better
is never decided here.
"""

from engine.model.decision import ADVICE_ANNOTATION, Advice
from engine.placement.affinity import Operation, and_into_required, graft
from engine.placement.encoder import encode, encode_promises
from engine.placement.patch import (
    ANNOTATIONS,
    ESTIMATED_USAGE_ANNOTATION,
    REASON_ANNOTATION,
    Encoder,
    Patch,
    PatchTemplate,
    SharedPatch,
    advice_id,
    hold_patch,
    release_annotations,
)
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
