"""Pods as tests of releases need them."""

from __future__ import annotations

from typing import Any

import msgspec

from engine.model import api
from engine.model.pod import Pod, pod_of
from engine.model.time import Micros
from engine.release import HeldPod, HeldPodRegistry, ReleaseDecision


def pod(name: str = "a", *, uid: str = "", node: str = "", **metadata: object) -> Pod:
    """Return a pod of the stock scheduler; its uid is made from its name."""
    wire: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "shop", "uid": uid or f"uid-{name}", **metadata},
        "spec": {"nodeName": node, "schedulerName": "default-scheduler", "containers": []},
    }
    return pod_of(msgspec.convert(wire, api.Pod))


def held_of(pod: Pod, version: int = 1) -> HeldPod:
    """Return a pod as it is held."""
    moment = Micros(0)
    return HeldPod(pod=pod, version=version, raw=b"", release_by=moment, seen_at=moment)


def sent(pods: HeldPodRegistry, pod: Pod, at: float) -> None:
    """Note that the release of a pod is sent."""
    held = held_of(pod)
    record = pods.of(held)
    record.release_sent(record.release_begins(held, ReleaseDecision()), at)
