"""Removal of all marks, where no leader does it: before an uninstallation, or by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec

from webhook.cluster.client.connection import Connection
from webhook.controllers.node_marks.writer import NODES, MarkedNode, NodeWriter, Outcome

_PAGE_SIZE = "500"
_MOST_ATTEMPTS = 5  # a node is busy while its kubelet reports


class _ListMetadata(msgspec.Struct, frozen=True):
    next: str = msgspec.field(default="", name="continue")


class _NodeList(msgspec.Struct, frozen=True):
    items: tuple[MarkedNode, ...]
    metadata: _ListMetadata = _ListMetadata()


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The result of taking all marks back.

    Attributes:
        unmarked: names of nodes that carried a mark.
        left: why a node still carries one, by its name.
    """

    unmarked: tuple[str, ...]
    left: dict[str, str]


async def remove_marks(connection: Connection, writer: NodeWriter) -> Removal:
    """Take our taint and labels from all nodes.

    Raises:
        ApiError: the nodes cannot be listed.
        msgspec.DecodeError: the answer is no list of nodes.
    """
    unmarked: list[str] = []
    left: dict[str, str] = {}
    names = [name async for name in marked_nodes(connection)]
    for name in names:
        for _ in range(_MOST_ATTEMPTS):
            outcome, reason = await writer.write(name, lambda _: ())
            if outcome is not Outcome.CHANGED:
                break
        if outcome in {Outcome.WRITTEN, Outcome.UNCHANGED}:
            unmarked.append(name)
        elif outcome is not Outcome.GONE:
            left[name] = reason
    return Removal(unmarked=tuple(unmarked), left=left)


async def marked_nodes(connection: Connection) -> AsyncIterator[str]:
    """Yield the names of nodes that carry a mark of ours.

    Raises:
        ApiError: they cannot be listed.
        msgspec.DecodeError: the answer is no list of nodes.
    """
    query = [("limit", _PAGE_SIZE)]
    while True:
        page = msgspec.json.decode(await connection.get(NODES, query), type=_NodeList)
        for node in page.items:
            if node.marks:
                yield node.metadata.name
        if not page.metadata.next:
            return
        query = [("limit", _PAGE_SIZE), ("continue", page.metadata.next)]
