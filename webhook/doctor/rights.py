"""Rights of our service account, reviewed one by one by the API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from engine.model.elastic_quota import UPSTREAM_GROUP
from engine.model.kinds import KINDS, POD_METRICS, WATCHED_FOR_EVICTION, WATCHED_FOR_POLICIES
from webhook.doctor.findings import Finding, ok, problem, warning
from webhook.doctor.installation import ADMISSION, MUTATING, VALIDATING, Installation

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_ADMISSION: Final = ADMISSION.split("/")[2]
_COORDINATION: Final = "coordination.k8s.io"
_SLICES: Final = "discovery.k8s.io"
_QUOTA_GROUPS = ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io")


class Right(NamedTuple):
    """A right that the account may need; an empty field means any, or everywhere."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        """Return the right in the syntax of `kubectl auth can-i`."""
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {kind}" + (f"/{self.name}" if self.name else "")


_HOLD_RIGHTS: Final = (
    Right("patch", "", "pods"),
    Right("patch", "", "pods/status"),
    Right("patch", UPSTREAM_GROUP, "podgroups/status"),
    Right("create", "", "events"),
    Right("get", "coordination.k8s.io", "leases", "kube-system", "kube-scheduler"),
)


_RECLAIM_RIGHTS: Final = (
    *(
        Right(verb, kind.group, kind.plural)
        for kind in WATCHED_FOR_EVICTION
        for verb in ("list", "watch")
    ),
    Right("create", "", "pods/eviction"),
    *(Right("get", "apps", workloads) for workloads in ("deployments", "statefulsets")),
)


class _Verdict(msgspec.Struct, frozen=True):
    allowed: bool


class _Review(msgspec.Struct, frozen=True):
    status: _Verdict


def rights(installation: Installation) -> Iterator[Finding]:
    """Check every right that the settings of the Deployment require."""
    if installation.deployment is None:
        message = "the service account is unknown without the Deployment"
        yield warning(message, "see the replicas above")
        return
    spec, control = installation.spec, installation.control
    serving, leading = _serving_rights(installation), _leading_rights(installation)
    needed = {spec.service_account_name: [*serving]}
    leader = spec if control is None else control.spec.template.spec
    needed[leader.service_account_name] = [
        *dict.fromkeys([*needed[spec.service_account_name], *leading])
    ]
    for name, rights_of_account in needed.items():
        account = f"system:serviceaccount:{installation.namespace}:{name}"
        missing = [right for right in rights_of_account if not _has(installation, account, right)]
        for right in missing:
            scope = f"--namespace {right.namespace}" if right.namespace else "--all-namespaces"
            yield problem(
                f"{account} may not {right}",
                f"set `rbac.create`, or grant it; `kubectl auth can-i {right} {scope}"
                f" --as {account}` confirms it",
            )
        if not missing:
            yield ok(f"{account} has the {len(rights_of_account)} rights it needs")


def _to(
    verbs: str, group: str, resource: str, namespace: str = "", name: str = ""
) -> Iterator[Right]:
    """Yield a right for each of some verbs."""
    for verb in verbs.split():
        yield Right(verb, group, resource, namespace, name)


def _to_policies(installation: Installation, verbs: str, subresource: str = "") -> Iterator[Right]:
    if installation.setting("POLICY_RESOURCES") == "true":
        for kind in WATCHED_FOR_POLICIES:
            yield from _to(verbs, kind.group, f"{kind.plural}{subresource}")


def _to_configurations(installation: Installation, verbs: str, *kinds: str) -> Iterator[Right]:
    for kind in kinds or (MUTATING, VALIDATING):
        yield from _to(verbs, _ADMISSION, f"{kind.lower()}s", name=installation.release)


def _to_record(installation: Installation, suffix: str) -> Iterator[Right]:
    """Yield what a ConfigMap needs that the leader writes."""
    yield from _to("create", "", "configmaps", installation.namespace)
    name = f"{installation.lease}-{suffix}"
    yield from _to("get patch", "", "configmaps", installation.namespace, name)


def _serving_rights(installation: Installation) -> Iterator[Right]:
    """Yield the rights of whoever answers reviews; the leader has them, too."""
    namespace, setting = installation.namespace, installation.setting
    # Read only if a setting asks for it.
    left_out = {POD_METRICS, *WATCHED_FOR_EVICTION, *WATCHED_FOR_POLICIES}
    for kind in KINDS:
        if kind not in left_out and not kind.only_offline:
            verbs = " ".join(verb for verb in kind.verbs if verb != "get")
            yield from _to(verbs, kind.group, kind.plural)
    yield from _to("get watch", _COORDINATION, "leases", namespace, installation.lease)
    yield from _to_policies(installation, "list watch")
    if setting("USAGE_OF_PODS") == "true":
        yield from _to("list", POD_METRICS.group, POD_METRICS.plural)
    if setting("DEBUG_PAGES") != "false":
        yield from _to("create", "authentication.k8s.io", "tokenreviews")
        yield from _to("create", "authorization.k8s.io", "subjectaccessreviews")
    if setting("QUOTA_MODE") != "Off":
        for group in _QUOTA_GROUPS:
            yield from _to("patch", group, "elasticquotas")
        yield from _to("create", "", "events")
    if setting("OUTCOME") != "false":
        yield from _to("get", "", "configmaps", namespace, f"{installation.lease}-outcome")
    if secret := setting("CERTIFICATE_SECRET"):
        yield from _to("get watch", "", "secrets", namespace, secret)
        yield from _to_configurations(installation, "get watch")


def _leading_rights(installation: Installation) -> Iterator[Right]:
    """Yield what the leader needs besides."""
    namespace, setting = installation.namespace, installation.setting
    yield from _to("create", _COORDINATION, "leases", namespace)
    yield from _to("update", _COORDINATION, "leases", namespace, installation.lease)
    yield from _to_policies(installation, "patch", "/status")
    if installation.holds:
        yield from _HOLD_RIGHTS
    if installation.evicts:
        yield from _eviction_rights(installation)
    if setting("OUTCOME") != "false":
        yield from _to_record(installation, "outcome")
        yield from _to("create", "", "events", namespace)
    if setting("QUOTA_MODE") != "Off":
        for group in _QUOTA_GROUPS:
            yield from _to("patch", group, "elasticquotas/status")
    secret = setting("CERTIFICATE_SECRET")
    if secret:
        yield from _to("create", "", "secrets", namespace)
        yield from _to("patch", "", "secrets", namespace, secret)
        yield from _to_configurations(installation, "patch")
    if setting("BINDING") == "true":
        yield from _to("create", _SLICES, "endpointslices", namespace)
        for family in ("ipv4", "ipv6"):
            name = f"{installation.release}-leader-{family}"
            yield from _to("get update delete", _SLICES, "endpointslices", namespace, name)
        if not secret:
            yield from _to_configurations(installation, "get watch patch", MUTATING)


def _eviction_rights(installation: Installation) -> Iterator[Right]:
    yield from _RECLAIM_RIGHTS
    yield from _to_record(installation, "reclaim")
    if installation.setting("HARD_RECLAIM_NAMESPACES"):
        yield from _to("delete", "", "pods")


def _has(installation: Installation, account: str, right: Right) -> bool:
    resource, _, subresource = right.resource.partition("/")
    groups = ["serviceaccounts", f"serviceaccounts:{installation.namespace}", "authenticated"]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": account,
            "groups": [f"system:{group}" for group in groups],
            "resourceAttributes": {
                **right._asdict(),
                "resource": resource,
                "subresource": subresource,
            },
        },
    }
    return msgspec.json.decode(installation.create(_REVIEWS, review), type=_Review).status.allowed
