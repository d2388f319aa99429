"""`stowplan demo`: a real server, real reviews over real TLS, on a recorded cluster of its own."""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import jsonpatch
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.rule import Rule

import webhook.demo
from engine.model.time import Micros
from engine.plugins import PLUGINS
from engine.view import ClusterView
from webhook.cli.exit_codes import Exit
from webhook.cli.loading import load_cluster
from webhook.cli.pods import placement_request, read_manifest
from webhook.cli.render import show_decision, show_patch
from webhook.server import Listening, listening
from webhook.settings import Settings

_DATA = Path(webhook.demo.__file__).parent
_POLICIES, _CLUSTER = _DATA / "policies", _DATA / "cluster.yaml"


@dataclass(frozen=True, slots=True)
class _Step:
    """One pod of the story."""

    file: str
    title: str
    story: str


_STEPS = (
    _Step(
        "1-limits.yaml",
        "Limits that add up",
        "node1 is asked for less than node2, but its pods' limits add up to 10 of 8 cores. The"
        " scheduler looks at requests alone.",
    ),
    _Step(
        "2-quota.yaml",
        "A namespace at its quota",
        "Namespace batch may use 4 cores and uses 3500m. One more core is denied in the"
        " validating phase, where the pod is final.",
    ),
)

_NEXT = f"""[bold]Try next[/]
  look at the policy        {_POLICIES}
  explain a pod yourself    stowplan explain {_DATA}/pods/1-limits.yaml \\
                              --cluster {_CLUSTER} --policies {_POLICIES} --patch
  record your own cluster   kubectl get nodes,pods,namespaces -A -o json > cluster.json
                            (add elasticquotas,nodemetrics where you have them)
  serve it                  stowplan serve --cluster cluster.json --policies policies/balanced
"""


def demo() -> int:
    """Send three pods to a real server on a small recorded cluster, and show what it answers.

    The server listens on a free port of this machine, with a certificate made for the occasion.
    """
    console = Console()
    logging.getLogger().setLevel(logging.ERROR)
    asyncio.run(_run(console))
    return Exit.OK


async def _run(console: Console) -> None:
    recording = load_cluster([_CLUSTER], console)
    settings = Settings(
        policies=(_POLICIES,), host="127.0.0.1", port=0, metrics_port=0, reload_seconds=0
    )
    moment = recording.recorded_at
    async with listening(settings, recording, now=lambda: moment) as server:
        console.print(f"A webhook listens on {server.url}, with TLS.", highlight=False)
        trust = ssl.create_default_context(cadata=server.ca_pem.decode())
        connector = aiohttp.TCPConnector(ssl=trust)
        async with aiohttp.ClientSession(connector=connector) as session:
            api_server = _ApiServer(session, server)
            for number, step in enumerate(_STEPS, 1):
                console.print(Rule(f"{number}. {step.title}", align="left"))
                console.print(escape(step.story), highlight=False)
                manifest = read_manifest(_DATA / "pods" / step.file)
                console.print(_stock_ranking(manifest, recording.state.view(), moment))
                await _create(manifest, api_server, console)
    console.print(Rule("Next", align="left"))
    console.print(_NEXT, highlight=False, soft_wrap=True)


async def _create(manifest: dict[str, Any], api_server: _ApiServer, console: Console) -> None:
    """Create a pod as the API server would: mutate it, then validate the result."""
    advised = await api_server.review("mutate", manifest)
    told = await api_server.latest_decision()
    show_decision(console, told)
    operations = _operations(advised)
    console.print("[bold]POST /mutate[/] answered with this JSON patch:")
    show_patch(console, operations)

    patched = jsonpatch.apply_patch(manifest, operations)
    checked = await api_server.review("validate", patched)
    if checked["allowed"]:
        console.print("[bold]POST /validate[/] [green]allowed[/]: its namespace has room")
    else:
        console.print("[bold]POST /validate[/] [bold red]denied[/]; kubectl would print:")
        denial = f"Error from server (Forbidden): {checked['status']['message']}"
        console.print(f"  {escape(denial)}", highlight=False)


class _ApiServer:
    """Sends reviews as an API server does."""

    def __init__(self, session: aiohttp.ClientSession, server: Listening) -> None:
        self._session = session
        self._server = server

    async def review(self, path: str, pod: Mapping[str, Any]) -> dict[str, Any]:
        """Return the response to the review of a pod's creation."""
        request = {
            "uid": str(uuid.uuid4()),
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "operation": "CREATE",
            "namespace": pod["metadata"]["namespace"],
            "userInfo": {"username": "demo"},
            "object": pod,
        }
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        async with self._session.post(
            f"{self._server.url}/{path}?timeout=10s",
            data=msgspec.json.encode({**review, "request": request}),
            headers={"Content-Type": "application/json"},
            raise_for_status=True,
        ) as answer:
            response: dict[str, Any] = (await answer.json())["response"]
            return response

    async def latest_decision(self) -> dict[str, Any]:
        """Return the explanation of the newest decision, from the debug page."""
        url = f"{self._server.metrics_url}/debug/decisions"
        async with self._session.get(url, params={"limit": 1}, raise_for_status=True) as answer:
            (told,) = await answer.json()
            decision: dict[str, Any] = told
            return decision


def _operations(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    patch = base64.b64decode(response.get("patch", ""))
    operations: list[dict[str, Any]] = msgspec.json.decode(patch) if patch else []
    return operations


def _stock_ranking(manifest: dict[str, Any], view: ClusterView, now: Micros) -> str:
    """Return what the stock scheduler's LeastAllocated scorer alone would make of a pod."""
    namespace = manifest["metadata"]["namespace"]
    pod = placement_request(manifest, namespace=namespace, namespace_labels={}).pod
    plugin = PLUGINS["NodeResourcesFit"]
    if plugin.score is None:
        raise AssertionError("NodeResourcesFit scores")
    scores = plugin.score(plugin.args()).score(pod, view, now).values
    ranking = sorted(((-int(scores[row]), name) for name, row in view.rows.items()))
    listed = ", ".join(f"{name} {-negated}" for negated, name in ranking)
    return f"the stock scheduler ranks by requests: {listed}"
