"""The annotations of a placed pod: estimated usage, advice and a line for a person; 1 KiB at most.

Tens of thousands of pods carry them, and every replica reads the advice back from its watch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.model.decision import ADVICE_ANNOTATION, MOST_NODES, Advice, Decision
from engine.model.quantity import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    MILLI,
    NANO,
    Format,
    Quantity,
    is_huge_pages,
)
from engine.model.resources import Amounts

ESTIMATED_USAGE_ANNOTATION = "stowplan.dev/estimated-usage"
"""JSON object of resource name to quantity: what the pod is expected to use."""

REASON_ANNOTATION = "stowplan.dev/reason"
"""One line for a person."""

ANNOTATIONS = (ESTIMATED_USAGE_ANNOTATION, ADVICE_ANNOTATION, REASON_ANNOTATION)

MAX_BYTES = 1024
"""The most our annotations take together, keys and values."""

_ESTIMATE_BYTES = 256
_ADVICE_BYTES = 448
_SURELY_FITTING_BYTES = _ADVICE_BYTES - 32  # less is counted for empty lists
_LONGEST_REASON = 256
_ID_BYTES = 8
_CUT = "..."
_BINARY = frozenset({MEMORY, EPHEMERAL_STORAGE})


def advice_of(
    decision: Decision, best_tier: NDArray[np.intp], review_uid: str, *, terms: int = 0
) -> Advice:
    """Return the advice, cut to the size of its annotation."""
    names = tuple([decision.names[row] for row in best_tier[:MOST_NODES].tolist()])
    advice = Advice(decision.policies, names, len(decision.ranking), advice_id(review_uid), terms)
    return fitted(advice)


def fitted(advice: Advice) -> Advice:
    """Return an advice without the names that its annotation has no room for."""
    if len(msgspec.json.encode(advice)) <= _SURELY_FITTING_BYTES:
        return advice
    framed = msgspec.structs.replace(advice, policies=("",), nodes=("",))
    room = _ADVICE_BYTES - len(msgspec.json.encode(framed))
    nodes = _fitting(advice.nodes, room)
    policies = _fitting(advice.policies, room - sum(map(_item_bytes, nodes)))
    return msgspec.structs.replace(advice, policies=policies, nodes=nodes)


def advice_id(review_uid: str) -> str:
    """Return a short identifier for a review's advice; nothing bounds the uid itself."""
    if not review_uid:
        return ""
    return blake2b(review_uid.encode(), digest_size=_ID_BYTES).hexdigest()


def advice_text(advice: Advice) -> str:
    """Value of the annotation with an advice."""
    return msgspec.json.encode(advice).decode()


def annotations_of(decision: Decision, advice: Advice) -> dict[str, str]:
    """Return the annotations to add, at most `MAX_BYTES` with their keys."""
    annotations = {ADVICE_ANNOTATION: advice_text(advice)}
    estimate = _estimate_text(decision.estimate)
    if estimate:
        annotations[ESTIMATED_USAGE_ANNOTATION] = estimate
    written = "".join((*annotations, *annotations.values(), REASON_ANNOTATION))
    reason = _cut(" ".join(decision.message.split()), MAX_BYTES - len(written.encode()))
    if reason:
        annotations[REASON_ANNOTATION] = reason
    return annotations


def release_annotations(estimate: Amounts, message: str) -> dict[str, str]:
    """Return the annotations of a pod that was decided when it was released.

    Args:
        estimate: expected usage of the pod, base units.
        message: one line for a person.
    """
    annotations = {}
    text = _estimate_text(estimate)
    if text:
        annotations[ESTIMATED_USAGE_ANNOTATION] = text
    reason = _cut(" ".join(message.split()), _LONGEST_REASON)
    if reason:
        annotations[REASON_ANNOTATION] = reason
    return annotations


def _estimate_text(estimate: Amounts) -> str:
    """Return the estimate as JSON, Kubernetes' own resources first; "" when there is none."""
    names = sorted(estimate, key=lambda name: ("/" in name, name))
    texts = {name: _quantity_text(name, estimate[name]) for name in names}
    while len(text := msgspec.json.encode(texts)) > _ESTIMATE_BYTES:
        texts.popitem()
    return text.decode() if texts else ""


def _quantity_text(name: str, amount: int) -> str:
    """Return an amount in base units as Kubernetes writes it: `850m`, `1Gi`."""
    if name == CPU:
        return _canonical(amount, MILLI, Format.DECIMAL_SI)
    binary = name in _BINARY or is_huge_pages(name)
    return _canonical(amount, 0, Format.BINARY_SI if binary else Format.DECIMAL_SI)


@lru_cache(maxsize=1024)
def _canonical(amount: int, scale: int, style: Format) -> str:
    """Return an amount in units of 10**scale as text; pods of one template share it."""
    return Quantity(amount * 10 ** (scale - NANO), style).canonical()


def _fitting(items: Sequence[str], room: int) -> tuple[str, ...]:
    """Return as many of the first items as fit into `room` bytes of a JSON array."""
    for count, item in enumerate(items):
        room -= _item_bytes(item)
        if room < 0:
            return tuple(items[:count])
    return tuple(items)


def _item_bytes(item: str) -> int:
    """Return the bytes of a text in a JSON array, with its comma."""
    return len(msgspec.json.encode(item)) + 1


def _cut(text: str, room: int) -> str:
    """Return the text, or its start and `...`, in at most `room` bytes."""
    encoded = text.encode()
    if len(encoded) <= room:
        return text
    return encoded[: room - len(_CUT)].decode(errors="ignore") + _CUT
