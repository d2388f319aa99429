"""Running pods that may be evicted, and how their PriorityClasses protect them.

Tolerations are those of the PreemptionToleration plugin. Source: scheduler-plugins,
pkg/preemptiontoleration/preemption_toleration.go, ExemptedFromPreemption.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

import msgspec

from engine.eviction.workloads import WorkloadKey, workload_key_of
from engine.gang import gang_key_of
from engine.model.elastic_quota import PREEMPTIBLE_LABEL, QuotaKey
from engine.model.gang import GangKey
from engine.model.pod import SYSTEM_PRIORITY, Pod
from engine.model.pod_classes import NEVER, PriorityClass
from engine.model.time import Micros
from engine.view import PodEntry

_NOT_PREEMPTIBLE: Final = "false"


class RunningPod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod that is bound to a node and has not finished.

    Attributes:
        key: `namespace/name`.
        owner: uid of its first owner, its own where it has none.
        workload: the Deployment or StatefulSet that it is of, None for none.
        priority_class_name: "" where it has none.
        scheduled_at: since when its condition PodScheduled is True, None if it is not.
        gang: that it names, which need not exist; None if it names none.
        is_ready: whether its condition Ready is True.
        deleting: whether it is on its way out.
        is_protected: whether it is never evicted for another.
    """

    key: str
    uid: str
    namespace: str
    labels: Mapping[str, str]
    owner: str
    workload: WorkloadKey | None = None
    priority: int
    priority_class_name: str = ""
    scheduled_at: Micros | None = None
    gang: GangKey | None = None
    is_ready: bool = False
    deleting: bool = False
    is_protected: bool = False


class Candidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A running pod that may matter.

    Attributes:
        entry: how it counts on its node.
        quotas: the quota that it counts for, then those above that; reclaim looks at no others.
    """

    pod: RunningPod
    entry: PodEntry
    quotas: tuple[QuotaKey, ...]


def running_pod_of(pod: Pod) -> RunningPod | None:
    """Return what matters of a pod; None unless it is bound and has not finished.

    Protected are mirror pods and those of DaemonSets, which come back to the same node, what runs
    the cluster, and pods that Koordinator's label `preemptible` protects.
    """
    if not pod.node_name or pod.is_terminal:
        return None
    return RunningPod(
        key=pod.key,
        uid=pod.uid,
        namespace=pod.namespace,
        labels=pod.labels,
        owner=pod.owner_uid or pod.uid,
        workload=workload_key_of(pod),
        priority=pod.priority,
        priority_class_name=sys.intern(pod.priority_class_name),  # few names, many pods
        scheduled_at=pod.scheduled_at,
        gang=gang_key_of(pod),
        is_ready=pod.is_ready,
        deleting=pod.deleting,
        is_protected=(
            pod.is_mirror
            or pod.is_daemon_set
            or pod.priority >= SYSTEM_PRIORITY
            or pod.labels.get(PREEMPTIBLE_LABEL) == _NOT_PREEMPTIBLE
        ),
    )


def is_tolerating(
    running: RunningPod, classes: Mapping[str, PriorityClass], priority: int, now: Micros
) -> bool:
    """Return whether a pod is spared for the sake of its class.

    One of a class that is not known is: what that says of it cannot be told. `priority` is that of
    the pod that needs room.
    """
    if not running.priority_class_name:
        return False
    own = classes.get(running.priority_class_name)
    if own is None:
        return True
    return own.toleration is not None and own.toleration.protects(
        running.scheduled_at, priority, now
    )


def is_preempting(pod: Pod, classes: Mapping[str, PriorityClass]) -> bool:
    """Return whether others may be evicted for a pod while it is held."""
    if pod.preemption_policy != NEVER:
        return True
    own = classes.get(pod.priority_class_name)
    return own is not None and own.is_preempting


def is_exempt(
    running: RunningPod, pod: Pod, classes: Mapping[str, PriorityClass], now: Micros
) -> bool:
    """Return whether a running pod of lower priority is never evicted for another, or not yet."""
    if running.priority_class_name and not is_preempting(pod, classes):
        return True
    return is_tolerating(running, classes, pod.priority, now)
