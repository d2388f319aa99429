"""A pod as it was submitted: without what was written on it since, by us or for its node.

What filters promise stays in its required affinity: it cannot be told from the pod's own, and
whoever decides for the pod again has to obey it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from engine.model.advice import advice_in
from engine.model.hold import RELEASED_ANNOTATION
from engine.placement.affinity import PREFERRED
from engine.placement.annotations import ANNOTATIONS

_OURS: Final = (*ANNOTATIONS, RELEASED_ANNOTATION)
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


def as_submitted(raw: bytes) -> bytes:
    """Return a stored pod as JSON without its node, status, and our annotations and preferences.

    The preferred terms of an advice are the last ones of the pod, as many as the advice says.

    Args:
        raw: the pod as the API server sends it.
    """
    pod = _decode(raw)
    annotations = dict((pod.get("metadata") or {}).get("annotations") or {})
    advice = advice_in(annotations)
    spec = {key: value for key, value in (pod.get("spec") or {}).items() if key != "nodeName"}
    if advice is not None and advice.terms > 0:
        spec["affinity"] = _without_preferred(spec.get("affinity") or {}, advice.terms)
    for name in _OURS:
        annotations.pop(name, None)
    metadata = {**(pod.get("metadata") or {}), "annotations": annotations}
    return msgspec.json.encode({**pod, "metadata": metadata, "spec": spec, "status": {}})


def _without_preferred(affinity: dict[str, Any], terms: int) -> dict[str, Any]:
    """Return the affinity of a pod without its last preferred terms."""
    of_nodes = affinity.get("nodeAffinity") or {}
    preferred = of_nodes.get(PREFERRED) or []
    return {**affinity, "nodeAffinity": {**of_nodes, PREFERRED: preferred[:-terms]}}
