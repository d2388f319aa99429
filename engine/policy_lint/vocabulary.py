"""Words that Kubernetes knows: values that a field never has, labels that are nearly well known.

Sources: kubernetes staging/src/k8s.io/api/core/v1/{types,well_known_labels}.go, the labels that
Karpenter, the clouds and NVIDIA's operator set. Whoever may have labels or conditions of their own
is only told of those that are all but spelt as a known one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from engine.cel import ast
from engine.cel.unparse import unparse
from engine.documents import Document, Path
from engine.errors import did_you_mean
from engine.model.disruption_budget import EVICTION_ANNOTATIONS
from engine.model.elastic_quota import NAME_LABEL, TREE_ID_LABEL
from engine.model.gang import GANG_ANNOTATIONS, GANG_LABELS
from engine.model.well_known import (
    AFTER_INITIALIZED_ANNOTATION,
    AFTER_SCHEDULED_ANNOTATION,
    NAMESPACE_NAME_LABEL,
    PRIORITY_CLASS_LABEL,
    QOS_CLASS_LABEL,
    REGION_LABEL,
    SCALING_FACTORS_ANNOTATION,
    ZONE_LABEL,
)
from engine.plugins import NODE_ANNOTATIONS, Named
from engine.policy import CompiledPolicy
from engine.policy.policy_set import Finding
from engine.policy_lint.args import names_in_args
from engine.policy_lint.reads import (
    ANY,
    EQUALITIES,
    LABELS,
    Comparison,
    Part,
    ReadPath,
    Reads,
    path_of,
    path_text,
)

_CONDITIONS: Final = ("node", "conditions", ANY)
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OBJECT_SPEC: Final = ("object", "spec")

_CLOSED: Final[Mapping[ReadPath, tuple[str, ...]]] = {
    (*_CONDITIONS, "status"): ("True", "False", "Unknown"),
    ("node", "taints", ANY, "effect"): _EFFECTS,
    ("pod", "tolerations", ANY, "effect"): (*_EFFECTS, ""),
    ("pod", "tolerations", ANY, "operator"): ("Exists", "Equal", "Lt", "Gt", ""),
    (*_OBJECT_SPEC, "tolerations", ANY, "effect"): _EFFECTS,
    (*_OBJECT_SPEC, "tolerations", ANY, "operator"): ("Exists", "Equal", "Lt", "Gt"),
    (*_OBJECT_SPEC, "restartPolicy"): ("Always", "OnFailure", "Never"),
    (*_OBJECT_SPEC, "preemptionPolicy"): ("PreemptLowerPriority", "Never"),
    ("pod", "qosClass"): ("Guaranteed", "Burstable", "BestEffort"),
    ("pod", "koordinatorPriorityClass"): (
        "koord-prod",
        "koord-mid",
        "koord-batch",
        "koord-free",
        "",
    ),
    ("pod", "notEvictableBy", ANY): ("ClusterAutoscaler", "Karpenter"),
    ("request", "operation"): ("CREATE",),
    ("request", "kind", "group"): ("",),
    ("request", "kind", "kind"): ("Pod",),
    ("request", "resource", "resource"): ("pods",),
    ("request", "subResource"): ("",),
    ("object", "kind"): ("Pod",),
}
"""All values of a field."""

_OPEN: Final[Mapping[ReadPath, tuple[str, ...]]] = {
    (*_CONDITIONS, "type"): (
        "Ready",
        "MemoryPressure",
        "DiskPressure",
        "PIDPressure",
        "NetworkUnavailable",
        "KernelDeadlock",
        "ReadonlyFilesystem",
        "CorruptDockerOverlay2",
        "FrequentKubeletRestart",
        "FrequentContainerdRestart",
    ),
    ("pod", "ownerKinds", ANY): (
        "ReplicaSet",
        "StatefulSet",
        "DaemonSet",
        "Job",
        "ReplicationController",
        "Node",
        "Rollout",
        "Workflow",
    ),
}
"""Usual values of a field that may have others."""

_OF_MAPS: Final[Mapping[ReadPath, str]] = {
    ("node", "conditions", ANY): "type",
    ("node", "taints", ANY): "key",
    ("pod", "tolerations", ANY): "key",
}
"""Elements that are maps, with the field that names one."""

_BY_OWNER: Final = {
    kind: f"for pods of a {kind} write `'{owner}' in pod.ownerKinds`"
    for kind, owner in {
        "CronJob": "Job",
        "DaemonSet": "DaemonSet",
        "Deployment": "ReplicaSet",
        "Job": "Job",
        "ReplicaSet": "ReplicaSet",
        "StatefulSet": "StatefulSet",
    }.items()
}
_OF_PODS_ALONE: Final = "only pods are placed: drop it"

_INSTEAD: Final[Mapping[ReadPath, Mapping[str, str]]] = {
    ("request", "kind", "kind"): _BY_OWNER,
    ("request", "kind", "group"): dict.fromkeys(("apps", "batch"), _OF_PODS_ALONE),
    ("request", "resource", "resource"): {
        f"{kind.lower()}s": hint for kind, hint in _BY_OWNER.items()
    },
    ("request", "subResource"): dict.fromkeys(("binding", "eviction", "status"), _OF_PODS_ALONE),
    ("object", "kind"): _BY_OWNER,
    ("pod", "ownerKinds", ANY): {
        "Deployment": "its pods are owned by a ReplicaSet: write `'ReplicaSet'`",
        "CronJob": "its pods are owned by a Job: write `'Job'`",
        "Pod": "no pod owns a pod: one without an owner has `pod.ownerKinds.size() == 0`",
    },
    ("node", "conditions", ANY, "type"): {
        "NotReady": "it is `'Ready'`, and its status is not `'True'`",
        "OutOfDisk": "no node has it since Kubernetes 1.13: write `'DiskPressure'`",
        "SchedulingDisabled": "read `node.unschedulable`",
    },
    ("node", "taints", ANY, "key"): {"": "each taint has a key; drop it"},
    ("request", "operation"): {
        "UPDATE": "only pods that are being created are placed: drop it",
        "DELETE": "only pods that are being created are placed: drop it",
    },
}
"""What is meant by a value that a field never has."""

_ARCHITECTURES: Final = ("amd64", "arm64", "arm", "ppc64le", "s390x", "riscv64", "386")
_LABEL_VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "kubernetes.io/arch": _ARCHITECTURES,
    "kubernetes.io/os": ("linux", "windows"),
    "karpenter.sh/capacity-type": ("spot", "on-demand", "reserved"),
    "eks.amazonaws.com/capacityType": ("SPOT", "ON_DEMAND", "CAPACITY_BLOCK"),
    "cloud.google.com/gke-spot": ("true",),
    "kubernetes.azure.com/scalesetpriority": ("spot", "regular"),
    "nvidia.com/gpu.present": ("true",),
}
"""All values of a label of nodes; each may be absent, and count as ""."""

_MACHINES: Final = {"x86_64": "amd64", "x86-64": "amd64", "x64": "amd64", "aarch64": "arm64"}


def _machine(value: str) -> str:
    """Return the architecture that is meant, "" if none is."""
    lower = value.casefold()
    return lower if lower in _ARCHITECTURES else _MACHINES.get(lower, "")


_KARPENTER_AWS: Final = (
    "instance-category instance-cpu instance-cpu-manufacturer instance-family instance-generation "
    "instance-gpu-count instance-gpu-manufacturer instance-gpu-memory instance-gpu-name "
    "instance-hypervisor instance-local-nvme instance-memory instance-network-bandwidth "
    "instance-size"
)
_OF_NODES: Final = (
    *_LABEL_VALUES,
    ZONE_LABEL,
    REGION_LABEL,
    "kubernetes.io/hostname",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "node.kubernetes.io/exclude-from-external-load-balancers",
    "node.kubernetes.io/instance-type",
    "node.kubernetes.io/windows-build",
    "node-role.kubernetes.io/control-plane",
    "cloud.google.com/compute-class",
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-nodepool",
    "cloud.google.com/gke-preemptible",
    "cloud.google.com/gke-provisioning",
    "cloud.google.com/machine-family",
    "eks.amazonaws.com/compute-type",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/initialized",
    "karpenter.sh/nodepool",
    "karpenter.sh/registered",
    "kubernetes.azure.com/agentpool",
    "kubernetes.azure.com/mode",
    "nvidia.com/gpu.count",
    "nvidia.com/gpu.family",
    "nvidia.com/gpu.memory",
    "nvidia.com/gpu.product",
    *(f"karpenter.k8s.aws/{name}" for name in _KARPENTER_AWS.split()),
)
_RENAMED: Final = {
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region": REGION_LABEL,
    "failure-domain.beta.kubernetes.io/zone": ZONE_LABEL,
    "karpenter.sh/do-not-evict": "karpenter.sh/do-not-disrupt",
    "karpenter.sh/provisioner-name": "karpenter.sh/nodepool",
    "node-role.kubernetes.io/master": "node-role.kubernetes.io/control-plane",
}
_OF_PODS: Final = (
    "app.kubernetes.io/component",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/name",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/version",
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "batch.kubernetes.io/job-name",
    "statefulset.kubernetes.io/pod-name",
    NAME_LABEL,
    PRIORITY_CLASS_LABEL,
    QOS_CLASS_LABEL,
    TREE_ID_LABEL,
    *sorted(GANG_LABELS),
)
_ANNOTATIONS_OF_PODS: Final = (
    AFTER_INITIALIZED_ANNOTATION,
    AFTER_SCHEDULED_ANNOTATION,
    SCALING_FACTORS_ANNOTATION,
    *sorted(EVICTION_ANNOTATIONS),
    *sorted(GANG_ANNOTATIONS),
)
_OF_NAMESPACES: Final = (
    NAMESPACE_NAME_LABEL,
    "pod-security.kubernetes.io/audit",
    "pod-security.kubernetes.io/enforce",
    "pod-security.kubernetes.io/warn",
)
_RESOURCES: Final = ("amd.com/gpu", "aws.amazon.com/neuron", "google.com/tpu", "nvidia.com/gpu")
_AMOUNTS: Final = (
    *(("node", name) for name in ("allocatable", "limits", "requested")),
    *(("pod", name) for name in ("limits", "requests")),
)
_KEYS: Final[Mapping[ReadPath, tuple[str, ...]]] = {
    **dict.fromkeys(_AMOUNTS, _RESOURCES),
    ("node", "labels"): _OF_NODES,
    ("pod", "nodeSelector"): _OF_NODES,
    ("pod", "labels"): _OF_PODS,
    ("node", "annotations"): NODE_ANNOTATIONS,
    ("pod", "annotations"): _ANNOTATIONS_OF_PODS,
    ("object", "metadata", "labels"): _OF_PODS,
    ("object", "metadata", "annotations"): _ANNOTATIONS_OF_PODS,
    ("namespaceObject", "metadata", "labels"): _OF_NAMESPACES,
}
"""The well-known keys of a map."""

_POD_SPEC: Final = (
    "activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig dnsPolicy "
    "enableServiceLinks ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers "
    "hostname hostnameOverride imagePullSecrets initContainers nodeName nodeSelector os overhead "
    "preemptionPolicy priority priorityClassName readinessGates resourceClaims resources "
    "restartPolicy runtimeClassName schedulerName schedulingGates securityContext serviceAccount "
    "serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain "
    "terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes workloadRef"
)
_CONTAINER: Final = (
    "args command env envFrom image imagePullPolicy lifecycle livenessProbe name ports "
    "readinessProbe resizePolicy resources restartPolicy restartPolicyRules securityContext "
    "startupProbe stdin stdinOnce terminationMessagePath terminationMessagePolicy tty "
    "volumeDevices volumeMounts workingDir"
)
_FIELDS: Final[Mapping[ReadPath, tuple[str, ...]]] = {
    ("object",): ("apiVersion", "kind", "metadata", "spec"),
    ("object", "metadata"): (
        "annotations",
        "creationTimestamp",
        "finalizers",
        "generateName",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
    ),
    _OBJECT_SPEC: tuple(_POD_SPEC.split()),
    (*_OBJECT_SPEC, "containers", ANY): tuple(_CONTAINER.split()),
    (*_OBJECT_SPEC, "initContainers", ANY): tuple(_CONTAINER.split()),
    (*_OBJECT_SPEC, "containers", ANY, "resources"): ("claims", "limits", "requests"),
    ("pod", "tolerations", ANY): ("effect", "key", "operator", "value"),
    ("node", "taints", ANY): ("effect", "key", "value"),
}
"""All fields of a map whose type the language does not know."""

_OURS: Final = "stowplan.dev/"
_OWN_KEYS: Final = (
    "advice binding blocked-by borrowed free gang-released gang-topology gang-topology-policy "
    "hold-reasons lent max-queued on-gang-failure placement preemption queued quota quota-mode "
    "quota-rollout reclaim reclaim-plan refused-in release-by released releasing reservations "
    "reserved-at revoke rollout-stamp runtime scheduler-node seconds-per-release surge wait "
    "weight when-no-room"
)
OWN_KEYS: Final = frozenset(_OWN_KEYS.split())
"""The names of our own labels and annotations, on whatever object."""

_NAMES_OF_NAMESPACES: Final = frozenset(
    {"kubernetes.io/name", "kubernetes.io/namespace", "metadata.name", "name", "namespace"}
)
_RESERVED: Final = (".kubernetes.io", ".k8s.io")
_ALIKE: Final = 0.9  # of two keys of labels that are meant to be one
_PLURALS_OF: Final = 0.8  # of their last parts, where the domains are one


def is_known(path: ReadPath, value: str) -> bool:
    """Return whether a field may have a value anywhere, by what Kubernetes knows."""
    return value in (*_CLOSED.get(path, ()), *_LABEL_VALUES.get(path[-1], ()))


class _Unknown(NamedTuple):
    message: str
    hint: str


def vocabulary_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for each constant in an expression that Kubernetes does not know."""
    reads = Reads(part.program.root)
    for compared in reads.comparisons:
        if found := _value(compared):
            yield Finding(part.name, *found, offset=compared.literal.offset)
    for searched in reads.searches:
        if found := _part_of_value(searched):
            yield Finding(part.name, *found, offset=searched.literal.offset)
    for read in dict.fromkeys(reads.keys):
        if found := _key(read.path, read.key):
            yield Finding(part.name, *found, offset=read.offset)


