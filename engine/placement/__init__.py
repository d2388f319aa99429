"""A decision as it is written on a pod: node affinity, and annotations that say why.

What belongs here: how a ranking and its rejected nodes become terms that the stock scheduler reads,
and a patch that adds them and changes nothing of the user's. What never does: which node is better.
"""

from engine.model.advice import ADVICE_ANNOTATION, Advice
from engine.placement.affinity import and_into_required
from engine.placement.annotations import (
    ANNOTATIONS,
    ESTIMATED_USAGE_ANNOTATION,
    REASON_ANNOTATION,
    advice_id,
)
from engine.placement.patch import Patch, patch_for

__all__ = [
    "ADVICE_ANNOTATION",
    "ANNOTATIONS",
    "ESTIMATED_USAGE_ANNOTATION",
    "REASON_ANNOTATION",
    "Advice",
    "Patch",
    "advice_id",
    "and_into_required",
    "patch_for",
]
