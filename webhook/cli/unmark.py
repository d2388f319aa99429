"""`stowplan unmark`: take all marks back from the nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from engine.errors import StowplanError
from engine.model.count_text import counted
from webhook.cli import console
from webhook.cli.api_errors import reason
from webhook.cli.exit_codes import Exit
from webhook.cluster.client.connection import ApiError, connected
from webhook.controllers.node_marks.removal import Removal, remove_marks
from webhook.controllers.node_marks.writer import NodeWriter


def unmark(*, kubeconfig: Path | None = None, context: str | None = None) -> int:
    """Take the taint `stowplan.dev/avoid` and the labels `avoid.stowplan.dev/*` from all nodes.

    Args:
        kubeconfig: how to reach the cluster; `$KUBECONFIG` or the default one, if not given, or in
            a pod its service account.
        context: of the kubeconfig; its current one, if not given.
    """
    try:
        removal = asyncio.run(_remove(kubeconfig, context))
    except ApiError as error:
        raise StowplanError(reason(error, "the nodes cannot be listed")) from error
    for name, why in removal.left.items():
        console.errors().print(f"node `{name}` is still marked: {why}", markup=False)
    console.output().print(f"{counted(len(removal.unmarked), 'node')} unmarked")
    return Exit.DENIED if removal.left else Exit.OK


async def _remove(kubeconfig: Path | None, context: str | None) -> Removal:
    async with connected(kubeconfig, context, accept_encoding="gzip") as connection:
        return await remove_marks(connection, NodeWriter(connection))