def selector_findings(policy: CompiledPolicy, document: Document) -> Iterator[Finding]:
    """Yield a finding for each label in a selector or list that is nearly a well-known one."""
    for place, key, path in _label_keys(document):
        where = str(place[2])
        if found := _key(path, key, where) or _of_a_rollout(path, key):
            yield Finding("", *found, path=place)
    for part, names in names_in_args(policy):
        for of, key, place, is_key in names:
            if of is Named.LABEL and (found := _key(("node", "labels"), key, "args")):
                yield Finding(part, *found, path=place, is_key=is_key)
    for each in policy.namespace_selector.requirements:
        for value in sorted(each.values):
            if found := _of_namespace(each.key, value):
                yield Finding("", *found, path=("spec", "match", "namespaceSelector"))
    yield from _contradictions(policy)


def _of_namespace(key: str, value: str) -> _Unknown | None:
    """Return that no namespace has a value of a label."""
    if key == NAMESPACE_NAME_LABEL and value != value.lower():
        message = f"`{value}` is no namespace: names have lower-case letters alone"
        return _Unknown(message, f"write `{value.lower()}`")
    return _of_closed((*_NAMESPACE_LABELS, key), value)


def _contradictions(policy: CompiledPolicy) -> Iterator[Finding]:
    """Yield the selectors that ask for two values of a label at once."""
    for name, selector in (
        ("namespaceSelector", policy.namespace_selector),
        ("objectSelector", policy.object_selector),
    ):
        for key in dict.fromkeys(each.key for each in selector.requirements):
            of_key = [each for each in selector.requirements if each.key == key]
            candidates = {None, "x", *(value for each in of_key for value in each.values)}
            if not any(all(each.matches(value) for each in of_key) for value in candidates):
                message = f"`{name}` asks for two values of `{key}` at once: it selects no pod"
                hint = "for any of several values write `operator: In` with `values`"
                yield Finding("", message, hint, path=("spec", "match", name))


