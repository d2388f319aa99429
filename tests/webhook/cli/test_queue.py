from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.fake_api_server import ApiFault, FakeApiServer, fake_api_server
from tests.webhook.cli.running import Ran, Stowplan

Json = dict[str, Any]
HOLD, RELEASING = "stowplan.dev/hold", "stowplan.dev/releasing"
HOUR = 3_600.0
DAY = f"{24 * 3600}"


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with fake_api_server() as found:
        yield found


def _ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()


def pod(name: str, *gates: str, namespace: str = "shop", age: float = HOUR, **spec: object) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "creationTimestamp": _ago(age)},
        "spec": {
            "schedulingGates": [{"name": gate} for gate in gates],
            "containers": [{"name": "c"}],
            **spec,
        },
        "status": {"phase": "Pending"},
    }


def lease(*, renewed: float = -HOUR, releasing: str = "true", holder: str = "stowplan-a") -> Json:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "namespace": "stowplan-system",
            "name": "stowplan",
            "annotations": {RELEASING: releasing},
        },
        "spec": {"holderIdentity": holder, "renewTime": _ago(renewed)},
    }


def deployment(**settings: str) -> Json:
    settings = {"HOLD_SECONDS": DAY, **settings}
    environment = [{"name": f"STOWPLAN_{name}", "value": value} for name, value in settings.items()]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": "stowplan-system", "name": "stowplan"},
        "spec": {
            "selector": {},
            "template": {
                "metadata": {},
                "spec": {"containers": [{"name": "webhook", "env": environment}]},
            },
        },
    }


async def run(stowplan: Stowplan, server: FakeApiServer, folder: Path, *arguments: str) -> Ran:
    kubeconfig = server.kubeconfig(folder)
    return await asyncio.to_thread(stowplan, "queue", *arguments, "--kubeconfig", kubeconfig)


def _lines(ran: Ran) -> list[str]:
    return [" ".join(line.split()) for line in ran.out.splitlines() if line.strip()]


async def test_it_lists_held_pods_in_order_and_says_who_releases_them(
    stowplan: Stowplan, server: FakeApiServer, tmp_path: Path
) -> None:
    server.create(deployment())
    server.create(lease())
    server.create(pod("old", HOLD, age=2 * HOUR))
    server.create(pod("urgent", HOLD, namespace="mail", priority=1000))
    server.create(pod("twice", HOLD, "a.io/quota", age=2.5 * HOUR))
    server.create(pod("gated-by-another", "example.com/quota"))
    server.create(pod("released"))
    ran = await run(stowplan, server, tmp_path)
    assert (ran.status, ran.err) == (0, "")
    title, header, _, *rows = _lines(ran)
    assert title == "3 pods are held; order: PrioritySort; stowplan-a releases them"
    assert header == "place pod priority held for reason"
    assert rows == [
        "1 mail/urgent 1000 1 h 0 min WaitingInOrder 1st of 2",
        "2 shop/old 0 2 h 0 min WaitingInOrder 2nd of 2",
        "- shop/twice 0 2 h 30 min WaitingForOtherGates waits for others to remove a.io/quota",
    ]


async def test_it_works_when_no_replica_lives_and_says_so(
    stowplan: Stowplan, server: FakeApiServer, tmp_path: Path
) -> None:
    server.create(deployment(HOLD_SECONDS="3600"))
    server.create(lease(renewed=3 * HOUR))
    server.create(pod("a", HOLD, age=2.5 * HOUR))
    ran = await run(stowplan, server, tmp_path)
    assert ran.status == 2
    lines = _lines(ran)
    assert lines[0] == (
        "1 pod is held; 1 overdue; order: PrioritySort; nobody releases them: stowplan-a led until"
        " 3 h 0 min ago"
    )
    assert "1 shop/a 0 2 h 30 min WaitingInOrder 1st of 1; overdue by 1 h 30 min" in lines
    assert lines[-1].startswith("hint: `stowplan release --overdue` releases what is overdue")


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (lease(releasing="false"), "stowplan-a leads, and releases no pods"),
        (lease(holder=""), "no replica leads"),
    ],
)
async def test_pods_that_nobody_releases_are_a_finding(
    found: Json, text: str, stowplan: Stowplan, server: FakeApiServer, tmp_path: Path
) -> None:
    server.create(deployment())
    server.create({**found, "spec": {**found["spec"], "renewTime": _ago(1)}})
    empty = await run(stowplan, server, tmp_path)
    assert (empty.status, empty.out) == (0, "no pod is held\n")
    server.create(pod("a", HOLD))
    ran = await run(stowplan, server, tmp_path)
    assert ran.status == 2
    assert text in ran.out


async def test_the_order_is_that_of_the_installation(
    stowplan: Stowplan, server: FakeApiServer, tmp_path: Path
) -> None:
    server.create(deployment(QUEUE_SORT="QOSSort"))
    server.create(lease())
    server.create(pod("best-effort", HOLD, age=2 * HOUR))
    requests = {"resources": {"requests": {"cpu": "1"}}}
    server.create(pod("burstable", HOLD, containers=[{"name": "c", **requests}]))
    ran = await run(stowplan, server, tmp_path, "--json")
    report = json.loads(ran.out)
    assert report["queueSort"] == "QOSSort"
    assert [each["pod"]["name"] for each in report["pods"]] == ["burstable", "best-effort"]
    assert report["releaser"]["holder"] == "stowplan-a"


