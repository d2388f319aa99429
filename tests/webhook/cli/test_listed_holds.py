from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from engine.model.hold import HOLD_GATE, RELEASE_BY_ANNOTATION
from engine.model.time import Micros, micros
from tests.fake_api_server import fake_api_server
from tests.webhook.controllers.release.holding import LONG_AGO, hold
from webhook.cli.release import list_holds, release_by_of
from webhook.cluster.client.connection import ApiError, connected
from webhook.controllers.release.pod_writer import release_patch

CREATED = datetime(2026, 1, 1, 8, 0, tzinfo=UTC)
BOUND = micros(CREATED + timedelta(seconds=60))


async def test_pods_with_our_gate_are_listed_page_by_page(tmp_path: Path) -> None:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        for number in range(1_100):
            hold(server, f"held-{number}")
        hold(server, "other", "example.com/gate")
        hold(server, "both", "example.com/gate", HOLD_GATE, namespace="lab")
        server.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "bound", "namespace": "shop"},
                "spec": {"nodeName": "a", "containers": []},
            }
        )
        everywhere = await list_holds(connection, namespace="", hold_seconds=60, now=Micros(0))
        assert len(everywhere) == 1_101
        assert len([one for one in server.requests if "continue" in one.query]) == 2
        (both,) = (
            await list_holds(connection, namespace="lab", hold_seconds=60, now=Micros(0))
        ).values()
        assert both.pod.key == "lab/both"
        # What is kept of it is enough for a release, of our gate alone.
        test_uid, test_gate, remove = release_patch(both.raw, both.pod.uid)
        assert test_uid["value"] == both.pod.uid
        assert test_gate["value"] == HOLD_GATE
        assert remove == {"op": "remove", "path": "/spec/schedulingGates/1"}


async def test_a_list_that_takes_too_long_is_read_anew(tmp_path: Path) -> None:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        for number in range(600):
            hold(server, f"held-{number}")
        server.expire_continue()
        found = await list_holds(connection, namespace="", hold_seconds=60, now=Micros(0))
        assert len(found) == 600
        server.fail_next(1, 403)
        with pytest.raises(ApiError):
            await list_holds(connection, namespace="", hold_seconds=60, now=Micros(0))


@pytest.mark.parametrize(
    ("noted", "release_by"),
    [
        ("2026-01-01T08:00:30Z", BOUND - 30_000_000),
        ("2026-01-01T08:01:00Z", BOUND),
        ("2036-01-01T00:00:00Z", BOUND),  # forged: nobody is held for longer than the bound
        ("9999-12-31T23:59:59-14:00", BOUND),
        ("0001-01-01T00:00:00+14:00", micros(datetime(1, 1, 1, tzinfo=UTC)) - 14 * 3_600_000_000),
        ("tomorrow", BOUND),
        ("", BOUND),
        (None, BOUND),
    ],
)
def test_the_annotation_counts_up_to_the_bound_of_a_hold(
    noted: str | None, release_by: int
) -> None:
    annotations = None if noted is None else {RELEASE_BY_ANNOTATION: noted}
    assert release_by_of(annotations, CREATED, 60) == release_by
    assert f"{CREATED:%Y-%m-%dT%H:%M:%SZ}" == LONG_AGO
