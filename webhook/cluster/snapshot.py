"""Snapshots of live clusters in files, on request without the names that people gave.

What belongs here: the choice of the data to keep. What never does: writing to a cluster.
"""

from __future__ import annotations

import asyncio
import base64
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from http import HTTPStatus
from typing import Any, TypeAlias, TypeVar

import msgspec

from engine.errors import Diagnostic, StowplanError
from engine.model import api, elastic_quota
from engine.model.decision import ADVICE_ANNOTATION, MOST_NODES, Advice, advice_in
from engine.model.disruption_budget import (
    DO_NOT_DISRUPT_ANNOTATION,
    SAFE_TO_EVICT_ANNOTATION,
    SAFE_VOLUMES_ANNOTATION,
)
from engine.model.kinds import KINDS, Kind
from engine.model.kubernetes_version import kubernetes_version_of
from engine.model.pod import MIRROR_ANNOTATION, TERMINAL_PHASES
from engine.model.quantity import is_huge_pages
from engine.model.scheduler_plugins import APP_GROUP_LABEL, THROUGHPUT_ANNOTATION, WORKLOAD_LABEL
from engine.model.well_known import (
    AFTER_INITIALIZED_ANNOTATION,
    AFTER_SCHEDULED_ANNOTATION,
    PRIORITY_CLASS_LABEL,
    QOS_CLASS_LABEL,
    RESERVE_POD_ANNOTATION,
    SCALING_FACTORS_ANNOTATION,
)
from engine.plugins import NODE_ANNOTATIONS
from webhook.cluster.client.connection import ApiError, Connection
from webhook.cluster.client.lists import MOST_ATTEMPTS, PagedLists
from webhook.cluster.object_file import JsonObject, ObjectFile
from webhook.cluster.objects import UNREADABLE, ObjectError, decode_errors
from webhook.cluster.server_version import ClusterVersion, read_version
from webhook.cluster.timing import DEFAULT_CONFIG, ReflectorConfig

# Public names: those of Kubernetes and of clouds, which an anonymous snapshot keeps.
#
# A name on these lists reveals nothing about its user; any other text is replaced. A public prefix
# does not make a key public: people choose the rest of `node-role.kubernetes.io/...`.


PUBLIC_VALUES = frozenset(
    {
        PRIORITY_CLASS_LABEL,
        QOS_CLASS_LABEL,
        elastic_quota.IS_PARENT_LABEL,
        elastic_quota.PREEMPTIBLE_LABEL,
        *"""
        beta.kubernetes.io/arch beta.kubernetes.io/instance-type beta.kubernetes.io/os
        cloud.google.com/gke-spot cloud.google.com/machine-family eks.amazonaws.com/capacityType
        failure-domain.beta.kubernetes.io/region failure-domain.beta.kubernetes.io/zone
        karpenter.k8s.aws/instance-category karpenter.k8s.aws/instance-cpu
        karpenter.k8s.aws/instance-family karpenter.k8s.aws/instance-generation
        karpenter.k8s.aws/instance-memory karpenter.k8s.aws/instance-size
        karpenter.sh/capacity-type kubernetes.azure.com/scalesetpriority kubernetes.io/arch
        kubernetes.io/os node.kubernetes.io/instance-type node.kubernetes.io/windows-build
        nvidia.com/gpu.count nvidia.com/gpu.memory nvidia.com/gpu.product
        topology.kubernetes.io/region topology.kubernetes.io/zone
        """.split(),
    }
)
"""Keys of labels, taints and requirements that stay, with their values."""

