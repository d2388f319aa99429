"""What a review costs where few come: `python -m tests.bench.load.low_rate`.

Most clusters create a few pods a second, so little that a review needs is in the caches of the
processor, and much has changed since the last one. The processor time of `stowplan serve` is
compared while only events come and while reviews come, too; the difference is what reviews cost in
all, whoever spends it. In turns with that, `decide()` runs in a loop in this process, on the same
cluster: the ratio to it is what can be compared between machines. Reviews come on connections that
are kept, as those of an API server, and once more each on a connection of its own: the difference
of the two is what a TLS handshake costs.
"""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from engine.policy import load_policies
from tests.bench.arrivals import Arrivals
from tests.bench.generate import GeneratedCluster
from tests.bench.load import command
from tests.bench.load.messages import Arrival, Phase, Window
from tests.bench.load.stage import Stage, staged
from tests.bench.measuring import loaded
from tests.bench.replica import Replica

_SETTLE_SECONDS: Final = 2.0
_WARM_UP_REVIEWS: Final = 50
_DECISIONS: Final = 200  # of each round


class Spent(NamedTuple):
    """What the server spent while reviews came.

    Attributes:
        cpu: processor time, seconds.
        seconds: that passed.
        answers: reviews with an answer.
    """

    cpu: float
    seconds: float
    answers: int

    def beyond(self, events: float) -> float:
        """Return the processor time of a review, seconds.

        Args:
            events: what the server takes beside reviews, of each second.

        Raises:
            RuntimeError: no review was answered.
        """
        if not self.answers:
            raise RuntimeError("no review was answered")
        return (self.cpu - events * self.seconds) / self.answers


class LowRate:
    """Measures by turns.

    Args:
        stage: the server, those who call it, and its cluster, in which things happen.
        cluster: the same one.
        policy: the file of the policies.
        rate: of reviews, per second.
        seconds: of each turn.
    """

    def __init__(
        self, stage: Stage, cluster: GeneratedCluster, policy: Path, rate: float, seconds: float
    ) -> None:
        self._stage = stage
        policies = load_policies([policy])
        self._replica = Replica(loaded(cluster.objects(), policies), policies)
        self._arriving = Arrivals(cluster.workloads).as_rollouts()
        self._phase = Phase(
            target=stage.server.target, arrival=Arrival.EVEN, seconds=seconds, rate=rate
        )

    def warm_up(self) -> None:
        """Make connections, and have what is made once made."""
        seconds = _WARM_UP_REVIEWS / self._phase.rate
        self._replica.still(list(islice(self._arriving, _WARM_UP_REVIEWS)))
        self._sent(seconds=seconds, each_connects=False)

    def decisions(self) -> list[int]:
        """Return what `decide()` takes in a loop, nanoseconds of the processor."""
        return self._replica.still(list(islice(self._arriving, _DECISIONS)))

    def of_events(self) -> float:
        """Return the processor time of the server with events alone, seconds of each second."""
        began, used = time.monotonic(), self._used()
        time.sleep(self._phase.seconds)
        return (self._used() - used) / (time.monotonic() - began)

    def of_reviews(self, *, each_connects: bool) -> Spent:
        """Send reviews and return what the server spent on them, and on events beside them.

        Args:
            each_connects: whether each review has a connection of its own.
        """
        began, used = time.monotonic(), self._used()
        came = self._sent(seconds=self._phase.seconds, each_connects=each_connects)
        return Spent(self._used() - used, time.monotonic() - began, len(came.latencies))

    def _used(self) -> float:
        return self._stage.server.usage.cpu_seconds

    def _sent(self, *, seconds: float, each_connects: bool) -> Window:
        came = Window()
        phase = Phase(
            target=self._phase.target,
            arrival=self._phase.arrival,
            seconds=seconds,
            rate=self._phase.rate,
            reviews_per_connection=int(each_connects),
            leaves_connections=not each_connects,
        )
        for window in self._stage.sender.send(phase):
            came.add(window)
        return came


def main() -> None:
    """Measure and print."""
    parser = command.parser_of(__doc__)
    parser.add_argument("--rate", type=float, default=5, help="reviews per second")
    parser.add_argument("--seconds", type=float, default=20, help="of each turn")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    command.end_in_good_order()
    print(command.machine(), flush=True)
    cluster = GeneratedCluster(nodes=asked.nodes, pods=asked.pods)
    with command.folder_of(asked) as folder, staged(command.plan_of(asked), folder) as stage:
        bench = LowRate(stage, cluster, asked.policies, asked.rate, asked.seconds)
        stage.api_server.begin_events()
        time.sleep(_SETTLE_SECONDS)
        bench.warm_up()
        rounds = []
        for _ in range(asked.rounds):
            rounds.append(_round(bench))
            print(_text(*rounds[-1]), flush=True)
        print(f"median of {asked.rounds} rounds: {_text(*map(median, zip(*rounds, strict=True)))}")


def _round(bench: LowRate) -> tuple[float, float, float, float, float]:
    """Return the figures of `_text`; events count as the mean of before and after reviews."""
    decision = median(bench.decisions()) / 1e6
    before, kept = bench.of_events(), bench.of_reviews(each_connects=False)
    between, connecting = bench.of_events(), bench.of_reviews(each_connects=True)
    after = bench.of_events()
    review = 1e3 * kept.beyond((before + between) / 2)
    handshake = 1e3 * connecting.beyond((between + after) / 2) - review
    return 1e3 * between, decision, review, handshake, review / decision


def _text(events: float, decision: float, review: float, handshake: float, ratio: float) -> str:
    return (
        f"events {events:4.0f} ms/s; decide() {decision:5.2f}, a review {review:5.2f},"
        f" a handshake {handshake:5.2f} ms; review to decide() {ratio:4.2f}"
    )


if __name__ == "__main__":
    main()