async def test_app_groups_are_read_where_the_order_depends_on_them(
    stowplan: Stowplan, server: FakeApiServer, tmp_path: Path
) -> None:
    server.create(deployment(QUEUE_SORT="TopologicalSort", QUEUE_SORT_NAMESPACES="elsewhere,apps"))
    server.create(lease())
    app_group = {
        "metadata": {"namespace": "apps", "name": "shop"},
        "status": {
            "topologyOrder": [
                {"workload": {"selector": "back"}, "index": 1},
                {"workload": {"selector": "front"}, "index": 2},
            ]
        },
    }
    server.play(
        "GET", "/apis/appgroup.diktyo.x-k8s.io/v1alpha1/appgroups", lambda _: {"items": [app_group]}
    )
    for name, age in (("front", 2 * HOUR), ("back", HOUR)):
        held = pod(name, HOLD, age=age)
        held["metadata"]["labels"] = {
            "appgroup.diktyo.x-k8s.io": "shop",
            "appgroup.diktyo.x-k8s.io.workload": name,
        }
        server.create(held)
    ran = await run(stowplan, server, tmp_path, "--json")
    names = [each["pod"]["name"] for each in json.loads(ran.out)["pods"]]
    assert names == ["back", "front"]


@pytest.mark.parametrize("group", ["scheduling.x-k8s.io", "scheduling.sigs.k8s.io"])
async def test_pod_groups_are_read_where_the_order_depends_on_them(
    stowplan: Stowplan, server: FakeApiServer, tmp_path: Path, group: str
) -> None:
    server.create(deployment(QUEUE_SORT="Coscheduling"))
    server.create(lease())
    server.create(
        {
            "apiVersion": f"{group}/v1alpha1",
            "kind": "PodGroup",
            "metadata": {
                "namespace": "shop",
                "name": "train",
                "creationTimestamp": "2020-01-01T00:00:00Z",
            },
            "spec": {"minMember": 2},
        }
    )
    server.create(pod("single", HOLD, age=2 * HOUR))
    member = pod("member", HOLD, age=HOUR)
    member["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "train"}
    server.create(member)
    ran = await run(stowplan, server, tmp_path, "--json")
    report = json.loads(ran.out)
    assert [each["pod"]["name"] for each in report["pods"]] == ["member", "single"]


async def test_members_of_gangs_name_them(
    stowplan: Stowplan, server: FakeApiServer, tmp_path: Path
) -> None:
    server.create(deployment())
    server.create(lease())
    member = pod("member", HOLD, age=2 * HOUR)
    member["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "train"}
    server.create(member)
    ran = await run(stowplan, server, tmp_path)
    assert any(line.startswith("1 shop/member train ") for line in _lines(ran))
    server.create(pod("single", HOLD))
    ran = await run(stowplan, server, tmp_path)
    assert any(line.startswith("2 shop/single - ") for line in _lines(ran))


async def test_it_says_so_where_pod_groups_cannot_be_read(
    stowplan: Stowplan, server: FakeApiServer, tmp_path: Path
) -> None:
    server.create(deployment(QUEUE_SORT="Coscheduling"))
    server.create(lease())
    server.uninstall("podgroups.scheduling.x-k8s.io")
    server.uninstall("podgroups.scheduling.sigs.k8s.io")
    ran = await run(stowplan, server, tmp_path)
    assert "PodGroups cannot be listed" in ran.err


async def test_one_pod_or_those_of_one_namespace_keep_their_places(
    stowplan: Stowplan, server: FakeApiServer, tmp_path: Path
) -> None:
    server.create(deployment())
    server.create(lease())
    server.create(pod("a", HOLD, namespace="mail", age=3 * HOUR))
    server.create(pod("b", HOLD, age=2 * HOUR))
    server.create(pod("c", HOLD, age=HOUR))
    shop = await run(stowplan, server, tmp_path, "-n", "shop")
    assert "mail/a" not in shop.out
    assert [line.split()[0] for line in _lines(shop)[3:]] == ["2", "3"]
    for arguments in (("c", "-n", "shop"), ("shop/c",)):
        alone = await run(stowplan, server, tmp_path, *arguments)
        assert _lines(alone)[3:] == ["3 shop/c 0 1 h 0 min WaitingInOrder 3rd of 3"]


async def test_the_rest_is_counted(
    stowplan: Stowplan, server: FakeApiServer, tmp_path: Path
) -> None:
    server.create(deployment())
    server.create(lease())
    for name in "abc":
        server.create(pod(name, HOLD))
    ran = await run(stowplan, server, tmp_path, "--most", "2")
    assert _lines(ran)[-1] == "... and 1 more: `--most`"


async def test_without_rights_beyond_a_namespace_it_says_what_it_does_not_know(
    stowplan: Stowplan, server: FakeApiServer, tmp_path: Path
) -> None:
    def forbid(_: object) -> object:
        raise ApiFault(403, "pods is forbidden")

    for path in (
        "/api/v1/pods",
        "/apis/apps/v1/namespaces/stowplan-system/deployments/stowplan",
        "/apis/coordination.k8s.io/v1/namespaces/stowplan-system/leases/stowplan",
    ):
        server.play("GET", path, forbid)
    server.create(pod("a", HOLD, age=0))
    ran = await run(stowplan, server, tmp_path, "-n", "shop")
    assert ran.status == 0
    assert _lines(ran)[0] == ("1 pod is held; order: PrioritySort; it is unknown who releases them")
    others, sort, releaser = ran.err.splitlines()
    assert others == "pods of other namespaces may not be listed: places are among shop's"
    assert sort.endswith("cannot be read: pods are in the order of PrioritySort")
    assert releaser.endswith("cannot be read: it is unknown who releases pods")
    everywhere = await run(stowplan, server, tmp_path)
    assert everywhere.status == 1
    assert everywhere.err.splitlines() == [
        "we lack the permission to list pods: pods is forbidden",
        "hint: with `--namespace` those of one namespace are enough",
    ]


async def test_a_pod_that_is_not_held_is_an_error_with_a_hint(
    stowplan: Stowplan, server: FakeApiServer, tmp_path: Path
) -> None:
    server.create(pod("a", namespace="default"))
    ran = await run(stowplan, server, tmp_path, "a")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.splitlines() == [
        "no pod `default/a` is held",
        "hint: `kubectl describe pod a --namespace default` says what became of it",
    ]
    ran = await run(stowplan, server, tmp_path, "shop/a", "-n", "mail")
    assert (ran.status, ran.err) == (1, "`shop/a` is not in namespace `mail`\n")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (("a/b/c",), "POD: expected `NAMESPACE/NAME`, not `a/b/c`\n"),
        (("--lease", "stowplan"), "--lease: expected `NAMESPACE/NAME`, not `stowplan`\n"),
    ],
)
def test_a_name_of_another_form_is_an_error(
    stowplan: Stowplan, argument: tuple[str, ...], message: str
) -> None:
    ran = stowplan("queue", *argument, "--kubeconfig", "none")
    assert (ran.status, ran.out, ran.err) == (1, "", message)


