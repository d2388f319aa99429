"""The model of a pod: identity, needs and constraints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from engine.model import api
from engine.model.eviction import not_evictable_by
from engine.model.hold import (
    HOLD_GATE,
    RECLAIM_PLAN_ANNOTATION,
    is_held_for_gang,
    is_held_for_order,
    is_queued,
)
from engine.model.host_ports import HostPort, host_ports_of
from engine.model.kubernetes_version import ASSUMED, KubernetesVersion
from engine.model.pod_affinity import with_label_keys
from engine.model.pod_shape import PodShape
from engine.model.selectors import GREATEST_WEIGHT, Requirement
from engine.model.shape_computation import shape_of
from engine.model.time import SECOND, Micros, micros

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"

TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})

_NO_AFFINITY = api.Affinity()


class Pod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One pod: identity, shape and constraints.

    Attributes:
        name: empty while only `generate_name` is known.
        owner_kinds: the kinds of its owners, such as `DaemonSet`.
        owner_uid: of the first of them, "" if it has none.
        containers: as they were sent.
        init_containers: as they were sent.
        images: of containers and init containers, one each, as written.
        volume_images: of volumes that are images, likewise.
        affinity: its node affinity, None if it has none.
        promised: alternatives of requirements on labels, of which one must hold on its node: what
            policies will add to its required affinity. Empty for nothing. INVARIANT: each term of
            the affinity that is stored demands one of them.
        pod_affinity: the terms that it requires, with their label keys in their selectors.
        pod_anti_affinity: likewise.
        preferred_pod_affinity: the terms that it prefers, likewise; of weights that may be.
        preferred_pod_anti_affinity: likewise.
        topology_spread: its constraints that forbid nodes (`DoNotSchedule`), as written.
        soft_topology_spread: its other constraints, as written.
        host_ports: ports of the node that it takes.
        preemption_policy: `Never` where the scheduler evicts nobody for it; "" where none is given.
        has_claims: whether it has volumes or devices that the scheduler must find: nothing here
            knows the nodes where these are.
        not_evictable_by: the autoscalers that do not evict it; see `engine.model.eviction`.
        scheduling_gates: names of the gates that keep the scheduler from considering it.
        nominated_node_name: the node on which the scheduler preempts pods for it, "" for none.
        has_scheduling_group: whether it belongs to a PodGroup of the scheduler itself.
        gone_by: when it should be gone, as it is being deleted: its deletionTimestamp and its grace
            period once more, by which no quota is charged for it any longer; else None.
        created: by the API server's clock, None while it is not stored; not converted, as it is
            seldom read.
        scheduled_at: the moment since which condition PodScheduled is True, if it has one.
        initialized_at: the moment since which condition Initialized is True, if it has one.
    """

    namespace: str
    name: str = ""
    generate_name: str = ""
    uid: str = ""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    owner_kinds: tuple[str, ...] = ()
    owner_uid: str = ""
    containers: Sequence[api.Container] = ()
    init_containers: Sequence[api.Container] = ()
    images: tuple[str, ...] = ()
    volume_images: tuple[str, ...] = ()
    node_name: str = ""
    scheduler_name: str = ""
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = ""
    node_selector: Mapping[str, str] = msgspec.field(default_factory=dict)
    affinity: api.NodeAffinity | None = None
    promised: tuple[tuple[Requirement, ...], ...] = ()
    pod_affinity: tuple[api.PodAffinityTerm, ...] = ()
    pod_anti_affinity: tuple[api.PodAffinityTerm, ...] = ()
    preferred_pod_affinity: tuple[api.WeightedPodAffinityTerm, ...] = ()
    preferred_pod_anti_affinity: tuple[api.WeightedPodAffinityTerm, ...] = ()
    topology_spread: tuple[api.TopologySpreadConstraint, ...] = ()
    soft_topology_spread: tuple[api.TopologySpreadConstraint, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    tolerations: tuple[api.Toleration, ...] = ()
    has_claims: bool = False
    not_evictable_by: tuple[str, ...] = ()
    scheduling_gates: tuple[str, ...] = ()
    has_scheduling_group: bool = False
    nominated_node_name: str = ""
    phase: str = ""
    deleting: bool = False
    gone_by: Micros | None = None
    created: datetime | None = None
    scheduled_at: Micros | None = None
    initialized_at: Micros | None = None
    shape: PodShape

    @property
    def key(self) -> str:
        """`namespace/name`, unique among stored pods."""
        return f"{self.namespace}/{self.name}"

    @property
    def display_name(self) -> str:
        """The name, or the prefix of the generated name with a star."""
        return self.name or (f"{self.generate_name}*" if self.generate_name else "(unnamed)")

    @property
    def gated(self) -> bool:
        """Whether scheduling gates keep the scheduler from considering it."""
        return bool(self.scheduling_gates)

    @property
    def is_held(self) -> bool:
        """Whether it has the scheduling gate of ours, maybe among others."""
        return HOLD_GATE in self.scheduling_gates

    @property
    def is_held_by_us_alone(self) -> bool:
        """Whether the scheduler considers it as soon as we release it."""
        return self.scheduling_gates == (HOLD_GATE,)

    @property
    def is_reclaimed_for(self) -> bool:
        """Whether it says that others are evicted for it; while it is held, nobody else nominates.

        Whoever may write it can write the annotation, but not its status.
        """
        return bool(self.nominated_node_name) and RECLAIM_PLAN_ANNOTATION in self.annotations

    @property
    def is_queued(self) -> bool:
        """Whether it waits for quota, see `engine.model.hold`."""
        return is_queued(self.scheduling_gates, self.annotations)

    @property
    def is_held_for_gang(self) -> bool:
        """Whether it waits for its gang, see `engine.model.hold`."""
        return is_held_for_gang(self.scheduling_gates, self.annotations)

    @property
    def is_held_for_order(self) -> bool:
        """Whether it waits for the pods before it, see `engine.model.hold`."""
        return is_held_for_order(self.scheduling_gates, self.annotations)

    @property
    def is_daemon_set(self) -> bool:
        """Whether any owner is a DaemonSet (Koordinator ignores controller flag and group)."""
        return "DaemonSet" in self.owner_kinds

    @property
    def is_mirror(self) -> bool:
        """Whether it mirrors a static pod of a kubelet."""
        return MIRROR_ANNOTATION in self.annotations

    @property
    def is_terminal(self) -> bool:
        """Whether it has finished and so holds no resources."""
        return self.phase in TERMINAL_PHASES


def pod_of(wire: api.Pod, *, namespace: str = "", kubernetes: KubernetesVersion = ASSUMED) -> Pod:
    """Return the model of a Pod.

    Args:
        wire: the decoded object.
        namespace: that of the request, used where the object has none yet.
        kubernetes: the version by which its amounts are counted, see `ClusterState.kubernetes`.

    Raises:
        QuantityError: an amount is not a quantity.
    """
    meta, spec, status = wire.metadata, wire.spec, wire.status
    labels = meta.labels or {}
    annotations = meta.annotations or {}
    scheduled_at, initialized_at = _condition_times(status.conditions or ())
    owners = meta.owner_references or ()
    affinity = spec.affinity or _NO_AFFINITY
    near, away = affinity.pod_affinity, affinity.pod_anti_affinity
    spread = spec.topology_spread_constraints
    label_keys = labels if meta.creation_timestamp is None else None
    return Pod(
        namespace=meta.namespace or namespace,
        name=meta.name,
        generate_name=meta.generate_name,
        uid=meta.uid,
        labels=labels,
        annotations=annotations,
        owner_kinds=tuple([owner.kind for owner in owners]),
        owner_uid=owners[0].uid if owners else "",
        containers=spec.containers or (),
        init_containers=spec.init_containers or (),
        images=_images(spec),
        volume_images=_volume_images(spec) if spec.volumes else (),
        node_name=spec.node_name,
        scheduler_name=spec.scheduler_name,
        priority=spec.priority or 0,
        priority_class_name=spec.priority_class_name,
        preemption_policy=spec.preemption_policy or "",
        node_selector=spec.node_selector or {},
        affinity=affinity.node_affinity,
        pod_affinity=() if near is None else _required(near, label_keys),
        pod_anti_affinity=() if away is None else _required(away, label_keys),
        preferred_pod_affinity=() if near is None else _preferred(near, label_keys),
        preferred_pod_anti_affinity=() if away is None else _preferred(away, label_keys),
        topology_spread=() if spread is None else _constraints(spread, "DoNotSchedule"),
        soft_topology_spread=() if spread is None else _constraints(spread, "ScheduleAnyway"),
        host_ports=host_ports_of(spec),
        tolerations=tuple(spec.tolerations or ()),
        has_claims=bool(
            spec.resource_claims or (spec.volumes and any(map(_is_claim, spec.volumes)))
        ),
        not_evictable_by=not_evictable_by(meta, spec),
        scheduling_gates=tuple([gate.name for gate in spec.scheduling_gates or ()]),
        has_scheduling_group=spec.scheduling_group is not None,
        nominated_node_name=status.nominated_node_name,
        phase=status.phase,
        deleting=meta.deletion_timestamp is not None,
        gone_by=_gone_by(meta),
        created=meta.creation_timestamp,
        scheduled_at=scheduled_at,
        initialized_at=initialized_at,
        shape=shape_of(wire, kubernetes=kubernetes),
    )


def _gone_by(meta: api.ObjectMeta) -> Micros | None:
    """Return when a pod should be gone (kubernetes, pkg/quota/v1/evaluator/core/pods.go)."""
    deleted, created = meta.deletion_timestamp, meta.creation_timestamp
    if deleted is None or meta.deletion_grace_period_seconds is None:
        return None
    if created is not None and deleted < created:  # 292 years of grace overflow the API server's
        return None
    return Micros(micros(deleted) + meta.deletion_grace_period_seconds * SECOND)


def _required(
    affinity: api.PodAffinity, labels: Mapping[str, str] | None
) -> tuple[api.PodAffinityTerm, ...]:
    """Return the required terms of an affinity to pods.

    Args:
        affinity: as written.
        labels: of a pod that is not stored yet, so that label keys are not in the selectors; else
            None.
    """
    terms = affinity.required_during_scheduling_ignored_during_execution or ()
    return tuple(terms) if labels is None else with_label_keys(terms, labels)


def _preferred(
    affinity: api.PodAffinity, labels: Mapping[str, str] | None
) -> tuple[api.WeightedPodAffinityTerm, ...]:
    """Return the preferred terms of an affinity to pods; see `_required`."""
    terms = affinity.preferred_during_scheduling_ignored_during_execution or ()
    if labels is None:
        return tuple([term for term in terms if 0 < term.weight <= GREATEST_WEIGHT])
    of_terms = with_label_keys([term.pod_affinity_term for term in terms], labels)
    return tuple(
        [
            replace(term, pod_affinity_term=whom)
            for term, whom in zip(terms, of_terms, strict=True)
            if 0 < term.weight <= GREATEST_WEIGHT
        ]
    )


def _constraints(
    constraints: Sequence[api.TopologySpreadConstraint], when_unsatisfiable: str
) -> tuple[api.TopologySpreadConstraint, ...]:
    """Return the constraints of one kind."""
    return tuple([each for each in constraints if each.when_unsatisfiable == when_unsatisfiable])


def _is_claim(volume: api.Volume) -> bool:
    """Return whether a volume may be out of reach of some nodes, or too much for them."""
    return (volume.persistent_volume_claim or volume.ephemeral or volume.csi) is not None


def _images(spec: api.PodSpec) -> tuple[str, ...]:
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    return tuple([container.image for container in containers])


def _volume_images(spec: api.PodSpec) -> tuple[str, ...]:
    volumes = spec.volumes or ()
    return tuple([volume.image.reference for volume in volumes if volume.image is not None])


def _condition_times(
    conditions: tuple[api.PodCondition, ...] | list[api.PodCondition],
) -> tuple[Micros | None, Micros | None]:
    """Return the moments since which PodScheduled and Initialized are True."""
    scheduled = initialized = None
    for condition in conditions:
        kind = condition.type
        if kind == "PodScheduled" or kind == "Initialized":  # noqa: PLR1714 (twice as fast)
            since = condition.last_transition_time
            if condition.status != "True" or since is None:
                continue
            if kind == "PodScheduled":
                scheduled = micros(since)
            else:
                initialized = micros(since)
    return scheduled, initialized
