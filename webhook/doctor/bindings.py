"""Bindings: whether the API server asks about them, and whether pods are bound past us."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from http import HTTPStatus
from typing import Final

import msgspec

from engine.errors import counted
from engine.report import BindingStatus, StatusReport
from webhook.cluster.client.connection import ApiError
from webhook.doctor.installation import MUTATING, Finding, Installation, Level, statuses

_PATH: Final = "bind"
_POD: Final = "stowplan-doctor-never-created"
_BINDING: Final = {
    "apiVersion": "v1",
    "kind": "Binding",
    "metadata": {"name": _POD},
    "target": {"kind": "Node", "name": "stowplan-doctor-no-node"},
}
"""Of no pod: the API server asks its webhooks first, and then finds none."""

_UNREACHED: Final = (
    "the API server's log has the reason: a Service without the leader behind it, a network policy,"
    " a certificate. Until it asks, the scheduler's choice stands"
)


async def bindings(installation: Installation) -> AsyncIterator[Finding]:
    """Bind a pod that does not exist, as a dry run, and report who was asked."""
    running = statuses(await installation.replicas())
    deciding = [(name, each.bindings) for name, each in running if each.bindings is not None]
    if not deciding:
        for finding in _switched_off(running):
            yield finding
        return
    own = (await installation.own_configurations()).get(MUTATING)
    if own is None or not any(each.covers_bindings for each in own.webhooks):
        yield Finding(
            Level.PROBLEM,
            f"no webhook of {MUTATING} `{installation.release}` is for `pods/binding`: no pod is"
            " decided at its binding",
            "bring the configuration up to date from the chart of this version",
        )
        return
    if not any(status.leads for _, status in deciding):
        yield Finding(
            Level.WARNING,
            "no replica leads: nobody decides bindings, and the scheduler's choice stands",
            "wait for half a minute after a start; else see the Lease, and the replicas above",
        )
    yield await _dry_run(installation)
    for name, status in deciding:
        for finding in _state(name, status):
            yield finding


def _switched_off(running: Sequence[tuple[str, StatusReport]]) -> Iterator[Finding]:
    """Yield what waits for decisions at binding while none are made."""
    names = [name for _, status in running[:1] for name in status.policies.at_binding]
    if names:
        yield Finding(
            Level.WARNING,
            f"{counted(len(names), 'policy decides', 'policies decide')} at binding, and nobody is"
            f" asked about bindings: {', '.join(names)}",
            "set `binding.enabled` in the chart, or advise: `placement: { at: Admission }`",
        )


async def _dry_run(installation: Installation) -> Finding:
    before = await _asked(installation)
    path = f"/api/v1/namespaces/{installation.pod_namespace}/pods/{_POD}/binding"
    body = msgspec.json.encode(_BINDING)
    try:
        await installation.connection.write("POST", path, body, query=(("dryRun", "All"),))
    except ApiError as error:
        if "failed calling webhook" in error.message:
            message = f"pods cannot be bound: {error.message}"
            advice = "set `binding.failurePolicy` to Ignore until it is repaired"
            return Finding(Level.PROBLEM, message, f"{advice}; {_UNREACHED}")
        if error.status != HTTPStatus.NOT_FOUND:
            return Finding(
                Level.WARNING,
                f"it cannot be tried whether the API server asks about bindings: {error.message}",
                "run it as somebody who may create `pods/binding`",
            )
    after = await _asked(installation)
    if after > before:
        return Finding(Level.OK, "the API server asks about bindings")
    return Finding(
        Level.PROBLEM,
        f"the API server binds a pod in namespace {installation.pod_namespace} without asking us",
        f"is the namespace excluded? Then give another as `--pod-namespace`. Else {_UNREACHED}",
    )


async def _asked(installation: Installation) -> int:
    """Return how many bindings all replicas have been asked about."""
    running = statuses(await installation.replicas())
    return sum(status.reviews.get(_PATH, 0) for _, status in running)


def _state(name: str, status: BindingStatus) -> Iterator[Finding]:
    """Yield what the leader says of the bindings so far."""
    decided = status.kept + status.moved + status.denied
    if status.escaped or status.lost:
        yield Finding(
            Level.WARNING,
            f"{name}: {counted(status.escaped, 'pod was', 'pods were')} bound past it,"
            f" {counted(status.lost, 'answer was', 'answers were')} lost, of"
            f" {counted(decided, 'binding')}",
            "see StowplanBindingsEscape in the runbook",
        )
    if status.paused:
        message = f"{name} moves no pod just now: {status.paused}"
        yield Finding(Level.NOTE, message, "it goes on by itself once no binding escapes")
    if status.leads:
        yield Finding(
            Level.OK,
            f"{name} decides bindings: {status.moved} of {decided} went to another node,"
            f" {status.denied} were denied",
        )
