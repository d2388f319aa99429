"""A cluster as an admin's watches have shown it: events in order, and what they come to.

Pods are charged to the quota of their namespace unless they wait for it, or have finished. All sums
change with each event, so that a recording of hours is judged in seconds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any, NamedTuple

from engine.model.quantity import base_units

Json = dict[str, Any]
Amounts = Mapping[str, int]

HOLD_GATE = "stowplan.dev/hold"
REASONS = "stowplan.dev/hold-reasons"
PLAN = "stowplan.dev/reclaim-plan"


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a watch.

    Attributes:
        at: seconds since the epoch.
        type: ADDED, MODIFIED or DELETED.
        object: a Pod, an ElasticQuota or a Node.
    """

    at: float
    type: str
    object: Json


class RecordedPod(NamedTuple):
    """A pod as its last event shows it.

    Attributes:
        node: that it is bound to, else that it is nominated to.
        since: the moment since which it is bound, seconds since the epoch; None if it is not.
        requests: base units (millicores, bytes).
        owner: uid of its first owner, its own where it has none.
        is_queued: whether it waits for quota.
        was_evicted: whether the Eviction API ends it.
    """

    uid: str
    namespace: str
    node: str
    since: float | None
    requests: Amounts
    owner: str
    is_queued: bool
    is_leaving: bool
    was_evicted: bool
    is_reclaimer: bool

    @property
    def is_bound(self) -> bool:
        """Whether it is bound to its node."""
        return self.since is not None


class RecordedCluster:
    """The cluster as of an event; amounts in base units.

    Attributes:
        pods: those that have not finished, by uid.
        quotas: min and max by namespace.
        nodes: what they offer.
        created: when each pod was first seen.
        waiting: the pods of each namespace that wait for quota and are not leaving, oldest first.
        charged: what the pods of each namespace are charged.
        staying: the same without those that leave.
        taken: what runs on each node, or is nominated to it.
        homeless: pods that wait neither for quota nor on a node.
    """

    def __init__(self) -> None:
        self.pods: dict[str, RecordedPod] = {}
        self.quotas: dict[str, tuple[Amounts, Amounts]] = {}
        self.nodes: dict[str, Amounts] = {}
        self.created: dict[str, float] = {}
        self.waiting: dict[str, dict[str, RecordedPod]] = defaultdict(dict)
        self.charged: dict[str, Counter[str]] = defaultdict(Counter)
        self.staying: dict[str, Counter[str]] = defaultdict(Counter)
        self.taken: dict[str, Counter[str]] = defaultdict(Counter)
        self.homeless: set[str] = set()

    def see(self, event: Event) -> tuple[RecordedPod | None, RecordedPod | None]:
        """Adopt an event; return the pod before and after it, where it is about one."""
        metadata = event.object["metadata"]
        match event.object["kind"]:
            case "Node":
                offered = event.object.get("status", {}).get("allocatable", {})
                _put(self.nodes, metadata["name"], _amounts(offered), event)
            case "ElasticQuota":
                spec = event.object.get("spec", {})
                bounds = (_amounts(spec.get("min") or {}), _amounts(spec.get("max") or {}))
                _put(self.quotas, metadata["namespace"], bounds, event)
            case _:
                return self._see_pod(event)
        return None, None

    def free_on(self, node: str) -> Counter[str]:
        """Return what is free on a node."""
        free = Counter(self.nodes[node])
        free.subtract(self.taken[node])
        return free

    def _see_pod(self, event: Event) -> tuple[RecordedPod | None, RecordedPod | None]:
        uid = event.object["metadata"]["uid"]
        old = self.pods.pop(uid, None)
        if old is not None:
            self._count(old, -1)
        has_ended = event.object.get("status", {}).get("phase") in {"Succeeded", "Failed"}
        if event.type == "DELETED" or has_ended:
            return old, None
        new = self.pods[uid] = pod_of(event.object)
        self.created.setdefault(uid, event.at)
        self._count(new, 1)
        return old, new

    def _count(self, pod: RecordedPod, sign: int) -> None:
        amounts = Counter({name: sign * amount for name, amount in pod.requests.items()})
        if not pod.is_queued:
            self.charged[pod.namespace].update(amounts)
            if not pod.is_leaving:
                self.staying[pod.namespace].update(amounts)
        if pod.node:
            self.taken[pod.node].update(amounts)
        is_waiting = pod.is_queued and not pod.is_leaving
        is_homeless = not (pod.node or pod.is_queued)
        if sign < 0:
            self.waiting[pod.namespace].pop(pod.uid, None)
            self.homeless.discard(pod.uid)
            return
        if is_homeless:
            self.homeless.add(pod.uid)
        if is_waiting:
            waiting = self.waiting[pod.namespace]
            waiting[pod.uid] = pod
            if self.created[pod.uid] < max(map(self.created.__getitem__, waiting)):
                by_age = sorted(waiting, key=self.created.__getitem__)
                self.waiting[pod.namespace] = {uid: waiting[uid] for uid in by_age}


def _put(known: dict[str, Any], key: str, value: object, event: Event) -> None:
    if event.type == "DELETED":
        known.pop(key, None)
    else:
        known[key] = value


def pod_of(obj: Json) -> RecordedPod:
    """Return a pod as it is recorded."""
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status", {})
    annotations = metadata.get("annotations") or {}
    gates = [gate["name"] for gate in spec.get("schedulingGates") or ()]
    requests: Counter[str] = Counter()
    for container in spec["containers"]:
        requests.update(_amounts(container.get("resources", {}).get("requests") or {}))
    owners = metadata.get("ownerReferences") or [{}]
    conditions = {each["type"]: each for each in _conditions(status)}
    target = conditions.get("DisruptionTarget", {})
    since = conditions.get("PodScheduled", {}).get("lastTransitionTime")
    return RecordedPod(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        node=spec.get("nodeName") or status.get("nominatedNodeName", ""),
        since=_seconds(since) if spec.get("nodeName") else None,
        requests=requests,
        owner=owners[0].get("uid", metadata["uid"]),
        is_queued=HOLD_GATE in gates and "quota" in annotations.get(REASONS, "").split(","),
        is_leaving="deletionTimestamp" in metadata,
        was_evicted=target.get("reason") == "EvictionByEvictionAPI",
        is_reclaimer=PLAN in annotations,
    )


def _conditions(status: Json) -> Iterator[Json]:
    yield from status.get("conditions") or ()


def _seconds(time: str | None) -> float:
    """Return seconds since the epoch; a binding that no condition dates was long ago."""
    return datetime.fromisoformat(time).timestamp() if time else -inf


def _amounts(resources: Mapping[str, str]) -> dict[str, int]:
    return {name: base_units(name, amount) for name, amount in resources.items()}
