"""The group `diskio.x-k8s.io`, formerly `ioi.intel.com`: the bandwidth that disks have left."""

from __future__ import annotations

from engine.model.api.meta import ObjectMeta, Quantity, WireStruct


class Bandwidth(WireStruct, frozen=True):
    """A normalised bandwidth, per second."""

    total: Quantity = None
    read: Quantity = None
    write: Quantity = None


class DiskBandwidth(Bandwidth, frozen=True):
    """The bandwidth of a disk; the older API has it one level deeper."""

    status: Bandwidth | None = None


class NodeDiskIOSpec(WireStruct, frozen=True):
    """The node that is described."""

    node_name: str = ""


class NodeDiskIOStatus(WireStruct, frozen=True):
    """The bandwidth that its driver reports as left, by disk."""

    allocatable_bandwidth: dict[str, DiskBandwidth] | None = None


class NodeDiskIO(WireStruct, frozen=True):
    """NodeDiskIOStats, formerly NodeDiskIOInfo."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeDiskIOSpec = NodeDiskIOSpec()
    status: NodeDiskIOStatus = NodeDiskIOStatus()
