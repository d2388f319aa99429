"""A policy on a recorded cluster: words that nothing there has, rules that decide nothing there.

What a recording lacks may come later, so none of it is a mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from engine.cel import ast
from engine.errors import counted, did_you_mean
from engine.model.decision import PlacementRequest
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.pod_classes import PriorityClass
from engine.model.selectors import LabelSelector
from engine.model.time import Micros
from engine.model.well_known import NAMESPACE_NAME_LABEL, SYSTEM_CLASSES
from engine.plugins import Named
from engine.policy import CompiledPolicy
from engine.policy.policy_set import Finding
from engine.policy_lint.args import Name, names_in_args
from engine.policy_lint.effects import effect_findings
from engine.policy_lint.reads import (
    ANY,
    EQUALITIES,
    SAME,
    Part,
    ReadPath,
    Reads,
    parts_of,
    path_text,
)
from engine.policy_lint.samples import samples_of
from engine.policy_lint.vocabulary import is_known
from engine.view import ClusterView

_MOST_LISTED: Final = 5
_SEARCHES: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "contains": lambda text, part: part in text,
    "endsWith": str.endswith,
    "startsWith": str.startswith,
}
_AMOUNTS: Final = frozenset(
    {
        *(("node", name) for name in ("allocatable", "limits", "requested", "usage")),
        *(("pod", name) for name in ("limits", "requests")),
    }
)
_WHAT: Final[Mapping[ReadPath, str]] = {
    ("node", "labels"): "no node has a label",
    ("node", "annotations"): "no node has an annotation",
    ("pod", "labels"): "no pod has a label",
    ("pod", "annotations"): "no pod has an annotation",
    ("namespaceObject", "metadata", "labels"): "no namespace has a label",
    **dict.fromkeys(_AMOUNTS, "no node has a resource"),
}


@dataclass(frozen=True, kw_only=True)
class KnownCluster:
    """A recorded cluster, as far as policies are compared with it.

    Attributes:
        view: it; keeps the sums that the policies need.
        now: the moment of the recording.
        pods: its pods as they would be created.
    """

    view: ClusterView
    now: Micros
    pods: Sequence[PlacementRequest]

    @cached_property
    def keys(self) -> Mapping[ReadPath, frozenset[str]]:
        """The keys of each map of the cluster's objects."""
        nodes, pods = self._nodes, [request.pod for request in self.pods]
        offered = frozenset(name for node in nodes for name in node.allocatable)
        return {
            ("node", "labels"): _keys(node.labels for node in nodes),
            ("node", "annotations"): _keys(node.annotations for node in nodes),
            ("pod", "labels"): _keys(pod.labels for pod in pods),
            ("pod", "annotations"): _keys(pod.annotations for pod in pods),
            ("namespaceObject", "metadata", "labels"): _keys(self._namespaces.values()),
            **dict.fromkeys(_AMOUNTS, offered),
        }

    @cached_property
    def values(self) -> Mapping[ReadPath, frozenset[str]]:
        """The strings that each field has in the cluster's objects, by what leads to it."""
        found: dict[ReadPath, set[str]] = {}

        def add(path: ReadPath, *texts: str) -> None:
            found.setdefault(path, set()).update(texts)

        for node in self._nodes:
            add(("node", "name"), node.name)
            for key, value in node.labels.items():
                add(("node", "labels", key), value)
            for taint in node.taints:
                add(("node", "taints", ANY, "key"), taint.key)
                add(("node", "taints", ANY, "value"), taint.value)
                add(("node", "taints", ANY, "effect"), taint.effect)
            for condition in node.conditions:
                add(("node", "conditions", ANY, "type"), condition.type)
        for name, labels in self._namespaces.items():
            add(("pod", "namespace"), name)
            for key, value in labels.items():
                add(("namespaceObject", "metadata", "labels", key), value)
        for pod in (request.pod for request in self.pods):
            _add_pod(add, pod)
        classes = (each.name for each in self.view.all_of(PriorityClass))
        add(("pod", "priorityClassName"), *classes, *SYSTEM_CLASSES)
        for path, same in SAME.items():
            add(path, *found.get(same, ()))
        return {path: frozenset(texts) for path, texts in found.items()}

    @property
    def _nodes(self) -> list[Node]:
        return [node for node in self.view.nodes if node is not None]

    @property
    def _namespaces(self) -> dict[str, Mapping[str, str]]:
        known = self.view.namespaces.labels
        names = dict.fromkeys([*known, *(request.pod.namespace for request in self.pods)])
        return {name: {NAMESPACE_NAME_LABEL: name, **known.get(name, {})} for name in names}


def cluster_findings(policy: CompiledPolicy, cluster: KnownCluster) -> Iterator[Finding]:
    """Yield what a policy asks for and the cluster lacks, and what it does not decide there."""
    words = [
        *_words_of_selectors(policy, cluster),
        *(found for part in parts_of(policy) for found in _words(part, cluster)),
    ]
    yield from words
    samples = samples_of(policy, cluster.view, cluster.now, cluster.pods)
    explained = {found.part for found in words if found.part}
    for found in effect_findings(policy, samples):
        if found.part not in explained:
            yield found


def args_findings(policy: CompiledPolicy, cluster: KnownCluster) -> Iterator[Finding]:
    """Yield the nodes, labels and resources that args of plugins name, and the cluster lacks."""
    for part, names in names_in_args(policy):
        yield from _missing_keys(part, names, cluster)
        yield from _missing_nodes(part, names, cluster)


_MAP_OF: Final[Mapping[Named, ReadPath]] = {
    Named.LABEL: ("node", "labels"),
    Named.RESOURCE: ("node", "allocatable"),
}


