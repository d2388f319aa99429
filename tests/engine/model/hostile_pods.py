"""Pods that anyone may send, and that take as much memory as they can."""

from __future__ import annotations

import msgspec

from engine.model import api
from engine.model.pod import Pod, pod_of

_decode = msgspec.json.Decoder(api.Pod).decode


def hostile_pod(number: int, *, names: int = 100, containers: int = 1, advice: str = "") -> Pod:
    """Return a pod whose requests and limits nobody else has, of resources that nobody offers."""
    requests = {f"{number}.io/{name}": str(1_000 + name) for name in range(names)}
    limits = {name: f"{amount}0" for name, amount in requests.items()}
    container = {"name": "c", "resources": {"requests": requests, "limits": limits}}
    annotations = {"stowplan.dev/advice": advice} if advice else {}
    wire = {
        "metadata": {"name": f"p-{number}", "namespace": "hostile", "annotations": annotations},
        "spec": {"containers": [container] * containers},
    }
    return pod_of(_decode(msgspec.json.encode(wire)))
