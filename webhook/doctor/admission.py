"""Does the API server ask us? Tried with a pod, as a dry run: the way every pod takes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from http import HTTPStatus

import msgspec

from engine.placement import ANNOTATIONS, REASON_ANNOTATION
from webhook.cluster.client.connection import ApiError
from webhook.doctor.finding import Finding, Level
from webhook.doctor.installation import MUTATING, VALIDATING, Installation, states
from webhook.doctor.objects import Configuration, Deployment, Pod

_PATHS = {MUTATING: "mutate", VALIDATING: "validate"}
_ROLES = {MUTATING: "placement", VALIDATING: "quota"}
_UNREACHED = (
    "the API server's log has the reason. `x509`: see the certificates below. A time-out: its"
    " network does not reach our pods, see the platform below, or `hostNetwork` of the chart"
)
_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "stowplan-doctor-"},
    "spec": {
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "never-started",
                "image": "stowplan.dev/never-pulled",
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
                "resources": {
                    "requests": {"cpu": "10m", "memory": "16Mi"},
                    "limits": {"cpu": "10m", "memory": "16Mi"},
                },
            }
        ],
    },
}
"""Passes the `restricted` Pod Security Standard and most policies of others; never stored."""


async def admission(at: Installation) -> AsyncIterator[Finding]:
    """Try a pod, and tell what the API server did with it and whom it asked."""
    ours = await at.ours()
    for finding in _switched_off(ours, await at.deployment(), at.release):
        yield finding
    if not ours:
        return
    before = await _answered(at)
    try:
        tried = await _tried(at)
    except ApiError as refused:
        yield _refused(refused, ours, at.pod_namespace)
        return
    after = await _answered(at)
    advice = {name: tried.metadata.annotations.get(name, "") for name in ANNOTATIONS}
    for kind, configuration in ours.items():
        if kind == MUTATING and any(advice.values()):
            reason = advice[REASON_ANNOTATION]
            yield Finding(Level.OK, f"a pod comes back with advice: {reason or 'no reason given'}")
        elif any(webhook.sees_new_pods for webhook in configuration.webhooks):
            yield await _without_advice(at, kind, before, after)


def _switched_off(
    ours: Mapping[str, Configuration], deployment: Deployment | None, name: str
) -> Iterator[Finding]:
    """Yield what the API server does not ask about, though the settings want it to or not."""
    for kind, role in _ROLES.items():
        setting = f"STOWPLAN_{role.upper()}_MODE"
        mode = "" if deployment is None else deployment.spec.template.spec.setting(setting)
        if kind not in ours and mode == "Off":
            yield Finding(Level.NOTE, f"{role}.mode is Off: the API server does not ask about it")
        elif kind not in ours:
            yield Finding(
                Level.WARNING,
                f"there is no {kind} `{name}`, so the API server does not ask about {role}",
                "if it was not switched off on purpose: `helm upgrade` with `--reuse-values` brings"
                " it back; if it has another name, give it with `--release`",
            )


async def _answered(at: Installation) -> dict[str, int] | None:
    """Return how many reviews all replicas answered, by path; None if any cannot be asked."""
    replicas = await at.replicas()
    said = states(replicas)
    if not replicas or len(said) < len(replicas):
        return None
    return {path: sum(state.reviews.get(path, 0) for _, state in said) for path in _PATHS.values()}


async def _tried(at: Installation) -> Pod:
    path = f"/api/v1/namespaces/{at.pod_namespace}/pods"
    body = msgspec.json.encode(_POD)
    created = await at.connection.write("POST", path, body, query=(("dryRun", "All"),))
    return msgspec.json.decode(created, type=Pod)


def _refused(refused: ApiError, ours: Mapping[str, Configuration], namespace: str) -> Finding:
    """Return what the refusal of a pod says of us."""
    names = [webhook.name for one in ours.values() for webhook in one.webhooks]
    if any(f'"{name}" denied the request' in refused.message for name in names):
        return Finding(Level.OK, f"we are asked, and refuse a pod: {refused.message}")
    if any(f'failed calling webhook "{name}"' in refused.message for name in names):
        return Finding(
            Level.PROBLEM,
            f"no pods are created: {refused.message}",
            f"delete both webhook configurations first, as the runbook says; then: {_UNREACHED}",
        )
    advice = "try another namespace with `--pod-namespace`, or as somebody who may create pods"
    if refused.status == HTTPStatus.BAD_REQUEST and "dry run" in refused.message:
        advice = "another webhook takes no dry runs; try a namespace it is not for"
    return Finding(
        Level.WARNING,
        f"a pod in namespace {namespace} is refused, not by us: {refused.message}",
        advice,
    )


async def _without_advice(
    at: Installation, kind: str, before: dict[str, int] | None, after: dict[str, int] | None
) -> Finding:
    """Return why a webhook left no trace on the pod."""
    role, path, namespace = _ROLES[kind], _PATHS[kind], at.pod_namespace
    if before is None or after is None:
        return Finding(
            Level.WARNING,
            f"it cannot be told whether the API server asks about {role}: a replica does not say"
            " how many reviews it answered",
            "see the replicas below",
        )
    if after[path] > before[path]:
        if kind == VALIDATING:
            return Finding(Level.OK, "the API server asks about quota")
        modes = {state.modes.get("placement") for _, state in states(await at.replicas())}
        mode = next(iter(modes - {None, "Enforce"}), None)
        why = f"placement.mode is {mode}" if mode else f"no policy speaks of it in {namespace}"
        return Finding(
            Level.NOTE, f"the API server asks about placement; a pod comes back as it was: {why}"
        )
    return Finding(
        Level.PROBLEM,
        f"the API server admits a pod in namespace {namespace} without asking us about {role}",
        f"is the namespace excluded, or not labelled? Then give another as `--pod-namespace`."
        f" Else {_UNREACHED}",
    )
