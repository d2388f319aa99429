"""Judges quotas that queue by the events of a whole run, and by nothing that stowplan says.

A recording is what an admin's watches have shown, in order: pods, ElasticQuotas and nodes. Pods are
charged to the quota of their namespace unless they wait for it, or have finished.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.model.quantity import base_units

Json = dict[str, Any]
Amounts = Mapping[str, int]

HOLD_GATE = "stowplan.dev/hold"
REASONS = "stowplan.dev/hold-reasons"
PLAN = "stowplan.dev/reclaim-plan"
_ROUND_SECONDS = 30.0
_AGED_SECONDS = 300.0
"""After which a pod at the head of its quota is overtaken no more."""

_FIRST_COOLDOWN_SECONDS, _LONGEST_COOLDOWN_SECONDS = 60.0, 3600.0


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a watch.

    Attributes:
        at: seconds since the recording began.
        type: ADDED, MODIFIED or DELETED.
        object: a Pod, an ElasticQuota or a Node.
    """

    at: float
    type: str
    object: Json


@dataclass(slots=True)
class Judgement:
    """What was found; amounts in base units (millicores, bytes).

    Attributes:
        overshoot: the most that was ever charged beyond `max`, by namespace and resource.
        idle_waits: pods that waited while there was room for them, with the longest time of each.
        late_within_min: pods within min that got no room in time, with that time.
        below_min: pods that were evicted although their quota had no more than its min.
        evictions: number of pods that were evicted.
        reclaimed: number of pods that were bound after others were evicted for them.
        hasty: owners with an eviction within their cool-down.
        waits: seconds from creation to the end of the wait of each pod that waited.
        charged_seconds: the sum of charged amounts over time, by resource.
        room_seconds: the same of what nodes offer.
    """

    overshoot: dict[tuple[str, str], int] = field(default_factory=dict)
    idle_waits: dict[str, float] = field(default_factory=dict)
    late_within_min: dict[str, float] = field(default_factory=dict)
    below_min: list[str] = field(default_factory=list)
    evictions: int = 0
    reclaimed: int = 0
    hasty: list[str] = field(default_factory=list)
    waits: dict[str, float] = field(default_factory=dict)
    charged_seconds: Counter[str] = field(default_factory=Counter)
    room_seconds: Counter[str] = field(default_factory=Counter)

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found that must not be."""
        broken = (self.overshoot, self.idle_waits, self.late_within_min, self.below_min, self.hasty)
        return not any(broken) and self.evictions <= 1.2 * self.reclaimed


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long something may take, in seconds.

    Attributes:
        idle: for which a pod may wait though there is room.
        within_min: for which a pod within min may wait for room that others borrow.
    """

    idle: float = 20.0
    within_min: float = 90.0


@dataclass(frozen=True, slots=True)
class _Pod:
    """A pod as its last event shows it."""

    uid: str
    namespace: str
    node: str
    requests: Amounts
    is_queued: bool
    is_leaving: bool
    owner: str
    is_reclaimer: bool


def judge(recording: Iterable[Event], patience: Patience | None = None) -> Judgement:
    """Return what a recording shows."""
    oracle = _Oracle(patience or Patience())
    for event in recording:
        oracle.see(event)
    return oracle.judgement


