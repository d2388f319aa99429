"""Rights of our service account, reviewed one by one by the API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from engine.model.elastic_quota import UPSTREAM_GROUP
from engine.model.kinds import KINDS, POD_METRICS, WATCHED_FOR_POLICIES, WATCHED_FOR_RECLAIM
from webhook.doctor.installation import (
    ADMISSION,
    MUTATING,
    VALIDATING,
    Finding,
    Installation,
    Level,
)
from webhook.doctor.objects import PodSpec

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
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
        for kind in WATCHED_FOR_RECLAIM
        for verb in ("list", "watch")
    ),
    Right("create", "", "pods/eviction"),
)


class _Verdict(msgspec.Struct, frozen=True):
    allowed: bool


class _Review(msgspec.Struct, frozen=True):
    status: _Verdict


async def rights(installation: Installation) -> AsyncIterator[Finding]:
    """Check every right that the settings of the Deployment require."""
    deployment = await installation.deployment()
    if deployment is None:
        yield Finding(
            Level.WARNING,
            "the service account is unknown without the Deployment",
            "see the replicas above",
        )
        return
    spec, control = deployment.spec.template.spec, await installation.control()
    serving = [*_serving_rights(installation, spec)]
    leading = [*_leading_rights(installation, spec)]
    needed = {spec.service_account_name: serving}
    leader = spec if control is None else control.spec.template.spec
    needed[leader.service_account_name] = [*dict.fromkeys([*serving, *leading])]
    for name, rights_of_account in needed.items():
        account = f"system:serviceaccount:{installation.namespace}:{name}"
        async for finding in _account(installation, account, rights_of_account):
            yield finding


async def _account(
    installation: Installation, account: str, needed: Sequence[Right]
) -> AsyncIterator[Finding]:
    missing = [right for right in needed if not await _has(installation, account, right)]
    for right in missing:
        scope = f"--namespace {right.namespace}" if right.namespace else "--all-namespaces"
        yield Finding(
            Level.PROBLEM,
            f"{account} may not {right}",
            f"set `rbac.create`, or grant it; `kubectl auth can-i {right} {scope} --as {account}`"
            " confirms it",
        )
    if not missing:
        yield Finding(Level.OK, f"{account} has the {len(needed)} rights it needs")


def _read_rights() -> Iterator[Right]:
    # Read only if a setting asks for it.
    left_out = {POD_METRICS, *WATCHED_FOR_RECLAIM, *WATCHED_FOR_POLICIES}
    for kind in KINDS:
        if kind not in left_out and not kind.only_offline:
            for verb in kind.verbs:
                if verb != "get":
                    yield Right(verb, kind.group, kind.plural)


def _serving_rights(installation: Installation, spec: PodSpec) -> Iterator[Right]:
    """Yield the rights of whoever answers reviews; the leader has them, too."""
    namespace, setting = installation.namespace, spec.setting
    yield from _read_rights()
    lease = setting("STOWPLAN_LEASE") or installation.release
    for verb in ("get", "watch"):
        yield Right(verb, "coordination.k8s.io", "leases", namespace, lease)
    yield from _policy_rights(spec, ("list", "watch"))
    if setting("STOWPLAN_DEBUG_PAGES") != "false":
        yield Right("create", "authentication.k8s.io", "tokenreviews")
        yield Right("create", "authorization.k8s.io", "subjectaccessreviews")
    if setting("STOWPLAN_QUOTA_MODE") != "Off":
        for group in _QUOTA_GROUPS:
            yield Right("patch", group, "elasticquotas")
        yield Right("create", "", "events")
    if setting("STOWPLAN_OUTCOME") != "false":
        yield Right("get", "", "configmaps", namespace, f"{lease}-outcome")
    secret = setting("STOWPLAN_CERTIFICATE_SECRET")
    if secret:
        for verb in ("get", "watch"):
            yield Right(verb, "", "secrets", namespace, secret)
            yield from _configuration_rights(installation, verb)


def _leading_rights(installation: Installation, spec: PodSpec) -> Iterator[Right]:
    """Yield what the leader needs besides."""
    namespace, setting = installation.namespace, spec.setting
    lease = setting("STOWPLAN_LEASE") or installation.release
    yield Right("create", "coordination.k8s.io", "leases", namespace)
    yield Right("update", "coordination.k8s.io", "leases", namespace, lease)
    yield from _policy_rights(spec, ("patch",), "/status")
    yield from _releasing_rights(namespace, lease, spec)
    if setting("STOWPLAN_OUTCOME") != "false":
        yield from _record_rights(namespace, f"{lease}-outcome")
        yield Right("create", "", "events", namespace)
    if setting("STOWPLAN_QUOTA_MODE") != "Off":
        for group in _QUOTA_GROUPS:
            yield Right("patch", group, "elasticquotas/status")
    secret = setting("STOWPLAN_CERTIFICATE_SECRET")
    if secret:
        yield Right("create", "", "secrets", namespace)
        yield Right("patch", "", "secrets", namespace, secret)
        yield from _configuration_rights(installation, "patch")
    if setting("STOWPLAN_BINDING") == "true":
        service = f"{installation.release}-leader"
        yield Right("create", _SLICES, "endpointslices", namespace)
        for family in ("ipv4", "ipv6"):
            for verb in ("get", "update", "delete"):
                yield Right(verb, _SLICES, "endpointslices", namespace, f"{service}-{family}")
        for verb in () if secret else ("get", "watch", "patch"):
            yield from _configuration_rights(installation, verb, MUTATING)


def _policy_rights(spec: PodSpec, verbs: Sequence[str], subresource: str = "") -> Iterator[Right]:
    if spec.setting("STOWPLAN_POLICY_RESOURCES") == "true":
        for kind in WATCHED_FOR_POLICIES:
            for verb in verbs:
                yield Right(verb, kind.group, f"{kind.plural}{subresource}")


def _releasing_rights(namespace: str, lease: str, spec: PodSpec) -> Iterator[Right]:
    if spec.setting("STOWPLAN_HOLD") != "true":
        return
    yield from _HOLD_RIGHTS
    preempts = spec.setting("STOWPLAN_PREEMPTION") == "true"
    if preempts or spec.setting("STOWPLAN_QUOTA_MODE") == "Queue":
        yield from _RECLAIM_RIGHTS
        yield from _record_rights(namespace, f"{lease}-reclaim")


def _configuration_rights(installation: Installation, verb: str, *kinds: str) -> Iterator[Right]:
    group = ADMISSION.split("/")[2]
    for kind in kinds or (MUTATING, VALIDATING):
        yield Right(verb, group, f"{kind.lower()}s", "", installation.release)


def _record_rights(namespace: str, name: str) -> Iterator[Right]:
    """Yield what a ConfigMap needs that the leader writes."""
    yield Right("create", "", "configmaps", namespace)
    for verb in ("get", "patch"):
        yield Right(verb, "", "configmaps", namespace, name)


async def _has(installation: Installation, account: str, right: Right) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": account,
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{installation.namespace}",
                "system:authenticated",
            ],
            "resourceAttributes": attributes,
        },
    }
    answer = await installation.connection.write("POST", _REVIEWS, msgspec.json.encode(review))
    return msgspec.json.decode(answer, type=_Review).status.allowed
