"""The stage of the roll-out, and the next one: Audit, labelled namespaces, all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from engine.model.quota_rollout import PROBE_WEBHOOK, QUOTA_WEBHOOK, ROLLOUT_WEBHOOK
from webhook.doctor.finding import Finding, Level
from webhook.doctor.installation import MUTATING, VALIDATING, Installation
from webhook.doctor.webhook_configurations import Configuration

_ROLES = {
    "placement": (MUTATING, "no pod is advised", "pods are advised"),
    "quota": (VALIDATING, "no pod beyond its quota is denied", "quotas are enforced"),
}


async def rollout(installation: Installation) -> AsyncIterator[Finding]:
    """Say for placement and quota how far the roll-out is."""
    deployment = await installation.deployment()
    if deployment is None:
        return
    configurations = await installation.own_configurations()
    for role in _ROLES:
        mode = deployment.spec.template.spec.setting(f"STOWPLAN_{role.upper()}_MODE")
        if mode == "Off":
            continue  # on purpose; the first check says so
        yield _stage(role, mode, configurations)
        setting = deployment.spec.template.spec.setting(f"STOWPLAN_{role.upper()}_ROLLOUT")
        if setting == "Automatic":
            yield _automatic(configurations.get(VALIDATING))


def _stage(role: str, mode: str, configurations: Mapping[str, Configuration]) -> Finding:
    kind, audited, enforced = _ROLES[role]
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
