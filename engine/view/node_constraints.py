"""What a pod itself says of the nodes that can run it, as a short text that is judged node by node.

Anyone may write an advice for any node on a pod, so that it counts there: it must not where the
scheduler will never put it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from engine.model import api
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.resources import Amounts
from engine.model.selectors import NodeSelector, parse_node_selector
from engine.model.taints import NO_EXECUTE, NO_SCHEDULE, untolerated

_LONGEST_TEXT: Final = 4_096  # of some thousand assumed pods at a time
_CACHED_TEXTS: Final = 256  # of templates that arrive together
_REPELLING: Final = frozenset({NO_SCHEDULE, NO_EXECUTE})
_UNSCHEDULABLE: Final = api.Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


class _Wire(msgspec.Struct, frozen=True, array_like=True):
    """The text, as msgpack."""

    labels: dict[str, str]
    required: api.NodeSelector | None
    tolerations: tuple[api.Toleration, ...]


class _Constraints(NamedTuple):
    labels: dict[str, str]
    selector: NodeSelector | None
    tolerations: tuple[api.Toleration, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Wire).decode


def constraints_of(pod: Pod) -> bytes | None:
    """Return the constraints of a pod as a text, equal for pods of one template.

    None if the text would be too long to be kept, or holds half a character.
    """
    required = None
    if pod.affinity is not None:
        required = pod.affinity.required_during_scheduling_ignored_during_execution
    try:
        text = _encode(_Wire(dict(pod.node_selector), required, pod.tolerations))
    except UnicodeEncodeError:
        return None
    return text if len(text) <= _LONGEST_TEXT else None


def admits(constraints: bytes, requests: Amounts, node: Node) -> bool:
    """Return whether a pod could ever run on a node, were it empty.

    Args:
        constraints: of the pod, by `constraints_of`.
        requests: of the pod.
        node: as it is now.
    """
    labels, selector, tolerations = _parsed(constraints)
    taints = (*node.taints, _UNSCHEDULABLE) if node.unschedulable else node.taints
    if taints and untolerated(taints, tolerations, _REPELLING):
        return False
    if any(node.labels.get(key) != value for key, value in labels.items()):
        return False
    if selector is not None and not selector.matches(node.labels, node.name):
        return False
    return all(amount <= node.allocatable.get(name, 0) for name, amount in requests.items())


@lru_cache(maxsize=_CACHED_TEXTS)
def _parsed(constraints: bytes) -> _Constraints:
    wire = _decode(constraints)
    selector = None if wire.required is None else parse_node_selector(wire.required)[0]
    return _Constraints(wire.labels, selector, wire.tolerations)
