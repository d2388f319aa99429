"""Templates: pods that no rule can tell apart."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import chain

import msgspec
from msgspec.structs import asdict

from engine.model.request import PlacementRequest
from engine.policy import PolicySet, request_key

_OWN = ("name", "generate_name", "uid", "owner_uid", "created", "annotations", "labels", "shape")
"""Fields in which pods of a template may differ, or which are looked at by themselves."""

_encode = msgspec.msgpack.Encoder().encode


class TemplateKeys:
    """Keys of pods, equal only where policies cannot tell two pods apart.

    Plugins read no annotation and no label of a pod but through its shape, so of these only what
    selectors and expressions name counts.

    Args:
        policies: the policies.
    """

    def __init__(self, policies: PolicySet) -> None:
        programs = chain.from_iterable(policy.programs for policy in policies)
        self._paths = frozenset[tuple[str, ...]]().union(
            *(program.references for program in programs)
        )
        selectors = (policy.object_selector for policy in policies)
        requirements = chain.from_iterable(selector.requirements for selector in selectors)
        self._labels = sorted({requirement.key for requirement in requirements})

    def key(self, request: PlacementRequest) -> Hashable | None:
        """Return the key of a pod, None if it is one of its kind.

        Valid while the shape of the pod is held.
        """
        pod = request.pod
        expressions = request_key(self._paths, request) if self._paths else ""
        if expressions is None or request.expired is not None:
            return None
        fields = asdict(pod)
        for name in _OWN:
            del fields[name]
        labels = [pod.labels.get(name) for name in self._labels]
        others = (fields, labels, request.namespace_labels, pod.is_mirror)
        return id(pod.shape), expressions, _encode(others)
