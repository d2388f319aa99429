"""What the API server asks about new pods and bindings, tried as dry runs; and the roll-out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from engine.errors import counted
from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION
from engine.model.well_known import PROBE_WEBHOOK, QUOTA_WEBHOOK, ROLLOUT_WEBHOOK
from engine.placement import ANNOTATIONS, REASON_ANNOTATION
from engine.report import BindingStatus
from webhook.cluster.client.connection import ApiError
from webhook.doctor.findings import Finding, note, ok, problem, some, warning
from webhook.doctor.installation import MUTATING, VALIDATING, Installation, statuses
from webhook.doctor.objects import Configuration, Pod, Webhook

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


def admission(installation: Installation) -> Iterator[Finding]:
    """Create a pod as a dry run, and report the webhooks that the API server called for it."""
    configurations = installation.own_configurations
    yield from _unconfigured(installation)
    yield from _unjudged_releases(installation)
    if not configurations:
        return
    namespace = installation.pod_namespace
    before = _review_counts(installation)
    try:
        created = installation.create(f"/api/v1/namespaces/{namespace}/pods", _POD, dryRun="All")
    except ApiError as error:
        yield _refusal(error, installation)
        return
    pod = msgspec.json.decode(created, type=Pod)
    after = _review_counts(installation)
    advice = {name: pod.metadata.annotations.get(name, "") for name in ANNOTATIONS}
    for kind, configuration in configurations.items():
        if kind == MUTATING and HOLD_REASONS_ANNOTATION in pod.metadata.annotations:
            yield _held(pod)
        elif kind == MUTATING and any(advice.values()):
            reason = advice[REASON_ANNOTATION]
            yield ok(f"a pod comes back with advice: {reason or 'no reason given'}")
        elif any(webhook.is_switched_off for webhook in configuration.webhooks):
            yield ok(
                "the API server does not ask about new pods: no policy has anything to say then"
            )
        elif any(
            webhook.covers_pod_creation and webhook.selects(namespace)
            for webhook in configuration.webhooks
        ):
            yield _no_advice(installation, kind, before, after)


def _unconfigured(installation: Installation) -> Iterator[Finding]:
    """Yield the roles without a webhook configuration, on purpose or not."""
    for kind, role in _ROLES.items():
        # A configuration may be for quotas alone: a role is what is asked about pods.
        own = installation.own_configurations.get(kind)
        is_asked = own is not None and any(each.covers_pod_creation for each in own.webhooks)
        if not is_asked and installation.setting(f"{role.upper()}_MODE") == "Off":
            yield note(f"{role}.mode is Off: the API server does not ask about it")
        elif own is None:
            yield warning(
                f"there is no {kind} `{installation.release}`, so the API server does not ask"
                f" about {role}",
                "if it was not switched off on purpose: `helm upgrade` with"
                " `--reset-then-reuse-values` brings it back; if it has another name, give it with"
                " `--release`",
            )


def _unjudged_releases(installation: Installation) -> Iterator[Finding]:
    """Yield a finding if pods may wait for quota, and nobody is asked when they wait no longer."""
    own = installation.own_configurations.get(VALIDATING)
    if own is None or not installation.holds:
        return
    is_asked = any(each.covers("UPDATE", "pods") for each in own.webhooks)
    judges = any(each.covers_pod_creation for each in own.webhooks)
    if judges and not is_asked:
        yield problem(
            f"the API server does not ask {VALIDATING} `{own.metadata.name}` about changes of pods:"
            " whoever may patch a pod gets past its quota",
            "bring the configuration up to date, rules and matchConditions, from the chart of this"
            " version",
        )


def _review_counts(installation: Installation) -> dict[str, int] | None:
    """Return the number of reviews of all replicas, by path; None if one does not answer."""
    replicas = installation.read_replicas()
    answered = statuses(replicas)
    if not replicas or len(answered) < len(replicas):
        return None
    return {
        path: sum(status.reviews.get(path, 0) for _, status in answered) for path in _PATHS.values()
    }


def _refusal(error: ApiError, installation: Installation) -> Finding:
    """Return the finding for a pod that was refused, by us or by others."""
    names = [webhook.name for webhook in installation.own_webhooks]
    if any(f'"{name}" denied the request' in error.message for name in names):
        return ok(f"we are asked, and refuse a pod: {error.message}")
    if any(f'failed calling webhook "{name}"' in error.message for name in names):
        return problem(
            f"no pods are created: {error.message}",
            f"delete both webhook configurations first, as the runbook says; then: {_UNREACHED}",
        )
    advice = "try another namespace with `--pod-namespace`, or as somebody who may create pods"
    if error.status == HTTPStatus.BAD_REQUEST and "dry run" in error.message:
        advice = "another webhook takes no dry runs; try a namespace it is not for"
    return warning(
        f"a pod in namespace {installation.pod_namespace} is refused, not by us: {error.message}",
        advice,
    )


def _held(pod: Pod) -> Finding:
    """Return the finding for a pod that is held, by us alone or not.

    A pod that came with a gate of others would not be held: it was added after ours.
    """
    others = [gate.name for gate in pod.spec.scheduling_gates if gate.name != HOLD_GATE]
    if not others:
        return ok("a pod comes back held, to be decided when it is released")
    return warning(
        f"a pod comes back held, and with the gate `{', '.join(others)}` that another webhook adds"
        " after ours: it is decided once ours is the last, and the limits of others, such as"
        " Kueue's `waitForPodsReady`, run meanwhile",
        "mutating webhooks are asked in the order of the names of their configurations: give that"
        " one a name before ours, so that its pods are advised and not held, or leave its"
        " namespaces out by `excludedNamespaces`",
    )


def _no_advice(
    installation: Installation,
    kind: str,
    before: Mapping[str, int] | None,
    after: Mapping[str, int] | None,
) -> Finding:
    """Return why the pod has no annotation of a webhook."""
    role, path, namespace = _ROLES[kind], _PATHS[kind], installation.pod_namespace
    if before is None or after is None:
        return warning(
            f"it is unknown whether the API server asks about {role}: a replica does not report"
            " how many reviews it answered",
            "see the replicas below",
        )
    if after[path] > before[path]:
        if kind == VALIDATING:
            return ok("the API server asks about quota")
        modes = {status.modes.get("placement") for _, status in installation.statuses}
        mode = next(iter(modes - {None, "Enforce"}), None)
        why = f"placement.mode is {mode}" if mode else f"no policy applies to it in {namespace}"
        return note(f"the API server asks about placement; a pod comes back unchanged: {why}")
    return problem(
        f"the API server admits a pod in namespace {namespace} without asking us about {role}",
        f"is the namespace excluded, or not labelled? Then give another as `--pod-namespace`."
        f" Else {_UNREACHED}",
    )


_NEVER_CREATED: Final = "stowplan-doctor-never-created"
_BINDING: Final = {
    "apiVersion": "v1",
    "kind": "Binding",
    "metadata": {"name": _NEVER_CREATED},
    "target": {"kind": "Node", "name": "stowplan-doctor-no-node"},
}
"""Of no pod: the API server asks its webhooks first, and then finds none."""

_NOT_ASKED: Final = (
    "the API server's log has the reason: a Service without the leader behind it, a network policy,"
    " a certificate. Until it asks, the scheduler's choice stands"
)


def bindings(installation: Installation) -> Iterator[Finding]:
    """Bind a pod that does not exist, as a dry run, and report who was asked."""
    running = installation.statuses
    deciding = [(name, each.bindings) for name, each in running if each.bindings is not None]
    if not deciding:
        names = [name for _, status in running[:1] for name in status.policies.at_binding]
        if names:
            decide = counted(len(names), "policy decides", "policies decide")
            yield warning(
                f"{decide} at binding, and nobody is asked about bindings: {', '.join(names)}",
                "set `binding.enabled` in the chart, or advise: `placement: { at: Admission }`",
            )
        return
    own = installation.own_configurations.get(MUTATING)
    if own is None or not any(each.covers("CREATE", "pods/binding") for each in own.webhooks):
        yield problem(
            f"no webhook of {MUTATING} `{installation.release}` is for `pods/binding`: no pod is"
            " decided at its binding",
            "bring the configuration up to date from the chart of this version",
        )
        return
    if not any(status.leads for _, status in deciding):
        yield warning(
            "no replica leads: nobody decides bindings, and the scheduler's choice stands",
            "wait for half a minute after a start; else see the Lease, and the replicas above",
        )
    yield _try_binding(installation)
    for name, status in deciding:
        yield from _decided(name, status)


def _try_binding(installation: Installation) -> Finding:
    namespace = installation.pod_namespace
    before = _asked(installation)
    path = f"/api/v1/namespaces/{namespace}/pods/{_NEVER_CREATED}/binding"
    try:
        installation.create(path, _BINDING, dryRun="All")
    except ApiError as error:
        if "failed calling webhook" in error.message:
            advice = "set `binding.failurePolicy` to Ignore until it is repaired"
            return problem(f"pods cannot be bound: {error.message}", f"{advice}; {_NOT_ASKED}")
        if error.status != HTTPStatus.NOT_FOUND:
            return warning(
                f"it cannot be tried whether the API server asks about bindings: {error.message}",
                "run it as somebody who may create `pods/binding`",
            )
    if _asked(installation) > before:
        return ok("the API server asks about bindings")
    return problem(
        f"the API server binds a pod in namespace {namespace} without asking us",
        f"is the namespace excluded? Then give another as `--pod-namespace`. Else {_NOT_ASKED}",
    )


def _asked(installation: Installation) -> int:
    """Return how many bindings all replicas have been asked about."""
    running = statuses(installation.read_replicas())
    return sum(status.reviews.get("bind", 0) for _, status in running)


def _decided(name: str, status: BindingStatus) -> Iterator[Finding]:
    """Yield what a replica says of the bindings so far."""
    decided = status.kept + status.moved + status.denied
    if status.escaped or status.lost:
        yield warning(
            f"{name}: {counted(status.escaped, 'pod was', 'pods were')} bound past it,"
            f" {counted(status.lost, 'answer was', 'answers were')} lost, of"
            f" {counted(decided, 'binding')}",
            "see StowplanBindingsEscape in the runbook",
        )
    if status.paused:
        message = f"{name} moves no pod just now: {status.paused}"
        yield note(message, "it goes on by itself once no binding escapes")
    if status.leads:
        yield ok(
            f"{name} decides bindings: {status.moved} of {decided} went to another node,"
            f" {status.denied} were denied"
        )


def webhooks(installation: Installation) -> Iterator[Finding]:
    """Add up the time-outs of all webhooks: mutating ones run in turn, validating ones at once."""
    called: dict[str, list[Webhook]] = {
        kind: [
            webhook
            for configuration in configurations
            for webhook in configuration.webhooks
            if webhook.covers_pod_creation
        ]
        for kind, configurations in installation.configurations.items()
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
        yield warning(message, f"shorten `timeoutSeconds` of the longest: {named}")
    else:
        yield ok(message)
    strict = sorted(
        {each.name for kind in called.values() for each in kind if each.failure_policy == "Fail"}
    )
    if strict:
        names = some(strict, _MOST_NAMED)
        yield note(f"pods are not created while one of these is away: {names}")


_ROLLOUT_ROLES = {
    "placement": (MUTATING, "no pod is advised", "pods are advised"),
    "quota": (VALIDATING, "no pod beyond its quota is denied", "quotas are enforced"),
}


def rollout(installation: Installation) -> Iterator[Finding]:
    """Say for placement and quota how far the roll-out is."""
    configurations = installation.own_configurations
    for role in _ROLLOUT_ROLES:
        mode = installation.setting(f"{role.upper()}_MODE")
        if mode == "Off":
            continue  # on purpose; the first check says so
        yield _stage(role, mode, configurations)
        if installation.setting(f"{role.upper()}_ROLLOUT") == "Automatic":
            yield _automatic(configurations.get(VALIDATING))


def _stage(role: str, mode: str, configurations: Mapping[str, Configuration]) -> Finding:
    kind, audited, enforced = _ROLLOUT_ROLES[role]
    label = f"stowplan.dev/{role}"
    if mode == "Audit":
        return note(
            f"{role}.mode is Audit: {audited} yet",
            f"next: `kubectl label namespace NAME {label}=enabled`, and `helm upgrade` with"
            f" `--reset-then-reuse-values --set {role}.mode=Enforce --set {role}.rollout=Labelled`",
        )
    configuration = configurations.get(kind)
    webhooks = () if configuration is None else configuration.webhooks
    if any(webhook.is_switched_off for webhook in webhooks):
        return ok("pods are placed at their binding, and not advised before")
    if any(webhook.namespace_selector.requires(label, "enabled") for webhook in webhooks):
        return note(
            f"{enforced} in namespaces labelled `{label}=enabled`, and in no others",
            f"next: label more, or `helm upgrade` with `--reset-then-reuse-values --set"
            f" {role}.rollout=All`",
        )
    if any(webhook.namespace_selector.namespaces is not None for webhook in webhooks):
        return ok(f"{enforced} in namespaces with a quota")
    return ok(f"{enforced} in all namespaces but those that are excluded")


def _automatic(configuration: Configuration | None) -> Finding:
    """Return whether replicas can keep the list of namespaces, and what is in it."""
    webhooks = {} if configuration is None else {each.name: each for each in configuration.webhooks}
    if missing := sorted({QUOTA_WEBHOOK, PROBE_WEBHOOK, ROLLOUT_WEBHOOK} - webhooks.keys()):
        return problem(
            f"quota.rollout is Automatic, and {VALIDATING} has no webhook {', '.join(missing)}:"
            " a new quota may not be in force",
            "bring the configuration up to date from the chart of this version, with"
            " `quota.rollout: Automatic`",
        )
    listed = webhooks[QUOTA_WEBHOOK].namespace_selector.namespaces
    if listed is None:
        return note(
            "quota.rollout is Automatic; for now the API server asks about all namespaces: for some"
            " minutes after an install or upgrade, with a quota of Koordinator's tree, or with"
            " quotas in more than 10,000 namespaces"
        )
    return ok(
        f"quota.rollout is Automatic: the API server asks in namespaces with a quota: {len(listed)}"
    )
