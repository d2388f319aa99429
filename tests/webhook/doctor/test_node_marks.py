from __future__ import annotations

from pathlib import Path

import pytest

from tests.webhook.doctor.fake_installation import deployment, fake_installation, node
from webhook.doctor import Level

LABEL = "avoid.stowplan.dev/balanced"


@pytest.mark.parametrize(
    ("setting", "marked", "expected"),
    [
        ("true", 0, [(Level.OK, "0 of 3 nodes are marked")]),
        ("true", 2, [(Level.OK, "2 of 3 nodes are marked")]),
        ("true", 3, [(Level.WARNING, "all 3 nodes are marked: pods of policies")]),
        ("false", 0, []),
        ("false", 1, [(Level.WARNING, "1 of 3 nodes carry marks, and `nodeMarks.enabled` is off")]),
    ],
)
async def test_marks_are_counted_and_those_that_nobody_keeps_are_found(
    tmp_path: Path, setting: str, marked: int, expected: list[tuple[Level, str]]
) -> None:
    async with fake_installation() as installation:
        server = installation.server
        server.replace(deployment(NODE_MARKS=setting))
        for key in server.objects("nodes"):
            server.delete("nodes", *key)
        for number in range(3):
            made = node(f"n{number}")
            if number < marked:
                made["metadata"]["labels"][LABEL] = "true"
            server.create(made)
        findings = (await installation.run_checks(tmp_path))["marks"]
        assert len(findings) == len(expected)
        for finding, (level, message) in zip(findings, expected, strict=True):
            assert finding.level is level
            assert message in finding.message


async def test_our_taint_is_a_mark_and_that_of_others_is_not(tmp_path: Path) -> None:
    async with fake_installation() as installation:
        server = installation.server
        server.replace(deployment(NODE_MARKS="true"))
        for key in server.objects("nodes"):
            server.delete("nodes", *key)
        for name, effect in (("ours", "PreferNoSchedule"), ("by-hand", "NoSchedule")):
            made = node(name)
            made["spec"]["taints"] = [{"key": "stowplan.dev/avoid", "effect": effect}]
            server.create(made)
        (finding,) = (await installation.run_checks(tmp_path))["marks"]
        assert finding.message == "1 of 2 nodes are marked"
