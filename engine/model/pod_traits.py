"""What rules for other pods read of a pod that is on a node, as a text that is kept for it.

Pods of a template share one, so that 150,000 pods hold some ten thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from engine.model import api
from engine.model.host_ports import HostPort
from engine.model.pod import Pod

LONGEST_TRAITS: Final = 8_192  # bytes; those of an everyday pod take 300


class PodTraits(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The traits of a pod.

    Attributes:
        terminating: whether it is being deleted.
        not_evictable_by: the autoscalers that do not evict it.
        anti_affinity: the required terms.
        attraction: the preferred terms of affinity, those of anti-affinity with weights below 0,
            and with REQUIRED the required terms of affinity, which make a node better for others,
            too.
    """

    namespace: str
    labels: dict[str, str]
    terminating: bool
    not_evictable_by: tuple[str, ...]
    anti_affinity: tuple[api.PodAffinityTerm, ...]
    host_ports: tuple[HostPort, ...]
    attraction: tuple[api.WeightedPodAffinityTerm, ...]


REQUIRED: Final = 0
"""The weight of a term that is required, which no preferred one has."""

NO_TRAITS: Final = b""
"""Of a pod of which nothing is known: no rule finds it."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PodTraits).decode


def traits_of(pod: Pod) -> bytes:
    """Return the traits of a pod as a text, equal for pods of one template.

    NO_TRAITS if it would be too long to be kept, or holds half a character: no one else can
    tell where such a pod is.
    """
    known = (
        *(pod.namespace, pod.labels, pod.deleting, pod.not_evictable_by),
        *(pod.pod_anti_affinity, pod.host_ports),
    )
    try:
        text = _encode((*known, _attraction(pod)))
        if len(text) > LONGEST_TRAITS:  # what it only prefers is worth least
            text = _encode((*known, ()))
    except UnicodeEncodeError:
        return NO_TRAITS
    return text if len(text) <= LONGEST_TRAITS else NO_TRAITS


def _attraction(pod: Pod) -> Sequence[api.WeightedPodAffinityTerm]:
    """Return what the pod prefers of other pods, each way."""
    near, away = pod.preferred_pod_affinity, pod.preferred_pod_anti_affinity
    if not (near or away or pod.pod_affinity):
        return ()
    return (
        *near,
        *(replace(term, weight=-term.weight) for term in away),
        *(
            api.WeightedPodAffinityTerm(weight=REQUIRED, pod_affinity_term=term)
            for term in pod.pod_affinity
        ),
    )


def decoded_traits(text: bytes) -> PodTraits:
    """Return the traits that a text spells, which is not NO_TRAITS."""
    return _decode(text)
