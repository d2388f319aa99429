"""The family of addresses by which the API server reaches replicas, and those they listen on."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Final

from webhook.cluster.client.connection import ApiError
from webhook.doctor.finding import Finding, Level
from webhook.doctor.installation import Installation
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
