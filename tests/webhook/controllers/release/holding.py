"""Held pods on a fake API server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION, RELEASE_BY_ANNOTATION
from tests.fake_api_server import FakeApiServer

Json = dict[str, Any]

LONG_AGO = "2026-01-01T08:00:00Z"


def hold(
    server: FakeApiServer,
    name: str,
    *gates: str,
    namespace: str = "shop",
    created: datetime | str = LONG_AGO,
    release_by: str | None = None,
    reasons: str | None = None,
) -> None:
    """Store a pod with our gate, or with the given ones."""
    moment = (
        created if isinstance(created, str) else f"{created.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    )
    noted = {} if release_by is None else {RELEASE_BY_ANNOTATION: release_by}
    if reasons is not None:
        noted[HOLD_REASONS_ANNOTATION] = reasons
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": moment}
    server.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**metadata, "annotations": {"owner": "ann", **noted}},
            "spec": {
                "containers": [{"name": "main", "image": "main"}],
                "schedulingGates": [{"name": gate} for gate in gates or (HOLD_GATE,)],
            },
        }
    )


def gates(server: FakeApiServer, name: str, namespace: str = "shop") -> list[str]:
    """Return the gates that a pod has now."""
    spec = server.objects("pods")[namespace, name]["spec"]
    return [gate["name"] for gate in spec.get("schedulingGates", ())]
