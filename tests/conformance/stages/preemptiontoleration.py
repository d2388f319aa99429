"""PreemptionToleration: what the annotations of a class say, and who is exempt by them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from engine.eviction import running_pod_of
from engine.eviction.candidates import is_exempt
from engine.model import api
from engine.model.pod import Pod, pod_of
from engine.model.pod_classes import priority_class_of, toleration_of
from engine.model.time import micros
from tests.conformance.outcome import Json, mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conformance.outcome import Stage


def _classes(case: Json) -> list[api.PriorityClass]:
    return [msgspec.convert(written, api.PriorityClass) for written in case["priorityclasses"]]


def _pod(written: Json) -> Pod:
    return pod_of(msgspec.convert(written, api.Pod), namespace="default")


def _policy(case: Json, _: Json) -> str | None:
    (wire,) = _classes(case)
    try:
        toleration = toleration_of(wire.value, wire.metadata.annotations or {})
    except ValueError:
        return mismatch(case["expect"], {"error": True})
    got = {
        "minimumPreemptablePriority": toleration.minimum_preemptable_priority,
        "tolerationSeconds": toleration.seconds,
    }
    return mismatch(case["expect"], got)


def _exempt(case: Json, _: Json) -> str | None:
    (candidate,) = map(_pod, case["pods"])
    running = running_pod_of(msgspec.structs.replace(candidate, node_name="node-a"))
    assert running is not None
    classes = {each.name: each for each in map(priority_class_of, _classes(case))}
    now = micros(msgspec.convert(case["now"], datetime))
    return mismatch(case["expect"], {"exempt": is_exempt(running, _pod(case["pod"]), classes, now)})


STAGES: Mapping[str, Stage] = {"exempt": _exempt, "policy": _policy}
