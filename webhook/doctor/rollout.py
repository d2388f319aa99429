"""The stage of the roll-out, and the next one: Audit, labelled namespaces, all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from webhook.doctor.finding import Finding, Level
from webhook.doctor.installation import MUTATING, VALIDATING, Installation
from webhook.doctor.objects import Configuration

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
        if mode != "Off":  # on purpose; the first check says so
            yield _stage(role, mode, configurations)


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
    if any(webhook.namespace_selector.requires(label, "enabled") for webhook in webhooks):
        return Finding(
            Level.NOTE,
            f"{enforced} in namespaces labelled `{label}=enabled`, and in no others",
            f"next: label more, or `helm upgrade` with `--reset-then-reuse-values --set"
            f" {role}.rollout=All`",
        )
    return Finding(Level.OK, f"{enforced} in all namespaces but those that are excluded")
