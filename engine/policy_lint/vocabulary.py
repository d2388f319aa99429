"""Words that Kubernetes knows: values that a field never has, labels that are nearly well known.

Sources: kubernetes staging/src/k8s.io/api/core/v1/{types,well_known_labels}.go, the labels that
Karpenter, the clouds and NVIDIA's operator set. Whoever may have labels or conditions of their own
is only told of those that are all but spelt as a known one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from engine.cel import ast
from engine.cel.unparse import unparse
from engine.cel.values import STRING
from engine.documents import Document, Path
from engine.errors import did_you_mean
from engine.model.well_known import NAMESPACE_NAME_LABEL, REGION_LABEL, ZONE_LABEL
from engine.policy import CompiledPolicy
from engine.policy.policy_set import Finding
from engine.policy_lint.reads import (
    ANY,
    EQUALITIES,
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
    ("request", "operation"): ("CREATE",),
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

_INSTEAD: Final[Mapping[ReadPath, Mapping[str, str]]] = {
    ("pod", "ownerKinds", ANY): {
        "Deployment": "its pods are owned by a ReplicaSet: write `'ReplicaSet'`",
        "CronJob": "its pods are owned by a Job: write `'Job'`",
        "Pod": "no pod owns a pod: one without an owner has `pod.ownerKinds.size() == 0`",
    },
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
)
_OF_NAMESPACES: Final = (
    NAMESPACE_NAME_LABEL,
    "pod-security.kubernetes.io/audit",
    "pod-security.kubernetes.io/enforce",
    "pod-security.kubernetes.io/warn",
)
_KEYS: Final[Mapping[ReadPath, tuple[str, ...]]] = {
    ("node", "labels"): _OF_NODES,
    ("pod", "nodeSelector"): _OF_NODES,
    ("pod", "labels"): _OF_PODS,
    ("object", "metadata", "labels"): _OF_PODS,
    ("namespaceObject", "metadata", "labels"): _OF_NAMESPACES,
}
"""The well-known keys of a map of labels."""

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

_NAMES_OF_NAMESPACES: Final = frozenset(
    {"kubernetes.io/name", "kubernetes.io/namespace", "metadata.name", "name", "namespace"}
)
_RESERVED: Final = (".kubernetes.io", ".k8s.io")
_ALIKE: Final = 0.9  # of two keys of labels that are meant to be one
_PLURALS_OF: Final = 0.8  # of their last parts, where the domains are one


class _Unknown(NamedTuple):
    message: str
    hint: str


def vocabulary_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for each constant in an expression that Kubernetes does not know."""
    reads = Reads(part.program.root)
    for compared in reads.comparisons:
        if found := _value(compared):
            yield Finding(part.name, *found, offset=compared.literal.offset)
    for read in dict.fromkeys(reads.keys):
        if found := _key(read.path, read.key):
            yield Finding(part.name, *found, offset=read.offset)


def selector_findings(policy: CompiledPolicy, document: Document) -> Iterator[Finding]:
    """Yield a finding for each label in a selector or list that is nearly a well-known one."""
    for path, key, known in _label_keys(document):
        if found := _near(key, known):
            yield Finding("", *found, path=path)
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


def _value(compared: Comparison) -> _Unknown | None:
    """Return what is wrong with a constant, None if nothing is."""
    path, value = compared.path, compared.literal.value
    if not isinstance(value, str):
        return None
    what = f"`{path_text(path)}` is never `{value}`"
    if instead := _INSTEAD.get(path, {}).get(value):
        return _Unknown(what, instead)
    known = _CLOSED.get(path)
    if known is None and path[:-1] in {("node", "labels"), ("pod", "nodeSelector")}:
        known = _LABEL_VALUES.get(path[-1])
        known = (*known, "") if known else None
    if known is not None and value not in known:
        near = _MACHINES.get(value) if known[0] == "amd64" else _alike(value, known)
        listed = ", ".join(f"`{each}`" for each in known if each)
        return _Unknown(what, f"write `'{near}'`" if near else f"it is one of {listed}")
    usual = _OPEN.get(path)
    if usual is not None and value not in usual and (near := _alike(value, usual)):
        return _Unknown(f"no known `{path_text(path)}` is `{value}`", f"write `'{near}'`")
    if path[-1] == ANY and compared.operator != "in":
        return _key(path[:-1], value)
    return None


def _key(path: ReadPath, key: str) -> _Unknown | None:
    """Return what is wrong with a key of a map, None if nothing is."""
    known = _KEYS.get(path)
    if known is not None:
        return _near(key, known)
    fields = _FIELDS.get(path)
    if fields is None or key in fields:
        return None
    near = _alike(key, fields)
    what = f"`{path_text(path)}` never has `{key}`"
    if path == ("object",) and key == "status":
        return _Unknown(what, "a pod that is being created has no status yet")
    return _Unknown(what, f"write `{near}`") if near else None


