"""The advice in an annotation of a pod: written by one replica, read by all.

Anyone who may create pods can write this annotation, so nothing in it is trusted: a text that is
too long or malformed counts as no advice.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

ADVICE_ANNOTATION = "stowplan.dev/advice"
"""`Advice` as JSON."""

MOST_NODES = 5
"""The most nodes in an advice; of more, the first few count."""

_MOST_CHARACTERS = 1024


class Advice(msgspec.Struct, frozen=True, omit_defaults=True):
    """The advice for a pod, as far as other replicas need it.

    Attributes:
        policies: names of its policies, by precedence.
        nodes: names of the first few of the best tier, best first; none without a preference.
        candidates: number of nodes that could take the pod.
        id: unique to this advice; "" where no replica waits for the pod.
        terms: number of preferred terms that were added to the pod, the last ones it has.
    """

    policies: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    candidates: int = 0
    id: str = ""
    terms: int = 0


_decode = msgspec.json.Decoder(Advice).decode


def advice_in(annotations: Mapping[str, str]) -> Advice | None:
    """Return the advice in the annotations of a pod, None if there is no readable one."""
    text = annotations.get(ADVICE_ANNOTATION)
    if text is None or len(text) > _MOST_CHARACTERS:
        return None
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