def metadata_findings(document: Document) -> Iterator[Finding]:
    """Yield the labels and annotations of the policy that are meant to do something."""
    value = document.value if isinstance(document.value, dict) else {}
    metadata = value.get("metadata") or {}
    for kind in ("labels", "annotations"):
        for key in metadata.get(kind) or {}:
            name = key.removeprefix(_OURS)
            if name != key:
                message = f"`{key}` does nothing: no policy is read by its {kind}"
                field = did_you_mean(name, _FIELDS_OF_A_POLICY).removeprefix("did you mean `")[:-2]
                hint = f"write `spec.{_FIELDS_OF_A_POLICY[field]}`" if field else ""
                yield Finding("", message, hint, path=("metadata", kind, key))


_FIELDS_OF_A_POLICY: Final = {
    "audit": "mode",
    "disabled": "mode",
    "enabled": "mode",
    "mode": "mode",
    "preemption": "placement.preemption",
    "priority": "priority",
}
"""What a policy says in its spec, by what it might be called elsewhere."""


def _value(compared: Comparison) -> _Unknown | None:
    """Return what is wrong with a constant, None if nothing is."""
    path, value = compared.path, compared.literal.value
    if not isinstance(value, str):
        return None
    checks = (_of_map, _of_pair, _instead, _generated, _capability, _of_closed, _of_open)
    found = _by_shape(compared) or next(
        (each for check in checks if (each := check(path, value))), None
    )
    if found is None and path[-1] == ANY and compared.operator != "in":
        return _key(path[:-1], value)
    return found or _of_a_rollout(path[:-1], path[-1])


