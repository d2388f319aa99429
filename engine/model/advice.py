"""The advice a pod carries: written by whoever advised it, read back by every replica.

Anyone who may create pods can write this annotation too, so nothing in it is trusted: a text that
is too long or malformed is no advice.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

ADVICE_ANNOTATION = "stowplan.dev/advice"
"""`Advice` as JSON."""

MOST_NODES = 5
"""How many nodes an advice names at most; of one that names more, the first few count."""

_MOST_CHARACTERS = 1024


class Advice(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was advised for a pod, as far as others need to know.

    Attributes:
        policies: names of the policies it comes from, by precedence.
        nodes: names of the first few of the best tier, best first; none when nothing is preferred.
        candidates: how many nodes could take the pod.
        id: tells this advice from all others; "" where nobody will look for it.
    """

    policies: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    candidates: int = 0
    id: str = ""


_decode = msgspec.json.Decoder(Advice).decode


def advice_in(annotations: Mapping[str, str]) -> Advice | None:
    """Return the advice that a pod carries, None where it carries none that can be read."""
    text = annotations.get(ADVICE_ANNOTATION)
    if text is None or len(text) > _MOST_CHARACTERS:
        return None
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