PUBLIC_KEYS = PUBLIC_VALUES | frozenset(
    {
        # Labels and fields whose values are names.
        APP_GROUP_LABEL,
        WORKLOAD_LABEL,
        elastic_quota.NAME_LABEL,
        elastic_quota.PARENT_LABEL,
        elastic_quota.TREE_ID_LABEL,
        *"""
        app app.kubernetes.io/component app.kubernetes.io/instance app.kubernetes.io/managed-by
        app.kubernetes.io/name app.kubernetes.io/part-of app.kubernetes.io/version
        controller-revision-hash k8s-app kubernetes.io/hostname kubernetes.io/metadata.name
        metadata.name name pod-template-hash statefulset.kubernetes.io/pod-name
        """.split(),
        # Labels and taints whose values are empty or a state.
        *"""
        CriticalAddonsOnly node-role.kubernetes.io/control-plane node-role.kubernetes.io/etcd
        node-role.kubernetes.io/infra node-role.kubernetes.io/master
        node-role.kubernetes.io/worker node.cloudprovider.kubernetes.io/uninitialized
        node.kubernetes.io/disk-pressure node.kubernetes.io/exclude-from-external-load-balancers
        node.kubernetes.io/memory-pressure node.kubernetes.io/network-unavailable
        node.kubernetes.io/not-ready node.kubernetes.io/out-of-service
        node.kubernetes.io/pid-pressure node.kubernetes.io/unreachable
        node.kubernetes.io/unschedulable nvidia.com/gpu.present
        DeletionCandidateOfClusterAutoscaler ToBeDeletedByClusterAutoscaler
        karpenter.sh/disrupted karpenter.sh/nodepool
        """.split(),
        # Resources.
        *"""
        amd.com/gpu attachable-volumes-aws-ebs attachable-volumes-azure-disk
        attachable-volumes-gce-pd cpu ephemeral-storage google.com/tpu koordinator.sh/gpu
        koordinator.sh/gpu-core koordinator.sh/gpu-memory koordinator.sh/gpu-memory-ratio
        koordinator.sh/rdma kubernetes.io/batch-cpu kubernetes.io/batch-memory
        kubernetes.io/mid-cpu kubernetes.io/mid-memory memory nvidia.com/gpu
        nvidia.com/gpu.shared pods storage
        """.split(),
    }
)
"""Keys of labels, taints and requirements, and names of resources, that stay as they are."""

PUBLIC_DOMAINS = (
    "deviceclass.resource.kubernetes.io",
    "kubernetes.io",
    "k8s.io",
    "koordinator.sh",
)
"""What is below them has a meaning, so the end of a prefix stays: `<word>.kubernetes.io/<word>`."""

PUBLIC_WORDS = frozenset(
    {
        # Namespaces, schedulers and priority classes that clusters come with.
        *"""
        default default-scheduler koord-scheduler kube-node-lease kube-public kube-system
        system-cluster-critical system-node-critical
        """.split(),
        # Koordinator's priority classes and types of aggregation.
        *"""
        avg koord-batch koord-free koord-mid koord-prod p50 p90 p95 p99
        """.split(),
        # Quotas that Koordinator makes itself.
        elastic_quota.DEFAULT_QUOTA,
        elastic_quota.ROOT_QUOTA,
        elastic_quota.SYSTEM_QUOTA,
        # Zones of nodes, how kubelets keep to them, and what measures networks.
        *"""
        NetperfCosts UserDefined best-effort container none pod restricted single-numa-node
        topologyManagerMaxNUMANodes topologyManagerPolicy topologyManagerScope
        """.split(),
        *(
            f"{policy}{level}Level"
            for policy in ("None", "BestEffort", "Restricted", "SingleNUMANode")
            for level in ("", "Container", "Pod")
        ),
        *(f"node-{number}" for number in range(16)),
        # Owners and their APIs.
        *"""
        DaemonSet Job Node ReplicaSet ReplicationController StatefulSet apps/v1 batch/v1 v1
        """.split(),
        # Phases, QoS classes and policies.
        *"""
        Always BestEffort Burstable Guaranteed Never OnFailure Pending Running Unknown
        """.split(),
        # Conditions.
        *"""
        ContainersReady DiskPressure False Initialized MemoryPressure NetworkUnavailable
        PIDPressure PodReadyToStartContainers PodScheduled Ready True Unschedulable
        """.split(),
        # Conditions of node-problem-detector, and reasons of the kubelet and the node controller.
        *"""
        CorruptDockerOverlay2 FrequentContainerdRestart FrequentDockerRestart
        FrequentKubeletRestart FrequentUnregisterNetDevice KernelDeadlock ReadonlyFilesystem
        KubeletHasDiskPressure KubeletHasInsufficientMemory KubeletHasInsufficientPID
        KubeletHasNoDiskPressure KubeletHasSufficientMemory KubeletHasSufficientPID
        KubeletNotReady KubeletReady NodeStatusNeverUpdated NodeStatusUnknown RouteCreated
        """.split(),
        # Operators and effects.
        *"""
        DoesNotExist Equal Exists Gt In Lt NoExecute NoSchedule NotIn PreferNoSchedule
        """.split(),
        # The medium of a volume, ports of nodes, and how pods are spread.
        *"""
        0.0.0.0 DoNotSchedule Honor Ignore Memory SCTP ScheduleAnyway TCP UDP
        """.split(),
        # Keys in annotations that are read.
        *"""
        aggregatedUsage blocksize prodUsageThresholds rbps usageAggregatedDuration
        usageAggregationType usageThresholds wbps
        """.split(),
    }
)
"""Texts that stay wherever they occur."""

