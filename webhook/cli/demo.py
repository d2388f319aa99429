"""`stowplan demo`: a real server, real reviews over TLS, on a recorded cluster."""

from __future__ import annotations

import asyncio
import logging
import shlex
import shutil
import ssl
import sys
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import jsonpatch
import msgspec
from rich.console import Console
from rich.markup import escape

import webhook.demo
from engine.binding import BindingCycle, decide_binding, encode_binding
from engine.errors import StowplanError
from engine.model.time import Micros
from engine.pipeline import Scope
from engine.plugins import PLUGINS, Cycle
from engine.policy import PolicySet
from engine.report import ArmPlacement, DecisionReport
from engine.simulation import (
    Arm,
    RecordedCluster,
    SchedulerModel,
    Simulation,
    decided_at_binding,
    recorded_arrivals,
    simulate,
    what_if,
)
from engine.view import ClusterView, Sum
from webhook.admission import wire
from webhook.cli import console
from webhook.cli.cluster_loading import load_cluster
from webhook.cli.exit_codes import Exit
from webhook.cli.pods import PodCollector, placement_request, read_manifest
from webhook.cli.policy_loading import load_policy_set
from webhook.cli.render import show, show_patch
from webhook.pages import figures_table, report_page, ui
from webhook.serving.composition import run_server
from webhook.serving.server import RunningServer
from webhook.settings import Settings

_DATA = Path(webhook.demo.__file__).parent
_LIMITS, _QUOTA = Path("pods/1-limits.yaml"), Path("pods/2-quota.yaml")
_CLUSTER, _POLICIES = Path("cluster.yaml"), Path("policies")
_PAGE = "stowplan-report.html"
_LIMITS_SCORE = "ResourceLimitAware"
_MILLICORES = 1000
_SEED = 1  # of ties of the scheduler
_REVIEW_SECONDS = 10


class DemoError(StowplanError):
    """The server answered other than expected."""


def demo() -> int:
    """Send pods to a real server on a small recorded cluster, show its answers, and simulate."""
    logging.getLogger().setLevel(logging.ERROR)
    asyncio.run(run_demo(_DATA, console.output(), page=Path(_PAGE)))
    return Exit.OK


async def run_demo(data: Path, output: Console, *, page: Path) -> None:
    """Run the demonstration with the files of a folder laid out like `webhook.demo`."""
    pods = PodCollector()
    recording = load_cluster([data / _CLUSTER], output, observers=[pods])
    policies = load_policy_set([data / _POLICIES])
    recording.state.track_sums(policies.sum_profiles)
    view, moment = recording.state.view(), recording.recorded_at
    recorded = RecordedCluster.of(view, pods.pods.values(), moment)
    settings = Settings(policies=(data / _POLICIES,), host="127.0.0.1", port=0, metrics_port=0)
    try:
        async with (
            run_server(settings, recording, now=lambda: moment) as server,
            _connected(server) as caller,
        ):
            output.print(
                f"A webhook listens on {server.url}; its cluster is a recording of"
                f" {len(view.rows)} nodes. Two pods are created, and it is asked about each as an"
                " API server would ask."
            )
            await _limits_that_add_up(data / _LIMITS, view, moment, caller, output)
            _another_node_at_binding(data / _LIMITS, view, moment, policies, output)
            await _a_namespace_at_its_quota(data / _QUOTA, caller, output)
    except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
        reason = str(error) or "it takes too long"
        raise DemoError(f"the server does not answer as it should: {reason}") from error
    _before_you_trust_it(recorded, policies, page, output)
    output.print("\n[bold]Next[/]")
    output.print(_what_next(data), markup=False, soft_wrap=True)


async def _limits_that_add_up(
    file: Path, view: ClusterView, now: Micros, caller: _ApiServer, output: Console
) -> None:
    output.print("\n[bold]1. Limits that add up[/]")
    output.print(
        "Pod shop/checkout requests 1 core and may use 4. Looking at requests only, as"
        " LeastAllocated does, node3 is best: it looks empty but is 90 % busy. Next comes node1,"
        " whose limits already total 10 of its 8 cores. The policy leaves out hot nodes, and"
        " prefers nodes whose limits, including the new pod's, are a smaller share of their"
        " cores.\n"
    )
    manifest = read_manifest(file)
    advised = await caller.review("mutate", manifest)
    report = await caller.latest_decision()
    by_requests = _scores_by_requests(manifest, view, now)
    for node in _rejected(report, by="scheduler"):
        del by_requests[node]
    _check("the order by requests", list(by_requests), ["node3", "node1", "node2"])
    _check("the order", [ranked.node for ranked in report.ranking], ["node2", "node1"])
    _check("what is left out", _rejected(report, by="limits-and-load"), ["node3"])

    show([_nodes(view, by_requests, report)], output)
    output.print(
        "\n[bold]POST /mutate[/] advises the scheduler, by a preferred node affinity for"
        f" {_preferred(advised.operations)}."
    )
    checked = await caller.review("validate", _patched(manifest, advised.operations))
    _check("whether the pod is admitted", checked.allowed, expected=True)
    output.print(
        "[bold]POST /validate[/] [green]allows[/] the patched pod: no quota is in its way."
    )