def _never(path: ReadPath, value: str) -> str:
    return f"`{path_text(path)}` is never {f'`{value}`' if value else 'empty'}"


def _of_map(path: ReadPath, value: str) -> _Unknown | None:
    """Return that an element is a map, and compared as a string."""
    if path not in _OF_MAPS:
        return None
    owner = path_text(path[:-1])
    meant = f"{owner}.exists(e, e.{_OF_MAPS[path]} == '{value}')"
    return _Unknown(f"`{owner}` has no strings in it", f"write `{meant}`")


def _of_pair(path: ReadPath, value: str) -> _Unknown | None:
    """Return that the key of a taint is compared with more than a key."""
    found = _PAIR.fullmatch(value)
    if path not in _KEYS_OF_TAINTS or found is None:
        return None
    following = "value" if found[2] == "=" else "effect"
    hint = f"ask for the key `'{found[1]}'` and for the {following} `'{found[3]}'`"
    return _Unknown(f"a key has no `{found[2]}`: {_never(path, value)}", hint)


def _instead(path: ReadPath, value: str) -> _Unknown | None:
    hint = _INSTEAD.get(path, {}).get(value)
    return _Unknown(_never(path, value), hint) if hint else None


def _capability(path: ReadPath, value: str) -> _Unknown | None:
    """Return that a capability is called as in Linux, not as in Kubernetes."""
    name = value.removeprefix("CAP_")
    if path[-3:-2] != ("capabilities",) or name == value:
        return None
    return _Unknown(f"a capability is never `{value}`", f"write `'{name}'`")


