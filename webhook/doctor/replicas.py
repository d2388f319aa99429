"""Replicas: readiness, policies, and the sources of what they know of the cluster."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Iterator, Sequence
from http import HTTPStatus
from typing import Final

from engine.errors import counted
from engine.model.kinds import DISRUPTION_BUDGETS, WATCHED_FOR_RECLAIM
from engine.report import StatusReport
from webhook.cluster.client.connection import ApiError
from webhook.doctor.installation import Finding, Installation, Level, Replica, statuses
from webhook.doctor.objects import Service

_ALL: Final = "::"  # as by default: IPv4 as well
_BOTH: Final = frozenset({"IPv4", "IPv6"})


async def addresses(installation: Installation) -> AsyncIterator[Finding]:
    """Compare the first family of each Service that the API server asks with that of `host`."""
    deployment = await installation.deployment()
    if deployment is None:
        return
    host = deployment.spec.template.spec.setting("STOWPLAN_HOST") or _ALL
    services = {
        webhook.client_config.service
        for configuration in (await installation.own_configurations()).values()
        for webhook in configuration.webhooks
        if webhook.client_config.service is not None
    }
    for each in sorted(services, key=lambda service: (service.namespace, service.name)):
        name = f"{each.namespace}/{each.name}"
        path = f"/api/v1/namespaces/{each.namespace}/services/{each.name}"
        try:
            families = (await installation.read(path, Service)).spec.ip_families
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            yield Finding(
                Level.PROBLEM,
                f"there is no Service {name}: the API server reaches no replica",
                "`helm upgrade` with `--reset-then-reuse-values` brings it back",
            )
            continue
        listened = _families(host)
        if not families or not listened:
            continue
        first = families[0]  # that of the address which the API server connects to
        if first in listened:
            message = f"the API server reaches Service {name} by {first}, as replicas listen"
            yield Finding(Level.OK, message)
        else:
            yield Finding(
                Level.PROBLEM,
                f"the API server reaches Service {name} by {first}, and replicas listen on"
                f" {next(iter(listened))} alone, on `{host}`",
                "leave `settings.host` out: then they listen on every address of both families",
            )


def _families(host: str) -> frozenset[str]:
    """Return the families that a replica listens on; none where it is not known."""
    if host == _ALL:
        return _BOTH
    try:
        return frozenset({f"IPv{ipaddress.ip_address(host).version}"})
    except ValueError:
        return frozenset()


_AGAIN = "the kubelet brings a changed ConfigMap within two minutes; else look at the replica's log"
_FOR_EVICTIONS: Final = frozenset(kind.name for kind in (DISRUPTION_BUDGETS, *WATCHED_FOR_RECLAIM))
_USAGE_SOURCES = ("nodemetrics.slo.koordinator.sh", "metrics.k8s.io", "prometheus")
_QUOTAS = "elasticquotas."


async def replicas(installation: Installation) -> AsyncIterator[Finding]:
    """Check each replica, and compare their policies."""
    deployment = await installation.deployment()
    if deployment is None:
        name, namespace = installation.release, installation.namespace
        yield Finding(
            Level.WARNING,
            f"there is no Deployment `{name}` in namespace {namespace}",
            "give both with `--release` and `--namespace`; `helm list --all-namespaces` knows them",
        )
    running = await installation.replicas()
    if not running:
        message = "no replica runs: pods get no advice"
        yield Finding(Level.PROBLEM, message, "`kubectl describe` their pods; see the runbook")
        return
    for replica in running:
        yield _condition(replica)
    for finding in _policies(statuses(running)):
        yield finding
    control = await installation.control()
    wanted = sum(each.spec.replicas for each in (deployment, control) if each is not None)
    if len(running) < wanted:
        message = f"{len(running)} of {wanted} replicas run"
        yield Finding(Level.WARNING, message, "`kubectl describe` the Deployment and its pods")


def _condition(replica: Replica) -> Finding:
    status = replica.status
    if status is None:
        return Finding(
            Level.WARNING,
            f"{replica.name} does not answer: {replica.error}",
            "it does not listen yet, a network policy keeps the API server away, or you lack the"
            " right to `get` `pods/proxy`",
        )
    if status.draining:
        return Finding(Level.NOTE, f"{replica.name} is ending")
    if not status.ready:
        unsynced = (source for source in status.sources if source.required and not source.synced)
        names = ", ".join(source.name for source in unsynced)
        if names:
            why = f": it has not read {names}"
        elif status.policies.last_reload_error and not status.policies.loaded:
            why = ": its policies have mistakes"
        elif status.preparing:
            why = ": it has just started, and fills its caches"
        else:
            why = ""
        message = f"{replica.name} is not ready{why}"
        return Finding(Level.PROBLEM, message, "see the sources, the certificates, and its log")
    return Finding(
        Level.OK, f"{replica.name} is ready and knows {counted(status.view.nodes, 'node')}"
    )


def _policies(replicas: Sequence[tuple[str, StatusReport]]) -> Iterator[Finding]:
    for name, status in replicas:
        if status.policies.last_reload_error:
            first = status.policies.last_reload_error.splitlines()[0]
            used = "old policies" if status.policies.loaded else "no policies"
            message = f"{name} uses {used}, the new ones have mistakes: {first}"
            yield Finding(Level.WARNING, message, "`stowplan lint` shows all; fix the ConfigMap")
    digests = {status.policies.digest for _, status in replicas}
    if len(digests) > 1:
        shown = ", ".join(f"{name} {status.policies.digest[:8]}" for name, status in replicas)
        yield Finding(Level.WARNING, f"replicas use different policies: {shown}", _AGAIN)
    elif replicas:
        _, first_status = replicas[0]
        loaded = first_status.policies.loaded
        enforces = first_status.modes.get("placement", "Enforce") == "Enforce"
        if not loaded and enforces:
            message = "no policy is loaded, so no pod gets advice"
            yield Finding(Level.WARNING, message, "name some: see `policies` of the chart")
        else:
            yield Finding(Level.OK, f"all replicas use the same policies ({loaded})")


async def sources(installation: Installation) -> AsyncIterator[Finding]:
    """Check the sources of the first replica that answers, and staleness on all of them."""
    answered = statuses(await installation.replicas())
    if not answered:
        message = "no replica reports its sources"
        yield Finding(Level.WARNING, message, "see the replicas above")
        return
    for finding in _sources(answered[0][1]):
        yield finding
    for name, status in answered:
        for stale in status.view.stale:
            message = f"{name}: {stale}, so rules that read them abstain"
            yield Finding(Level.WARNING, message, "see StowplanViewStale in the runbook")


def _sources(status: StatusReport) -> Iterator[Finding]:
    for source in status.sources:
        if source.present and source.synced:
            yield Finding(Level.OK, f"{source.name}: {counted(source.objects, 'object')}")
        elif source.required:
            message = f"{source.name} cannot be read: {source.last_error or 'not read yet'}"
            yield Finding(Level.PROBLEM, message, "see the rights below, and `rbac.create`")
        elif source.name in _FOR_EVICTIONS:
            why = source.last_error or "not read yet"
            message = f"nobody is evicted for pods that wait: {source.name} cannot be read: {why}"
            yield Finding(Level.PROBLEM, message, "see the rights below, and `rbac.create`")
    present = {source.name for source in status.sources if source.present}
    if present.isdisjoint(_USAGE_SOURCES):
        yield Finding(
            Level.WARNING,
            "nothing measures the usage of nodes: rules that read it have no effect",
            "install metrics-server or Koordinator, or set `settings.prometheusUrl`",
        )
    if not any(name.startswith(_QUOTAS) for name in present):
        yield Finding(
            Level.NOTE,
            "there is no ElasticQuota in this cluster, so no quota is enforced",
            "`crds.elasticQuota.install: IfAbsent` of the chart brings the definition",
        )