def _another_node_at_binding(
    file: Path, view: ClusterView, now: Micros, policies: PolicySet, output: Console
) -> None:
    output.print("\n[bold]2. Another node, at the moment of binding[/]")
    output.print(
        "Advice is one voice among others, and nodes change until the scheduler has decided. A"
        " policy with [bold]placement: { at: Binding }[/] is asked last: the scheduler has taken a"
        " node and binds the pod. The node is kept unless a filter rejects it, or another one is"
        " clearly better.\n"
    )
    request = placement_request(read_manifest(file), namespace="", view=view)
    taken = SchedulerModel(_SEED).place(request, view, now)
    _check("the node that the scheduler takes", taken, "node3")
    cycle = BindingCycle(request, taken, view, now, Scope())
    decision = decide_binding(cycle, decided_at_binding(policies))
    _check("the node that the pod gets", decision.node_name, "node2")
    pod = request.pod
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "target": {"kind": "Node", "name": taken},
    }
    output.print(
        f"The scheduler, here a model of it, takes [bold]{taken}[/]. The pod is"
        f" [bold]{escape(decision.message)}[/]. The patch of the Binding:"
    )
    show_patch(output, [*encode_binding(decision, binding)])


async def _a_namespace_at_its_quota(file: Path, caller: _ApiServer, output: Console) -> None:
    output.print("\n[bold]3. A namespace at its quota[/]")
    output.print(
        "Pod batch/thumbnailer requests 1 core. The pods of namespace batch request 3.5 of the 4"
        " cores that its ElasticQuota allows.\n"
    )
    manifest = read_manifest(file)
    advised = await caller.review("mutate", manifest)
    report = await caller.latest_decision()
    output.print(f"[bold]POST /mutate[/] advises it: {escape(report.message)}")
    checked = await caller.review("validate", _patched(manifest, advised.operations))
    denial = (checked.status.code, checked.status.message) if checked.status else None
    expected = "exceeded quota: batch, requested: cpu=1, used: cpu=3500m, limited: cpu=4"
    _check("the denial", denial, (403, expected))
    output.print("[bold]POST /validate[/] [bold red]denies[/] the pod with 403. kubectl prints:")
    output.print(
        f'  Error from server (Forbidden): error when creating "{file.name}": admission webhook'
        f' "quota.stowplan.dev" denied the request: {expected}'
    )


def _before_you_trust_it(
    recorded: RecordedCluster, policies: PolicySet, page: Path, output: Console
) -> None:
    output.print("\n[bold]4. Before you trust it[/]")
    output.print(
        "What would the policy have done to the whole cluster? All its pods arrive once more, in"
        " order of creation, on emptied nodes: under a model of the scheduler alone, with our"
        " advice, and with nodes decided at binding.\n"
    )
    arms = [
        Arm(name=str(placement), placement=placement, policies=policies)
        for placement in (ArmPlacement.ADVICE, ArmPlacement.BINDING)
    ]
    scenario = what_if(recorded, (), recorded_arrivals(recorded.pods))
    report = simulate(Simulation(scenario=scenario, arms=arms, seed=_SEED))
    show([figures_table(report)], output)
    page.write_text(report_page(report), encoding="utf-8")
    address = escape(page.resolve().as_uri())
    output.print(f"\nThe same with plots, to be opened in a browser: [bold]{address}[/]")


def _check(subject: str, got: object, expected: object) -> None:
    if got != expected:
        raise DemoError(f"{subject} is not as expected: expected {expected}, got {got}")