def _by_shape(compared: Comparison) -> _Unknown | None:
    """Return what is wrong with the value of a label of nodes, None if nothing is."""
    path, value = compared.path, str(compared.literal.value)
    if path in _CLOSED or path[:-1] not in _MAPS_OF_NODE_LABELS:
        return None
    key = path[-1]
    if key.startswith(_ROLE) and value:
        asks = f"'{key}' in node.labels"
        asks = f"!({asks})" if compared.operator == "!=" else asks
        message = f"`{key}` is hardly `{value}`: most clusters set it without a value"
        return _Unknown(message, f"write `{asks}`")
    return _value_by_shape(key, value)


def _of_closed(path: ReadPath, value: str) -> _Unknown | None:
    """Return that a field or label never has a value."""
    known = _CLOSED.get(path, ())
    if found := _VALUES.get(path[:-1], {}).get(path[-1]):
        known = (*found, "")
    if not known or value in known:
        return None
    is_machine = known[0] == _ARCHITECTURES[0]
    near = _machine(value) if is_machine else _alike(value, known)
    near = known[0] if known[1:] == ("",) else near
    listed = ", ".join(f"`{each}`" for each in known if each)
    return _Unknown(_never(path, value), f"write `'{near}'`" if near else f"it is one of {listed}")


def _of_open(path: ReadPath, value: str) -> _Unknown | None:
    """Return that a value is all but a usual one."""
    usual = _OPEN.get(path, ())
    near = "" if value in usual else _alike(value, usual)
    message = f"no known `{path_text(path)}` is `{value}`"
    return _Unknown(message, f"write `'{near}'`") if near else None


def _generated(path: ReadPath, value: str) -> _Unknown | None:
    """Return that a generated name begins otherwise."""
    if path[-1] != "generateName" or not value or value.endswith("-"):
        return None
    hint = f"write `{path_text(path)}.startsWith('{value}-')`"
    message = f"`{path_text(path)}` is hardly `{value}`: that of a controller ends with `-`"
    return _Unknown(message, hint)


_MAPS_OF_NODE_LABELS: Final = frozenset({("node", "labels"), ("pod", "nodeSelector")})
_NAMESPACE_LABELS: Final = ("namespaceObject", "metadata", "labels")
_POD_LABELS: Final = ("pod", "labels")
_VALUES: Final[Mapping[ReadPath, Mapping[str, tuple[str, ...]]]] = {
    **dict.fromkeys(_MAPS_OF_NODE_LABELS, _LABEL_VALUES),
    _NAMESPACE_LABELS: {
        f"pod-security.kubernetes.io/{mode}": ("privileged", "baseline", "restricted")
        for mode in ("audit", "enforce", "warn")
    },
}
"""All values of labels, by the map that they are in."""
_SEARCHED: Final = {
    "contains": str.__contains__,
    "endsWith": str.endswith,
    "startsWith": str.startswith,
}


def _part_of_value(searched: Comparison) -> _Unknown | None:
    """Return what is wrong with a part of a value that is looked for, None if nothing is."""
    path, value = searched.path, searched.literal.value
    finds = _SEARCHED.get(searched.operator)
    if path[-1:] == ("image",) and searched.operator == "startsWith":
        return _open_registry(str(value))
    known = _OPEN.get(path) or (_VALUES.get(path[:-1], {}).get(path[-1], ()) if path else ())
    if finds is None or not isinstance(value, str) or any(finds(each, value) for each in known):
        return None
    for meant, hint in _INSTEAD.get(path, {}).items():
        if finds(meant, value):
            return _Unknown(_never(path, meant), hint)
    if path in _OPEN or not known or value == value.lower():
        return None
    message = f"no value of `{path_text(path)}` has `{value}`"
    return _Unknown(message, f"write `'{value.lower()}'`")


def _open_registry(value: str) -> _Unknown | None:
    """Return that other registries have names that begin as that of a registry."""
    if not _REGISTRY.fullmatch(value):
        return None
    message = f"the name of another registry may begin with `{value}`, as `{value}.example.com`"
    return _Unknown(message, f"end it with a slash: `'{value}/'`")


