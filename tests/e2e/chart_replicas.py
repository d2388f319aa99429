"""Replicas as the chart starts them: with the settings, the policies and the account it gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.e2e.chart import Release, of_kind, rendered
from tests.e2e.cluster import Json
from tests.e2e.control_plane import ControlPlane, free_ports
from tests.e2e.replica import Replica

_OF_THE_MACHINE = {"namespace", "policies", "port", "metrics-port", "metrics-host"}
_QUICKER = {"reload-seconds": "0.5", "usage-poll-seconds": "5"}


def chart_replicas(
    release: Release,
    control_plane: ControlPlane,
    folder: Path,
    *,
    count: int,
    values: dict[str, object],
    host: str = "",
) -> list[Replica]:
    """Return replicas of a release, not yet started.

    Args:
        release: as installed.
        control_plane: it is on.
        folder: an empty one, for policies and logs.
        count: how many.
        values: the release was installed with.
        host: address they listen on, if not that of this machine alone.
    """
    manifests = rendered(namespace=release.namespace, release=release.name, values=values)
    policies = folder / "policies"
    policies.mkdir(parents=True)
    for name, text in of_kind(manifests, "ConfigMap")["data"].items():
        (policies / name).write_text(text, encoding="utf-8")
    user = f"system:serviceaccount:{release.namespace}:{release.name}"
    groups = (
        "system:serviceaccounts",
        f"system:serviceaccounts:{release.namespace}",
        "system:authenticated",
    )
    options = (
        ("kubeconfig", str(control_plane.kubeconfig(user, groups))),
        ("namespace", release.namespace),
        ("policies", str(policies)),
        *_QUICKER.items(),
        *_settings(of_kind(manifests, "Deployment")),
        *((("host", host),) if host else ()),
    )
    return [
        Replica(f"{folder.name}-{number}", folder, (ports[0], ports[1]), options)
        for number, ports in enumerate(free_ports(2) for _ in range(count))
    ]


def _settings(deployment: Json) -> Iterator[tuple[str, str]]:
    """Yield the settings in the environment of a container, as flags."""
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    for variable in container["env"]:
        option = variable["name"].removeprefix("STOWPLAN_").lower().replace("_", "-")
        if option not in _OF_THE_MACHINE:
            for value in variable["value"].split(","):
                yield option, value
