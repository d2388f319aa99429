"""The model of a pod: identity, needs and constraints."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from engine.model import api
from engine.model.disruption_budget import not_evictable_by
from engine.model.hold import (
    HOLD_GATE,
    RECLAIM_PLAN_ANNOTATION,
    is_held_for_gang,
    is_held_for_order,
    is_queued,
)
from engine.model.kubernetes_version import ASSUMED, KubernetesVersion
from engine.model.pod_shape import PodShape, shape_of
from engine.model.selectors import (
    GREATEST_WEIGHT,
    LabelSelector,
    Operator,
    Requirement,
    parse_label_selector,
)
from engine.model.time import SECOND, Micros, micros

# Ports of a node that a pod takes for itself.
#
# Source: pkg/scheduler/util/utils.go, `GetHostPorts`, and `HostPortInfo` of
# k8s.io/kube-scheduler/framework/types.go.


ALL_ADDRESSES: Final = "0.0.0.0"  # noqa: S104 (nothing listens here)
"""The address of a port that is taken on every address of the node."""


class HostPort(NamedTuple):
    """A port on an address of the node."""

    ip: str
    protocol: str
    port: int

    def conflicts_with(self, other: HostPort) -> bool:
        """Return whether no node has room for both."""
        return self[1:] == other[1:] and (
            self.ip == other.ip or ALL_ADDRESSES in {self.ip, other.ip}
        )


def host_ports_of(spec: api.PodSpec) -> tuple[HostPort, ...]:
    """Return the ports of the node that app containers and sidecars take, each once."""
    ports: list[HostPort] | None = None
    for container in spec.containers or ():
        if container.ports:
            ports = _with_more(ports, container.ports)
    for container in spec.init_containers or ():
        if container.ports and container.restart_policy == "Always":
            ports = _with_more(ports, container.ports)
    return tuple(dict.fromkeys(ports)) if ports else ()


def _with_more(
    ports: list[HostPort] | None, written: list[api.ContainerPort]
) -> list[HostPort] | None:
    for port in written:
        if port.host_port > 0:
            ports = [] if ports is None else ports
            ports.append(
                HostPort(port.host_ip or ALL_ADDRESSES, port.protocol or "TCP", port.host_port)
            )
    return ports


# Affinity and anti-affinity between pods: whom a term selects.
#
# Source: `AffinityTerm` of k8s.io/kube-scheduler/framework/types.go, and for label keys
# pkg/registry/core/pod/strategy.go. The API server refuses selectors with mistakes; here such a
# term selects no pod.


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """A required term."""

    topology_key: str  # the node label whose values are the domains
    selector: LabelSelector | None  # of pods; None selects none
    namespaces: frozenset[str]  # in which pods are selected
    namespace_selector: LabelSelector | None  # of further namespaces; None selects none

    def matches(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> bool:
        """Return whether it selects a pod of a namespace, by its labels and the namespace's."""
        if self.selector is None:
            return False
        is_there = namespace in self.namespaces or (
            self.namespace_selector is not None
            and self.namespace_selector.matches(namespace_labels)
        )
        return is_there and self.selector.matches(labels)


def parse_affinity_terms(
    wire: Iterable[api.PodAffinityTerm], namespace: str
) -> tuple[AffinityTerm, ...]:
    """Return the terms of a pod of a namespace."""
    return tuple([_parse_term(term, namespace) for term in wire])


def with_label_keys(
    terms: Sequence[api.PodAffinityTerm], labels: Mapping[str, str]
) -> tuple[api.PodAffinityTerm, ...]:
    """Return terms with their label keys in their selectors, as the API server stores them."""
    return tuple([_with_label_keys(term, labels) for term in terms])


def _parse_term(wire: api.PodAffinityTerm, namespace: str) -> AffinityTerm:
    is_own = not wire.namespaces and wire.namespace_selector is None
    return AffinityTerm(
        topology_key=wire.topology_key,
        selector=_parse_selector(wire.label_selector),
        namespaces=frozenset((namespace,) if is_own else wire.namespaces or ()),
        namespace_selector=_parse_selector(wire.namespace_selector),
    )


def _parse_selector(wire: api.LabelSelector | None) -> LabelSelector | None:
    if wire is None:
        return None
    selector, mistakes = parse_label_selector(wire)
    return None if mistakes else selector


def _with_label_keys(term: api.PodAffinityTerm, labels: Mapping[str, str]) -> api.PodAffinityTerm:
    selector = term.label_selector
    if selector is None or not (term.match_label_keys or term.mismatch_label_keys):
        return term
    added = [
        api.SelectorRequirement(key=key, operator=operator, values=[labels[key]])
        for operator, keys in (
            (Operator.IN, term.match_label_keys),
            (Operator.NOT_IN, term.mismatch_label_keys),
        )
        for key in keys or ()
        if key in labels
    ]
    expressions = [*(selector.match_expressions or ()), *added]
    return replace(term, label_selector=replace(selector, match_expressions=expressions))