async def test_a_cluster_that_does_not_answer_is_an_error(
    stowplan: Stowplan, server: FakeApiServer, tmp_path: Path
) -> None:
    server.fail_next(9, 0)
    ran = await run(stowplan, server, tmp_path)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("no contact with the API server: ")


async def test_pods_that_wait_for_quota_say_their_place_there_and_what_blocks_them(
    stowplan: Stowplan, server: FakeApiServer, tmp_path: Path
) -> None:
    server.create(deployment())
    server.create(lease())
    server.create(pod("placed", HOLD, age=HOUR))
    requests = {"resources": {"requests": {"cpu": "2"}}}
    for number in (1, 2):
        queued = pod(
            f"web-{number}",
            HOLD,
            age=1.5 * HOUR + 90 - 60 * number,
            containers=[{"name": "c", **requests}],
        )
        queued["metadata"]["annotations"] = {"stowplan.dev/hold-reasons": "quota"}
        server.create(queued)
    figures = {"free": '{"cpu":"1"}', "blocked-by": "mail/batch", "seconds-per-release": "90"}
    server.create(
        {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {
                "namespace": "shop",
                "name": "team",
                "annotations": {f"stowplan.dev/{name}": text for name, text in figures.items()},
            },
            "spec": {"max": {"cpu": "8"}},
        }
    )
    ran = await run(stowplan, server, tmp_path)
    assert (ran.status, ran.err) == (0, "")
    _, _, _, placed, header, _, *rows = _lines(ran)
    assert placed == "3 shop/placed 0 1 h 0 min WaitingInOrder 3rd of 3"
    assert header == "place pod held for reason quota needs free blocked by released in"
    assert rows == [
        (
            "1 shop/web-1 1 h 30 min WaitingForQuota 1st of 2 in shop/team cpu 2 cpu 1 mail/batch"
            " about 2 min"
        ),
        (
            "2 shop/web-2 1 h 29 min WaitingForQuota 2nd of 2 in shop/team cpu 2 cpu 1 mail/batch"
            " about 3 min"
        ),
    ]


async def test_without_the_right_to_list_quotas_it_says_so(
    stowplan: Stowplan, server: FakeApiServer, tmp_path: Path
) -> None:
    server.create(deployment())
    server.create(lease())
    queued = pod("web", HOLD)
    queued["metadata"]["annotations"] = {"stowplan.dev/hold-reasons": "quota"}
    server.create(queued)

    def refuse(_: object) -> object:
        raise ApiFault(403, "forbidden")

    server.play("GET", "/apis/scheduling.x-k8s.io/v1alpha1/elasticquotas", refuse)
    ran = await run(stowplan, server, tmp_path)
    assert ran.status == 0
    assert "ElasticQuotas cannot be listed: it is unknown what pods wait for" in ran.err
    assert "WaitingInOrder" in ran.out