_REGISTRY: Final = re.compile(r"[-a-z0-9]+(?:\.[-a-z0-9]+)+(?::[0-9]+)?")

_KEYS_OF_TAINTS: Final = frozenset(
    {
        ("node", "taints", ANY, "key"),
        ("pod", "tolerations", ANY, "key"),
        (*_OBJECT_SPEC, "tolerations", ANY, "key"),
    }
)
_PAIR: Final = re.compile(r"([-A-Za-z0-9_./]+)([=:])(.*)")
_LABELS_OF_PODS: Final = frozenset({("pod", "labels"), ("object", "metadata", "labels")})
_OF_A_ROLLOUT: Final = frozenset(
    {
        "batch.kubernetes.io/controller-uid",
        "controller-revision-hash",
        "controller-uid",
        "pod-template-hash",
    }
)


def _of_a_rollout(path: ReadPath, key: str) -> _Unknown | None:
    """Return that a label of pods is one that their controller sets anew."""
    if path not in _LABELS_OF_PODS or key not in _OF_A_ROLLOUT:
        return None
    hint = "ask for a label of the template, such as `app`"
    return _Unknown(f"`{key}` is another one after each rollout", hint)


def _key(path: ReadPath, key: str, where: str = "") -> _Unknown | None:
    """Return what is wrong with a key of a map, None if nothing is."""
    if misplaced := _misplaced(path, key, where or path_text(path)):
        return misplaced
    known = _KEYS.get(path)
    if known is not None:
        return _near(key, known, "annotation" if path[-1] == "annotations" else "label")
    fields = _FIELDS.get(path)
    if fields is None or key in fields:
        return None
    near = _alike(key, fields)
    what = f"`{path_text(path)}` never has `{key}`"
    if path == ("object",) and key == "status":
        hint = "a pod that is being created has no status yet; its QoS class is `pod.qosClass`"
        return _Unknown(what, hint)
    return _Unknown(what, f"write `{near}`") if near else None


_ANNOTATIONS: Final = frozenset({("node", "annotations"), ("pod", "annotations")})
_NOT_OF_NODES: Final = (LABELS | _ANNOTATIONS) - _MAPS_OF_NODE_LABELS
_NOT_OF_NAMESPACES: Final = (LABELS | _ANNOTATIONS) - {("namespaceObject", "metadata", "labels")}


def _misplaced(path: ReadPath, key: str, where: str) -> _Unknown | None:
    """Return that a key of labels or annotations belongs elsewhere, or nowhere."""
    if key in _OF_NODES and path in _NOT_OF_NODES:
        hint = f"read `node.labels[?'{key}'].orValue('')` in a filter or a score"
        return _Unknown(f"`{key}` is a label of nodes, hardly in `{where}`", hint)
    if key == NAMESPACE_NAME_LABEL and path in _NOT_OF_NAMESPACES:
        hint = "ask for it in `namespaceSelector`, or read `pod.namespace`"
        return _Unknown(f"`{key}` is a label of namespaces, hardly in `{where}`", hint)
    if path in LABELS and (found := _PAIR.fullmatch(key)):
        hint = f"write `{where}[?'{found[1]}'].orValue('') == '{found[3]}'`"
        return _Unknown(f"a key has no `{found[2]}`: `{where}` never has `{key}`", hint)
    name = key.removeprefix(_OURS)
    if path in LABELS | _ANNOTATIONS and name != key and name not in OWN_KEYS:
        near = _alike(name, sorted(OWN_KEYS))
        hint = f"write `{_OURS}{near}`" if near else ""
        return _Unknown(f"`{key}` means nothing to stowplan", hint)
    return None


def _near(key: str, known: Iterable[str], kind: str) -> _Unknown | None:
    """Return what is wrong with a key that is all but a known one."""
    labels = tuple(known)
    if key in labels and key not in _RENAMED:
        return None
    if NAMESPACE_NAME_LABEL in labels and key in _NAMES_OF_NAMESPACES:
        message = f"no namespace has a label `{key}` unless someone sets it"
        return _Unknown(message, f"its name is the label `{NAMESPACE_NAME_LABEL}`")
    if _RENAMED.get(key) in labels:
        return _Unknown(f"`{key}` is an old name", f"write `{_RENAMED[key]}`")
    if ZONE_LABEL in labels and key.startswith(_ROLE) and key != key.lower():
        return _Unknown(
            f"roles are written in small letters, not `{key}`", f"write `{key.lower()}`"
        )
    domain, _, name = key.rpartition("/")
    for label in labels:
        other_domain, _, other = label.rpartition("/")
        if not domain:
            continue
        is_reserved = all(f".{each}".endswith(_RESERVED) for each in (domain, other_domain))
        is_foreign = is_reserved and kind == "label" and name == other
        is_same = _letters(label) == _letters(key)
        is_alike = _ratio(label, key) >= _ALIKE
        is_misspelt = domain == other_domain and _ratio(name, other) >= _PLURALS_OF
        differs = _differ_by_word(name, other)
        if is_foreign or is_same or ((is_alike or is_misspelt) and not differs):
            what = "resource" if label in _RESOURCES else kind
            return _Unknown(f"`{key}` is no {what} that is known", f"write `{label}`")
    return None


