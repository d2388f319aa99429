from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.report import (
    AuditedPolicy,
    NamespaceOutcome,
    OutcomeFigures,
    OutcomeReport,
    PolicyOutcome,
    RuleOutcome,
)
from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.webhook.cli.running import Ran, Stowplan

SHOP = OutcomeFigures(
    pods=40,
    landed=40,
    decided=40,
    moved=10,
    rank_total=60,
    ranks=(30, 10, 0, 0, 0),
    scored=40,
    points=360_000,
    best=380_000,
    compared=40,
    compared_points=360_000,
    stock_points=280_000,
    measured=40,
    hot=1,
    stock_hot=4,
)
AUDITED = OutcomeFigures(
    pods=10,
    landed=3,
    decided=10,
    moved=6,
    denied=1,
    ranks=(4, 3, 0, 0, 0),
    rejected=3,
    scored=10,
    points=50_000,
    best=80_000,
    compared=9,
    compared_points=72_000,
    stock_points=45_000,
)
ADVISED = OutcomeFigures(pods=8, landed=6)
REPORT = OutcomeReport(
    since="2026-01-01T10:00:00Z",
    until="2026-01-01T11:00:00Z",
    window_seconds=3600,
    policies=(
        PolicyOutcome(
            policy="balanced",
            mode="Enforce",
            total=SHOP,
            namespaces=(NamespaceOutcome(namespace="shop", figures=SHOP),),
        ),
        PolicyOutcome(policy="hinted", mode="Enforce", total=ADVISED),
        PolicyOutcome(
            policy="trial",
            mode="Audit",
            total=AUDITED,
            namespaces=(NamespaceOutcome(namespace="shop", figures=AUDITED),),
            rules=(RuleOutcome(rule="has-room", pods=3),),
        ),
    ),
)
OLD = AuditedPolicy(digest="ab", since="2026-01-01T10:30:00Z", reason="10.0 points less")


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with fake_api_server() as found:
        yield found


def stored(report: OutcomeReport | None, **audited: AuditedPolicy) -> dict[str, Any]:
    data = {"audited.json": msgspec.json.encode(audited).decode()}
    if report is not None:
        data["report.json"] = msgspec.json.encode(report).decode()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "stowplan-system", "name": "stowplan-outcome"},
        "data": data,
    }


async def run(stowplan: Stowplan, server: FakeApiServer, folder: Path, *arguments: str) -> Ran:
    kubeconfig = server.kubeconfig(folder)
    return await asyncio.to_thread(stowplan, "outcome", *arguments, "--kubeconfig", kubeconfig)


def cells(ran: Ran, first: str) -> list[str]:
    (line,) = [line for line in ran.out.splitlines() if line.startswith(first)]
    return [cell for cell in line.split("  ") if cell.strip()]


async def test_it_shows_where_pods_landed_and_what_audit_mode_would_have_changed(
    server: FakeApiServer, stowplan: Stowplan, tmp_path: Path
) -> None:
    server.create(stored(REPORT))
    ran = await run(stowplan, server, tmp_path)
    assert ran.status == 0
    assert "pods bound from 2026-01-01T10:00:00Z to 2026-01-01T11:00:00Z" in ran.out
    assert [cell.strip() for cell in cells(ran, "balanced")] == [
        *("balanced", "all", "40", "100 %", "40", "25 %", "75 %", "1.5", "0"),
        *("90.0", "5.0", "+20.0", "1, 4"),
    ]
    # Of advice only is known whether it was followed.
    assert [cell.strip() for cell in cells(ran, "hinted")] == [
        *("hinted", "all", "8", "75 %", "0", *"-------", "-"),
    ]
    assert [cell.strip() for cell in cells(ran, "trial")] == [
        *("trial", "all", "10", "6", "3", "1", "50.0", "+30.0", "-", "has-room 3"),
    ]


async def test_one_policy_is_shown_by_namespace_and_one_namespace_by_policy(
    server: FakeApiServer, stowplan: Stowplan, tmp_path: Path
) -> None:
    server.create(stored(REPORT))
    ran = await run(stowplan, server, tmp_path, "--policy", "balanced")
    assert cells(ran, "balanced")[1].strip() == "shop"
    assert "trial" not in ran.out
    ran = await run(stowplan, server, tmp_path, "--namespace", "shop")
    assert cells(ran, "trial")[1].strip() == "shop"
    ran = await run(stowplan, server, tmp_path, "--namespace", "other")
    assert "balanced" not in ran.out


async def test_it_prints_json(server: FakeApiServer, stowplan: Stowplan, tmp_path: Path) -> None:
    server.create(stored(REPORT))
    ran = await run(stowplan, server, tmp_path, "--json")
    report = json.loads(ran.out)
    assert report["policies"][0]["total"]["stockPoints"] == 280_000


async def test_a_policy_in_audit_mode_for_what_it_did_is_told_and_taken_back(
    server: FakeApiServer, stowplan: Stowplan, tmp_path: Path
) -> None:
    server.create(stored(REPORT, old=OLD, older=OLD))
    ran = await run(stowplan, server, tmp_path)
    assert ran.status == 2
    assert "policy `old` is in Audit mode since 2026-01-01T10:30:00Z: 10.0 points less" in ran.out
    ran = await run(stowplan, server, tmp_path, "--enforce", "old")
    assert (ran.status, ran.out) == (0, "policy `old` is in force again within seconds\n")
    data = server.read("configmaps", "stowplan-system", "stowplan-outcome")["data"]
    assert list(json.loads(data["audited.json"])) == ["older"]
    ran = await run(stowplan, server, tmp_path, "--enforce", "balanced")
    assert ran.status == 1
    assert "hint: those that are: older" in ran.err


async def test_where_nothing_is_counted_it_says_what_is_missing(
    server: FakeApiServer, stowplan: Stowplan, tmp_path: Path
) -> None:
    ran = await run(stowplan, server, tmp_path)
    assert ran.status == 1
    assert "nothing is counted yet" in ran.err
    server.fail_next(10, 403)
    ran = await run(stowplan, server, tmp_path)
    assert ran.status == 1
    assert "we lack the permission to read or change ConfigMap `stowplan-outcome`" in ran.err
