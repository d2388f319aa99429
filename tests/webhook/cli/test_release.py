from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from engine.model.hold import HOLD_GATE, RELEASING_ANNOTATION
from tests.fake_api_server import FakeApiServer
from tests.patience import PATIENCE_SECONDS
from tests.webhook.cli.running import Ran, Stowplan, process
from tests.webhook.cli.test_snapshot import serving
from tests.webhook.controllers.release.holding import gates, hold

FOREIGN = "example.com/gate"
PODS = "/api/v1/namespaces/shop/pods"


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with serving() as running:
        yield running


class Command:
    """`stowplan release` against a server."""

    def __init__(self, stowplan: Stowplan, kubeconfig: Path) -> None:
        self._stowplan = stowplan
        self.kubeconfig = kubeconfig

    def __call__(self, *arguments: str) -> Ran:
        return self._stowplan("release", *arguments, "--kubeconfig", self.kubeconfig)


@pytest.fixture
def release(stowplan: Stowplan, server: FakeApiServer, tmp_path: Path) -> Command:
    return Command(stowplan, server.kubeconfig(tmp_path))


def _patches(server: FakeApiServer) -> int:
    return len([one for one in server.requests if one.method == "PATCH"])


def test_all_held_pods_are_released_and_nobody_else_is_touched(
    server: FakeApiServer, release: Command
) -> None:
    for number in range(30):
        hold(server, f"held-{number}")
    hold(server, "both", FOREIGN, HOLD_GATE, namespace="lab")
    hold(server, "other", FOREIGN)
    ran = release("--all", "--yes")
    assert (ran.status, ran.out, ran.err) == (0, "released 31 pods\n", "")
    assert gates(server, "held-7") == []
    assert gates(server, "both", "lab") == [FOREIGN]
    assert _patches(server) == 31
    again = release("--all", "--yes")
    assert (again.status, again.out) == (0, "no pod is held\n")


def test_one_namespace_may_be_released_alone(server: FakeApiServer, release: Command) -> None:
    hold(server, "a")
    hold(server, "b", namespace="lab")
    assert release("--all", "-y", "--namespace", "lab").out == "released 1 pod\n"
    assert gates(server, "a") == [HOLD_GATE]
    assert release("--all", "--namespace", "lab").out == "no pod is held in namespace lab\n"


def test_a_dry_run_shows_how_many_there_are_and_writes_nothing(
    server: FakeApiServer, release: Command
) -> None:
    for name in ("a", "b"):
        hold(server, name)
    hold(server, "c", namespace="lab")
    ran = release("--all", "--dry-run")
    assert (ran.status, _patches(server)) == (0, 0)
    assert [line.split() for line in ran.out.splitlines() if line][2:] == [
        ["lab", "1"],
        ["shop", "2"],
        ["would", "release", "3", "pods"],
    ]


def test_it_asks_first_and_writes_nothing_where_nobody_is_there(
    server: FakeApiServer, release: Command
) -> None:
    hold(server, "a")
    asked = process("release", "--all", "--kubeconfig", release.kubeconfig)
    out, err = asked.communicate("y\n", timeout=PATIENCE_SECONDS)
    assert (asked.returncode, out) == (1, "")
    assert "1 pod would be released, and nobody is there to confirm it\nhint: `--yes`" in err
    assert gates(server, "a") == [HOLD_GATE]


def test_the_overdue_ones_are_released_where_nobody_else_does(
    server: FakeApiServer, release: Command
) -> None:
    now = datetime.now(UTC)
    later, earlier = now + timedelta(hours=1), now - timedelta(seconds=30)
    hold(server, "young", created=later)  # however long this takes
    hold(server, "old", created=now - timedelta(seconds=70))
    hold(server, "noted", created=now, release_by=f"{earlier:%Y-%m-%dT%H:%M:%SZ}")
    # Whoever may patch a pod may write this, and keeps it from nobody.
    forged = f"{later:%Y-%m-%dT%H:%M:%SZ}"
    hold(server, "forged", created=now - timedelta(seconds=70), release_by=forged)
    hold(server, "unreadable", created=now - timedelta(seconds=70), release_by="soon")
    assert release("--overdue", "--yes").out == "released 4 pods\n"  # there is no Lease
    assert gates(server, "young") == [HOLD_GATE]
    assert release("--overdue", "--yes").out == "no pod is overdue\n"
    hold(server, "patient", created=now - timedelta(seconds=70))
    assert release("--overdue", "--yes", "--hold-seconds", "600").out == "no pod is overdue\n"