def _letters(key: str) -> str:
    """Return a key without what people leave out or exchange."""
    return re.sub("[-_.]", "", key.casefold())


def _differ_by_word(one: str, other: str) -> bool:
    """Return whether two names have words of their own, as `gpu-count` and `cpu-count` do."""
    words, others = (set(re.split("[-_.]", name)) for name in (one, other))
    mine, theirs = words - others, others - words
    return len(mine) != len(theirs) or any(
        max((_ratio(word, each) for each in theirs), default=0) < _PLURALS_OF for word in mine
    )


def _ratio(one: str, other: str) -> float:
    return SequenceMatcher(None, one.casefold(), other.casefold()).ratio()


def _alike(word: str, known: Iterable[str]) -> str:
    """Return the known word that is meant, "" if none is."""
    folded = word.casefold().replace("-", "").replace("_", "").replace(" ", "")
    same = [each for each in known if each.casefold() == folded]
    return next(iter(same), "") or did_you_mean(word, known).removeprefix("did you mean `")[:-2]


def _label_keys(document: Document) -> Iterator[tuple[Path, str, ReadPath]]:
    """Yield the keys of labels outside of expressions, each with the map that they are in."""
    value = document.value if isinstance(document.value, dict) else {}
    spec = value.get("spec") or {}
    match = spec.get("match") or {}
    for name, path in (("namespaceSelector", _NAMESPACE_LABELS), ("objectSelector", _POD_LABELS)):
        at = ("spec", "match", name)
        selector = match.get(name) or {}
        for key in selector.get("matchLabels") or {}:
            yield (*at, "matchLabels", key), key, path
        for index, each in enumerate(selector.get("matchExpressions") or ()):
            yield (*at, "matchExpressions", index, "key"), each["key"], path
    for index, key in enumerate((spec.get("placement") or {}).get("groupLabels") or ()):
        yield ("spec", "placement", "groupLabels", index), key, ("node", "labels")


_NAMES: Final = frozenset({("object", "metadata", "name"), ("pod", "name"), ("request", "name")})
_SEARCHES: Final = frozenset({"contains", "endsWith", "find", "matches", "startsWith"})
_OF_A_REPLICA: Final = re.compile(r"(.+?-)(?:[a-z0-9]{6,10}-)?[bcdfghjklmnpqrstvwxz2456789]{5}")
"""As a ReplicaSet's pod is called: apimachinery pkg/util/rand/rand.go, `SafeEncodeString`."""


def generated_name_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for each search in a name that most pods do not have yet."""
    if any(path[-1] == "generateName" for path in part.program.references):
        return
    for node, _ in ast.walk(part.program.root):
        match node:
            case ast.Call(function=function, args=(of, *_)) if function in _SEARCHES:
                if path_of(of, {}) in _NAMES:
                    search = unparse(node).removeprefix(unparse(of))
                    hint = f"write `pod.generateName{search}`, or ask for a label"
                    yield Finding(part.name, _message(of), hint, node.offset)
            case ast.Binary(operator=sign, left=of, right=ast.Literal(value=str(name))):
                is_name = sign in EQUALITIES and path_of(of, {}) in _NAMES
                if is_name and (found := _OF_A_REPLICA.fullmatch(name)):
                    negation = "!" if sign == "!=" else ""
                    search = f"{negation}pod.generateName.startsWith('{found[1]}')"
                    hint = f"write `{search}`, or ask for a label"
                    yield Finding(part.name, _message(of), hint, node.offset)


def _message(of: ast.Node) -> str:
    return f"`{unparse(of)}` is empty for pods of a Deployment or a Job: their names come later"


_CREATORS: Final = frozenset(
    {("request", "userInfo", "username"), ("request", "userInfo", "groups", ANY)}
)
_OF_CONTROLLERS: Final = re.compile(r"\^?system:(?:$|authenticated|kube-|node|serviceaccount)")


def creator_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for each name of a person who creates pods."""
    reads = Reads(part.program.root)
    negated = {
        inner.offset
        for node, _ in ast.walk(part.program.root)
        if isinstance(node, ast.Not)
        for inner, _ in ast.walk(node)
    }
    for each in (*reads.comparisons, *reads.searches):
        value = each.literal.value
        if each.path not in _CREATORS or not isinstance(value, str) or not value:
            continue
        if each.operator == "!=" or each.literal.offset in negated:
            continue  # true for a controller, as is meant
        if not _OF_CONTROLLERS.match(value):
            yield Finding(
                part.name,
                f"`{path_text(each.path)}` is hardly `{value}`: a controller creates the pods of"
                " a Deployment or a Job",
                "ask for a namespace or a label, as `pod.namespace`",
                each.literal.offset,
            )


