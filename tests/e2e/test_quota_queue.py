"""Quota mode Queue on a real API server: pods wait instead of being denied, and none gets past."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TypeAlias

import pytest

from engine.model.elastic_quota import MAX_QUEUED_ANNOTATION
from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION
from engine.model.namespace import QUOTA_MODE_ANNOTATION
from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.installed import Installed, installed, review_of
from tests.e2e.nodes import Nodes
from tests.e2e.quotas import GROUP, RESERVATION_SECONDS, limit
from tests.e2e.test_held_admission import Leader, gates_of
from tests.e2e.workloads import is_running, pod

pytestmark = pytest.mark.usefixtures("crds")

HOLD_SECONDS = 10
EXCEEDED = 'admission webhook "quota.stowplan.dev" denied the request: exceeded quota: team'
_PROGRAM = Path(sys.executable).with_name("stowplan")

WayOut: TypeAlias = Callable[[Cluster, str, str], Awaitable[object]]


@asynccontextmanager
async def queueing(
    cluster: Cluster,
    control_plane: ControlPlane,
    folder: Path,
    *,
    replicas: int = 1,
    reclaim_after_seconds: int = 60,
) -> AsyncIterator[Installed]:
    options = [
        ("reclaim-after-seconds", str(reclaim_after_seconds)),
        ("hold", "true"),
        ("hold-seconds", str(HOLD_SECONDS)),
        ("quota-mode", "Queue"),
        ("quota-reservation-seconds", str(RESERVATION_SECONDS)),
    ]
    async with installed(
        *(cluster, control_plane, folder, []), replicas=replicas, quotas="Fail", options=options
    ) as stowplan:
        yield stowplan


def worker(namespace: str, name: str, cpu: str = "1") -> Json:
    return pod(namespace, name, requests={"cpu": cpu})


def forged(namespace: str, name: str, cpu: str = "1") -> Json:
    made = worker(namespace, name, cpu)
    made["metadata"]["annotations"] = {HOLD_REASONS_ANNOTATION: "quota"}
    made["spec"]["schedulingGates"] = [{"name": HOLD_GATE}]
    return made


async def refusal(call: Awaitable[object]) -> str:
    """Return why a call is forbidden, empty if it is not."""
    try:
        await call
    except CallError as refused:
        if refused.status != HTTPStatus.FORBIDDEN:
            raise
        return refused.message
    return ""


async def no_replica_leads(leader: Leader, stowplan: Installed, namespace: str) -> None:
    """Wait until every replica has seen that somebody else has the Lease, and has pods wait."""
    await all_queue(stowplan, namespace)
    leader.releases = False  # as no replica would say
    await all_queue(stowplan, namespace, do_they=False)
    leader.releases = True
    await all_queue(stowplan, namespace)


async def all_queue(stowplan: Installed, namespace: str, *, do_they: bool = True) -> None:
    """Wait until every replica has new pods of a namespace wait, or until none does."""
    review = review_of(worker(namespace, "tried"))

    async def queue() -> bool:
        answers = [await replica.review("/mutate", review) for replica in stowplan.replicas]
        return all(("patch" in answer) is do_they for answer in answers)

    await eventually(queue, "pods wait" if do_they else "no pods wait")


async def remove_gate(cluster: Cluster, namespace: str, name: str) -> None:
    patch = [
        {"op": "test", "path": "/spec/schedulingGates/0/name", "value": HOLD_GATE},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
    ]
    await cluster.patch("pods", name, patch, namespace, how="json")


async def remove_gate_strategically(cluster: Cluster, namespace: str, name: str) -> None:
    gates = [{"$patch": "delete", "name": HOLD_GATE}]
    patch = {"spec": {"schedulingGates": gates}}
    await cluster.patch("pods", name, patch, namespace, how="strategic")


async def replace_without_gate(cluster: Cluster, namespace: str, name: str) -> None:
    stored = await cluster.get("pods", name, namespace)
    del stored["spec"]["schedulingGates"]
    await cluster.replace(stored)


async def replace_without_both(cluster: Cluster, namespace: str, name: str) -> None:
    stored = await cluster.get("pods", name, namespace)
    del stored["spec"]["schedulingGates"], stored["metadata"]["annotations"]
    await cluster.replace(stored)


async def annotate(
    reasons: str | None, cluster: Cluster, namespace: str, name: str, subresource: str = ""
) -> None:
    patch = {"metadata": {"annotations": {HOLD_REASONS_ANNOTATION: reasons}}}
    await cluster.patch("pods", name, patch, namespace, subresource=subresource)


async def apply_other_reason(cluster: Cluster, namespace: str, name: str) -> None:
    applied = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {HOLD_REASONS_ANNOTATION: "placement"}},
    }
    more = {"fieldManager": "tenant", "force": "true"}
    await cluster.patch("pods", name, applied, namespace, how="apply", **more)


WAYS_OUT: dict[str, WayOut] = {
    "JSON patch of the gate": remove_gate,
    "strategic patch of the gate": remove_gate_strategically,
    "update without the gate": replace_without_gate,
    "update without gate and reason": replace_without_both,
    "no reason": partial(annotate, None),
    "another reason": partial(annotate, "placement"),
    "nearly the reason": partial(annotate, "quota "),
    "no reason, by the status": partial(annotate, None, subresource="status"),
    "another reason, applied": apply_other_reason,
}


async def running_of(cluster: Cluster, namespace: str) -> set[str]:
    pods = await cluster.list_all("pods", namespace)
    return {each["metadata"]["name"] for each in pods if each["status"]["phase"] == "Running"}


async def test_pods_beyond_the_quota_wait_and_run_in_turn(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a", {"cpu": "16"})
    names = {"a", "b", "c", "d"}
    async with queueing(cluster, control_plane, tmp_path) as stowplan:
        await limit(cluster, stowplan, namespace, {"cpu": "2"})
        await all_queue(stowplan, namespace)
        created = [await cluster.create(worker(namespace, name)) for name in sorted(names)]
        for each in created:
            assert gates_of(each) == [HOLD_GATE]
            assert each["metadata"]["annotations"][HOLD_REASONS_ANNOTATION] == "quota"
        assert "exceeded quota" in await refusal(cluster.create(worker(namespace, "huge", "3")))
        while names:
            most = min(2, len(names))

            async def fills_up(most: int = most) -> bool:
                running = await running_of(cluster, namespace)
                assert len(running) <= 2
                return len(running) == most

            await eventually(fills_up, f"{most} pods run")
            gone = min(await running_of(cluster, namespace))
            names.remove(gone)
            await cluster.delete("pods", gone, namespace, grace_seconds=0)


async def test_no_way_out_of_the_queue_leads_past_the_quota(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a", {"cpu": "16"})
    names, leader = [f"pod-{number}" for number in range(6)], Leader(cluster)
    async with (
        queueing(cluster, control_plane, tmp_path, replicas=3) as stowplan,
        leader.leading(),  # it releases nobody
    ):
        await limit(cluster, stowplan, namespace, {"cpu": "2"})
        await no_replica_leads(leader, stowplan, namespace)
        for name in names:
            await cluster.create(worker(namespace, name))

        # All at once, over three replicas: as many as fit.
        reasons = await asyncio.gather(
            *(refusal(remove_gate(cluster, namespace, name)) for name in names)
        )
        assert sum(not reason for reason in reasons) == 2
        assert all(reason.startswith(EXCEEDED) for reason in reasons if reason)
        waiting = [name for name, reason in zip(names, reasons, strict=True) if reason]
        released = [name for name in names if name not in waiting]
        for what, way_out in WAYS_OUT.items():
            reason = await refusal(way_out(cluster, namespace, waiting[0]))
            assert reason.startswith(EXCEEDED), what
        for name in released:
            await eventually(partial(is_running, cluster, namespace, name), f"{name} runs")

        # Each way out is open as soon as there is room, and the room is taken then.
        await cluster.delete("pods", released[0], namespace, grace_seconds=0)

        async def leaves() -> bool:
            return not await refusal(annotate(None, cluster, namespace, waiting[0]))

        await eventually(leaves, "there is room for one")
        assert (await refusal(remove_gate(cluster, namespace, waiting[1]))).startswith(EXCEEDED)
        # One that waits again gives its share back, and has no claim to it.
        await annotate("quota", cluster, namespace, waiting[0])

        async def takes_its_place() -> bool:
            return not await refusal(remove_gate(cluster, namespace, waiting[1]))

        await eventually(takes_its_place, "there is room for another")
        assert (await refusal(remove_gate(cluster, namespace, waiting[0]))).startswith(EXCEEDED)
        # Nobody is asked about other changes.
        reviews = await stowplan.reviews()
        patch = {"metadata": {"labels": {"a": "b"}}}
        await cluster.patch("pods", waiting[0], patch, namespace)
        await annotate("quota,placement", cluster, namespace, waiting[0])
        assert await stowplan.reviews() == reviews


async def test_a_forged_wait_takes_no_more_than_a_place_in_the_queue(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a", {"cpu": "16"})
    mode = {"metadata": {"annotations": {QUOTA_MODE_ANNOTATION: "Enforce"}}}
    async with (
        queueing(cluster, control_plane, tmp_path) as stowplan,
        Leader(cluster).leading(),
    ):
        await cluster.patch("namespaces", namespace, mode)
        await limit(cluster, stowplan, namespace, {"cpu": "2"})
        at_most = {"metadata": {"annotations": {MAX_QUEUED_ANNOTATION: "2"}}}
        await cluster.patch(f"elasticquotas.{GROUP}", "team", at_most, namespace)

        async def is_enforced() -> bool:
            tried = await cluster.create(worker(namespace, "tried"), dry_run=True)
            return not gates_of(tried)

        await eventually(is_enforced, "pods do not wait")
        for name in "ab":
            await cluster.create(worker(namespace, name))
        assert (await refusal(cluster.create(worker(namespace, "c")))).startswith(EXCEEDED)
        # What is beyond our means to watch over is no wait.
        crowd = forged(namespace, "crowd")
        crowd["spec"]["schedulingGates"] += [{"name": f"gate-{n}"} for n in range(100)]
        assert (await refusal(cluster.create(crowd))).startswith(EXCEEDED)
        for name in "cd":
            await cluster.create(forged(namespace, name))
        assert (await refusal(remove_gate(cluster, namespace, "c"))).startswith(EXCEEDED)

        async def is_full() -> bool:
            reason = await refusal(cluster.create(forged(namespace, "e"), dry_run=True))
            return "too many pods wait for quota: team, waiting: 2, limited: 2" in reason

        await eventually(is_full, "no further pod may wait")
        assert (await refusal(cluster.create(forged(namespace, "f", "3")))).startswith(EXCEEDED)


async def test_while_nobody_releases_pods_are_denied_and_no_command_exceeds_the_quota(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a", {"cpu": "16"})
    leader = Leader(cluster)

    async def release(*more: str) -> tuple[int | None, str]:
        """Run the command of the CronJob, which does not look whether somebody else releases."""
        options = ("--overdue", "--yes", "--force", f"--hold-seconds={HOLD_SECONDS}", *more)
        kubeconfig = f"--kubeconfig={control_plane.kubeconfig()}"
        process = await asyncio.create_subprocess_exec(
            _PROGRAM, "release", *options, kubeconfig, stdout=PIPE, stderr=STDOUT
        )
        output, _ = await process.communicate()
        return process.returncode, output.decode()

    async with queueing(cluster, control_plane, tmp_path) as stowplan, leader.leading():
        await limit(cluster, stowplan, namespace, {"cpu": "2"})
        await no_replica_leads(leader, stowplan, namespace)
        for name in "abc":
            await cluster.create(worker(namespace, name))
        leader.releases = False

        async def is_enforced() -> bool:
            tried = await cluster.create(worker(namespace, "tried"), dry_run=True)
            return not gates_of(tried)

        await eventually(is_enforced, "pods do not wait")
        assert gates_of(await cluster.create(worker(namespace, "large", "2"))) == []
        assert (await refusal(cluster.create(worker(namespace, "d")))).startswith(EXCEEDED)

        async def is_overdue() -> bool:
            code, output = await release("--queued", "--dry-run")
            return code == 0 and "would release 3 pods" in output

        await eventually(is_overdue, "the command sees them")
        assert await release() == (0, "no pod is overdue\n")
        code, output = await release("--queued")
        assert code == 2, output
        assert output.count("exceeded quota: team") == 3, output
        await cluster.delete("pods", "large", namespace, grace_seconds=0)

        async def lets_two_go() -> bool:
            code, output = await release("--queued")
            return code == 2 and output.count("exceeded quota: team") == 1

        await eventually(lets_two_go, "two fit")
        gated = [name for name in "abc" if await _gates(cluster, namespace, name)]
        assert len(gated) == 1


async def _gates(cluster: Cluster, namespace: str, name: str) -> list[str]:
    return gates_of(await cluster.get("pods", name, namespace))
