"""The Kubernetes objects of a policy test: from plain values to a cluster."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.documents import places as positions
from engine.documents.places import Document, read_documents
from engine.errors import Diagnostic, InvalidFileError, did_you_mean
from engine.model import api, topology_api
from engine.model.disk_io import node_disks_of
from engine.model.elastic_quota import quota_of
from engine.model.network import app_group_of, network_topology_of
from engine.model.node import node_of
from engine.model.numa import node_zones_of
from engine.model.pod import Pod, pod_of
from engine.model.time import Micros
from engine.model.usage import usage_of_node_metric
from engine.policy.loader import content_of
from engine.view import ClusterState


@dataclass(frozen=True, slots=True)
class _Kind:
    """How objects of a kind get into a cluster.

    Attributes:
        key: the list they stand in.
        wire: their form on the wire.
        made: gives the engine's form; raises `ValueError`.
        put: adds it to a cluster as seen at a moment.
    """

    key: str
    wire: type[msgspec.Struct]
    made: Callable[[Any], Any]
    put: Callable[[ClusterState, Any, Micros], None]


def _pod_of(wire: api.Pod) -> Pod:
    return pod_of(wire, namespace="default")


def _extra(key: str, wire: type[msgspec.Struct], made: Callable[[Any], Any]) -> _Kind:
    return _Kind(key, wire, made, lambda state, extra, _: state.set_extra(extra))


_KINDS: Final = {
    "AppGroup": _extra("appGroups", topology_api.AppGroup, app_group_of),
    "ElasticQuota": _Kind(
        "elasticQuotas", api.ElasticQuota, quota_of, lambda state, made, _: state.set_quota(made)
    ),
    "Namespace": _Kind(
        "namespaces",
        api.Namespace,
        lambda wire: wire.metadata,
        lambda state, made, _: state.set_namespace(made.name, made.labels or {}),
    ),
    "NetworkTopology": _extra(
        "networkTopologies", topology_api.NetworkTopology, network_topology_of
    ),
    "Node": _Kind("nodes", api.Node, node_of, lambda state, made, _: state.set_node(made)),
    "NodeMetric": _Kind(
        "nodeMetrics",
        api.NodeMetric,
        usage_of_node_metric,
        lambda state, made, _: state.set_usage(made),
    ),
    "NodeDiskIOStats": _extra("nodeDiskIOStats", topology_api.NodeDiskIO, node_disks_of),
    "NodeResourceTopology": _extra(
        "nodeResourceTopologies", topology_api.NodeResourceTopology, node_zones_of
    ),
    "Pod": _Kind(
        "pods", api.Pod, _pod_of, lambda state, made, now: state.set_pod(made, seen_at=now)
    ),
}
_BY_KEY: Final = {kind.key: kind for kind in _KINDS.values()}

_STEP = re.compile(r"\.([^.\[\]`]+)|\[([0-9]+)\]")
_MISMATCH = re.compile(r"Expected `([^`]*)`, got `[^`]*`")
_WORDS: Final = {
    "array": "a list",
    "bool": "true or false",
    "int": "a whole number",
    "object": "a mapping",
    "str": "a text",
}


class ObjectReader:
    """Puts objects into a cluster.

    Attributes:
        state: the cluster.
        problems: what cannot be used.
    """

    def __init__(self, now: Micros) -> None:
        """Take the moment at which everything was seen."""
        self.state = ClusterState()
        self.problems: list[Diagnostic] = []
        self._now = now

    def read_file(self, file: Path) -> None:
        """Read the cluster that a file holds."""
        try:
            documents = read_documents(content_of(file), str(file))
        except InvalidFileError as error:
            self.problems += error.problems
            return
        for document in documents:
            self.read_cluster(document.value, document, ())

    def read_cluster(self, value: object, document: Document, at: positions.Path) -> None:
        """Read a cluster: a list of objects per kind, or all in one as kubectl prints them."""
        if not isinstance(value, dict):
            self.problems.append(document.problem(at, "expected lists of Kubernetes objects"))
            return
        if "items" in value:
            self._read_list(value["items"], None, document, (*at, "items"))
            return
        for key, items in value.items():
            place = (*at, key)
            if key in _BY_KEY:
                self._read_list(items, _BY_KEY[key], document, place)
            else:
                hint = did_you_mean(key, _BY_KEY)
                problem = document.problem_at_key(place, f"unknown key `{key}`", hint=hint)
                self.problems.append(problem)

    def read_pod(self, value: object, document: Document, at: positions.Path) -> Pod | None:
        """Return a pod, which does not become part of the cluster."""
        pod: Pod | None = self._made(value, _KINDS["Pod"], document, at)
        return pod

    def _read_list(
        self, items: object, kind: _Kind | None, document: Document, at: positions.Path
    ) -> None:
        """Read objects of one kind, or each of the kind it names, if that is one of ours."""
        if not isinstance(items, list):
            self.problems.append(document.problem(at, "expected a list"))
            return
        for index, item in enumerate(items):
            own = kind or (_KINDS.get(str(item.get("kind"))) if isinstance(item, dict) else None)
            made = own and self._made(item, own, document, (*at, index))
            if own is not None and made is not None:
                own.put(self.state, made, self._now)

    def _made(self, value: object, kind: _Kind, document: Document, at: positions.Path) -> Any:  # noqa: ANN401 - what `kind` makes
        try:
            return kind.made(msgspec.convert(value, kind.wire))
        except msgspec.ValidationError as error:
            message, _, place = str(error).partition(" - at ")
            steps = (int(index) if index else key for key, index in _STEP.findall(place))
            problem = document.problem((*at, *steps), _MISMATCH.sub(_in_words, message))
        except ValueError as error:
            problem = document.problem(at, str(error))
        self.problems.append(problem)
        return None


def _in_words(mismatch: re.Match[str]) -> str:
    kinds = mismatch[1].split(" | ")
    return f"expected {' or '.join(_WORDS.get(kind, kind) for kind in kinds)}"