MIRROR_ANNOTATION = "kubernetes.io/config.mirror"

TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})

_NO_AFFINITY = api.Affinity()


class Pod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One pod: identity, shape and constraints."""

    namespace: str
    name: str = ""  # empty while only `generate_name` is known
    generate_name: str = ""
    uid: str = ""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    owner_kinds: tuple[str, ...] = ()  # the kinds of its owners, such as `DaemonSet`
    owner_uid: str = ""  # of the first of them, "" if it has none
    containers: Sequence[api.Container] = ()  # as they were sent
    init_containers: Sequence[api.Container] = ()  # as they were sent
    images: tuple[str, ...] = ()  # of containers and init containers, one each, as written
    volume_images: tuple[str, ...] = ()  # of volumes that are images, likewise
    node_name: str = ""
    scheduler_name: str = ""
    priority: int = 0
    priority_class_name: str = ""
    # `Never` where the scheduler evicts nobody for it; "" where none is given
    preemption_policy: str = ""
    node_selector: Mapping[str, str] = msgspec.field(default_factory=dict)
    affinity: api.NodeAffinity | None = None  # its node affinity, None if it has none
    # alternatives of requirements on labels, of which one must hold on its node: what policies will
    # add to its required affinity. Empty for nothing. INVARIANT: each term of the affinity that is
    # stored demands one of them
    promised: tuple[tuple[Requirement, ...], ...] = ()
    # the terms that it requires, with their label keys in their selectors
    pod_affinity: tuple[api.PodAffinityTerm, ...] = ()
    pod_anti_affinity: tuple[api.PodAffinityTerm, ...] = ()  # likewise
    # the terms that it prefers, likewise; of weights that may be
    preferred_pod_affinity: tuple[api.WeightedPodAffinityTerm, ...] = ()
    preferred_pod_anti_affinity: tuple[api.WeightedPodAffinityTerm, ...] = ()  # likewise
    # its constraints that forbid nodes (`DoNotSchedule`), as written
    topology_spread: tuple[api.TopologySpreadConstraint, ...] = ()
    # its other constraints, as written
    soft_topology_spread: tuple[api.TopologySpreadConstraint, ...] = ()
    host_ports: tuple[HostPort, ...] = ()  # ports of the node that it takes
    tolerations: tuple[api.Toleration, ...] = ()
    # whether it has volumes or devices that the scheduler must find: nothing here knows the nodes
    # where these are
    has_claims: bool = False
    # the autoscalers that do not evict it; see `disruption_budget`
    not_evictable_by: tuple[str, ...] = ()
    # names of the gates that keep the scheduler from considering it
    scheduling_gates: tuple[str, ...] = ()
    has_scheduling_group: bool = False  # whether it belongs to a PodGroup of the scheduler itself
    # the node on which the scheduler preempts pods for it, "" for none
    nominated_node_name: str = ""
    phase: str = ""
    deleting: bool = False
    # when it should be gone, as it is being deleted: its deletionTimestamp and its grace period
    # once more, by which no quota is charged for it any longer; else None
    gone_by: Micros | None = None
    # by the API server's clock, None while it is not stored; not converted, as it is seldom read
    created: datetime | None = None
    # the moment since which condition PodScheduled is True, if it has one
    scheduled_at: Micros | None = None
    # the moment since which condition Initialized is True, if it has one
    initialized_at: Micros | None = None
    is_ready: bool = False  # whether condition Ready is True
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
    """Return the model of a Pod."""
    meta, spec, status = wire.metadata, wire.spec, wire.status
    labels = meta.labels or {}
    annotations = meta.annotations or {}
    scheduled_at, initialized_at, is_ready = _conditions_in(status.conditions or ())
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
        is_ready=is_ready,
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
    terms = affinity.required_during_scheduling_ignored_during_execution or ()
    return tuple(terms) if labels is None else with_label_keys(terms, labels)


def _preferred(
    affinity: api.PodAffinity, labels: Mapping[str, str] | None
) -> tuple[api.WeightedPodAffinityTerm, ...]:
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


def _conditions_in(
    conditions: tuple[api.PodCondition, ...] | list[api.PodCondition],
) -> tuple[Micros | None, Micros | None, bool]:
    """Return since when PodScheduled and Initialized are True, and whether Ready is."""
    scheduled = initialized = None
    is_ready = False
    for condition in conditions:
        kind = condition.type
        if kind == "Ready":
            is_ready = condition.status == "True"
        elif kind == "PodScheduled" or kind == "Initialized":  # noqa: PLR1714 (twice as fast)
            since = condition.last_transition_time
            if condition.status != "True" or since is None:
                continue
            if kind == "PodScheduled":
                scheduled = micros(since)
            else:
                initialized = micros(since)
    return scheduled, initialized, is_ready


# What rules for other pods read of a pod that is on a node, as a text that is kept for it.
#
# Pods of a template share one, so that 150,000 pods hold some ten thousand.


LONGEST_TRAITS: Final = 8_192  # bytes; those of an everyday pod take 300


class PodTraits(msgspec.Struct, frozen=True, array_like=True, gc=False):
    namespace: str
    labels: dict[str, str]
    terminating: bool  # whether it is being deleted
    not_evictable_by: tuple[str, ...]  # the autoscalers that do not evict it
    anti_affinity: tuple[api.PodAffinityTerm, ...]  # the required terms
    host_ports: tuple[HostPort, ...]
    # the preferred terms of affinity, those of anti-affinity with weights below 0, and with
    # REQUIRED the required terms of affinity, which make a node better for others, too
    attraction: tuple[api.WeightedPodAffinityTerm, ...]


REQUIRED: Final = 0
"""The weight of a term that is required, which no preferred one has."""

NO_TRAITS: Final = b""
"""Of a pod of which nothing is known: no rule finds it."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PodTraits).decode