READ_ANNOTATIONS = frozenset(
    {
        AFTER_INITIALIZED_ANNOTATION,
        AFTER_SCHEDULED_ANNOTATION,
        RESERVE_POD_ANNOTATION,
        SCALING_FACTORS_ANNOTATION,
        THROUGHPUT_ANNOTATION,
        *NODE_ANNOTATIONS,
        elastic_quota.ADMISSION_ANNOTATION,
        elastic_quota.CHILD_REQUEST_ANNOTATION,
        elastic_quota.NAMESPACES_ANNOTATION,
        elastic_quota.SHARED_WEIGHT_ANNOTATION,
        elastic_quota.STRICT_KEYS_ANNOTATION,
    }
)
"""Annotations of nodes, pods and quotas with figures that plugins read."""

# Pseudonyms in place of the names that people gave.
#
# Every text becomes a pseudonym, a keyed hash of it, unless it is a public name of Kubernetes (see
# `public_names`) or a figure. Equal texts become equal pseudonyms, so references stay intact: from
# a pod to its node, a label `kubernetes.io/hostname` to its node, a selector to labels, a report to
# its pods. The key is random and never stored.
#
# Amounts, times, priorities, the order of objects and the equality of texts stay. The order by name
# is lost, and so are `Gt` and `Lt` on labels that are not public.


_Change: TypeAlias = Callable[[Any], Any]
_T = TypeVar("_T", bound=msgspec.Struct)

_KEY_BYTES = 32
_PSEUDONYM_BYTES = 10  # 80 bits, 16 letters: no two of a million are likely to be equal
_CACHED_PSEUDONYMS = 1 << 16
_FIGURE = re.compile(
    r"[+-]?[0-9.]{1,40}(?:%|[eE][+-]?[0-9]{1,3}|[numkKMGTPE]i?"
    r"|(?:ns|us|µs|ms|s|m|h)(?:[0-9.]{1,20}(?:ns|us|µs|ms|s|m|h)){0,5})?"
)
"""A quantity, a duration, a percentage or a number."""

_FIGURES = frozenset({"duration", "resource_version", "window"})
"""Fields that hold figures."""

_LABEL_KEYS = frozenset({"match_label_keys", "mismatch_label_keys", "topology_key"})
"""Fields that hold keys of labels."""

_IMAGES = frozenset({"image", "names", "reference"})
"""Fields that name images, of containers, of nodes and of volumes."""


