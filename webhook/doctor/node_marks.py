"""Marks on nodes: how many there are, and whether anybody keeps them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from engine.model.node_marks import AVOID_TAINT, is_mark_label
from engine.model.taints import PREFER_NO_SCHEDULE
from webhook.doctor.finding import Finding, Level
from webhook.doctor.installation import Installation
from webhook.doctor.objects import Node, ObjectList

_ALL_NODES = "/api/v1/nodes"


async def node_marks(installation: Installation) -> AsyncIterator[Finding]:
    """Say how many nodes are marked, and find marks that nobody keeps."""
    deployment = await installation.deployment()
    if deployment is None:
        return
    nodes = (await installation.read(_ALL_NODES, ObjectList[Node])).items
    marked = [node.metadata.name for node in nodes if _is_marked(node)]
    if deployment.spec.template.spec.setting("STOWPLAN_NODE_MARKS") != "true":
        if marked:
            yield Finding(
                Level.WARNING,
                f"{len(marked)} of {len(nodes)} nodes carry marks, and `nodeMarks.enabled` is off:"
                f" {marked[0]} is one",
                "`stowplan unmark` takes them back; a leader without the right to patch nodes"
                " cannot",
            )
        return
    if marked and len(marked) == len(nodes):
        yield Finding(
            Level.WARNING,
            f"all {len(nodes)} nodes are marked: pods of policies with `dynamicFilters:"
            " MarkedRequired` wait",
            "add nodes, or raise the thresholds of the filters",
        )
        return
    yield Finding(Level.OK, f"{len(marked)} of {len(nodes)} nodes are marked")


def _is_marked(node: Node) -> bool:
    taints = node.spec.taints or ()
    return any(map(is_mark_label, node.metadata.labels)) or any(
        taint.key == AVOID_TAINT and taint.effect == PREFER_NO_SCHEDULE for taint in taints
    )