def _patched(manifest: Mapping[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
    patched: dict[str, Any] = jsonpatch.apply_patch(manifest, operations)
    return patched


def _preferred(operations: list[dict[str, Any]]) -> str:
    """Return the nodes that the first preferred term of a patch names."""
    written = next(each["value"] for each in operations if each["path"] == "/spec/affinity")
    preferred = written["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    return ", ".join(preferred[0]["preference"]["matchExpressions"][0]["values"])


def _rejected(report: DecisionReport, *, by: str) -> list[str]:
    """Return the nodes that a policy, or the scheduler, is the first to reject."""
    return [node for node, (first, *_) in report.rejected.items() if first.policy == by]


def _scores_by_requests(
    manifest: Mapping[str, Any], view: ClusterView, now: Micros
) -> dict[str, int]:
    """Return the points that the scheduler's LeastAllocated gives each node, best first."""
    pod = placement_request(manifest, namespace="", view=view).pod
    points = PLUGINS["NodeResourcesFit"].default_score().score(Cycle(pod, view, now)).values
    best_first = sorted((-int(points[row]), name) for name, row in view.rows.items())
    return {name: -negated for negated, name in best_first}


def _nodes(view: ClusterView, by_requests: Mapping[str, int], report: DecisionReport) -> ui.Table:
    """Return the load of nodes, and their points by requests and by our policy."""
    ours = {
        ranked.node: f"{score.weighted} (limits {100 - score.raw} %)"
        for ranked in report.ranking
        for score in ranked.scores
        if score.rule == _LIMITS_SCORE
    }
    for node, (first, *_) in report.rejected.items():
        ours[node] = f"left out: {first.reason}"
    rows: list[ui.Row] = []
    for name, row in sorted(view.rows.items()):
        usage = view.usages[row]
        amounts = [
            view.amount(view.allocatable, "cpu")[row],
            view.amount(view.sums[Sum.REQUESTS], "cpu")[row],
            view.amount(view.sums[Sum.LIMITS], "cpu")[row],
            (usage.usage or {}).get("cpu", 0) if usage else 0,
        ]
        cores = (f"{amount / _MILLICORES:g}" for amount in amounts)
        points = by_requests.get(name, "out")
        rows.append((name, *cores, str(points), ours[name]))
    titles = ("cores", "has", "requests", "limits", "in use", "LeastAllocated", "stowplan")
    return ui.Table(columns=ui.columns(*titles), rows=rows)


def _what_next(data: Path) -> str:
    """Return the next commands to try, ready to be pasted."""
    stowplan = _from_here(Path(sys.executable).with_name("stowplan"))
    if stowplan.startswith("/") and shutil.which("stowplan"):
        stowplan = "stowplan"
    pod, cluster, policies = (_from_here(data / file) for file in (_LIMITS, _CLUSTER, _POLICIES))
    return f"""\
  # the first pod again, from the command line; then the policy behind it
  {stowplan} explain {pod} --cluster {cluster} --policies {policies} --patch
  {stowplan} lint {policies}

  # a webhook that stays, for curl or a test cluster
  {stowplan} serve --cluster {cluster} --policies {policies}

  # your own cluster: record it, which only reads, or serve it as it is
  {stowplan} snapshot --output cluster.json
  {stowplan} simulate --cluster cluster.json --arm {policies} --html report.html
  {stowplan} explain {pod} --cluster cluster.json --policies {policies}
  {stowplan} serve --policies {policies}"""


def _from_here(path: Path) -> str:
    """Return a path, quoted for a shell, relative if below the working directory."""
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


class _Status(msgspec.Struct, frozen=True):
    code: int
    message: str


class _Response(msgspec.Struct, frozen=True):
    uid: str
    allowed: bool
    patch: bytes = b"[]"  # base64 on the wire
    status: _Status | None = None

    @property
    def operations(self) -> list[dict[str, Any]]:
        return msgspec.json.decode(self.patch, type=list[dict[str, Any]])


class _Review(msgspec.Struct, frozen=True):
    response: _Response


class _ApiServer:
    """Sends reviews of pods as an API server does: over TLS, trusting one authority."""

    def __init__(self, session: aiohttp.ClientSession, server: RunningServer) -> None:
        self._session = session
        self._server = server

    async def review(self, path: str, pod: Mapping[str, Any]) -> _Response:
        # The same review has the same uid in each run, for the same output.
        key = f"{path}/{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        request = {
            "uid": str(uuid.uuid5(uuid.NAMESPACE_URL, key)),
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "operation": "CREATE",
            "name": pod["metadata"]["name"],
            "namespace": pod["metadata"]["namespace"],
            "userInfo": {"username": "demo"},
            "object": pod,
        }
        body = {"apiVersion": wire.API_VERSION, "kind": wire.KIND, "request": request}
        async with self._session.post(
            f"{self._server.url}/{path}?timeout={_REVIEW_SECONDS}s",
            data=msgspec.json.encode(body),
            headers={"Content-Type": "application/json"},
        ) as answer:
            return msgspec.json.decode(await answer.read(), type=_Review).response

    async def latest_decision(self) -> DecisionReport:
        """Return the newest decision, from the debug page."""
        url = f"{self._server.metrics_url}/debug/decisions"
        async with self._session.get(url, params={"limit": 1}) as answer:
            (report,) = msgspec.json.decode(await answer.read(), type=list[DecisionReport])
            return report


@asynccontextmanager
async def _connected(server: RunningServer) -> AsyncIterator[_ApiServer]:
    trust = ssl.create_default_context(cadata=server.ca_pem.decode())
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=trust),
        timeout=aiohttp.ClientTimeout(total=_REVIEW_SECONDS),
        raise_for_status=True,
    ) as session:
        yield _ApiServer(session, server)
