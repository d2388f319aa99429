"""How `stowplan serve` does under load: `python -m tests.bench.load`.

A generated cluster is served by an API server of our own, over TLS; pods and nodes change by
`--events` a second, and every NodeMetric once a minute. Another process sends AdmissionReviews over
TLS connections that are kept, each at its moment, whether or not the ones before were answered: a
latency counts from that moment. Everything shares this machine, so the last columns say who had its
processors; the floor, the same server with nothing to decide, is measured in the same run, and what
can be compared between machines is the ratio to it. Phases at a fixed rate are measured after a
lead-in of two seconds that leaves them its connections; the burst makes all of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from statistics import fmean

import msgspec
from rich.progress import Progress, TaskID

from tests.bench.load import command
from tests.bench.load.measuring import Figures, Observer, measured
from tests.bench.load.messages import Arrival, Phase, Target, Window
from tests.bench.load.parts import Floor
from tests.bench.load.report import Run, show
from tests.bench.load.stage import Stage, staged

_SETTLE_SECONDS = 1.0
_BURST_REVIEWS, _BURST_SECONDS = 5_000, 10.0
_SATURATING_CONNECTIONS = 32
_WARM_UP_SECONDS, _WARM_UP_RATE = 2.0, 250.0
_TENTH = "a tenth of the floor's highest rate"
_OVERLOAD_SHARE = 1.5
_OVERLOAD = "1.5 times the highest rate"


class Bench:
    """Runs phase after phase and keeps what they showed.

    Attributes:
        figures: of the phases so far.
    """

    def __init__(self, stage: Stage, floor: Floor, seconds: float, progress: Progress) -> None:
        self.figures: list[Figures] = []
        self._stage = stage
        self._layers = {
            "plain HTTP": floor.target("/floor", tls=False),
            "floor": floor.target("/floor"),
            "floor with envelope": floor.target("/mutate"),
        }
        self._seconds = seconds
        self._tenth = 0.0  # of the floor's highest rate; known once that is measured
        self._progress = progress
        self._server = Observer(
            server=stage.server,
            beside={"API server": stage.api_server, "sender": stage.sender, "idle floor": floor},
            scrape=stage.server.scrape,
        )
        self._passing = Observer(
            server=floor,
            beside={
                "API server": stage.api_server,
                "sender": stage.sender,
                "idle server": stage.server,
            },
        )

    def floor(self, when: str, rate: float) -> None:
        """Measure the server with nothing to decide, before or after all else: machines change."""
        for name, target in self._layers.items():
            self._send(f"{name} {when}, {rate:,.0f}/s", target, Arrival.RANDOM, rate, self._passing)
            self._send(f"{name} {when}, saturated", target, Arrival.AT_ONCE, 0, self._passing)
            if name == "floor":
                self._tenth = self._tenth or self.figures[-1].rate / 10
                tenth = f"{name} {when}, {_TENTH}"
                self._send(tenth, target, Arrival.RANDOM, self._tenth, self._passing)

    def server(self, rates: Sequence[float]) -> None:
        """Measure `stowplan serve` while its cluster changes, and while it does not."""
        target, api_server = self._stage.server.target, self._stage.api_server
        seconds, rate = _WARM_UP_SECONDS, _WARM_UP_RATE
        warm_up = Phase(target=target, arrival=Arrival.EVEN, seconds=seconds, rate=rate)
        for _ in self._stage.sender.send(warm_up):
            pass
        self._send("saturated, no events", target, Arrival.AT_ONCE, 0, self._server)
        api_server.begin_events()
        time.sleep(_SETTLE_SECONDS)
        self._only_events()
        for rate in rates:
            self._send(f"{rate:,.0f}/s", target, Arrival.RANDOM, rate, self._server)
            self._send(f"{rate:,.0f}/s, even", target, Arrival.EVEN, rate, self._server)
        self._send(_TENTH, target, Arrival.RANDOM, self._tenth, self._server)
        self._send("saturated", target, Arrival.AT_ONCE, 0, self._server)
        most = self.figures[-1].rate
        self._send(_OVERLOAD, target, Arrival.RANDOM, _OVERLOAD_SHARE * most, self._server)
        burst_rate = _BURST_REVIEWS / _BURST_SECONDS
        name = "burst of 5,000 in 10 s"
        self._send(name, target, Arrival.BURST, burst_rate, self._server, _BURST_SECONDS)
        api_server.end_events()

    def _send(
        self,
        name: str,
        target: Target,
        arrival: Arrival,
        rate: float,
        observer: Observer,
        seconds: float = 0.0,
    ) -> None:
        phase = Phase(target=target, arrival=arrival, seconds=seconds or self._seconds, rate=rate)
        if arrival is Arrival.AT_ONCE:
            phase = msgspec.structs.replace(phase, connections=_SATURATING_CONNECTIONS)
        with self._shown(name, phase.seconds) as task:
            self.figures.append(
                measured(
                    name,
                    phase,
                    self._stage.sender,
                    observer,
                    lambda passed: self._progress.advance(task, passed),
                )
            )
        time.sleep(_SETTLE_SECONDS)

    def _only_events(self) -> None:
        name = "events alone"
        with self._shown(name, self._seconds) as task:
            self._server.begin()
            for _ in range(round(self._seconds)):
                time.sleep(1)
                self._progress.advance(task, 1)
            self.figures.append(self._server.end(name, Window()))

    @contextmanager
    def _shown(self, name: str, seconds: float) -> Iterator[TaskID]:
        task = self._progress.add_task(name, total=seconds)
        yield task
        self._progress.update(task, completed=seconds)


class _Floors:
    """The two measurements of each layer of the floor, as means.

    Args:
        by_name: the figures of all phases.
    """

    def __init__(self, by_name: Mapping[str, Figures]) -> None:
        self._by_name = by_name

    def mean(self, layer: str, load: str, of: Callable[[Figures], float]) -> float:
        """Return the mean of something at a load."""
        return fmean(of(self._by_name[f"{layer} {when}, {load}"]) for when in ("before", "after"))


def _stages(by_name: Mapping[str, Figures]) -> dict[str, float]:
    """Return what each layer adds to the processor time of an answer, microseconds."""
    floors = _Floors(by_name)
    plain, floor, envelope = (
        floors.mean(layer, "saturated", _cpu) * 1e6
        for layer in ("plain HTTP", "floor", "floor with envelope")
    )
    alone, amid = by_name["events alone"], by_name["saturated"]
    of_events = alone.cpu["server"] / alone.seconds
    still = _cpu(by_name["saturated, no events"]) * 1e6
    busy = (amid.cpu["server"] - of_events * amid.seconds) / amid.answered * 1e6
    return {
        "HTTP": plain,
        "TLS": floor - plain,
        "envelope, limits, turns, metrics": envelope - floor,
        "decision, patch, explanation": still - envelope,
        "more of it because things change": busy - still,
        "a whole review": busy,
        "beside it: events, per second": of_events * 1e6,
    }


def _ratios(by_name: Mapping[str, Figures], rate: float) -> dict[str, float]:
    """Return ratios to the floor of this run."""
    floors, ratios = _Floors(by_name), {}
    saturated, amid = by_name["saturated"], by_name[f"{rate:,.0f}/s"]
    for layer in ("floor", "floor with envelope"):
        most, cpu = (floors.mean(layer, "saturated", of) for of in (_rate, _cpu))
        ratios[f"answers/s at saturation, to {layer}"] = saturated.rate / most
        ratios[f"processor time of an answer at saturation, to {layer}"] = _cpu(saturated) / cpu
    for share in ("p50", "p99"):
        waited = floors.mean("floor", f"{rate:,.0f}/s", _client(share))
        ratios[f"client {share} at {rate:,.0f}/s, to floor"] = amid.client[share] / waited
        waited = floors.mean("floor", _TENTH, _client(share))
        ratios[f"client {share} at {_TENTH}"] = by_name[_TENTH].client[share] / waited
    for phase in (_TENTH, "saturated", _OVERLOAD):
        ratios[f"share advised at {phase}"] = by_name[phase].share_advised
    return ratios


def _client(share: str) -> Callable[[Figures], float]:
    return lambda figures: figures.client[share]


def _rate(figures: Figures) -> float:
    return figures.rate


def _cpu(figures: Figures) -> float:
    return figures.cpu_per_review


def main() -> None:
    """Run the bench and print its figures."""
    parser = command.parser_of(__doc__)
    parser.add_argument("--rates", type=float, nargs="+", default=[100, 500], help="reviews/s")
    parser.add_argument("--seconds", type=float, default=15, help="of each phase but the burst")
    asked = parser.parse_args()
    command.end_in_good_order()
    console = command.console()
    began = datetime.now(UTC)
    with command.folder_of(asked) as folder, command.progress(console) as progress:
        starting = progress.add_task("an API server is filled, stowplan reads it", total=None)
        with staged(command.plan_of(asked), folder) as stage:
            progress.update(starting, total=1, completed=1)
            resident = {"when ready": stage.server.usage.resident_mib}
            floor = stage.floor()
            try:
                floor.start()
                bench = Bench(stage, floor, asked.seconds, progress)
                bench.floor("before", max(asked.rates))
                bench.server(asked.rates)
                bench.floor("after", max(asked.rates))
            finally:
                floor.kill()
            usage = stage.server.usage
            resident |= {"at the end": usage.resident_mib, "at most": usage.peak_mib}
            ready = {
                "seconds": stage.server.ready_after,
                "processor seconds": stage.server.ready_with,
            }
    by_name = {one.name: one for one in bench.figures}
    run = Run(
        machine=command.machine(),
        date=began.isoformat(timespec="seconds"),
        sizes={"nodes": asked.nodes, "pods": asked.pods, "events/s": asked.events},
        ready=ready,
        resident_mib=resident,
        figures=bench.figures,
        ratios=_ratios(by_name, max(asked.rates)),
        stages=_stages(by_name),
    )
    show(run, console)
    if asked.json is not None:
        asked.json.write_bytes(msgspec.json.format(msgspec.json.encode(run)))


if __name__ == "__main__":
    main()
