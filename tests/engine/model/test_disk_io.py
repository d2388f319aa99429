from __future__ import annotations

import msgspec
import pytest

from engine.errors import QuantityError
from engine.model import api
from engine.model.disk_io import Disk, NodeDisks, Throughput, node_disks_of, throughput_of


@pytest.mark.parametrize(
    ("text", "throughput"),
    [
        ('{"rbps": "20M", "wbps": "30M", "blocksize": "4k"}', Throughput(20 * 10**6, 30 * 10**6)),
        ('{"rbps": 5}', Throughput(5, 0)),
        ('{"rbps": "-5"}', Throughput(0, 0)),
        ('{"rbps": "1e99"}', Throughput(2**52, 0)),
        ('{"rbps": "fast"}', None),
        ('{"rbps": null}', None),
        ("[" * 100_000, None),
        ("", None),
        (None, None),
    ],
)
def test_what_a_pod_asks_for_is_read_from_its_annotation(
    text: str | None, throughput: Throughput | None
) -> None:
    assert throughput_of(text) == throughput


@pytest.mark.parametrize("is_nested", [False, True])
def test_disks_are_read_in_either_form(is_nested: bool) -> None:  # noqa: FBT001 (a parameter)
    left = {"total": "2Ki", "read": "1Ki", "write": 5}
    disk = {"name": "INT_1", "status": left} if is_nested else left
    wire = {
        "metadata": {"name": "anything"},
        "spec": {"nodeName": "a"},
        "status": {"allocatableBandwidth": {"z": disk, "b": {}}},
    }
    told = node_disks_of(msgspec.convert(wire, api.NodeDiskIO))
    assert told == NodeDisks("a", (Disk(0, 0, 0), Disk(2048, 1024, 5)))
    assert told.key == "a"


def test_a_bandwidth_must_be_a_quantity() -> None:
    disks = {"d": api.DiskBandwidth(total="much")}
    status = api.NodeDiskIOStatus(allocatable_bandwidth=disks)
    with pytest.raises(QuantityError):
        node_disks_of(api.NodeDiskIO(status=status))
