from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from engine.errors import InvalidFileError
from engine.view import LoadProfile
from webhook.live_policies import LivePolicies

POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: NAME}
spec: {scores: [{plugin: PLUGIN}]}
"""


def write(path: Path, name: str, plugin: str = "LimitAware") -> None:
    path.write_text(POLICY.replace("NAME", name).replace("PLUGIN", plugin))


def names(live: LivePolicies) -> list[str]:
    return [policy.name for policy in live.current.policies]


def ignore(_: Iterable[LoadProfile]) -> None:
    """Track nothing."""


async def test_changed_files_come_into_force(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    write(path, "one")
    live = LivePolicies([path], track=ignore)
    assert names(live) == ["one"]
    write(path, "two")
    assert await live.reload()
    assert names(live) == ["two"]


async def test_a_bad_change_keeps_the_last_good_policies_and_is_told_until_it_is_mended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "policy.yaml"
    write(path, "one")
    live = LivePolicies([path], track=ignore)
    write(path, "two", plugin="LimitAwar")
    assert not await live.reload()
    assert names(live) == ["one"]
    assert "LimitAwar" in live.last_error
    assert "LimitAwar" in caplog.text
    write(path, "two")
    assert await live.reload()
    assert live.last_error == ""


def test_a_bad_start_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    write(path, "one", plugin="LimitAwar")
    with pytest.raises(InvalidFileError, match="LimitAwar"):
        LivePolicies([path], track=ignore)


async def test_the_view_keeps_the_sums_of_new_policies_before_they_come_into_force(
    tmp_path: Path,
) -> None:
    path = tmp_path / "policy.yaml"
    write(path, "one")
    tracked: list[tuple[list[str], int]] = []

    def track(profiles: Iterable[LoadProfile]) -> None:
        in_force = names(live) if tracked else []
        tracked.append((in_force, len(list(profiles))))

    live = LivePolicies([path], track=track)
    write(path, "two", plugin="LoadAware")
    await live.reload()
    assert tracked == [([], 0), (["one"], 1)]