_BY_KEY: Final = {
    "karpenter.sh/initialized": "Karpenter sets it once a node is ready",
    "karpenter.sh/registered": "Karpenter sets it once a node has joined",
    "kubevirt.io/schedulable": "KubeVirt sets it to false whenever its handler on the node is away",
    "node.kubernetes.io/exclude-from-external-load-balancers": "it is set while a node is drained",
    "node.kubernetes.io/windows-build": "an upgrade of Windows changes it",
    "nvidia.com/gpu-driver-upgrade-state": "the GPU operator changes it with each driver upgrade",
    "nvidia.com/mig.config.state": "the GPU operator changes it while it partitions GPUs",
}
_BY_PREFIX: Final = {
    "feature.node.kubernetes.io/": "node-feature-discovery writes and removes it again and again",
    "nvidia.com/gpu.deploy.": "the GPU operator changes it with each driver upgrade",
}


def why_it_changes(key: str) -> str:
    """Return why a label changes while pods run on its node, "" of one that is not known to."""
    by_prefix = (why for prefix, why in _BY_PREFIX.items() if key.startswith(prefix))
    return _BY_KEY.get(key) or next(by_prefix, "")


_PLACE_LABELS: Final = {
    ZONE_LABEL: "zone",
    "failure-domain.beta.kubernetes.io/zone": "zone",
    REGION_LABEL: "region",
    "failure-domain.beta.kubernetes.io/region": "region",
}
_DIRECTION: Final = "(?:north|south|east|west|central)+"
_CLOUD_REGION: Final = (
    rf"(?:[a-z]{{2}}(?:-gov|-iso[a-z]?)?-{_DIRECTION}-[0-9]|"
    rf"(?:africa|asia|australia|europe|me|northamerica|southamerica|us)-{_DIRECTION}[0-9]+)"
)
_REGION: Final = re.compile(_CLOUD_REGION)
_ZONE_OF_REGION: Final = re.compile(rf"({_CLOUD_REGION})-?[a-z]")
_INSTANCE_LABELS: Final = frozenset(
    {"node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"}
)
_ROLE: Final = "node-role.kubernetes.io/"
_FAMILY: Final = re.compile(r"(?:[a-z]{1,3}[0-9][a-z]{0,3}(?:-[a-z0-9]+)?|[a-z][0-9][a-z]?)")
_OF_AZURE: Final = re.compile(r"standard[-_ ](.+)", re.IGNORECASE)
_SIZED: Final = re.compile(
    r"[a-z]{1,3}[0-9][a-z0-9-]*\.(?:nano|micro|small|medium|metal|[0-9]*x?large)"
)


def _value_by_shape(key: str, value: str) -> _Unknown | None:
    """Return what is wrong with a label's value that has the shape of another label's."""
    what, is_of = f"`{key}` is hardly `{value}`", _PLACE_LABELS.get(key)
    if is_of == "zone" and _REGION.fullmatch(value):
        zone = f"{value}a" if value.count("-") > 1 else f"{value}-b"
        hint = f"write a zone, as `'{zone}'`, or read `{REGION_LABEL}`"
        return _Unknown(f"{what}: that is a region", hint)
    if is_of == "region" and (found := _ZONE_OF_REGION.fullmatch(value)):
        return _Unknown(f"{what}: that is a zone", f"write `'{found[1]}'`, or read `{ZONE_LABEL}`")
    if is_of and value != value.lower() and _REGION.match(value.lower()):
        return _Unknown(f"{what}: clouds write it in small letters", f"write `'{value.lower()}'`")
    if key == "kubernetes.io/arch" and value == "arm":
        return _Unknown(f"{what}: that is the 32-bit one", "write `'arm64'`")
    if key in _INSTANCE_LABELS:
        if _FAMILY.fullmatch(value):
            return _Unknown(
                f"{what}: that is a family of machines",
                f"write the whole type, as `'{value}.xlarge'`, or `.startsWith('{value}.')`",
            )
        if found := _OF_AZURE.fullmatch(value):
            written = f"Standard_{found[1].replace('-', '_')}"
            return _Unknown(what, f"write `'{written}'`") if written != value else None
        lower = value.lower().replace("_", ".")
        if lower != value and _SIZED.fullmatch(lower):
            return _Unknown(what, f"write `'{lower}'`")
    return None