def test_pods_that_wait_for_quota_or_a_gang_are_released_where_that_is_wanted(
    server: FakeApiServer, release: Command
) -> None:
    hold(server, "held", reasons="placement")
    hold(server, "queued", reasons="placement,quota")
    hold(server, "member", reasons="gang")
    assert release("--overdue", "--yes").out == "released 1 pod\n"
    assert gates(server, "queued") == gates(server, "member") == [HOLD_GATE]
    assert release("--overdue", "--yes").out == "no pod is overdue\n"
    assert release("--overdue", "--queued", "--yes").out == "released 2 pods\n"
    hold(server, "another", reasons="quota")
    assert release("--all", "--yes").out == "released 1 pod\n"
    ran = release("--all", "--queued", "--yes")
    assert ran.status == 1
    assert "`--queued` goes with `--overdue`" in ran.err


def test_the_overdue_ones_are_left_to_a_leader_that_releases(
    server: FakeApiServer, release: Command
) -> None:
    hold(server, "a")
    reads: list[object] = []

    def read(asked: object) -> dict[str, object]:
        reads.append(asked)  # each time it is read it was renewed once more
        return {
            "metadata": {"annotations": {RELEASING_ANNOTATION: "true"}},
            "spec": {
                "holderIdentity": "replica-a",
                "renewTime": f"2026-01-01T00:00:{len(reads):02}.000000Z",
            },
        }

    server.play("GET", "/apis/coordination.k8s.io/v1/namespaces/elsewhere/leases/other", read)
    ran = release("--overdue", "--yes", "--lease", "elsewhere/other")
    assert ran.status == 0
    assert "1 pod overdue: left to replica-a, which renews its Lease" in ran.out
    assert gates(server, "a") == [HOLD_GATE]
    assert release("--overdue", "--yes", "--force").out == "released 1 pod\n"


def test_a_gate_that_is_left_is_told_with_the_reason_and_what_removes_it(
    server: FakeApiServer, release: Command
) -> None:
    for name in ("a", "b"):
        hold(server, name)
    server.fail_next(100, 403, path_prefix=f"{PODS}/b")
    ran = release("--all", "--yes")
    assert (ran.status, ran.out) == (2, "released 1 pod\n")
    assert gates(server, "a") == []
    assert "shop/b" in ran.err
    assert "failed by the test" in ran.err
    assert "1 pod still held" in ran.err
    (command,) = (line for line in ran.err.splitlines() if "kubectl" in line)
    *words, patch = shlex.split(command)
    assert words == [
        *("kubectl", "patch", "pod", "b", "--namespace", "shop"),
        *("--type", "strategic", "--patch"),
    ]
    assert patch == '{"spec":{"schedulingGates":[{"$patch":"delete","name":"stowplan.dev/hold"}]}}'


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "give either `--overdue` or `--all`"),
        (("--overdue", "--all"), "give either `--overdue` or `--all`"),
        (("--overdue", "--lease", "stowplan"), "expected `NAMESPACE/NAME`, not `stowplan`"),
    ],
)
def test_mistakes_are_told(release: Command, arguments: tuple[str, ...], told: str) -> None:
    ran = release(*arguments)
    assert ran.status == 1
    assert told in ran.err


def test_what_is_not_permitted_is_told(server: FakeApiServer, release: Command) -> None:
    server.fail_next(1, 403, path_prefix="/api/v1/pods")
    ran = release("--all", "--yes")
    assert ran.status == 1
    assert "pods cannot be listed: failed by the test\nhint: `kubectl auth can-i --list`" in ran.err
    hold(server, "a")
    server.fail_next(1, 403, path_prefix="/apis/coordination.k8s.io")
    ran = release("--overdue", "--yes")
    assert ran.status == 1
    assert "the Lease stowplan-system/stowplan cannot be read: failed by the test" in ran.err
    assert "`--force` releases without looking at it" in ran.err
