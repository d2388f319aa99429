"""What Helm tells after an installation: the stage of the roll-out, and how to go on."""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.chart import CHART, Release, helm, value_flags
from tests.e2e.cluster import Json

_UPGRADE = "CHART --namespace {namespace} --reset-then-reuse-values --set"


@pytest.mark.parametrize(
    ("values", "wanted", "unwanted"),
    [
        (
            {},
            [
                "It advises nobody yet: placement.mode is Audit",
                f"{_UPGRADE} placement.mode=Enforce --set placement.rollout=Labelled",
                f"{_UPGRADE} quota.mode=Enforce",
            ],
            ["placement.rollout=All"],
        ),
        (
            {"placement": {"mode": "Enforce", "rollout": "Labelled"}, "quota.mode": "Off"},
            [f"{_UPGRADE} placement.rollout=All"],
            ["placement.mode=Enforce", "quota.mode=Enforce", "nobody yet"],
        ),
        (
            {"placement.mode": "Enforce", "quota.mode": "Enforce"},
            ["Turn it off at once"],
            ["nobody yet", "The next step"],
        ),
        (
            {"placement.mode": "Enforce", "hold.enabled": True},
            ["stowplan release --overdue --lease {namespace}/stowplan-{namespace}"],
            ["hold.max is 0", "admissionPolicy.enabled is false"],
        ),
        (
            {
                "placement.mode": "Enforce",
                "hold": {"enabled": True, "max": 0},
                "admissionPolicy.enabled": False,
            },
            ["are held no more: hold.max is 0", "admissionPolicy.enabled is false"],
            [],
        ),
        ({"enabled": False}, [f"{_UPGRADE} enabled=true"], ["Turn it off at once"]),
    ],
)
async def test_the_notes_lead_to_the_next_stage(
    release: Release, values: Json, wanted: list[str], unwanted: list[str]
) -> None:
    command = ("upgrade", release.name, CHART, "--namespace", release.namespace)
    flags = ("--dry-run=server", *value_flags(values=values))
    said = await asyncio.to_thread(helm, *command, *flags, kubeconfig=release.kubeconfig)
    notes = said.partition("NOTES:")[2]
    assert notes
    for text in wanted:
        assert text.format(namespace=release.namespace) in notes
    for text in unwanted:
        assert text not in notes
