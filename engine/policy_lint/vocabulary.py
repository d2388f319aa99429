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
from engine.documents import Document, Path, left_over
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
    ("pod", "notEvictableBy", ANY): ("ClusterAutoscaler", "Karpenter"),
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

_OF_MAPS: Final[Mapping[ReadPath, str]] = {
    ("node", "conditions", ANY): "type",
    ("node", "taints", ANY): "key",
    ("pod", "tolerations", ANY): "key",
}
"""Elements that are maps, with the field that names one."""

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
    for read in dict.fromkeys(reads.keys):
        if found := _key(read.path, read.key):
            yield Finding(part.name, *found, offset=read.offset)


def selector_findings(policy: CompiledPolicy, document: Document) -> Iterator[Finding]:
    """Yield a finding for each label in a selector or list that is nearly a well-known one."""
    for path, key, known in _label_keys(document):
        found = _near(key, known)
        if known is not _OF_NODES and key in _OF_NODES:
            found = _of_nodes(key, str(path[2]))
        if found:
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
    if path in _OF_MAPS:
        *owner, _ = path
        field = _OF_MAPS[path]
        meant = f"{path_text(tuple(owner))}.exists(e, e.{field} == '{value}')"
        return _Unknown(f"`{path_text(tuple(owner))}` has no strings in it", f"write `{meant}`")
    if instead := _INSTEAD.get(path, {}).get(value):
        return _Unknown(what, instead)
    known = _CLOSED.get(path)
    if known is None and path[:-1] in {("node", "labels"), ("pod", "nodeSelector")}:
        if shape := _value_by_shape(path[-1], value):
            return shape
        known = _LABEL_VALUES.get(path[-1])
        known = (*known, "") if known else None
    if known is not None and value not in known:
        is_machine = known[0] == _ARCHITECTURES[0]
        near = _machine(value) if is_machine else _alike(value, known)
        near = known[0] if known[1:] == ("",) else near
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
    if key in _OF_NODES and path in _NOT_OF_NODES:
        return _of_nodes(key, path_text(path))
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


_NOT_OF_NODES: Final = frozenset(
    {
        ("node", "annotations"),
        ("pod", "annotations"),
        ("pod", "labels"),
        ("object", "metadata", "labels"),
        ("namespaceObject", "metadata", "labels"),
    }
)


def _of_nodes(key: str, where: str) -> _Unknown:
    """Return that a label of nodes is looked for elsewhere."""
    hint = f"read `node.labels[?'{key}'].orValue('')` in a filter or a score"
    return _Unknown(f"`{key}` is a label of nodes, hardly in `{where}`", hint)


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


_ANCHORED: Final = re.compile(r"\^.*|.*\$|\.\*.*\.\*", re.DOTALL)
_GLOB: Final = re.compile(r"\^?([-A-Za-z0-9_]*[-A-Za-z0-9_/])\*([-A-Za-z0-9_]*)\$?")
_FLAGS: Final = re.compile(r"\(\?[a-z]+\)")
_SLASHED: Final = re.compile(r"/(.*)/")
_CHOICE: Final = re.compile(r"\((?:[^()]|\([^()]*\))*\)")


def pattern_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for each pattern that is found anywhere in a string."""
    for node, _ in ast.walk(part.program.root):
        match node:
            case ast.Call(
                function="matches", args=(of, ast.Literal(value=str(pattern)) as literal)
            ):
                if glob := _GLOB.fullmatch(pattern):
                    message = f"in a pattern `*` repeats the sign before it: `{pattern}`"
                    anything = replace(literal, value=f"^{glob[1]}.*{glob[2]}$")
                    hint = f"write `{unparse(replace(node, args=(of, anything)))}`"
                    yield Finding(part.name, message, hint, literal.offset)
                    continue
                if not pattern or _ANCHORED.fullmatch(_FLAGS.sub("", pattern)):
                    continue
                if slashed := _SLASHED.fullmatch(pattern):
                    meant = replace(literal, value=slashed[1])
                    hint = f"write `{unparse(replace(node, args=(of, meant)))}`"
                    message = "a pattern has no slashes around it"
                    yield Finding(part.name, message, hint, literal.offset)
                    continue
                inner = pattern.removeprefix(".*").removesuffix(".*")
                has_choice = "|" in _CHOICE.sub("", pattern)
                whole = f"^({pattern})$" if has_choice else f"^{pattern}$"
                anchored = ast.Literal(whole, STRING, offset=0)
                yield Finding(
                    part.name,
                    f"`{pattern}` is found anywhere in the string, also in `x{pattern}x`"
                    if pattern.isalnum()
                    else f"`{pattern}` is found anywhere in the string",
                    f"for the whole string write `{unparse(replace(node, args=(of, anchored)))}`,"
                    f" for a part of it `.*{inner}.*`",
                    literal.offset,
                )


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
    if key.startswith(_ROLE) and value:
        asks = f"'{key}' in node.labels"
        return _Unknown(f"{what}: most clusters set it without a value", f"write `{asks}`")
    if key in _INSTANCE_LABELS:
        if _FAMILY.fullmatch(value):
            return _Unknown(
                f"{what}: that is a family of machines",
                f"write the whole type, as `'{value}.xlarge'`, or `.startsWith('{value}.')`",
            )
        lower = value.lower().replace("_", ".")
        if lower != value and _SIZED.fullmatch(lower):
            return _Unknown(what, f"write `'{lower}'`")
    return None


_TEXT_SEARCHES: Final = frozenset({"contains", "endsWith", "startsWith"})
_OF_NAMES: Final = frozenset({("node", "name"), ("pod", "name"), ("pod", "namespace")})
_OF_LABELS: Final = frozenset(
    {
        ("node", "labels"),
        ("pod", "labels"),
        ("pod", "nodeSelector"),
        ("namespaceObject", "metadata", "labels"),
    }
)
_FOREIGN: Final = re.compile(r"[^-A-Za-z0-9_.]")
_WILDCARD: Final = re.compile(r"(\^?)([-A-Za-z0-9_.]*)([*%]?)")


def alphabet_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for each text with a sign that the names and labels of objects never have."""
    reads = Reads(part.program.root)
    searches = [each for each in reads.searches if each.operator in _TEXT_SEARCHES]
    for compared in (*reads.comparisons, *searches):
        path, value = compared.path, compared.literal.value
        is_name = path in _OF_NAMES
        if not isinstance(value, str) or not (is_name or path[:-1] in _OF_LABELS):
            continue
        if left_over(value) or path[-1] == ANY:
            continue
        if found := _FOREIGN.search(value):
            hint = _pattern_hint(path, value)
            message = f"`{path_text(path)}` never has `{found[0]}`"
            yield Finding(part.name, message, hint, compared.literal.offset)
        elif is_name and value != value.lower():
            message = f"`{path_text(path)}` has lower-case letters alone"
            hint = f"write `'{value.lower()}'`"
            yield Finding(part.name, message, hint, compared.literal.offset)


def _pattern_hint(path: ReadPath, value: str) -> str:
    """Return how to look for what is written as a pattern."""
    found = _WILDCARD.fullmatch(value)
    if found is None or not found[2]:
        pattern = value.replace("*", ".*") if "*" in value else ""
        return f"a pattern is written `.matches('^{pattern}$')`" if pattern else ""
    return f"there are no patterns: write `{_written(path)}.startsWith('{found[2]}')`"


def _written(path: ReadPath) -> str:
    """Return how a value is read that may be absent."""
    *parent, key = path
    return (
        f"{path_text(tuple(parent))}[?'{key}'].orValue('')"
        if path not in _OF_NAMES
        else path_text(path)
    )