def _missing_keys(part: str, names: Iterable[Name], cluster: KnownCluster) -> Iterator[Finding]:
    for of, name, path, is_key in names:
        known = cluster.keys[_MAP_OF[of]] if of in _MAP_OF else {name}
        if name not in known:
            message = f"{_WHAT[_MAP_OF[of]]} `{name}` in the recording"
            hint = did_you_mean(name, sorted(known))
            yield Finding(part, message, hint, path=path, is_key=is_key)


def _missing_nodes(part: str, names: Iterable[Name], cluster: KnownCluster) -> Iterator[Finding]:
    """Yield the keys that are no node's name, with the count of nodes that are no key."""
    nodes = cluster.values.get(("node", "name"), frozenset())
    named = [each for each in names if each.of is Named.NODE]
    missing = [each for each in named if each.name not in nodes]
    if missing:
        (_, first, path, is_key), others = missing[0], [each.name for each in missing]
        without = len(nodes - {each.name for each in named})
        has = "has" if without == 1 else "have"
        message = (
            f"no node of the recording is called {_listed(others)}:"
            f" {without} of {counted(len(nodes), 'node')} {has} no `{path[-2]}`"
        )
        there = sorted(nodes)
        hint = did_you_mean(first, there) or f"there are {_listed(there)}"
        yield Finding(part, message, hint, path=path, is_key=is_key)


def _keys(maps: Iterable[Mapping[str, str]]) -> frozenset[str]:
    return frozenset(key for each in maps for key in each)


def _add_pod(add: Callable[..., None], pod: Pod) -> None:
    for key, value in pod.labels.items():
        add(("pod", "labels", key), value)
    for toleration in pod.tolerations:
        add(("pod", "tolerations", ANY, "key"), toleration.key)
    add(("pod", "schedulerName"), pod.scheduler_name)
    add(("pod", "ownerKinds", ANY), *pod.owner_kinds)
    add(("pod", "priorityClassName"), pod.priority_class_name)
    add(("object", "spec", "containers", ANY, "image"), *pod.images)


def _words(part: Part, cluster: KnownCluster) -> Iterator[Finding]:
    """Yield a finding for each constant of an expression that no object of the cluster has."""
    reads = Reads(part.program.root)
    missing: set[ReadPath] = set()
    for read in dict.fromkeys(reads.keys):
        keys = cluster.keys.get(read.path)
        if keys is not None and read.key not in keys and (*read.path, read.key) not in missing:
            missing.add((*read.path, read.key))
            message = f"{_WHAT[read.path]} `{read.key}`"
            hint = did_you_mean(read.key, sorted(keys))
            yield Finding(part.name, f"{message} in the recording", hint, read.offset)
    for compared in dict.fromkeys(reads.comparisons):
        value, path = compared.literal.value, compared.path
        if compared.operator in EQUALITIES | {"in"} and isinstance(value, str) and value:
            values = cluster.values.get(path)
            if values is not None and value not in values:
                yield _not_there(part, path, f"is `{value}`", values, compared.literal)
    for searched in dict.fromkeys(reads.searches):
        search, values = _SEARCHES.get(searched.operator), cluster.values.get(searched.path)
        text = searched.literal.value
        if search is None or values is None or not isinstance(text, str):
            continue
        if not any(search(value, text) for value in values):
            what = f"`{searched.operator}` `{text}`"
            yield _not_there(part, searched.path, what, values, searched.literal)


def _not_there(
    part: Part, path: ReadPath, what: str, values: frozenset[str], literal: ast.Literal
) -> Finding:
    there = sorted(filter(None, values))
    value = str(literal.value)
    is_word = what.startswith("is ") and not is_known(path, value)
    near = did_you_mean(value, there) if is_word else ""
    hint = near or (f"there are {_listed(there)}" if there else "")
    return Finding(
        part.name, f"no `{path_text(path)}` of the recording {what}", hint, literal.offset
    )


def _listed(names: Sequence[str]) -> str:
    listed = ", ".join(f"`{name}`" for name in names[:_MOST_LISTED])
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return listed + more


def _words_of_selectors(policy: CompiledPolicy, cluster: KnownCluster) -> Iterator[Finding]:
    for name, selector, path in (
        ("namespaceSelector", policy.namespace_selector, ("namespaceObject", "metadata", "labels")),
        ("objectSelector", policy.object_selector, ("pod", "labels")),
    ):
        yield from _words_of_selector(name, selector, path, cluster)
    written = () if policy.places is None else policy.places.group_labels
    for index, key in enumerate(written):
        if key not in cluster.keys["node", "labels"]:
            at = ("spec", "placement", "groupLabels", index)
            near = did_you_mean(key, sorted(cluster.keys["node", "labels"]))
            yield Finding("", f"no node has a label `{key}` in the recording", near, path=at)


def _words_of_selector(
    name: str, selector: LabelSelector, path: ReadPath, cluster: KnownCluster
) -> Iterator[Finding]:
    at = ("spec", "match", name)
    for requirement in selector.requirements:
        values = cluster.values.get((*path, requirement.key), frozenset())
        if not values:
            near = did_you_mean(requirement.key, sorted(cluster.keys[path]))
            message = f"{_WHAT[path]} `{requirement.key}` in the recording"
            yield Finding("", message, near, path=at)
        elif requirement.values and values.isdisjoint(requirement.values):
            asked = ", ".join(f"`{value}`" for value in sorted(requirement.values))
            there = ", ".join(f"`{value}`" for value in sorted(values)[:_MOST_LISTED])
            message = f"no label `{requirement.key}` of the recording is {asked}"
            near = did_you_mean(min(requirement.values), sorted(values))
            yield Finding("", message, near or f"there are {there}", path=at)
