"""`stowplan dashboard`: the pages of a recorded or a live cluster, for whoever starts it."""

from __future__ import annotations

import asyncio
import time
import webbrowser
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number
from rich.markup import escape

from engine.errors import StowplanError
from engine.model.kinds import WATCHED, WATCHED_FOR_POLICIES
from engine.model.pod import Pod
from engine.pipeline import Scope
from engine.quota.queueing import QueueRules
from engine.release import QueueOrder
from engine.report import Replicas
from webhook.background import in_background, on_change
from webhook.cli import console
from webhook.cli.cluster_loading import load_cluster, tell_missing
from webhook.cli.exit_codes import Exit
from webhook.cli.options import ClusterPaths, Context, Kubeconfig, PolicyPaths
from webhook.cli.policy_loading import located_policies
from webhook.cluster import Cluster, RecordedPods, recorded_cluster
from webhook.cluster.client.connection import NO_CONTACT, ApiError, Connection, connected
from webhook.cluster.client.credentials import NoKubeconfigError
from webhook.dashboard import (
    PREFIX,
    ClusterSource,
    PodDecisions,
    ReadPod,
    TokenOfThisStart,
    build_dashboard,
    stored_pods,
)
from webhook.placement.explanations import Explanations
from webhook.placement.held_pods import HeldOrder, HeldPods
from webhook.placement.live_policies import LivePolicies
from webhook.placement.policy_files import PolicyResources
from webhook.serving.composition import wall_clock
from webhook.serving.server import listen
from webhook.serving.services import watched_cluster
from webhook.settings import Settings

_HOST: Final = "127.0.0.1"
_SYNC_SECONDS: Final = 10.0
"""The longest wait for a cluster before its pages are shown: what may not be listed never comes."""

_REFUSING_ALL: Final = (NO_CONTACT, HTTPStatus.UNAUTHORIZED)

_RULES: Final = QueueRules(mode="Enforce")  # what the installation says is not known here


class _CountedReplicas:
    """An observer of pods that counts the replicas of each owner on each node."""

    def __init__(self) -> None:
        self._replicas = Replicas()
        self.crowd = self._replicas.crowd

    def pod_changed(self, pod: Pod, version: int, raw: bytes | msgspec.Raw) -> None:  # noqa: ARG002 - of the protocol
        self._replicas.set(pod)

    def pod_deleted(self, namespace: str, name: str) -> None:
        self._replicas.delete(f"{namespace}/{name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    name: str  # of the cluster, for people
    cluster: Cluster  # the cluster
    held: HeldPods  # its held pods
    read_pod: ReadPod  # where its pods are read from
    replicas: _CountedReplicas  # the pods of each owner, by node
    # the policies that its API server holds; None for a recording
    policy_resources: PolicyResources | None = None


def dashboard(
    *,
    cluster: ClusterPaths | None = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    policies: PolicyPaths = None,
    port: Annotated[
        int,
        Parameter(validator=Number(gte=0, lte=65_535), help="Port to listen on; 0 for any."),
    ] = 0,
    browser: Annotated[
        bool, Parameter(negative="--no-browser", help="Open the page in a browser.")
    ] = True,
) -> int:
    """Show nodes, quotas, held pods and decisions in a browser."""
    paths = located_policies(policies or ())
    recorded = _recorded(cluster) if cluster else None
    with suppress(KeyboardInterrupt):  # the way to end it
        asyncio.run(_run(recorded, kubeconfig, context, paths, port, opens=browser))
    return Exit.OK


async def _run(
    recorded: _Shown | None,
    kubeconfig: Path | None,
    context: str | None,
    policies: Sequence[Path],
    port: int,
    *,
    opens: bool,
) -> None:
    async with AsyncExitStack() as stack:
        shown = recorded or await _live(stack, kubeconfig, context)
        readers = TokenOfThisStart()
        source = _source(stack, shown, policies)
        _, url = await listen(stack, build_dashboard(source, readers), _HOST, port)
        page = f"{url}{PREFIX}/?token={readers.token}"
        output = console.output()
        output.print(f"[bold]{escape(shown.name)}[/] is shown at", soft_wrap=True)
        output.print(page, markup=False, soft_wrap=True)
        output.print("whoever has this URL may read it; Ctrl-C ends it")
        if opens:
            await asyncio.to_thread(webbrowser.open, page)
        await asyncio.Event().wait()


def _recorded(paths: list[Path]) -> _Shown:
    held, pods, replicas = HeldPods(wall_clock), RecordedPods(), _CountedReplicas()
    recording = load_cluster(paths, console.errors(), observers=(held, pods, replicas))
    tell_missing(recording, console.errors())
    return _Shown(
        name=", ".join(path.name for path in paths),
        cluster=recorded_cluster(recording, wall_clock),
        held=held,
        read_pod=pods.read,
        replicas=replicas,
    )


async def _live(stack: AsyncExitStack, kubeconfig: Path | None, context: str | None) -> _Shown:
    """Follow the cluster of a kubeconfig; nothing is written to it."""
    try:
        connection = await stack.enter_async_context(
            connected(kubeconfig, context, accept_encoding="gzip")
        )
    except NoKubeconfigError as error:
        raise StowplanError(f"{error}, or a recorded cluster with `--cluster`") from error
    held, replicas = HeldPods(wall_clock), _CountedReplicas()
    # Pods that wait for quota use none, as where they are held.
    settings = Settings(hold=True)
    policies = PolicyResources()
    with console.errors().status("reading the cluster"):
        await _require_contact(connection)
        cluster = await watched_cluster(
            stack,
            settings,
            connection,
            [held, replicas],
            policies,
            [*WATCHED, *WATCHED_FOR_POLICIES],
            now=wall_clock,
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(_SYNC_SECONDS):
                await cluster.synced()
    name = context or connection.host
    return _Shown(
        name=name,
        cluster=cluster,
        held=held,
        read_pod=stored_pods(connection),
        replicas=replicas,
        policy_resources=policies,
    )


async def _require_contact(connection: Connection) -> None:
    """Read the version, which everybody may: the watches of all kinds would fail alike."""
    try:
        await connection.get("/version")
    except ApiError as error:
        if error.status in _REFUSING_ALL:
            raise StowplanError(error.explained("the version cannot be read")) from error


def _source(stack: AsyncExitStack, shown: _Shown, paths: Sequence[Path]) -> ClusterSource:
    """Return the reports of a cluster by policies, which are loaded again when they change."""
    cluster = shown.cluster
    policies = LivePolicies(paths, resources=shown.policy_resources, track=cluster.state.track_sums)
    in_background(stack, policies.follow_resources())
    if paths:
        in_background(stack, on_change(paths, policies.reload))
    held = HeldOrder(
        held=shown.held,
        order=QueueOrder(),
        queue_rules=QueueRules(),
        view=cluster.state.view,
        now=cluster.now,
    )
    return ClusterSource(
        name=shown.name,
        cluster=cluster,
        policies=policies,
        counts=None,
        rules=_RULES,
        decisions=PodDecisions(
            cluster=cluster,
            policies=lambda: policies.current,
            scope=Scope(),
            explanations=Explanations(0),
            clock=time.monotonic,
        ),
        read_pod=shown.read_pod,
        outcome=None,
        crowd=shown.replicas.crowd,
        held=lambda namespace: held.report(namespace=namespace),
    )
