"""Pods as tests of releases need them."""

from __future__ import annotations

from typing import Any

import msgspec

from engine.model import api
from engine.model.pod import Pod, pod_of


def pod(name: str = "a", *, uid: str = "", node: str = "", **metadata: object) -> Pod:
    """Return a pod of the stock scheduler; its uid is made from its name."""
    wire: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "shop", "uid": uid or f"uid-{name}", **metadata},
        "spec": {"nodeName": node, "schedulerName": "default-scheduler", "containers": []},
    }
    return pod_of(msgspec.convert(wire, api.Pod))
