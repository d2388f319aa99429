"""Queue sorts: whether the first pod of a queue goes before the second, and the order of both."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from engine.gang import GangKey, gang_of
from engine.model import api
from engine.model.pod import Pod, pod_of
from engine.model.scheduler_plugins import AppGroup
from engine.release import QUEUE_SORTS, QueueFacts, QueueOrder
from tests.conformance.cluster import cluster_of
from tests.conformance.outcome import Json, mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.release import QueueSortName
    from tests.conformance.outcome import Stage


def _sort(case: Json, group: Json) -> str | None:
    name: QueueSortName = case.get("plugin") or group["plugin"]
    view = cluster_of(case)
    first, second = (_queued(entry, i) for i, entry in enumerate(case["queue"]))
    namespaces = (case.get("args") or {}).get("namespaces") or ("default",)

    def app_group(named: str) -> AppGroup | None:
        found = (view.lookup(AppGroup, f"{namespace}/{named}") for namespace in namespaces)
        return next((group for group in found if group is not None), None)

    failed_at = {
        GangKey(*name.split("/")): msgspec.convert(moment, datetime)
        for name, moment in (case.get("scheduleFailures") or {}).items()
    }
    sort = QUEUE_SORTS[name](
        QueueFacts(app_group=app_group, gang=lambda pod: gang_of(pod, view), failed_at=failed_at)
    )
    wrong = mismatch(case["expect"]["less"], sort.less(first, second))
    if wrong or sort.less(first, second) == sort.less(second, first):
        return wrong  # where upstream does not choose, ours goes by creation and uid
    order = QueueOrder(sort=name, app_group_namespaces=tuple(namespaces))
    ordered = order.sorted([second, first], view, pod_of=lambda pod: pod, failed_at=failed_at)
    return mismatch(case["expect"]["less"], ordered[0] is first)


def _queued(entry: Json, i: int) -> Pod:
    """Return a pod whose creation is the moment at which it was queued."""
    pod = pod_of(msgspec.convert(entry["pod"], api.Pod), namespace="default")
    moment = entry.get("timestamp") or entry.get("initialAttemptTimestamp")
    created = moment and msgspec.convert(moment, datetime)
    return msgspec.structs.replace(pod, created=created, uid=f"{i}")


STAGES: Mapping[str, Stage] = {"sort": _sort}
