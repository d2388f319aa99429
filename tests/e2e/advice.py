"""What stowplan noted on a pod."""

from __future__ import annotations

from collections.abc import Iterable

from engine.model.decision import Advice, advice_in
from engine.placement.patch import ANNOTATIONS
from tests.e2e.cluster import Json


def advice_of(pod: Json) -> Advice | None:
    """Return the advice that a pod carries, None for none."""
    return advice_in(pod["metadata"].get("annotations", {}))


def first_choice(pod: Json) -> str:
    """Return the node that a pod was advised to take, empty for none."""
    advice = advice_of(pod)
    return advice.nodes[0] if advice and advice.nodes else ""


def without_advice(pods: Iterable[Json]) -> list[str]:
    """Return the names of the pods that carry no advice."""
    return [pod["metadata"]["name"] for pod in pods if advice_of(pod) is None]


def is_untouched(pod: Json) -> bool:
    """Return whether a pod carries nothing of ours."""
    return not set(ANNOTATIONS) & set(pod["metadata"].get("annotations", {}))