class Anonymizer:
    """Replaces names by pseudonyms, equal ones by equal ones."""

    def __init__(self, secret: bytes | None = None) -> None:
        # the key of the hash
        self._secret = secrets.token_bytes(_KEY_BYTES) if secret is None else secret
        self._hash = lru_cache(_CACHED_PSEUDONYMS)(self._new_hash)
        self._plans: dict[type[msgspec.Struct], tuple[tuple[str, _Change], ...]] = {}
        self._special: Mapping[type[msgspec.Struct], _Change] = {
            api.Taint: self._keyed,
            api.Toleration: self._keyed,
            api.SelectorRequirement: self._requirement,
            api.Attribute: self._attribute,
            api.TopologyCosts: self._costs,
            api.ZoneResource: self._zone_resource,
            api.DeviceClassSpec: self._device_class,
        }

    def pseudonym(self, text: str) -> str:
        """Return the pseudonym of a text, or the text itself if it is public."""
        return text if not text or text in PUBLIC_WORDS else self._hash(text)

    def key(self, text: str) -> str:
        """Return the pseudonym of the key of a label or a taint, or of the name of a resource.

        It has a prefix if the key has one, and Kubernetes' own prefixes keep their end.
        """
        if not text or text in PUBLIC_KEYS or is_huge_pages(text):
            return text
        prefix, slash, name = text.rpartition("/")
        if not slash:
            return self._hash(name)
        end = next((end for end in PUBLIC_DOMAINS if f".{prefix}".endswith(f".{end}")), "")
        if prefix != end:
            prefix = f"{self._hash(prefix)}.{end}" if end else self._hash(prefix)
        return f"{prefix}/{self._hash(name)}"

    def struct(self, wire: _T) -> _T:
        """Return an object without names."""
        kind = type(wire)
        special = self._special.get(kind)
        if special is not None:
            anonymous: _T = special(wire)
            return anonymous
        plan = self._plans.get(kind)
        if plan is None:
            # The change of each field; unknown fields become pseudonyms.
            plan = self._plans[kind] = tuple(
                (field.name, self._change(field.name, field.type))
                for field in msgspec.structs.fields(kind)
            )
        return kind(**{name: change(getattr(wire, name)) for name, change in plan})

    def _new_hash(self, text: str) -> str:
        digest = blake2b(text.encode(), digest_size=_PSEUDONYM_BYTES, key=self._secret).digest()
        return base64.b32encode(digest).decode().lower()

    def _change(self, name: str, declared: object) -> _Change:
        if name in _FIGURES:
            return self._figure
        if name in _LABEL_KEYS:
            return self._keys
        if name in _IMAGES:
            return self._images
        if name == "annotations":
            return self._annotations
        if declared == api.Quantity:
            return self._amount
        if declared == api.ResourceList | None:
            return self._amounts
        return self._labels if declared == dict[str, str] | None else self._names

    def _names(self, value: Any) -> Any:  # noqa: ANN401 - any value in a wire struct
        if isinstance(value, str):
            return self.pseudonym(value)
        if isinstance(value, msgspec.Struct):
            return self.struct(value)
        if isinstance(value, list | tuple):
            return type(value)(map(self._names, value))
        if isinstance(value, dict):
            return {self.pseudonym(name): self._names(inner) for name, inner in value.items()}
        if value is None or isinstance(value, int | float | datetime):
            return value
        raise AssertionError("a value of this type has no pseudonym yet")

    def _keys(self, value: str | list[str] | None) -> str | list[str] | None:
        return list(map(self.key, value)) if isinstance(value, list) else value and self.key(value)

    def _images(self, value: Any) -> Any:  # noqa: ANN401 - a name, names, or a volume's image
        """Return pseudonyms of images, where no tag means `latest`."""
        if isinstance(value, msgspec.Struct):
            return self.struct(value)
        if isinstance(value, tuple):
            return tuple(map(self._image, value))
        return value and self._image(value)

    def _image(self, name: str) -> str:
        tagged = name if name.rfind(":") > name.rfind("/") else f"{name}:latest"
        return f"{self._hash(tagged)}:0"

    def _figure(self, text: str) -> str:
        return text if _FIGURE.fullmatch(text) else self.pseudonym(text)

    def _amount(self, amount: api.Quantity) -> api.Quantity:
        return self._figure(amount) if isinstance(amount, str) else amount

    def _amounts(self, amounts: api.ResourceList | None) -> api.ResourceList | None:
        if amounts is None:
            return None
        return {self.key(name): self._amount(amount) for name, amount in amounts.items()}

    def _labels(self, labels: dict[str, str] | None) -> dict[str, str] | None:
        if labels is None:
            return None
        return {self.key(key): self._value(key, value) for key, value in labels.items()}

    def _value(self, key: str, value: str) -> str:
        return value if key in PUBLIC_VALUES else self.pseudonym(value)

    def _keyed(self, wire: api.Taint | api.Toleration) -> api.Taint | api.Toleration:
        return msgspec.structs.replace(
            wire,
            key=self.key(wire.key),
            value=self._value(wire.key, wire.value),
            effect=self.pseudonym(wire.effect),
            **(
                {"operator": self.pseudonym(wire.operator)}
                if isinstance(wire, api.Toleration)
                else {}
            ),
        )

    def _requirement(self, wire: api.SelectorRequirement) -> api.SelectorRequirement:
        return api.SelectorRequirement(
            key=self.key(wire.key),
            operator=self.pseudonym(wire.operator),
            values=wire.values and [self._value(wire.key, value) for value in wire.values],
        )

    def _attribute(self, wire: api.Attribute) -> api.Attribute:
        return api.Attribute(name=self.pseudonym(wire.name), value=self._figure(wire.value))

    def _zone_resource(self, wire: api.ZoneResource) -> api.ZoneResource:
        available = self._amount(wire.available)
        return api.ZoneResource(name=self.key(wire.name), available=available)

    def _device_class(self, wire: api.DeviceClassSpec) -> api.DeviceClassSpec:
        return api.DeviceClassSpec(
            extended_resource_name=self.key(wire.extended_resource_name or "")
        )

    def _costs(self, wire: api.TopologyCosts) -> api.TopologyCosts:
        """Return costs between places, which have the names in the labels of nodes."""
        label = wire.topology_key
        origins = [
            api.OriginCosts(
                origin=self._value(label, origin.origin),
                cost_list=[
                    api.DestinationCost(
                        destination=self._value(label, cost.destination),
                        network_cost=cost.network_cost,
                    )
                    for cost in origin.cost_list or ()
                ],
            )
            for origin in wire.origin_list or ()
        ]
        return api.TopologyCosts(topology_key=self.key(label), origin_list=origins)

    # Annotations.

    def _annotations(self, annotations: dict[str, str] | None) -> dict[str, str] | None:
        """Return those that plugins or this webhook read; expressions may read others."""
        anonymous = {}
        for name, text in (annotations or {}).items():
            if name in READ_ANNOTATIONS:
                anonymous[name] = self._figures_in(text)
            elif name in (SAFE_TO_EVICT_ANNOTATION, DO_NOT_DISRUPT_ANNOTATION):
                anonymous[name] = str(text == "true").lower()
            elif name == SAFE_VOLUMES_ANNOTATION:
                anonymous[name] = ",".join(map(self.pseudonym, text.split(",")))
            elif name == MIRROR_ANNOTATION:
                anonymous[name] = self.pseudonym(text)
            elif name == ADVICE_ANNOTATION:
                anonymous |= self._advice(annotations or {})
        return anonymous or None

    def _advice(self, annotations: Mapping[str, str]) -> dict[str, str]:
        """Return the parts of an advice that tell where its pod is assumed to go."""
        advice = advice_in(annotations)
        if advice is None:
            return {}
        anonymous = Advice(
            nodes=tuple(map(self.pseudonym, advice.nodes[:MOST_NODES])),
            candidates=advice.candidates,
            id=self.pseudonym(advice.id),
            terms=advice.terms,
        )
        return {ADVICE_ANNOTATION: msgspec.json.encode(anonymous).decode()}

    def _figures_in(self, text: str) -> str:
        """Return a number, or JSON of figures by resource; a malformed text stays malformed."""
        if _FIGURE.fullmatch(text):
            return text
        try:
            value = msgspec.json.decode(text)
        except UNREADABLE:
            return self.pseudonym(text)
        return msgspec.json.encode(self._json(value)).decode()

    def _json(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        if isinstance(value, dict):
            return {
                name if name in PUBLIC_WORDS else self.key(name): self._json(inner)
                for name, inner in value.items()
            }
        if isinstance(value, list):
            return [self._json(inner) for inner in value]
        if not isinstance(value, str):
            return value
        return value if value in PUBLIC_WORDS or _FIGURE.fullmatch(value) else self.key(value)


# Snapshots of a live cluster: the data that rules can read, by GET alone.
#
# Each kind is consistent as of one moment, kinds of different moments. Objects go to the file page
# by page; only the usage of pods, which the API serves as one list, is in memory at once.


Progress: TypeAlias = Callable[[str, int, int | None], None]
"""Called with the name of a kind, the objects read, and the objects there are if known."""

_MOST_PROBLEMS = 20  # of one kind
_NEEDED = frozenset({"nodes", "pods"})
_SECRETIVE = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        "k3s.io/node-args",
        "k3s.io/node-env",
        "rke2.io/node-args",
        "rke2.io/node-env",
    }
)
"""Annotations that no snapshot keeps: a copy of the object, or an agent's command line."""


