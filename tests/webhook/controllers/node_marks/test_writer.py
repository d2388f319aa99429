from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_api_server import fake_api_server
from webhook.cluster.client.connection import connected
from webhook.controllers.node_marks.writer import (
    MarkedNode,
    NodeWriter,
    Outcome,
    mark_operations,
)

AVOID = "stowplan.dev/avoid"
OURS = {"key": AVOID, "effect": "PreferNoSchedule"}
FOREIGN: list[dict[str, str]] = [
    {"key": "gpu", "value": "a/b~c", "effect": "NoSchedule"},
    {"key": AVOID, "effect": "NoSchedule"},
    {"key": AVOID, "value": "by-hand", "effect": "NoExecute"},
    {"key": "x", "effect": "PreferNoSchedule", "timeAdded": "2026-01-05T12:00:00Z"},
]
KEYS = ["avoid.stowplan.dev/a", "avoid.stowplan.dev/b.c-d"]
LABELS = ["zone", "stowplan.dev/avoid", *KEYS]
nodes = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": st.just("a"), "resourceVersion": st.just("7")},
            optional={"labels": st.dictionaries(st.sampled_from(LABELS), st.just("v"))},
        ),
        "spec": st.fixed_dictionaries(
            {"podCIDR": st.just("10.0.0.0/24")},
            optional={"taints": st.lists(st.sampled_from([OURS, *FOREIGN]), max_size=4)},
        ),
    }
)


def _others(node: dict[str, Any]) -> dict[str, Any]:
    """Return a node without our marks."""
    labels = node["metadata"].get("labels") or {}
    taints = node["spec"].get("taints") or []
    return {
        **node,
        "metadata": {
            **node["metadata"],
            "labels": {key: value for key, value in labels.items() if key not in KEYS},
        },
        "spec": {**node["spec"], "taints": [taint for taint in taints if taint != OURS]},
    }


@given(nodes, st.sets(st.sampled_from([AVOID, *KEYS])))
def test_a_node_has_the_marks_that_are_wanted_and_all_else_stays(
    node: dict[str, Any], wanted: set[str]
) -> None:
    operations = mark_operations(msgspec.convert(node, MarkedNode), wanted)
    after = jsonpatch.apply_patch(node, operations)
    assert _others(after) == _others(node)
    marked = msgspec.convert(after, MarkedNode)
    assert marked.marks == wanted
    assert mark_operations(marked, wanted) == []
    if operations:
        assert operations[0] == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}


def _node(name: str = "a", **spec: Any) -> dict[str, Any]:  # noqa: ANN401 (JSON)
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}


async def test_a_node_that_changes_between_reading_and_writing_is_not_written(
    tmp_path: Path,
) -> None:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        server.create(_node(taints=[OURS]))
        writer = NodeWriter(connection)

        def meanwhile(_: MarkedNode) -> tuple[str, ...]:
            (node,) = server.objects("nodes").values()
            server.replace({**node, "spec": {"taints": [FOREIGN[0], OURS]}})
            return ()

        assert (await writer.write("a", meanwhile))[0] is Outcome.CHANGED
        (node,) = server.objects("nodes").values()
        assert node["spec"]["taints"] == [FOREIGN[0], OURS]
        assert (await writer.write("a", lambda _: ()))[0] is Outcome.WRITTEN
        (node,) = server.objects("nodes").values()
        assert node["spec"]["taints"] == [FOREIGN[0]]


@pytest.mark.parametrize("wanted", [(), (AVOID, *KEYS)])
async def test_what_is_as_it_should_be_and_who_is_gone_is_not_written(
    tmp_path: Path, wanted: tuple[str, ...]
) -> None:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        created = server.create(_node())
        writer = NodeWriter(connection)
        expected = Outcome.WRITTEN if wanted else Outcome.UNCHANGED
        assert (await writer.write("a", lambda _: wanted))[0] is expected
        version = server.objects("nodes")
        assert (await writer.write("a", lambda _: wanted))[0] is Outcome.UNCHANGED
        assert server.objects("nodes") == version
        assert (created in version.values()) is not bool(wanted)
        assert (await writer.write("b", lambda _: wanted))[0] is Outcome.GONE


async def test_there_are_at_most_five_writes_in_a_second(tmp_path: Path) -> None:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        moments: list[float] = []

        def may_write() -> bool:
            moments.append(asyncio.get_running_loop().time())
            return True

        writer = NodeWriter(connection, may_write=may_write)
        for name in "abcdefg":
            server.create(_node(name))
            assert (await writer.write(name, lambda _: (AVOID,)))[0] is Outcome.WRITTEN
        assert moments[6] - moments[0] > 1.0


async def test_who_does_not_lead_any_more_writes_nothing(tmp_path: Path) -> None:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        created = server.create(_node())
        writer = NodeWriter(connection, may_write=lambda: False)
        assert (await writer.write("a", lambda _: (AVOID,)))[0] is Outcome.CHANGED
        assert [*server.objects("nodes").values()] == [created]
