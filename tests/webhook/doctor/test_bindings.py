from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fake_api_server import ApiFault
from tests.fake_api_server.answers import Play
from tests.webhook.doctor.fake_installation import (
    POD_NAMES,
    FakeInstallation,
    fake_installation,
    refusing,
)
from webhook.doctor import Finding, Level

BINDING_PATH = "/api/v1/namespaces/default/pods/stowplan-doctor-never-created/binding"
RULES = [
    {"apiGroups": [""], "operations": ["CREATE"], "resources": ["pods"]},
    {"apiGroups": [""], "operations": ["CREATE"], "resources": ["pods/binding"]},
]


@pytest.fixture
async def installation() -> AsyncIterator[FakeInstallation]:
    """An installation whose first replica decides bindings, which the API server asks about."""
    async with fake_installation() as found:
        found.configure("Mutating", rules=RULES)
        for name, leads in zip(POD_NAMES, (True, False), strict=True):
            found.statuses[name]["bindings"] = {"leads": leads}
        found.statuses[POD_NAMES[0]]["bindings"] |= {"kept": 5, "moved": 4, "denied": 1}
        found.server.play("POST", BINDING_PATH, binding(found, is_asked=True))
        yield found


def binding(found: FakeInstallation, *, is_asked: bool) -> Play:
    """Return what an API server does with the binding of a pod that is not there."""

    def play(_: object) -> object:
        if is_asked:
            reviews = found.statuses[POD_NAMES[0]]["reviews"]
            reviews["bind"] = reviews.get("bind", 0) + 1
        raise ApiFault(404, "pods not found")

    return play


async def findings(installation: FakeInstallation, folder: Path) -> list[Finding]:
    return (await installation.run_checks(folder))["bindings"]


async def test_a_leader_that_is_asked_is_right(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    asked, decides = await findings(installation, tmp_path)
    assert asked == Finding(Level.OK, "the API server asks about bindings")
    assert decides.level is Level.OK
    assert "4 of 10 went to another node, 1 were denied" in decides.message


async def test_without_bindings_there_is_nothing_to_say_unless_policies_wait_for_them(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    for name in POD_NAMES:
        del installation.statuses[name]["bindings"]
    assert not await findings(installation, tmp_path)
    for name in POD_NAMES:
        installation.statuses[name]["policies"]["atBinding"] = ["balanced"]
    (found,) = await findings(installation, tmp_path)
    assert found.level is Level.WARNING
    assert (
        found.message == "1 policy decides at binding, and nobody is asked about bindings: balanced"
    )


async def test_a_configuration_without_a_rule_for_bindings_is_a_problem(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.configure("Mutating")
    (found,) = await findings(installation, tmp_path)
    assert found.level is Level.PROBLEM
    assert "no webhook of MutatingWebhookConfiguration `stowplan` is for" in found.message


async def test_an_api_server_that_does_not_ask_is_a_problem(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.play("POST", BINDING_PATH, binding(installation, is_asked=False))
    found = (await findings(installation, tmp_path))[0]
    assert found.level is Level.PROBLEM
    assert "binds a pod in namespace default without asking us" in found.message


@pytest.mark.parametrize(
    ("code", "message", "level", "says"),
    [
        (403, "users may not create pods/binding", Level.WARNING, "it cannot be tried"),
        (
            500,
            'failed calling webhook "bind.stowplan.dev": no route to host',
            Level.PROBLEM,
            "pods cannot be bound",
        ),
    ],
)
async def test_a_refusal_says_whether_it_is_ours(
    installation: FakeInstallation, tmp_path: Path, code: int, message: str, level: Level, says: str
) -> None:
    installation.server.play("POST", BINDING_PATH, refusing(code, message))
    found = (await findings(installation, tmp_path))[0]
    assert found.level is level
    assert found.message.startswith(says)


async def test_what_escapes_is_told_and_that_nothing_moves_meanwhile(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.statuses[POD_NAMES[0]]["bindings"] |= {
        "escaped": 3,
        "lost": 1,
        "paused": "a binding escaped",
    }
    _, escapes, paused, _ = await findings(installation, tmp_path)
    assert escapes.level is Level.WARNING
    assert "3 pods were bound past it, 1 answer was lost, of 10 bindings" in escapes.message
    assert paused.level is Level.NOTE


async def test_without_a_leader_nobody_decides(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.statuses[POD_NAMES[0]]["bindings"]["leads"] = False
    found = (await findings(installation, tmp_path))[0]
    assert found.level is Level.WARNING
    assert found.message.startswith("no replica leads")