class _Oracle:
    """The cluster as recorded up to an event, and what was found by then."""

    def __init__(self, patience: Patience) -> None:
        self.judgement = Judgement()
        self._patience = patience
        self._pods: dict[str, _Pod] = {}  # by uid
        self._quotas: dict[str, tuple[Amounts, Amounts]] = {}  # min and max by namespace
        self._nodes: dict[str, Amounts] = {}
        self._created: dict[str, float] = {}
        self._fits_since: dict[str, float] = {}
        self._within_min_since: dict[str, float] = {}
        self._rounds: dict[str, list[float]] = defaultdict(list)  # of an owner
        self._at = 0.0

    def see(self, event: Event) -> None:
        """Judge the time since the last event, then the event."""
        self._time_passes(event.at)
        name = event.object["metadata"]["name"]
        match event.object["kind"]:
            case "Node":
                amounts = event.object.get("status", {}).get("allocatable", {})
                self._put(self._nodes, name, _amounts(amounts), event)
            case "ElasticQuota":
                spec = event.object.get("spec", {})
                bounds = (_amounts(spec.get("min") or {}), _amounts(spec.get("max") or {}))
                self._put(self._quotas, event.object["metadata"]["namespace"], bounds, event)
            case _:
                self._see_pod(event)
        self._judge_waits()

    def _put(self, known: dict[str, Any], key: str, value: object, event: Event) -> None:
        if event.type == "DELETED":
            known.pop(key, None)
        else:
            known[key] = value

    # Pods.

    def _see_pod(self, event: Event) -> None:
        uid = event.object["metadata"]["uid"]
        old, new = self._pods.get(uid), _pod_of(event.object)
        ended = event.object.get("status", {}).get("phase") in {"Succeeded", "Failed"}
        if old is not None and not old.is_leaving and _was_evicted(event.object):
            self._judge_eviction(old)
        if event.type == "DELETED" or ended:
            self._pods.pop(uid, None)
        else:
            self._created.setdefault(uid, self._at)
            self._pods[uid] = new
            if old is not None and old.is_queued and not new.is_queued:
                self.judgement.waits[uid] = self._at - self._created[uid]
            if new.node and new.is_reclaimer and (old is None or not old.node):
                self.judgement.reclaimed += 1
        self._judge_max(new.namespace)

    def _judge_max(self, namespace: str) -> None:
        if namespace not in self._quotas:
            return
        charged, (_, most) = self._charged(namespace), self._quotas[namespace]
        for resource, bound in most.items():
            beyond = charged[resource] - bound
            if beyond > self.judgement.overshoot.get((namespace, resource), 0):
                self.judgement.overshoot[namespace, resource] = beyond

    def _judge_eviction(self, pod: _Pod) -> None:
        judgement, at = self.judgement, self._at
        judgement.evictions += 1
        before = self._charged(pod.namespace, staying=True)
        least, _ = self._quotas.get(pod.namespace, ({}, {}))
        for resource, amount in least.items():
            if amount <= before[resource] < amount + pod.requests.get(resource, 0):
                judgement.below_min.append(pod.uid)
        rounds = self._rounds[pod.owner or pod.uid]
        if rounds and at - rounds[-1] < _ROUND_SECONDS:
            return
        cooldown = _FIRST_COOLDOWN_SECONDS * 2 ** max(len(rounds) - 1, 0)
        if rounds and at - rounds[-1] < min(cooldown, _LONGEST_COOLDOWN_SECONDS):
            judgement.hasty.append(pod.owner)
        rounds.append(at)

    def _charged(self, namespace: str, *, staying: bool = False) -> Counter[str]:
        """Return what the pods of a namespace are charged, maybe without those that leave."""
        total: Counter[str] = Counter()
        for pod in self._pods.values():
            counts = not (pod.is_queued or (staying and pod.is_leaving))
            if pod.namespace == namespace and counts:
                total.update(pod.requests)
        return total

    # Time.

    def _time_passes(self, at: float) -> None:
        elapsed, self._at = at - self._at, at
        judgement = self.judgement
        for pod in self._pods.values():
            if not pod.is_queued:
                for resource, amount in pod.requests.items():
                    judgement.charged_seconds[resource] += round(amount * elapsed)
        for amounts in self._nodes.values():
            for resource, amount in amounts.items():
                judgement.room_seconds[resource] += round(amount * elapsed)
        for since, found, most in (
            (self._fits_since, judgement.idle_waits, self._patience.idle),
            (self._within_min_since, judgement.late_within_min, self._patience.within_min),
        ):
            for uid, begun in since.items():
                if at - begun > most:
                    found[uid] = at - begun

    def _judge_waits(self) -> None:
        """Note from when on each waiting pod has room, and from when on it is within min."""
        waiting = [pod for pod in self._pods.values() if pod.is_queued and not pod.is_leaving]
        charged = {namespace: self._charged(namespace) for namespace in self._quotas}
        kept = self._kept_for_others(waiting, charged)
        free = self._free_on_nodes()
        fits, within_min = set(), set()
        aged = self._aged(waiting)
        for pod in waiting:
            if pod.namespace not in self._quotas or aged.get(pod.namespace, pod.uid) != pod.uid:
                continue
            least, most = self._quotas[pod.namespace]
            used = charged[pod.namespace]
            if not _is_within(used, pod.requests, most):
                continue
            is_within_min = bool(least) and _is_within(used, pod.requests, least)
            has_cohort_room = is_within_min or self._has_cohort_room(pod, charged, kept)
            if is_within_min:
                within_min.add(pod.uid)
            if has_cohort_room and any(_has(room, pod.requests) for room in free):
                fits.add(pod.uid)
        for since, now in ((self._fits_since, fits), (self._within_min_since, within_min)):
            for uid in since.keys() - now:
                del since[uid]
            for uid in now - since.keys():
                since[uid] = self._at

    def _aged(self, waiting: Sequence[_Pod]) -> dict[str, str]:
        """Return the pod of each namespace that nothing of its quota may overtake, by uid."""
        heads: dict[str, str] = {}
        for pod in sorted(waiting, key=lambda pod: self._created[pod.uid]):
            if self._at - self._created[pod.uid] > _AGED_SECONDS:
                heads.setdefault(pod.namespace, pod.uid)
        return heads

    def _kept_for_others(
        self, waiting: Sequence[_Pod], charged: Mapping[str, Counter[str]]
    ) -> dict[str, Counter[str]]:
        """Return what each quota may claim of its min, of those where pods wait."""
        kept: dict[str, Counter[str]] = {}
        for namespace in {pod.namespace for pod in waiting} & self._quotas.keys():
            least, _ = self._quotas[namespace]
            unmet = {name: max(most - charged[namespace][name], 0) for name, most in least.items()}
            kept[namespace] = Counter(unmet)
        return kept

    def _has_cohort_room(
        self, pod: _Pod, charged: Mapping[str, Counter[str]], kept: Mapping[str, Counter[str]]
    ) -> bool:
        taken: Counter[str] = Counter()
        for used in charged.values():
            taken.update(used)
        for namespace, unmet in kept.items():
            if namespace != pod.namespace:
                taken.update(unmet)
        total: Counter[str] = Counter()
        for amounts in self._nodes.values():
            total.update(amounts)
        return _is_within(taken, pod.requests, total)

    def _free_on_nodes(self) -> list[Counter[str]]:
        """Return what is free on each node; what is released and not bound yet is free nowhere."""
        free = {name: Counter(amounts) for name, amounts in self._nodes.items()}
        pending = [pod for pod in self._pods.values() if not (pod.node or pod.is_queued)]
        if pending:
            return []
        for pod in self._pods.values():
            if pod.node in free:
                free[pod.node].subtract(pod.requests)
        return list(free.values())


