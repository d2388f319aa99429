"""Admission of a pod, created as a dry run, and the time-outs of all webhooks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from http import HTTPStatus

import msgspec

from engine.errors import counted
from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION
from engine.model.well_known import PROBE_WEBHOOK, QUOTA_WEBHOOK, ROLLOUT_WEBHOOK
from engine.placement import ANNOTATIONS, REASON_ANNOTATION
from webhook.cluster.client.connection import ApiError
from webhook.doctor.installation import (
    MUTATING,
    VALIDATING,
    Configuration,
    Finding,
    Installation,
    Level,
    Webhook,
    statuses,
)
from webhook.doctor.objects import Deployment, Pod

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

_TOO_LONG_SECONDS = 30  # half of what the API server gives a request; callers often give less
_MOST_NAMED = 8


async def admission(installation: Installation) -> AsyncIterator[Finding]:
    """Create a pod as a dry run, and report the webhooks that the API server called for it."""
    configurations = await installation.own_configurations()
    deployment = await installation.deployment()
    for finding in _unconfigured(configurations, deployment, installation.release):
        yield finding
    for finding in _unjudged_releases(configurations, deployment):
        yield finding
    if not configurations:
        return
    before = await _review_counts(installation)
    try:
        pod = await _create_pod(installation)
    except ApiError as error:
        yield _refusal(error, configurations, installation.pod_namespace)
        return
    after = await _review_counts(installation)
    advice = {name: pod.metadata.annotations.get(name, "") for name in ANNOTATIONS}
    for kind, configuration in configurations.items():
        if kind == MUTATING and HOLD_REASONS_ANNOTATION in pod.metadata.annotations:
            yield _held(pod)
        elif kind == MUTATING and any(advice.values()):
            reason = advice[REASON_ANNOTATION]
            yield Finding(Level.OK, f"a pod comes back with advice: {reason or 'no reason given'}")
        elif any(webhook.is_switched_off for webhook in configuration.webhooks):
            yield Finding(
                Level.OK,
                "the API server does not ask about new pods: no policy has anything to say then",
            )
        elif any(
            webhook.covers_pod_creation and webhook.selects(installation.pod_namespace)
            for webhook in configuration.webhooks
        ):
            yield await _no_advice(installation, kind, before, after)


def _unconfigured(
    configurations: Mapping[str, Configuration], deployment: Deployment | None, name: str
) -> Iterator[Finding]:
    """Yield the roles without a webhook configuration, on purpose or not."""
    for kind, role in _ROLES.items():
        setting = f"STOWPLAN_{role.upper()}_MODE"
        mode = "" if deployment is None else deployment.spec.template.spec.setting(setting)
        # A configuration may be for quotas alone: a role is what is asked about pods.
        own = configurations.get(kind)
        is_asked = own is not None and any(each.covers_pod_creation for each in own.webhooks)
        if not is_asked and mode == "Off":
            yield Finding(Level.NOTE, f"{role}.mode is Off: the API server does not ask about it")
        elif own is None:
            yield Finding(
                Level.WARNING,
                f"there is no {kind} `{name}`, so the API server does not ask about {role}",
                "if it was not switched off on purpose: `helm upgrade` with"
                " `--reset-then-reuse-values` brings it back; if it has another name, give it with"
                " `--release`",
            )


def _unjudged_releases(
    configurations: Mapping[str, Configuration], deployment: Deployment | None
) -> Iterator[Finding]:
    """Yield a finding if pods may wait for quota, and nobody is asked when they wait no longer."""
    own = configurations.get(VALIDATING)
    if own is None or deployment is None:
        return
    is_held = deployment.spec.template.spec.setting("STOWPLAN_HOLD") == "true"
    is_asked = any(each.covers_pod_changes for each in own.webhooks)
    judges = any(each.covers_pod_creation for each in own.webhooks)
    if is_held and judges and not is_asked:
        yield Finding(
            Level.PROBLEM,
            f"the API server does not ask {VALIDATING} `{own.metadata.name}` about changes of pods:"
            " whoever may patch a pod gets past its quota",
            "bring the configuration up to date, rules and matchConditions, from the chart of this"
            " version",
        )


async def _review_counts(installation: Installation) -> dict[str, int] | None:
    """Return the number of reviews of all replicas, by path; None if one does not answer."""
    replicas = await installation.replicas()
    answered = statuses(replicas)
    if not replicas or len(answered) < len(replicas):
        return None
    return {
        path: sum(status.reviews.get(path, 0) for _, status in answered) for path in _PATHS.values()
    }


async def _create_pod(installation: Installation) -> Pod:
    path = f"/api/v1/namespaces/{installation.pod_namespace}/pods"
    body = msgspec.json.encode(_POD)
    created = await installation.connection.write("POST", path, body, query=(("dryRun", "All"),))
    return msgspec.json.decode(created, type=Pod)


def _refusal(
    error: ApiError, configurations: Mapping[str, Configuration], namespace: str
) -> Finding:
    """Return the finding for a pod that was refused, by us or by others."""
    names = [webhook.name for each in configurations.values() for webhook in each.webhooks]
    if any(f'"{name}" denied the request' in error.message for name in names):
        return Finding(Level.OK, f"we are asked, and refuse a pod: {error.message}")
    if any(f'failed calling webhook "{name}"' in error.message for name in names):
        return Finding(
            Level.PROBLEM,
            f"no pods are created: {error.message}",
            f"delete both webhook configurations first, as the runbook says; then: {_UNREACHED}",
        )
    advice = "try another namespace with `--pod-namespace`, or as somebody who may create pods"
    if error.status == HTTPStatus.BAD_REQUEST and "dry run" in error.message:
        advice = "another webhook takes no dry runs; try a namespace it is not for"
    return Finding(
        Level.WARNING,
        f"a pod in namespace {namespace} is refused, not by us: {error.message}",
        advice,
    )


def _held(pod: Pod) -> Finding:
    """Return the finding for a pod that is held, by us alone or not.

    A pod that came with a gate of others would not be held: it was added after ours.
    """
    others = [gate.name for gate in pod.spec.scheduling_gates if gate.name != HOLD_GATE]
    if not others:
        return Finding(Level.OK, "a pod comes back held, to be decided when it is released")
    return Finding(
        Level.WARNING,
        f"a pod comes back held, and with the gate `{', '.join(others)}` that another webhook adds"
        " after ours: it is decided once ours is the last, and the limits of others, such as"
        " Kueue's `waitForPodsReady`, run meanwhile",
        "mutating webhooks are asked in the order of the names of their configurations: give that"
        " one a name before ours, so that its pods are advised and not held, or leave its"
        " namespaces out by `excludedNamespaces`",
    )


async def _no_advice(
    installation: Installation,
    kind: str,
    before: dict[str, int] | None,
    after: dict[str, int] | None,
) -> Finding:
    """Return why the pod has no annotation of a webhook."""
    role, path, namespace = _ROLES[kind], _PATHS[kind], installation.pod_namespace
    if before is None or after is None:
        return Finding(
            Level.WARNING,
            f"it is unknown whether the API server asks about {role}: a replica does not report"
            " how many reviews it answered",
            "see the replicas below",
        )
    if after[path] > before[path]:
        if kind == VALIDATING:
            return Finding(Level.OK, "the API server asks about quota")
        replicas = statuses(await installation.replicas())
        modes = {status.modes.get("placement") for _, status in replicas}
        mode = next(iter(modes - {None, "Enforce"}), None)
        why = f"placement.mode is {mode}" if mode else f"no policy applies to it in {namespace}"
        return Finding(
            Level.NOTE, f"the API server asks about placement; a pod comes back unchanged: {why}"
        )
    return Finding(
        Level.PROBLEM,
        f"the API server admits a pod in namespace {namespace} without asking us about {role}",
        f"is the namespace excluded, or not labelled? Then give another as `--pod-namespace`."
        f" Else {_UNREACHED}",
    )


async def webhooks(installation: Installation) -> AsyncIterator[Finding]:
    """Add up the time-outs of all webhooks: mutating ones run in turn, validating ones at once."""
    called: dict[str, list[Webhook]] = {
        kind: [
            webhook
            for configuration in configurations
            for webhook in configuration.webhooks
            if webhook.covers_pod_creation
        ]
        for kind, configurations in (await installation.configurations()).items()
    }
    in_turn = sum(webhook.timeout_seconds for webhook in called[MUTATING])
    at_once = max((webhook.timeout_seconds for webhook in called[VALIDATING]), default=0)
    count = len(called[MUTATING]) + len(called[VALIDATING])
    message = (
        f"{counted(count, 'webhook is', 'webhooks are')} asked about new pods; with all of them"
        f" away a pod takes {in_turn + at_once} s: {in_turn} s for {len(called[MUTATING])} mutating"
        f" ones in turn, {at_once} s for the slowest validating one"
    )
    if in_turn + at_once > _TOO_LONG_SECONDS:
        worst = sorted(called[MUTATING], key=lambda webhook: -webhook.timeout_seconds)
        named = ", ".join(f"{each.name} {each.timeout_seconds} s" for each in worst[:_MOST_NAMED])
        yield Finding(Level.WARNING, message, f"shorten `timeoutSeconds` of the longest: {named}")
    else:
        yield Finding(Level.OK, message)
    strict = sorted(
        {each.name for kind in called.values() for each in kind if each.failure_policy == "Fail"}
    )
    if strict:
        named = ", ".join(strict[:_MOST_NAMED])
        more = f" and {len(strict) - _MOST_NAMED} more" if len(strict) > _MOST_NAMED else ""
        yield Finding(Level.NOTE, f"pods are not created while one of these is away: {named}{more}")


_ROLLOUT_ROLES = {
    "placement": (MUTATING, "no pod is advised", "pods are advised"),
    "quota": (VALIDATING, "no pod beyond its quota is denied", "quotas are enforced"),
}


async def rollout(installation: Installation) -> AsyncIterator[Finding]:
    """Say for placement and quota how far the roll-out is."""
    deployment = await installation.deployment()
    if deployment is None:
        return
    configurations = await installation.own_configurations()
    for role in _ROLLOUT_ROLES:
        mode = deployment.spec.template.spec.setting(f"STOWPLAN_{role.upper()}_MODE")
        if mode == "Off":
            continue  # on purpose; the first check says so
        yield _stage(role, mode, configurations)
        setting = deployment.spec.template.spec.setting(f"STOWPLAN_{role.upper()}_ROLLOUT")
        if setting == "Automatic":
            yield _automatic(configurations.get(VALIDATING))


def _stage(role: str, mode: str, configurations: Mapping[str, Configuration]) -> Finding:
    kind, audited, enforced = _ROLLOUT_ROLES[role]
    label = f"stowplan.dev/{role}"
    if mode == "Audit":
        return Finding(
            Level.NOTE,
            f"{role}.mode is Audit: {audited} yet",
            f"next: `kubectl label namespace NAME {label}=enabled`, and `helm upgrade` with"
            f" `--reset-then-reuse-values --set {role}.mode=Enforce --set {role}.rollout=Labelled`",
        )
    configuration = configurations.get(kind)
    webhooks = () if configuration is None else configuration.webhooks
    if any(webhook.is_switched_off for webhook in webhooks):
        return Finding(Level.OK, "pods are placed at their binding, and not advised before")
    if any(webhook.namespace_selector.requires(label, "enabled") for webhook in webhooks):
        return Finding(
            Level.NOTE,
            f"{enforced} in namespaces labelled `{label}=enabled`, and in no others",
            f"next: label more, or `helm upgrade` with `--reset-then-reuse-values --set"
            f" {role}.rollout=All`",
        )
    if any(webhook.namespace_selector.namespaces is not None for webhook in webhooks):
        return Finding(Level.OK, f"{enforced} in namespaces with a quota")
    return Finding(Level.OK, f"{enforced} in all namespaces but those that are excluded")


def _automatic(configuration: Configuration | None) -> Finding:
    """Return whether replicas can keep the list of namespaces, and what is in it."""
    webhooks = {} if configuration is None else {each.name: each for each in configuration.webhooks}
    if missing := sorted({QUOTA_WEBHOOK, PROBE_WEBHOOK, ROLLOUT_WEBHOOK} - webhooks.keys()):
        return Finding(
            Level.PROBLEM,
            f"quota.rollout is Automatic, and {VALIDATING} has no webhook {', '.join(missing)}:"
            " a new quota may not be in force",
            "bring the configuration up to date from the chart of this version, with"
            " `quota.rollout: Automatic`",
        )
    listed = webhooks[QUOTA_WEBHOOK].namespace_selector.namespaces
    if listed is None:
        return Finding(
            Level.NOTE,
            "quota.rollout is Automatic; for now the API server asks about all namespaces: for some"
            " minutes after an install or upgrade, with a quota of Koordinator's tree, or with"
            " quotas in more than 10,000 namespaces",
        )
    return Finding(
        Level.OK,
        "quota.rollout is Automatic: the API server asks in namespaces with a quota:"
        f" {len(listed)}",
    )
