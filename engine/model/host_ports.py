"""Ports of a node that a pod takes for itself.

Source: pkg/scheduler/util/utils.go, `GetHostPorts`, and `HostPortInfo` of
k8s.io/kube-scheduler/framework/types.go.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from engine.model import api

ALL_ADDRESSES: Final = "0.0.0.0"  # noqa: S104 (nothing listens here)
"""The address of a port that is taken on every address of the node."""


class HostPort(NamedTuple):
    """A port on an address of the node."""

    ip: str
    protocol: str
    port: int

    def conflicts_with(self, other: HostPort) -> bool:
        """Return whether no node has room for both."""
        return self[1:] == other[1:] and (
            self.ip == other.ip or ALL_ADDRESSES in {self.ip, other.ip}
        )


def host_ports_of(spec: api.PodSpec) -> tuple[HostPort, ...]:
    """Return the ports of the node that app containers and sidecars take, each once."""
    ports: list[HostPort] | None = None
    for container in spec.containers or ():
        if container.ports:
            ports = _with_more(ports, container.ports)
    for container in spec.init_containers or ():
        if container.ports and container.restart_policy == "Always":
            ports = _with_more(ports, container.ports)
    return tuple(dict.fromkeys(ports)) if ports else ()


def _with_more(
    ports: list[HostPort] | None, written: list[api.ContainerPort]
) -> list[HostPort] | None:
    for port in written:
        if port.host_port > 0:
            ports = [] if ports is None else ports
            ports.append(
                HostPort(port.host_ip or ALL_ADDRESSES, port.protocol or "TCP", port.host_port)
            )
    return ports
