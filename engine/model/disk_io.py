"""Disk bandwidth: what pods need of it, and what the disks of a node have left.

Source: scheduler-plugins, kep/624-disk-io-aware-scheduling; a proposal that was never coded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from engine.errors import QuantityError
from engine.model.quantity import quantity_of

if TYPE_CHECKING:
    from engine.model import topology_api

THROUGHPUT_ANNOTATION: Final = "blockio.kubernetes.io/throughput"

_GREATEST_BANDWIDTH: Final = 2**52
"""Bytes per second, more than any disk moves, and few enough for exact products with 100."""


class Throughput(NamedTuple):
    """What a pod reads and writes, bytes per second."""

    read: int
    write: int


class Disk(NamedTuple):
    """What a disk has left, normalised bytes per second."""

    total: int
    read: int
    write: int


@dataclass(frozen=True, slots=True)
class NodeDisks:
    """The disks of one node, in the order of their ids."""

    node_name: str
    disks: tuple[Disk, ...]

    @property
    def key(self) -> str:
        """The name of the node."""
        return self.node_name


class _Annotation(msgspec.Struct, frozen=True):
    rbps: str | int | float = 0
    wbps: str | int | float = 0


def throughput_of(text: str | None) -> Throughput | None:
    """Return what a pod's annotation asks for; malformed is as good as none.

    Its `blocksize` is for the models of vendors, of which there is none here.
    """
    if not text:
        return None
    try:
        written = msgspec.json.decode(text, type=_Annotation)
        return Throughput(_bandwidth(written.rbps), _bandwidth(written.wbps))
    except (msgspec.DecodeError, RecursionError, QuantityError):
        return None


def node_disks_of(wire: topology_api.NodeDiskIO) -> NodeDisks:
    """Return the disks in a NodeDiskIOStats.

    Raises:
        QuantityError: a bandwidth is not a quantity.
    """
    by_id = wire.status.allocatable_bandwidth or {}
    left = [by_id[name].status or by_id[name] for name in sorted(by_id)]
    disks = (
        Disk(_bandwidth(one.total), _bandwidth(one.read), _bandwidth(one.write)) for one in left
    )
    return NodeDisks(wire.spec.node_name, tuple(disks))


def _bandwidth(text: topology_api.Quantity) -> int:
    return min(max(quantity_of(text).value(), 0), _GREATEST_BANDWIDTH)