@dataclass(slots=True, kw_only=True)
class KindResult:
    name: str  # its name for `kubectl get`
    objects: int = 0  # number of objects written
    finished: int = 0  # number of pods left out because they have finished
    unreadable: int = 0  # number of objects that could not be read
    problems: list[Diagnostic] = field(default_factory=list)  # mistakes in the first of those
    error: ApiError | None = None  # the failure that left it out; None if it was read to its end


class SnapshotError(StowplanError):
    """A required kind could not be read."""

    def __init__(self, kind: str, error: ApiError) -> None:
        super().__init__(f"{kind}: {error.message}")
        self.kind = kind
        self.error = error


async def take_snapshot(
    connection: Connection,
    file: ObjectFile,
    *,
    anonymizer: Anonymizer | None = None,  # replaces names, if given
    progress: Progress | None = None,  # called after each page
    config: ReflectorConfig = DEFAULT_CONFIG,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Sequence[KindResult]:
    progress = progress or (lambda *_: None)
    writer = _SnapshotWriter(connection, file, anonymizer, progress, config, sleep)
    await _write_version(connection, file, is_anonymous=anonymizer is not None)
    # Expressions are full of names that no pseudonym can stand for.
    kinds = [kind for kind in KINDS if kind.verbs and not (anonymizer and kind.only_for_policies)]
    return [await writer.write(kind) for kind in kinds]


async def _write_version(connection: Connection, file: ObjectFile, *, is_anonymous: bool) -> None:
    """Write the version of the API server, before the pods that are counted by it."""
    try:
        version = await read_version(connection)
    except (ApiError, msgspec.DecodeError):
        return  # a recording of before had none either
    if is_anonymous:  # the rest may name who built it
        version = "v{}.{}".format(*kubernetes_version_of(version))
    file.add(msgspec.json.encode(ClusterVersion(git_version=version)))


class _SnapshotWriter:
    """Reads and writes kind after kind."""

    def __init__(
        self,
        connection: Connection,
        file: ObjectFile,
        anonymizer: Anonymizer | None,
        progress: Progress,
        config: ReflectorConfig,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._lists = PagedLists(connection, config, sleep)
        self._file = file
        self._anonymizer = anonymizer
        self._progress = progress
        self._encode = msgspec.json.Encoder().encode

    async def write(self, kind: Kind) -> KindResult:
        start, attempts = self._file.size, 0
        while True:
            result = KindResult(name=kind.name)
            attempts += 1
            try:
                await self._list(kind, result)
            except ApiError as error:
                self._file.truncate(start)
                # Pages are of one resourceVersion, which the API server drops after some minutes.
                if error.status == HTTPStatus.GONE and attempts < MOST_ATTEMPTS:
                    continue
                if kind.name in _NEEDED or error.status == HTTPStatus.UNAUTHORIZED:
                    raise SnapshotError(kind.name, error) from error
                return KindResult(name=kind.name, error=error)
            return result

    async def _list(self, kind: Kind, result: KindResult) -> None:
        decode = msgspec.json.Decoder(kind.wire).decode
        head = f'{{"apiVersion":"{kind.api_version}","kind":"{kind.kind}",'.encode()
        read = 0
        # Without the selector for unfinished pods: with one, no page has the number of the rest.
        async for page in self._lists.pages(kind.path):
            for raw in page.items or ():
                try:
                    wire = _named(decode(raw))
                except UNREADABLE as error:
                    _report(result, kind, raw, error)
                else:
                    self._write(kind, wire, head, result)
            read += len(page.items or ())
            token, rest = page.metadata.token, page.metadata.remaining_item_count
            total = read if not token else None if rest is None else read + rest
            self._progress(kind.name, read, total)

    def _write(self, kind: Kind, wire: Any, head: bytes, result: KindResult) -> None:  # noqa: ANN401 - a wire struct of any kind
        """Write an object, in JSON as the API server sent it."""
        if isinstance(wire, api.Pod) and wire.status.phase in TERMINAL_PHASES:
            result.finished += 1
            return
        wire = redact(kind, wire)
        if self._anonymizer is not None:
            wire = self._anonymizer.struct(wire)
        self._file.add(head + self._encode(wire).removeprefix(b"{"))
        result.objects += 1


def redact(kind: Kind, wire: Any) -> Any:  # noqa: ANN401 - a wire struct of any kind, which has metadata
    """Return what a snapshot keeps of an object, without its `apiVersion` and `kind`.

    Decoding has already dropped what no rule can read: environment variables, commands, volumes,
    `managedFields`. This drops what no rule reads of an object that exists, and secrets.
    """
    meta: api.ObjectMeta = wire.metadata
    if not kind.snapshot_metadata:
        meta = api.ObjectMeta(name=meta.name, namespace=meta.namespace)
    elif meta.annotations:
        public = kind.snapshot_annotations
        annotations = {
            name: text
            for name, text in meta.annotations.items()
            if (name not in _SECRETIVE if public is None else name in public)
        }
        meta = msgspec.structs.replace(meta, annotations=annotations or None)
    if isinstance(wire, api.PlacementPolicy):
        return msgspec.structs.replace(wire, metadata=meta, status={})
    if isinstance(wire, api.ElasticQuota):
        return msgspec.structs.replace(wire, metadata=meta, api_version="")
    return msgspec.structs.replace(wire, metadata=meta)


def _named(wire: Any) -> Any:  # noqa: ANN401 - a wire struct of any kind, which has metadata
    if not wire.metadata.name:
        raise ObjectError(("metadata",), "it has no `name`")
    return wire


def _report(
    result: KindResult, kind: Kind, raw: msgspec.Raw, error: ValueError | RecursionError
) -> None:
    """Record an object that cannot be read."""
    result.unreadable += 1
    found = JsonObject(kind.name, (), kind.group, kind.kind, len(raw), raw)
    room = _MOST_PROBLEMS - len(result.problems)
    result.problems += decode_errors(found, kind.wire, error)[:room]
