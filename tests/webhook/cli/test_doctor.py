from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.webhook.cli.running import Stowplan
from tests.webhook.doctor.fake_installation import POD_NAMES, FakeInstallation, fake_installation


@pytest.fixture
async def installation() -> AsyncIterator[FakeInstallation]:
    async with fake_installation() as found:
        yield found


# The certificates of the installation are of another day, so there always is a finding.


async def test_it_prints_each_check_with_what_to_do(
    stowplan: Stowplan, installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.statuses[POD_NAMES[0]]["ready"] = False
    ran = await asyncio.to_thread(
        stowplan, "doctor", "--kubeconfig", installation.server.kubeconfig(tmp_path)
    )
    assert (ran.status, ran.err) == (2, "")
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert "admission ok a pod comes back with advice: 3 of 3 nodes fit" in lines
    assert "replicas problem stowplan-a is not ready" in lines
    assert "-> see the sources, the certificates, and its log" in lines
    assert lines[-1].startswith("findings that need action: ")


async def test_a_program_can_read_it(
    stowplan: Stowplan, installation: FakeInstallation, tmp_path: Path
) -> None:
    kubeconfig = installation.server.kubeconfig(tmp_path)
    ran = await asyncio.to_thread(stowplan, "doctor", "--json", "--kubeconfig", kubeconfig)
    found = json.loads(ran.out)
    assert {
        "check": "admission",
        "level": "ok",
        "message": "a pod comes back with advice: 3 of 3 nodes fit",
        "advice": "",
    } in found
    assert {one["level"] for one in found} <= {"ok", "note", "warning", "problem"}


async def test_it_looks_where_it_is_told_to(
    stowplan: Stowplan, installation: FakeInstallation, tmp_path: Path
) -> None:
    kubeconfig = installation.server.kubeconfig(tmp_path)
    flags = ("--namespace", "elsewhere", "--release", "other", "--kubeconfig", kubeconfig)
    ran = await asyncio.to_thread(stowplan, "doctor", *flags)
    assert ran.status == 2
    assert "there is no MutatingWebhookConfiguration `other`" in ran.out
    assert "there is no Deployment `other` in namespace elsewhere" in ran.out


async def test_a_cluster_that_does_not_answer_is_an_error(
    stowplan: Stowplan, installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.fail_next(9, 0)
    kubeconfig = installation.server.kubeconfig(tmp_path)
    ran = await asyncio.to_thread(stowplan, "doctor", "--kubeconfig", kubeconfig)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("no contact with the API server: ")
