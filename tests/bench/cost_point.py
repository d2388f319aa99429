"""One point of the cost curve, measured in a process that holds what a replica holds.

`measured` runs `python -m tests.bench.cost_point` and sends it the objects of a cluster that it
makes itself, so that making them costs the measured process neither time nor memory.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import cycle, islice, takewhile
from typing import BinaryIO, Final

import msgspec
import numpy as np

from engine.model import api
from engine.model.decision import PlacementRequest
from engine.model.pod import Pod, pod_of
from tests.bench.arrivals import Arrivals
from tests.bench.cost_rules import policy_set
from tests.bench.generate import GeneratedCluster
from tests.bench.measuring import baseline_of, clock, loaded, resident_mib
from tests.bench.replica import Replica

_WARM_UP: Final = 50
_ENDED: Final = 2_000  # pods that end, at most
_TOLD_EVERY: Final = 1_000  # objects
_END: Final = b"\n"

_decode_pod = msgspec.json.Decoder(api.Pod).decode


class Point(msgspec.Struct, frozen=True, order=True):
    """What is measured: a cluster and how many rules decide on it."""

    nodes: int
    pods: int
    rules: int

    @property
    def objects(self) -> int:
        """About how many objects are listed; there is a report for each node."""
        return 2 * self.nodes + self.pods


class Cost(msgspec.Struct, frozen=True):
    """What was measured; all times are CPU time of one process.

    Attributes:
        still_p50: microseconds that a decision takes while nothing changes, the median.
        still_p99: the 99th percentile.
        events_p50: the same with the view it needs, two pods and a few reports after the last one.
        events_p99: the 99th percentile.
        resident: MiB, after all decisions.
        ready: seconds from the first byte of the lists to the first view.
        floor: microseconds that plain Python takes to score 1,000 nodes by their limits.
    """

    still_p50: float
    still_p99: float
    events_p50: float
    events_p99: float
    resident: float
    ready: float
    floor: float


def measured(point: Point, decisions: int, advanced: Callable[[int], object]) -> Cost:
    """Return what a point costs.

    Args:
        point: where to measure.
        decisions: how many of each kind.
        advanced: told how many more objects were sent.
    """
    cluster = GeneratedCluster(nodes=point.nodes, pods=point.pods)
    arrivals = islice(Arrivals(cluster.workloads).as_rollouts(), _WARM_UP + 2 * decisions)
    ended = islice(cluster.pods(), 0, None, max(1, point.pods // _ENDED))
    command = [sys.executable, "-m", __spec__.name, f"--rules={point.rules}"]
    with subprocess.Popen(  # noqa: S603 (our own module)
        [*command, f"--decisions={decisions}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise AssertionError("both are pipes")
        for number, text in enumerate(cluster.objects(), 1):
            process.stdin.write(text + _END)
            if number % _TOLD_EVERY == 0:
                advanced(_TOLD_EVERY)
        for section in ((request.raw for request in arrivals), ended):
            process.stdin.write(_END)
            process.stdin.writelines(text + _END for text in section)
        process.stdin.close()
        return msgspec.json.decode(process.stdout.read(), type=Cost)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=int, required=True)
    parser.add_argument("--decisions", type=int, required=True)
    asked = parser.parse_args()
    policies = policy_set(asked.rules)
    source = sys.stdin.buffer

    start = clock()
    replica = Replica(loaded(_section(source), policies), policies)
    ready = (clock() - start) / 1e9

    requests = iter([PlacementRequest(pod=_pod(text), raw=text) for text in _section(source)])
    ended = cycle([_pod(text) for text in _section(source)])
    replica.still(islice(requests, _WARM_UP))
    still = np.percentile(replica.still(islice(requests, asked.decisions)), (50, 99)) / 1e3
    amid = np.percentile(replica.amid_events(requests, ended), (50, 99)) / 1e3
    view = replica.state.view()
    cost = Cost(
        still_p50=float(still[0]),
        still_p99=float(still[1]),
        events_p50=float(amid[0]),
        events_p99=float(amid[1]),
        resident=resident_mib(),
        ready=ready,
        floor=baseline_of(view) / len(view) * 1000,
    )
    sys.stdout.buffer.write(msgspec.json.encode(cost))


def _section(source: BinaryIO) -> Iterator[bytes]:
    """Yield the lines up to an empty one, or to the end."""
    return takewhile(_END.__ne__, iter(source.readline, b""))


def _pod(text: bytes) -> Pod:
    return pod_of(_decode_pod(text))


if __name__ == "__main__":
    _main()
