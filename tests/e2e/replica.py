"""One `stowplan serve` or `stowplan control` as a process, and what can be asked of it."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.cluster import Json
from tests.e2e.part import Part
from tests.e2e.serving import LOCAL

PROGRAM = str(Path(sys.executable).with_name("stowplan"))
"""What runs `stowplan` with this Python."""

_PATIENCE_SECONDS = 20


class Replica(Part):
    """A replica of the webhook, on fixed ports of this machine.

    Args:
        name: of the process and its log.
        folder: for the log.
        ports: of reviews and of metrics.
        options: of the command, without the leading dashes; go before ours.
        program: what runs `stowplan`, if not that of this Python.
        command: of `stowplan`.

    Attributes:
        port: where reviews go.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        ports: tuple[int, int],
        options: Sequence[tuple[str, str]],
        program: Sequence[str] = (),
        command: str = "serve",
    ) -> None:
        self.port, self._metrics_port = ports
        listening = {
            "host": LOCAL,
            "port": self.port,
            "metrics-host": LOCAL,
            "metrics-port": self._metrics_port,
        }
        called = [*(program or [PROGRAM]), command]
        given = dict(options)
        usual = ((option, value) for option, value in listening.items() if option not in given)
        for option, value in (*usual, *options):
            called += [f"--{option}={value}"]  # a flag takes no value that stands apart
        self._probe_port = int(given.get("probe-port", self.port))
        super().__init__(name, called, folder / f"{name}.log", self._is_ready)

    def text(self) -> str:
        """Return the log."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def probe(self, path: str) -> bytes:
        """Return what a probe gets, without a client certificate, as the kubelet has none."""
        return _ask(f"https://{LOCAL}:{self._probe_port}{path}")

    async def page(self, path: str, token: str = "") -> tuple[int, str]:
        """Return status and text of a page of the metrics port.

        Args:
            path: of the page.
            token: a bearer token to show; none if it is empty.
        """
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"http://{LOCAL}:{self._metrics_port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
            return answer.status, await answer.text()

    async def review(self, path: str, review: Json) -> Json:
        """Return the response to a review."""
        body = json.dumps(review).encode()
        answer = await asyncio.to_thread(_ask, f"{self._url}{path}", body)
        response: Json = json.loads(answer)["response"]
        return response

    async def detail(self) -> Json:
        """Return what it works with, as readiness tells it."""
        detail: Json = json.loads(await asyncio.to_thread(self.probe, "/readyz"))
        return detail

    async def reviews(self, path: str = "mutate") -> dict[str, int]:
        """Return how many reviews came to what outcome, since it started."""
        return await self._outcomes("stowplan_reviews_total", path=path)

    async def quota_writes(self) -> dict[str, int]:
        """Return how many writes of reservations came to what outcome, since it started."""
        return await self._outcomes("stowplan_quota_writes_total")

    async def certificate(self) -> str:
        """Return the certificate that it serves, as PEM."""
        return await asyncio.to_thread(
            ssl.get_server_certificate, (LOCAL, self.port), timeout=_PATIENCE_SECONDS
        )

    async def metrics(self) -> str:
        """Return all metrics, as text."""
        url = f"http://{LOCAL}:{self._metrics_port}/metrics"
        return (await asyncio.to_thread(_ask, url)).decode()

    async def _outcomes(self, metric: str, **labels: str) -> dict[str, int]:
        """Return a counter by its label `outcome`, where other labels have these values."""
        text = await self.metrics()
        return {
            sample.labels["outcome"]: int(sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == metric and labels.items() <= sample.labels.items()
        }

    @property
    def _url(self) -> str:
        return f"https://{LOCAL}:{self.port}"

    def _is_ready(self) -> bool:
        try:
            return bool(json.loads(self.probe("/readyz"))["ready"])
        except OSError:
            return False


def _ask(url: str, body: bytes | None = None) -> bytes:
    """Return the body of an answer; whom to trust is the API server's question."""
    context = ssl._create_unverified_context()  # noqa: S323, SLF001 (see above)
    headers = {"Content-Type": "application/json"} if body else {}
    request = urllib.request.Request(url, data=body, headers=headers)  # noqa: S310 (ours)
    try:
        with urllib.request.urlopen(  # noqa: S310 (ours)
            request, context=context, timeout=_PATIENCE_SECONDS
        ) as answer:
            read: bytes = answer.read()
            return read
    except urllib.error.HTTPError as refused:
        if refused.code != 503:  # readiness that says no, and why
            raise
        with refused:
            return refused.read()
