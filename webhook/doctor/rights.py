"""May our service account do what it must? The API server is asked for each right."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

import msgspec

from engine.model.kinds import KINDS, POD_METRICS
from webhook.doctor.finding import Finding, Level
from webhook.doctor.installation import ADMISSION, MUTATING, VALIDATING, Installation
from webhook.doctor.objects import PodSpec

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_QUOTA_GROUPS = ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io")


class Right(NamedTuple):
    """Something the account may have to do; empty means any, or everywhere."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        """Return it as `kubectl auth can-i` takes it."""
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {kind}" + (f"/{self.name}" if self.name else "")


class _Verdict(msgspec.Struct, frozen=True):
    allowed: bool


class _Review(msgspec.Struct, frozen=True):
    status: _Verdict


async def rights(at: Installation) -> AsyncIterator[Finding]:
    """Ask for every right that the settings of the Deployment make needed."""
    deployment = await at.deployment()
    if deployment is None:
        yield Finding(
            Level.WARNING,
            "without its Deployment it is not known which account this runs as",
            "see the replicas above",
        )
        return
    spec = deployment.spec.template.spec
    needed = [*_to_know(), *_to_write(at, spec)]
    missing = [one for one in needed if not await _has(at, spec.service_account_name, one)]
    account = f"system:serviceaccount:{at.namespace}:{spec.service_account_name}"
    for right in missing:
        scope = f"--namespace {right.namespace}" if right.namespace else "--all-namespaces"
        yield Finding(
            Level.PROBLEM,
            f"{account} may not {right}",
            f"set `rbac.create`, or grant it; `kubectl auth can-i {right} {scope} --as {account}`"
            " tells when it may",
        )
    if not missing:
        yield Finding(Level.OK, f"{account} has the {len(needed)} rights it needs")


def _to_know() -> Iterator[Right]:
    for kind in KINDS:
        if kind is not POD_METRICS:  # read only if a setting asks for it
            for verb in kind.verbs:
                if verb != "get":
                    yield Right(verb, kind.group, kind.plural)


def _to_write(at: Installation, spec: PodSpec) -> Iterator[Right]:
    yield Right("create", "coordination.k8s.io", "leases", at.namespace)
    lease = spec.setting("STOWPLAN_LEASE") or at.release
    for verb in ("get", "update"):
        yield Right(verb, "coordination.k8s.io", "leases", at.namespace, lease)
    if spec.setting("STOWPLAN_QUOTA_MODE") != "Off":
        for group in _QUOTA_GROUPS:
            yield Right("patch", group, "elasticquotas")
            yield Right("patch", group, "elasticquotas/status")
        yield Right("create", "", "events")
    secret = spec.setting("STOWPLAN_CERTIFICATE_SECRET")
    if secret:
        yield Right("create", "", "secrets", at.namespace)
        for verb in ("get", "patch"):
            yield Right(verb, "", "secrets", at.namespace, secret)
        group = ADMISSION.split("/")[2]
        for verb in ("get", "watch", "patch"):
            for kind in (MUTATING, VALIDATING):
                yield Right(verb, group, f"{kind.lower()}s", "", at.release)


async def _has(at: Installation, account: str, right: Right) -> bool:
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
            "user": f"system:serviceaccount:{at.namespace}:{account}",
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{at.namespace}",
                "system:authenticated",
            ],
            "resourceAttributes": attributes,
        },
    }
    answer = await at.connection.write("POST", _REVIEWS, msgspec.json.encode(review))
    return msgspec.json.decode(answer, type=_Review).status.allowed
