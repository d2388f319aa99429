"""Names of callers: a TLS client certificate says who sends a review."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from aiohttp import web

from webhook.admission.review_result import Outcome
from webhook.metrics import Metrics

Handle: TypeAlias = Callable[[web.Request], Awaitable[web.Response]]
"""Responds to a request."""

_MOST_LOGGED: Final = 64  # refused names; each is logged once, so that nobody can fill the log

_log = logging.getLogger(__name__)


class AllowedClients:
    """Lets only callers with certain names send reviews, as `requestheader-allowed-names` does.

    That the certificate is valid and of an accepted authority, TLS has verified before.

    Args:
        names: common names, DNS names or URIs, at least one of which the certificate must have.
        metrics: where refused reviews are counted.
    """

    def __init__(self, names: frozenset[str], metrics: Metrics) -> None:
        self._names = names
        self._metrics = metrics
        self._logged: set[frozenset[str]] = set()

    def guard(self, path: str, handle: Handle) -> Handle:
        """Return a handler that refuses other callers with 403, before it reads their request."""

        async def guarded(request: web.Request) -> web.Response:
            names = frozenset(names_of(request.get_extra_info("peercert") or {}))
            if not self._names.isdisjoint(names):
                return await handle(request)
            self._metrics.reviewed(path, Outcome.FORBIDDEN, 0.0)
            shown = ", ".join(f"`{name}`" for name in sorted(names)) or "no name"
            if names not in self._logged and len(self._logged) < _MOST_LOGGED:
                self._logged.add(names)
                _log.warning("reviews refused: a client certificate for %s is not allowed", shown)
            text = f"the client certificate is for {shown}: see `--client-allowed-names`\n"
            return web.Response(status=HTTPStatus.FORBIDDEN, text=text)

        return guarded


def names_of(certificate: Mapping[str, Any]) -> Iterator[str]:
    """Yield common names, DNS names and URIs of a certificate.

    Args:
        certificate: as `ssl.SSLSocket.getpeercert` returns it; empty for none.
    """
    for distinguished_name in certificate.get("subject", ()):
        yield from (value for key, value in distinguished_name if key == "commonName")
    for kind, value in certificate.get("subjectAltName", ()):
        if kind in {"DNS", "URI"}:
            yield value
