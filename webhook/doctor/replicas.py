"""Are there replicas, are they ready, and do all go by the same policies?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from webhook.doctor.finding import Finding, Level
from webhook.doctor.installation import Installation, Replica, states
from webhook.doctor.objects import ReplicaState

_AGAIN = "the kubelet brings a changed ConfigMap within two minutes; else look at the replica's log"


async def replicas(at: Installation) -> AsyncIterator[Finding]:
    """Look at each replica, and compare their policies."""
    deployment = await at.deployment()
    if deployment is None:
        yield Finding(
            Level.WARNING,
            f"there is no Deployment `{at.release}` in namespace {at.namespace}",
            "give both with `--release` and `--namespace`; `helm list --all-namespaces` knows them",
        )
    found = await at.replicas()
    if not found:
        message = "no replica runs: pods get no advice"
        yield Finding(Level.PROBLEM, message, "`kubectl describe` their pods; see the runbook")
        return
    for replica in found:
        for finding in _condition(replica):
            yield finding
    for finding in _policies(states(found)):
        yield finding
    if deployment is not None and len(found) < deployment.spec.replicas:
        message = f"{len(found)} of {deployment.spec.replicas} replicas run"
        yield Finding(Level.WARNING, message, "`kubectl describe` the Deployment and its pods")


def _condition(replica: Replica) -> Iterator[Finding]:
    state = replica.state
    if state is None:
        yield Finding(
            Level.WARNING,
            f"{replica.name} cannot be asked: {replica.error}",
            "it does not listen yet, a network policy keeps the API server away, or you lack the"
            " right to `get` `pods/proxy`",
        )
        return
    if state.draining:
        yield Finding(Level.NOTE, f"{replica.name} is ending")
    elif not state.ready:
        waits = ", ".join(one.name for one in state.sources if one.required and not one.synced)
        message = f"{replica.name} is not ready" + (f": it has not read {waits}" if waits else "")
        yield Finding(Level.PROBLEM, message, "see the sources, the certificates, and its log")
    else:
        yield Finding(Level.OK, f"{replica.name} is ready and knows {state.view.nodes} nodes")


def _policies(said: Sequence[tuple[str, ReplicaState]]) -> Iterator[Finding]:
    for name, state in said:
        if state.policies.last_reload_error:
            first = state.policies.last_reload_error.splitlines()[0]
            message = f"{name} goes by old policies, the new ones have mistakes: {first}"
            yield Finding(Level.WARNING, message, "`stowplan lint` shows all; mend the ConfigMap")
    digests = {state.policies.digest for _, state in said}
    if len(digests) > 1:
        shown = ", ".join(f"{name} {state.policies.digest[:8]}" for name, state in said)
        yield Finding(Level.WARNING, f"replicas go by different policies: {shown}", _AGAIN)
    elif said:
        loaded = said[0][1].policies.loaded
        enforces = said[0][1].modes.get("placement", "Enforce") == "Enforce"
        if not loaded and enforces:
            message = "no policy is loaded, so no pod gets advice"
            yield Finding(Level.WARNING, message, "name some: see `policies` of the chart")
        else:
            yield Finding(Level.OK, f"all replicas go by the same policies, {loaded} in number")
