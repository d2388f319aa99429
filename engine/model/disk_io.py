"""Disk bandwidth: the needs of pods, and what the disks of a node have left.

Source: scheduler-plugins, kep/624-disk-io-aware-scheduling; a proposal that was never coded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from engine.errors import QuantityError
from engine.model import api
from engine.model.quantity import quantity_of

THROUGHPUT_ANNOTATION: Final = "blockio.kubernetes.io/throughput"

_GREATEST_BANDWIDTH: Final = 2**52
"""Bytes per second, more than any disk moves, and few enough for exact products with 100."""


class Throughput(NamedTuple):
    """The bandwidth that a pod needs, bytes per second."""

    read: int
    write: int


class Disk(NamedTuple):
    """The bandwidth that a disk has left, normalised bytes per second."""

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
    """Return the needs in a pod's annotation; a malformed one counts as none.

    Its `blocksize` is for models of vendors, which are not implemented.
    """
    if not text:
        return None
    try:
        written = msgspec.json.decode(text, type=_Annotation)
        return Throughput(_bandwidth(written.rbps), _bandwidth(written.wbps))
    except (msgspec.DecodeError, RecursionError, QuantityError):
        return None


def node_disks_of(wire: api.NodeDiskIO) -> NodeDisks:
    by_id = wire.status.allocatable_bandwidth or {}
    bandwidths = [by_id[name].status or by_id[name] for name in sorted(by_id)]
    disks = (
        Disk(_bandwidth(left.total), _bandwidth(left.read), _bandwidth(left.write))
        for left in bandwidths
    )
    return NodeDisks(wire.spec.node_name, tuple(disks))


def _bandwidth(text: api.Quantity) -> int:
    return min(max(quantity_of(text).value(), 0), _GREATEST_BANDWIDTH)
