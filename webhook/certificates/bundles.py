"""Whom callers are to trust: the `caBundle` of our own webhook configurations, nothing else."""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator, Callable, Iterable

import msgspec
from cryptography import x509

from webhook.certificates.authority import certificates_of
from webhook.cluster.connection import ApiError, Connection

_API = "/apis/admissionregistration.k8s.io/v1"
_NOT_FOUND = 404

_log = logging.getLogger(__name__)


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _ClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    ca_bundle: bytes | None = None


class _Webhook(msgspec.Struct, frozen=True, rename="camel"):
    client_config: _ClientConfig


class _Configuration(msgspec.Struct, frozen=True):
    metadata: _Metadata
    webhooks: list[_Webhook] | None = None


class Bundles:
    """The bundles of some webhook configurations, found by name.

    One that does not exist is no error: it may be installed later, and is looked for every time.

    Args:
        connection: to the API server.
        mutating: names of our MutatingWebhookConfigurations.
        validating: names of our ValidatingWebhookConfigurations.
    """

    def __init__(
        self, connection: Connection, *, mutating: Iterable[str], validating: Iterable[str]
    ) -> None:
        self._connection = connection
        self._paths = [
            *(f"{_API}/mutatingwebhookconfigurations/{name}" for name in mutating),
            *(f"{_API}/validatingwebhookconfigurations/{name}" for name in validating),
        ]

    async def read(self) -> tuple[tuple[x509.Certificate, ...], ...]:
        """Return whom callers trust, webhook by webhook; nobody where a bundle is not PEM.

        Raises:
            ApiError: a configuration cannot be read.
        """
        return tuple(
            [
                certificates_of(webhook.client_config.ca_bundle or b"")
                async for _, configuration in self._existing()
                for webhook in configuration.webhooks or ()
            ]
        )

    async def distribute(self, bundle: bytes, *, may_write: Callable[[], bool]) -> bool:
        """See to it that every webhook of every existing configuration has this bundle.

        Nothing else in a configuration changes, and one that has it already is not written.
        Returns whether all of them have it now.

        Args:
            bundle: authorities as PEM.
            may_write: asked right before each write; if not, the rest is left as it is.

        Raises:
            ApiError: a configuration cannot be read or written; with status 422 if it has changed
                since it was read.
        """
        async for path, configuration in self._existing():
            version = configuration.metadata.resource_version
            shown = base64.b64encode(bundle).decode()
            changes = [
                {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": shown}
                for index, webhook in enumerate(configuration.webhooks or ())
                if webhook.client_config.ca_bundle != bundle
            ]
            if changes:
                if not may_write():
                    return False
                unchanged = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
                await self._connection.write(
                    "PATCH",
                    path,
                    msgspec.json.encode([unchanged, *changes]),
                    content_type="application/json-patch+json",
                )
                _log.info("caBundle of %s changed", path.removeprefix(f"{_API}/"))
        return True

    async def _existing(self) -> AsyncIterator[tuple[str, _Configuration]]:
        for path in self._paths:
            try:
                answer = await self._connection.get(path)
            except ApiError as error:
                if error.status != _NOT_FOUND:
                    raise
            else:
                yield path, msgspec.json.decode(answer, type=_Configuration)