def _pod_of(obj: Json) -> _Pod:
    metadata, spec = obj["metadata"], obj["spec"]
    annotations = metadata.get("annotations") or {}
    gates = [gate["name"] for gate in spec.get("schedulingGates") or ()]
    requests: Counter[str] = Counter()
    for container in spec["containers"]:
        requests.update(_amounts(container.get("resources", {}).get("requests") or {}))
    owners = metadata.get("ownerReferences") or [{}]
    return _Pod(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        node=spec.get("nodeName", ""),
        requests=requests,
        is_queued=HOLD_GATE in gates and "quota" in annotations.get(REASONS, "").split(","),
        is_leaving="deletionTimestamp" in metadata,
        owner=owners[0].get("uid", ""),
        is_reclaimer=PLAN in annotations,
    )


def _was_evicted(obj: Json) -> bool:
    """Return whether the Eviction API has ended a pod."""
    conditions = obj.get("status", {}).get("conditions") or ()
    return any(
        condition["type"] == "DisruptionTarget"
        and condition.get("reason") == "EvictionByEvictionAPI"
        for condition in conditions
    )


def _amounts(resources: Mapping[str, str]) -> dict[str, int]:
    return {name: base_units(name, amount) for name, amount in resources.items()}


def _is_within(used: Amounts, more: Amounts, most: Amounts) -> bool:
    """Return whether what is used and more is within bounds; what they do not name is free."""
    return all(used.get(name, 0) + more.get(name, 0) <= bound for name, bound in most.items())


def _has(free: Amounts, needs: Amounts) -> bool:
    return all(free.get(name, 0) >= amount for name, amount in needs.items())