def traits_of(pod: Pod) -> bytes:
    """Return the traits of a pod as a text, equal for pods of one template.

    NO_TRAITS if it would be too long to be kept, or holds half a character: no one else can
    tell where such a pod is.
    """
    known = (
        *(pod.namespace, pod.labels, pod.deleting, pod.not_evictable_by),
        *(pod.pod_anti_affinity, pod.host_ports),
    )
    try:
        text = _encode((*known, _attraction(pod)))
        if len(text) > LONGEST_TRAITS:  # what it only prefers is worth least
            text = _encode((*known, ()))
    except UnicodeEncodeError:
        return NO_TRAITS
    return text if len(text) <= LONGEST_TRAITS else NO_TRAITS


def _attraction(pod: Pod) -> Sequence[api.WeightedPodAffinityTerm]:
    """Return what the pod prefers of other pods, each way."""
    near, away = pod.preferred_pod_affinity, pod.preferred_pod_anti_affinity
    if not (near or away or pod.pod_affinity):
        return ()
    return (
        *near,
        *(replace(term, weight=-term.weight) for term in away),
        *(
            api.WeightedPodAffinityTerm(weight=REQUIRED, pod_affinity_term=term)
            for term in pod.pod_affinity
        ),
    )


def decoded_traits(text: bytes) -> PodTraits:
    """Return the traits that a text spells, which is not NO_TRAITS."""
    return _decode(text)


# Whether a pod is of a Deployment, and of which revision of its template.
#
# Read off what the Deployment controller writes: a ReplicaSet is named after its Deployment and the
# hash of the template, and its pods after the ReplicaSet. Whoever may write pods may write the
# same.


HASH_LABEL: Final = "pod-template-hash"
"""The label of pods of a Deployment, and of its ReplicaSets: the revision of the template."""

_REPLICA_SET: Final = "ReplicaSet"


class DeploymentPod(NamedTuple):
    """A pod of a Deployment."""

    deployment: str  # its name
    revision: str  # the hash of the template that the pod was made from


def deployment_pod_of(
    generate_name: str, labels: Mapping[str, str], owner_kinds: Collection[str]
) -> DeploymentPod | None:
    """Return of which Deployment a pod is, None if it is of none."""
    revision = labels.get(HASH_LABEL)
    ending = f"-{revision}-"
    if not revision or _REPLICA_SET not in owner_kinds or not generate_name.endswith(ending):
        return None
    deployment = generate_name.removesuffix(ending)
    return DeploymentPod(deployment, revision) if deployment else None


SYSTEM_PRIORITY: Final = 1_000_000_000
"""The least priority that is kept for what runs a cluster: users' own classes end there."""

_KUEUE: Final = "kueue.x-k8s.io/"

_MOST_ANNOTATION_BYTES: Final = 256 * 1024 - 16 * 1024
"""The API server takes 256 KiB of annotations; the rest is left for those of a hold."""


def is_never_held(pod: Pod) -> bool:
    """Return whether a pod is not held, whatever its policies say.

    - What runs a cluster must not wait for us: priorities of 1,000,000,000 and more.
    - Pods with the gate of another: we would keep what they are about to release. Where another
      adds its gate after us, we wait for it.
    - Pods that Kueue manages, whether or not they have its gate: its time limits run from when it
      has admitted them, so they would run while our gate is on.
    - Members of a PodGroup of the scheduler itself: one that is gated gates the whole group.
    - Pods whose annotations leave no room for ours: their release would be refused.
    """
    return (
        pod.priority >= SYSTEM_PRIORITY
        or pod.has_scheduling_group
        or not {HOLD_GATE}.issuperset(pod.scheduling_gates)
        or any(key.startswith(_KUEUE) for key in (*pod.labels, *pod.annotations))
        or _annotation_bytes(pod) > _MOST_ANNOTATION_BYTES
    )


def _annotation_bytes(pod: Pod) -> int:
    """Return what the API server counts of the annotations of a pod."""
    return sum(len(key.encode()) + len(value.encode()) for key, value in pod.annotations.items())
