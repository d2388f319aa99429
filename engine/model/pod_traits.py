"""What rules for other pods read of a pod that is on a node, as a text that is kept for it.

Pods of a template share one, so that 150,000 pods hold some ten thousand.
"""

from __future__ import annotations

from typing import Final

import msgspec

from engine.model import api
from engine.model.host_ports import HostPort
from engine.model.pod import Pod

LONGEST_TRAITS: Final = 8_192  # bytes; those of an everyday pod take 300


class PodTraits(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The traits of a pod.

    Attributes:
        terminating: whether it is being deleted.
        anti_affinity: the required terms.
    """

    namespace: str
    labels: dict[str, str]
    terminating: bool
    anti_affinity: tuple[api.PodAffinityTerm, ...]
    host_ports: tuple[HostPort, ...]


NO_TRAITS: Final = b""
"""Of a pod of which nothing is known: no rule finds it."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PodTraits).decode


def traits_of(pod: Pod) -> bytes:
    """Return the traits of a pod as a text, equal for pods of one template.

    NO_TRAITS if it would be too long to be kept, or holds half a character: no one else can
    tell where such a pod is.
    """
    try:
        text = _encode(
            (pod.namespace, pod.labels, pod.deleting, pod.pod_anti_affinity, pod.host_ports)
        )
    except UnicodeEncodeError:
        return NO_TRAITS
    return text if len(text) <= LONGEST_TRAITS else NO_TRAITS


def decoded_traits(text: bytes) -> PodTraits:
    """Return the traits that a text spells, which is not NO_TRAITS."""
    return _decode(text)
