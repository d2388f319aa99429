"""Judges quotas that queue by the events of a whole run, and by nothing that stowplan says."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.e2e.recorded_cluster import Amounts, Event, RecordedCluster, RecordedPod

_SAMPLE_SECONDS = 0.25
"""How often waits are looked at where events come faster."""

_AGED_SECONDS = 300.0
"""After which a pod at the head of its quota is overtaken no more."""

_FIRST_REST_SECONDS, _LONGEST_REST_SECONDS = 60.0, 300.0
_MOST_IN_FLIGHT = 10
"""Evictions of pods of a namespace; more where it has more than a hundred."""

_KNOWN_SECONDS = 2.0
"""For which the leader may not know yet that a pod has gone: evictions that cross such an end are
judged by what was there before it."""


@dataclass(slots=True)
class Judgement:
    """What was found; amounts in base units (millicores, bytes).

    Attributes:
        overshoot: the most that was ever charged beyond `max`, by namespace and resource.
        idle_waits: pods that waited while there was room for them, with the longest time of each.
        late_within_min: pods within min that got no room in time, though there was some or others
            borrowed it, with that time.
        below_min: pods that were evicted although their quota had no more than its min.
        evictions: number of pods that were evicted.
        reclaimed: number of pods that were bound after others were evicted for them.
        hasty: owners of which pods were evicted that had come back a moment ago.
        waits: seconds from creation to the end of the wait of each pod that waited.
        within_min_waits: the same of pods within min, from when they were so.
        charged_seconds: the sum of charged amounts over time, by resource.
        room_seconds: the same of what nodes offer.
        limited_seconds: how long as many pods were on their way out as may be.
    """

    overshoot: dict[tuple[str, str], int] = field(default_factory=dict)
    idle_waits: dict[str, float] = field(default_factory=dict)
    late_within_min: dict[str, float] = field(default_factory=dict)
    below_min: list[str] = field(default_factory=list)
    evictions: int = 0
    reclaimed: int = 0
    hasty: list[str] = field(default_factory=list)
    waits: dict[str, float] = field(default_factory=dict)
    within_min_waits: dict[str, float] = field(default_factory=dict)
    charged_seconds: Counter[str] = field(default_factory=Counter)
    room_seconds: Counter[str] = field(default_factory=Counter)
    limited_seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found that must not be."""
        broken = (
            *(self.overshoot, self.idle_waits, self.late_within_min),
            *(self.below_min, self.hasty),
        )
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


