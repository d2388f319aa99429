"""Templates: pods that no rule can tell apart."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import astuple

from engine.cel import Reference
from engine.model.controller_selector import controller_selector
from engine.model.pod import Pod
from engine.model.pod_affinity import parse_affinity_terms
from engine.model.request import PlacementRequest
from engine.model.selectors import parse_label_selector
from engine.policy import PolicySet, request_key
from engine.view import ClusterView

_OWN: Final = frozenset(
    ("name", "generate_name", "uid", "owner_uid", "created", "annotations", "labels", "shape")
)
"""Fields in which pods of a template may differ, or which are looked at by themselves."""

_OF_SHAPE: Final = frozenset(("containers", "init_containers"))
"""Fields of which nothing is read but what pods of one shape have in common, and the images."""

_fields_of = itemgetter(
    *(i for i, name in enumerate(Pod.__struct_fields__) if name not in _OWN | _OF_SHAPE)
)
_encode = msgspec.msgpack.Encoder().encode

_Key: TypeAlias = tuple[int, str, bytes]

_OWN_PATHS: Final = frozenset(("name", "generateName", "annotations", "labels"))
"""What expressions read of a pod that its other fields and its shape do not determine."""


class TemplateKeys:
    """Keys of pods, equal only where neither policies nor other pods can tell two pods apart.

    Plugins read no annotation of a pod but through its shape, and no label but through that and
    selectors of pods, so of these only what selectors and expressions name counts.

    Args:
        policies: the policies.
        pods: those that get a key.
        view: the cluster without them.
    """

    def __init__(self, policies: PolicySet, pods: Iterable[Pod], view: ClusterView) -> None:
        programs = chain.from_iterable(policy.programs for policy in policies)
        paths = chain.from_iterable(program.references for program in programs)
        self._paths = frozenset(path for path in paths if _may_differ(path))
        selectors = (policy.object_selector for policy in policies)
        requirements = chain.from_iterable(selector.requirements for selector in selectors)
        of_policies = {requirement.key for requirement in requirements}
        of_pods = map(_keys_selected_by, pods)
        self._latest: dict[int, tuple[tuple[object, ...], _Key]] = {}  # of pods of a shape
        book = view.trait_book
        carried = [each.label_keys for each in (book.anti_affinity, *book.attraction.values())]
        self._labels = sorted(of_policies.union(*carried, *of_pods))

    def key(self, request: PlacementRequest) -> Hashable | None:
        """Return the key of a pod, None if it is one of its kind.

        Valid while the shape of the pod is held.
        """
        pod = request.pod
        expressions = request_key(self._paths, request) if self._paths else ""
        if expressions is None or request.expired is not None:
            return None
        labels = [pod.labels.get(name) for name in self._labels] if self._labels else ()
        others = (
            _fields_of(astuple(pod)),
            labels,
            request.namespace_labels,
            pod.is_mirror,
            expressions,
        )
        shape = id(pod.shape)
        latest = self._latest.get(shape)
        if latest is None or latest[0] != others:  # pods of a template mostly follow each other
            latest = self._latest[shape] = others, (shape, expressions, _encode(others[:-1]))
        return latest[1]


def template_keys(
    requests: Sequence[PlacementRequest], policies: PolicySet, view: ClusterView
) -> list[Hashable | None]:
    """Return the key of each pod; see `TemplateKeys`."""
    keys = TemplateKeys(policies, [request.pod for request in requests], view)
    return [keys.key(request) for request in requests]


def _keys_selected_by(pod: Pod) -> Iterable[str]:
    """Return the keys of labels by which a pod selects others; it may select itself by any."""
    preferred = (*pod.preferred_pod_affinity, *pod.preferred_pod_anti_affinity)
    written = (*pod.pod_affinity, *pod.pod_anti_affinity)
    written += tuple(each.pod_affinity_term for each in preferred)
    terms = parse_affinity_terms(written, pod.namespace) if written else ()
    selectors = [term.selector for term in terms if term.selector is not None]
    siblings = controller_selector(pod)
    if siblings is not None:
        selectors.append(siblings)
    keys: list[str] = []
    for constraint in (*pod.topology_spread, *pod.soft_topology_spread):
        keys += constraint.match_label_keys or ()
        if constraint.label_selector is not None:
            selectors.append(parse_label_selector(constraint.label_selector)[0])
    return [*keys, *(each.key for selector in selectors for each in selector.requirements)]


def _may_differ(path: Reference) -> bool:
    """Return whether pods that are alike in all else may differ in what an expression reads."""
    root, *fields = path
    if root == "pod":
        return not fields or fields[0] in _OWN_PATHS
    return root not in {"node", "now", "variables"}