def _near(key: str, known: Iterable[str]) -> _Unknown | None:
    """Return what is wrong with a label's key that is all but a known one."""
    labels = tuple(known)
    if key in labels:
        return None
    if NAMESPACE_NAME_LABEL in labels and key in _NAMES_OF_NAMESPACES:
        message = f"no namespace has a label `{key}` unless someone sets it"
        return _Unknown(message, f"its name is the label `{NAMESPACE_NAME_LABEL}`")
    if key == "node-role.kubernetes.io/master" and ZONE_LABEL in labels:
        message = f"no node of Kubernetes 1.24 or later has the label `{key}`"
        return _Unknown(message, "write `node-role.kubernetes.io/control-plane`")
    domain, _, name = key.rpartition("/")
    for label in labels:
        other_domain, _, other = label.rpartition("/")
        if not domain:
            continue
        is_foreign = f".{domain}".endswith(_RESERVED) and name == other
        is_alike = label.casefold() == key.casefold() or _ratio(label, key) >= _ALIKE
        is_misspelt = domain == other_domain and _ratio(name, other) >= _PLURALS_OF
        if is_foreign or ((is_alike or is_misspelt) and not _differ_by_word(name, other)):
            return _Unknown(f"`{key}` is no label that is known", f"write `{label}`")
    return None


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


def _label_keys(document: Document) -> Iterator[tuple[Path, str, tuple[str, ...]]]:
    """Yield the keys of labels outside of expressions, each with those that are well known."""
    value = document.value if isinstance(document.value, dict) else {}
    spec = value.get("spec") or {}
    match = spec.get("match") or {}
    for name, known in (("namespaceSelector", _OF_NAMESPACES), ("objectSelector", _OF_PODS)):
        at = ("spec", "match", name)
        selector = match.get(name) or {}
        for key in selector.get("matchLabels") or {}:
            yield (*at, "matchLabels", key), key, known
        for index, each in enumerate(selector.get("matchExpressions") or ()):
            yield (*at, "matchExpressions", index, "key"), each["key"], known
    for index, key in enumerate((spec.get("placement") or {}).get("groupLabels") or ()):
        yield ("spec", "placement", "groupLabels", index), key, _OF_NODES


# Statuses of conditions that are asked for without their type.
#
# `Ready` is `True` on a node that is well, while `MemoryPressure` and its like are `False`: one
# status for all of them is true of no such node, and some status is true of each.


_STATUS_CONDITIONS: Final = ("node", "conditions")
_WELL: Final = {"True": "its `Ready` is `True`", "False": "its `MemoryPressure` is `False`"}
_OPPOSITE: Final = {"True": "False", "False": "True"}


def status_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for each question about the statuses of all conditions alike."""
    for node, _ in ast.walk(part.program.root):
        if not isinstance(node, ast.Quantifier) or path_of(node.range, {}) != _STATUS_CONDITIONS:
            continue
        status = _status(node)
        is_all = node.how_many is ast.HowMany.ALL
        if not status or not (is_all or node.how_many is ast.HowMany.SOME):
            continue
        always, shown = ("never", _OPPOSITE[status]) if is_all else ("always", status)
        yield Finding(
            part.name,
            f"`{unparse(node)}` is {always} true of a node that is well: {_WELL[shown]}",
            f"write `{unparse(_of_some(node, status))}`",
            node.offset,
        )


def _status(node: ast.Quantifier) -> str:
    """Return the status that conditions of any type are asked for, "" if it asks something else."""
    match node.predicate:
        case ast.Binary(
            operator="==" | "!=" as sign,
            left=ast.Select(operand=ast.Local(name=name), field="status"),
            right=ast.Literal(value="True" | "False" as value),
        ) if name == node.variables[-1]:
            return value if sign == "==" else _OPPOSITE[value]
    return ""


def _of_some(node: ast.Quantifier, status: str) -> ast.Node:
    """Return what is asked, of `Ready` alone where that is bad news, or of all others."""
    at = node.offset
    kind = ast.Select(ast.Local(node.variables[-1], offset=at), "type", offset=at)
    ready = ast.Literal("Ready", STRING, offset=at)
    of_type = ast.Binary("==" if status == "False" else "!=", kind, ready, offset=at)
    join = ast.Or if node.how_many is ast.HowMany.ALL else ast.And
    return replace(node, predicate=join((of_type, node.predicate), offset=at))


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
