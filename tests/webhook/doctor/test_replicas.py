from __future__ import annotations

from pathlib import Path

import pytest

from tests.webhook.doctor.fake_installation import (
    NAME,
    NAMESPACE,
    SERVICE_PATH,
    FakeInstallation,
    deployment,
    refusing,
)


async def found(
    installation: FakeInstallation, folder: Path, host: str, *families: str
) -> list[tuple[str, str]]:
    installation.server.replace(deployment(**({"HOST": host} if host else {})))
    answer = {"spec": {"ipFamilies": list(families)}}
    installation.server.play("GET", SERVICE_PATH, lambda _: answer)
    checks = await installation.run_checks(folder)
    return [(each.level.value, each.message) for each in checks["addresses"]]


@pytest.mark.parametrize(
    ("host", "families"),
    [
        ("0.0.0.0", ("IPv6",)),  # noqa: S104 - nothing listens
        ("0.0.0.0", ("IPv6", "IPv4")),  # noqa: S104 - the first one is the API server's way
        ("10.0.0.1", ("IPv6",)),
    ],
)
async def test_replicas_that_listen_on_ipv4_alone_are_found_where_they_are_asked_by_ipv6(
    installation: FakeInstallation, tmp_path: Path, host: str, families: tuple[str, ...]
) -> None:
    message = (
        f"the API server reaches Service {NAMESPACE}/{NAME} by IPv6, and replicas listen on IPv4"
        f" alone, on `{host}`"
    )
    assert await found(installation, tmp_path, host, *families) == [("problem", message)]


async def test_replicas_that_listen_on_one_address_of_ipv6_are_not_reached_by_ipv4(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    ((level, message),) = await found(installation, tmp_path, "fd00::1", "IPv4", "IPv6")
    assert level == "problem"
    assert message.endswith("by IPv4, and replicas listen on IPv6 alone, on `fd00::1`")


@pytest.mark.parametrize("host", ["", "::"])
@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
async def test_who_listens_on_all_addresses_is_reached_by_either(
    installation: FakeInstallation, tmp_path: Path, host: str, family: str
) -> None:
    assert await found(installation, tmp_path, host, family) == [
        ("ok", f"the API server reaches Service {NAMESPACE}/{NAME} by {family}, as replicas listen")
    ]


async def test_of_a_name_it_is_not_known_what_it_stands_for(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    assert await found(installation, tmp_path, "replica.example", "IPv6") == []


async def test_a_service_that_is_missing_is_found(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.play("GET", SERVICE_PATH, refusing(404, "services not found"))
    checks = await installation.run_checks(tmp_path)
    (finding,) = checks["addresses"]
    assert finding.level.value == "problem"
    assert finding.message == (
        f"there is no Service {NAMESPACE}/{NAME}: the API server reaches no replica"
    )
