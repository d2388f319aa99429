"""Small clusters, requests and policies for the tests of this folder."""

from __future__ import annotations

from textwrap import dedent, indent
from typing import Any

from engine.documents.places import read_documents
from engine.errors import InvalidFileError
from engine.model.decision import PlacementRequest
from engine.model.node import Node
from engine.model.time import SECOND, Micros
from engine.model.usage import NodeUsage
from engine.policy import CompiledPolicy, PolicySet
from engine.policy.compile import compile_policy
from engine.view import ClusterState, ClusterView
from tests.builders import request_from

GIB = 1 << 30
NOW = Micros(1_000_000 * SECOND)
Json = dict[str, Any]


def node(name: str, **more: Any) -> Node:  # noqa: ANN401 - the fields of a node
    """Return a node of 4 cores and 8 GiB."""
    return Node(**{"name": name, "allocatable": {"cpu": 4000, "memory": 8 * GIB}, **more})


def usage(name: str, *, age: int = 30, **amounts: int) -> NodeUsage:
    """Return a report made `age` seconds before NOW, in base units."""
    return NodeUsage(node_name=name, update_time=Micros(NOW - age * SECOND), usage=amounts)


def view_of(*objects: Node | NodeUsage) -> ClusterView:
    """Return a view of nodes and reports, with a free row before them."""
    state = ClusterState()
    state.set_node(node("gone"))
    for one in objects:
        if isinstance(one, Node):
            state.set_node(one)
        else:
            state.set_usage(one)
    state.delete_node("gone")
    return state.view()


def request_of(
    spec: Json | None = None,
    *,
    namespace_labels: dict[str, str] | None = None,
    request: Json | None = None,
    **metadata: Any,  # noqa: ANN401 - JSON
) -> PlacementRequest:
    """Return the request to create a pod in namespace `shop`."""
    wire = {"metadata": {"namespace": "shop", **metadata}, "spec": spec or {}}
    return request_from(wire, namespace_labels=namespace_labels or {}, request=request or {})


def policy(spec: str, name: str = "p") -> CompiledPolicy:
    """Return the policy with a spec in YAML.

    Raises:
        InvalidFileError: it has mistakes.
    """
    text = (
        "apiVersion: stowplan.dev/v1alpha1\n"
        "kind: PlacementPolicy\n"
        f"metadata: {{name: {name}}}\n"
        f"spec:\n{indent(dedent(spec), '  ') or '  {}'}\n"
    )
    (document,) = read_documents(text.encode(), f"{name}.yaml")
    compiled, problems = compile_policy(document)
    if compiled is None:
        raise InvalidFileError(problems)
    return compiled


def policies(**specs: str) -> PolicySet:
    """Return a set of policies by name."""
    return PolicySet(policy(spec, name) for name, spec in specs.items())