@dataclass(slots=True)
class _Hits:
    """Evictions of pods of an owner: since when, and how often pods that had come back."""

    since: float
    returns: int = 0

    def came_back(self, pod: RecordedPod) -> bool:
        """Return whether a pod was bound after its owner was hit; moments are whole seconds."""
        return pod.since is not None and pod.since > self.since

    def may_go(self, pod: RecordedPod, at: float) -> bool:
        """Return whether a pod may be evicted."""
        rest = min(_FIRST_REST_SECONDS * 2.0 ** min(self.returns, 16), _LONGEST_REST_SECONDS)
        return not self.came_back(pod) or at >= self.since + rest


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
        self._cluster = RecordedCluster()
        self._at = 0.0
        self._sampled_at = 0.0
        self._fits_since: dict[str, float] = {}
        self._within_min_since: dict[str, float] = {}
        self._hits: dict[str, _Hits] = {}  # of an owner
        self._evicted_at: dict[str, float] = {}  # by uid
        self._in_flight: set[str] = set()
        self._reclaimers: set[str] = set()  # pods that others were evicted for, and not bound yet
        self._ended: dict[str, deque[tuple[float, Amounts]]] = defaultdict(deque)

    def see(self, event: Event) -> None:
        """Judge the time since the last event, then the event."""
        if event.at > self._at:
            self._time_passes(event.at)
        old, new = self._cluster.see(event)
        pod = new or old
        if pod is not None:
            self._see_pod(pod, old, new)

    # Pods.

    def _see_pod(self, pod: RecordedPod, old: RecordedPod | None, new: RecordedPod | None) -> None:
        judgement, uid = self.judgement, pod.uid
        if new is None:
            self._in_flight.discard(uid)
        if old is not None and new is not None and new.was_evicted and uid not in self._evicted_at:
            self._judge_eviction(old)
        elif old is not None and not old.is_leaving and (new is None or new.is_leaving):
            self._ended[pod.namespace].append((self._at, old.requests))
        if old is not None and new is not None and old.is_queued and not new.is_queued:
            judgement.waits[uid] = self._at - self._cluster.created[uid]
            if uid in self._within_min_since:
                judgement.within_min_waits[uid] = self._at - self._within_min_since[uid]
        if new is not None and new.is_reclaimer and not new.is_bound:
            self._reclaimers.add(uid)
        if new is not None and new.is_bound and uid in self._reclaimers:
            self._reclaimers.remove(uid)
            judgement.reclaimed += 1
        self._judge_max(pod.namespace)

    def _judge_max(self, namespace: str) -> None:
        if namespace not in self._cluster.quotas:
            return
        charged, (_, most) = self._cluster.charged[namespace], self._cluster.quotas[namespace]
        for resource, bound in most.items():
            beyond = charged[resource] - bound
            if beyond > self.judgement.overshoot.get((namespace, resource), 0):
                self.judgement.overshoot[namespace, resource] = beyond

    def _judge_eviction(self, pod: RecordedPod) -> None:
        judgement, at = self.judgement, self._at
        judgement.evictions += 1
        self._evicted_at[pod.uid] = at
        self._in_flight.add(pod.uid)
        before = self._known_use(pod)
        least, _ = self._cluster.quotas.get(pod.namespace, ({}, {}))
        for resource, amount in least.items():
            if amount <= before[resource] < amount + pod.requests.get(resource, 0):
                judgement.below_min.append(pod.uid)
        hits = self._hits.get(pod.owner)
        if hits is None:
            self._hits[pod.owner] = _Hits(at)
        elif not hits.may_go(pod, at):
            judgement.hasty.append(pod.owner)
        elif hits.came_back(pod):
            self._hits[pod.owner] = _Hits(at, hits.returns + 1)

    def _known_use(self, pod: RecordedPod) -> Counter[str]:
        """Return what stays of a quota before an eviction, as far as the leader may know it."""
        use = Counter(self._cluster.staying[pod.namespace])
        if self._cluster.pods[pod.uid].is_leaving:
            use.update(pod.requests)
        ended = self._ended[pod.namespace]
        while ended and ended[0][0] < self._at - _KNOWN_SECONDS:
            ended.popleft()
        for _, requests in ended:
            use.update(requests)
        return use

    # Time.

    def _time_passes(self, at: float) -> None:
        elapsed, judgement = at - self._at, self.judgement
        for charged in self._cluster.charged.values():
            _add_over_time(judgement.charged_seconds, charged, elapsed)
        for offered in self._cluster.nodes.values():
            _add_over_time(judgement.room_seconds, offered, elapsed)
        is_limited = len(self._in_flight) >= _MOST_IN_FLIGHT
        judgement.limited_seconds += elapsed if is_limited else 0.0
        if at - self._sampled_at >= _SAMPLE_SECONDS:
            self._judge_waits(at, is_limited=is_limited)
            self._sampled_at = at
        self._at = at

    def _judge_waits(self, at: float, *, is_limited: bool) -> None:
        """Note since when each waiting pod has room, or is within min, and who waits for long."""
        fits, within_min = set[str](), set[str]()
        for pods, has_room, is_promised in self._groups():
            fits.update(pods if has_room else ())
            within_min.update(pods if is_promised else ())
        patience, judgement = self._patience, self.judgement
        if is_limited:  # the time of the limit is no time of theirs
            for uid in self._within_min_since:
                self._within_min_since[uid] += at - self._sampled_at
        for since, now, most, found in (
            (self._fits_since, fits, patience.idle, judgement.idle_waits),
            (self._within_min_since, within_min, patience.within_min, judgement.late_within_min),
        ):
            for uid in since.keys() - now:
                del since[uid]
            for uid in now:
                begun = since.setdefault(uid, self._at)
                if at - begun > most:
                    found[uid] = at - begun

    def _groups(self) -> Iterator[tuple[Iterable[str], bool, bool]]:
        """Yield waiting pods of equal needs, whether they have room, and whether it is promised."""
        cluster = self._cluster
        kept = self._kept_for_others()
        taken = sum(cluster.charged.values(), Counter[str]()) + sum(kept.values(), Counter[str]())
        offered = sum(map(Counter, cluster.nodes.values()), Counter[str]())
        for namespace in cluster.waiting.keys() & cluster.quotas.keys():
            least, most = cluster.quotas[namespace]
            used = cluster.charged[namespace]
            for requests, pods in self._by_needs(namespace):
                if not _is_within(used, requests, most):
                    continue
                is_within_min = bool(least) and _is_within(used, requests, least)
                taken_by_others = taken - kept[namespace]
                may_go = is_within_min or _is_within(taken_by_others, requests, offered)
                has_room = may_go and self._has_node(requests, pods)
                is_promised = is_within_min and (has_room or self._has_victims(requests, pods))
                yield pods, has_room, is_promised
        for uid in cluster.homeless:
            pod = cluster.pods[uid]
            least, _ = cluster.quotas.get(pod.namespace, ({}, {}))
            is_within_min = bool(least) and _is_within(cluster.charged[pod.namespace], {}, least)
            yield {uid: pod}, False, is_within_min and self._has_victims(pod.requests, {uid: pod})

    def _by_needs(self, namespace: str) -> Iterator[tuple[Amounts, Mapping[str, RecordedPod]]]:
        """Yield the pods that may be next, by what they request; one that has aged is alone."""
        waiting = self._cluster.waiting[namespace]
        head = next(iter(waiting), None)
        if head is not None and self._at - self._cluster.created[head] > _AGED_SECONDS:
            yield waiting[head].requests, {head: waiting[head]}
            return
        groups: dict[frozenset[tuple[str, int]], dict[str, RecordedPod]] = defaultdict(dict)
        for uid, pod in waiting.items():
            groups[frozenset(pod.requests.items())][uid] = pod
        for needs, pods in groups.items():
            yield dict(needs), pods

    def _kept_for_others(self) -> dict[str, Counter[str]]:
        """Return what each quota where pods wait may claim of its min."""
        kept: dict[str, Counter[str]] = {}
        for namespace, waiting in self._cluster.waiting.items():
            least, _ = self._cluster.quotas.get(namespace, ({}, {}))
            charged = self._cluster.charged[namespace]
            unmet = {name: max(most - charged[name], 0) for name, most in least.items()}
            kept[namespace] = Counter(unmet if waiting else {})
        return kept

    def _has_node(self, requests: Amounts, pods: Mapping[str, RecordedPod]) -> bool:
        """Return whether a node has room, whichever node those take that are on none."""
        free = self._free(requests, pods)
        return any(_has(each, requests) for each in free.values())

    def _free(self, requests: Amounts, pods: Mapping[str, RecordedPod]) -> dict[str, Counter[str]]:
        """Return what is sure to be free on each node for pods of equal needs.

        What one of them is nominated to is theirs. Pods that are on no node may take any.
        """
        cluster = self._cluster
        others = [cluster.pods[uid].requests for uid in cluster.homeless - pods.keys()]
        free = {node: cluster.free_on(node) for node in cluster.nodes}
        for room, taken in itertools.product(free.values(), others):
            room.subtract(taken)
        for node in {pod.node for pod in pods.values()} & free.keys():
            free[node].update(requests)
        return free

    def _has_victims(self, requests: Amounts, pods: Mapping[str, RecordedPod]) -> bool:
        """Return whether a node has room once pods of it are evicted that may be."""
        evictable = defaultdict(list)
        for pod in self._cluster.pods.values():
            if self._may_go(pod):
                evictable[pod.node].append(pod)
        free = self._free(requests, pods)
        return any(self._fits_after(evictable[node], room, requests) for node, room in free.items())

    def _may_go(self, pod: RecordedPod) -> bool:
        if pod.since is None or pod.is_leaving or pod.namespace not in self._cluster.quotas:
            return False
        hits = self._hits.get(pod.owner)
        return hits is None or hits.may_go(pod, self._at)

    def _fits_after(
        self, evictable: Iterable[RecordedPod], free: Counter[str], requests: Amounts
    ) -> bool:
        use = {name: Counter(self._cluster.staying[name]) for name in self._cluster.quotas}
        for pod in evictable:
            least, _ = self._cluster.quotas[pod.namespace]
            after = use[pod.namespace].copy()
            after.subtract(pod.requests)
            if all(after[name] >= amount for name, amount in least.items()):
                use[pod.namespace] = after
                free.update(pod.requests)
        return _has(free, requests)


def _add_over_time(total: Counter[str], amounts: Amounts, elapsed: float) -> None:
    for resource, amount in amounts.items():
        total[resource] += round(amount * elapsed)


def _is_within(used: Amounts, more: Amounts, most: Amounts) -> bool:
    """Return whether what is used and more is within bounds; what they do not name is free."""
    return all(used.get(name, 0) + more.get(name, 0) <= bound for name, bound in most.items())


def _has(free: Amounts, needs: Amounts) -> bool:
    return all(free.get(name, 0) >= amount for name, amount in needs.items())
