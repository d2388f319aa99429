"""Whether `stowplan serve` lasts: `python -m tests.bench.load.endurance --minutes 30`.

The cluster, the events and the sender are those of `python -m tests.bench.load`. Once a minute the
policies change and once the certificate is renewed; connections are made anew now and then, so the
new certificate is shown to callers. At the end nothing happens any more, and a second server that
starts then must know and answer the same. Exits 1 if any verdict is bad.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.bench.load import command, verdicts
from tests.bench.load.measuring import quantiles
from tests.bench.load.messages import Arrival, Phase, Window
from tests.bench.load.processes import Usage, machine_cpu_seconds
from tests.bench.load.rebuild import differences
from tests.bench.load.stage import Stage, staged
from tests.bench.load.verdicts import Minute, Verdict

_MOST_CONNECTIONS_MORE = 50  # at one moment than at another
_REVIEWS_PER_CONNECTION = 1_000  # then a new one is made, and meets the certificate of that time
_WINDOW_SECONDS = 5.0
_WINDOWS_PER_MINUTE = 12
_POLICIES_CHANGE_AT, _CERTIFICATE_CHANGES_AT = 3, 9  # windows of each minute
_TAKEN_UP_SECONDS = 15.0  # files are looked at every 5 s
_RELOADS = "stowplan_policy_reloads_total"
_EXPIRY = "stowplan_certificate_expiry_timestamp_seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything that an endurance run showed."""

    machine: str
    date: str
    sizes: Mapping[str, float]
    events: int
    minutes: Sequence[Minute]
    resident: Sequence[tuple[float, float]]  # minutes and MiB
    verdicts: Sequence[Verdict]

    @property
    def good(self) -> bool:
        """Whether all is as it must be."""
        return all(one.good for one in self.verdicts)


@dataclass(slots=True)
class Endurance:
    """One run, minute by minute.

    Attributes:
        minutes: those that are over.
        resident: samples of the server's memory, minutes and MiB.
        policies_changed: how often.
        certificates_made: how often.
        certificates_seen: how many of them the server said it used.
    """

    stage: Stage
    minutes: list[Minute] = field(default_factory=list)
    resident: list[tuple[float, float]] = field(default_factory=list)
    policies_changed: int = 0
    certificates_made: int = 0
    certificates_seen: int = 0
    _expires_at: float = 0.0
    _used: dict[str, Usage] = field(default_factory=dict)
    _busy: float = 0.0

    def take(self, number: int, window: Window, minute: Window) -> None:
        """Take a window of a minute into account, and change what is due.

        Args:
            number: of the window, from 1.
            window: what it showed.
            minute: what the minute has shown so far.
        """
        minute.add(window)
        usage = self.stage.server.usage
        self.resident.append((number * _WINDOW_SECONDS / 60, usage.resident_mib))
        if number % _WINDOWS_PER_MINUTE == _POLICIES_CHANGE_AT:
            self._change_policies()
        if number % _WINDOWS_PER_MINUTE == _CERTIFICATE_CHANGES_AT:
            self._look_at_certificate()
            self._expires_at = self.stage.certificates.renew()
            self.certificates_made += 1

    def begin_minute(self) -> None:
        """Take note of what everybody has used so far."""
        self._used, self._busy = self.stage.usages(), machine_cpu_seconds()

    def close_minute(self, came: Window) -> None:
        """Keep what a minute has shown."""
        used, busy = self.stage.usages(), machine_cpu_seconds()
        spent = {name: used[name].cpu_seconds - self._used[name].cpu_seconds for name in used}
        usage, before, scrape = used["server"], self._used["server"], self.stage.server.scrape()
        held = {
            "MiB": usage.resident_mib,
            "threads": float(usage.threads),
            "descriptors": float(usage.descriptors),
        }
        tasks = scrape.value("stowplan_tasks")
        if tasks is not None:
            held["tasks"] = tasks
        times = quantiles(came.latencies)
        self.minutes.append(
            Minute(
                p50=times["p50"] / 1e3,
                p99=times["p99"] / 1e3,
                cpu=spent["server"] / max(1, len(came.latencies)) * 1e3,
                answered=len(came.latencies),
                lost=came.timed_out + sum(came.failed.values()),
                waited=(usage.waited_seconds - before.waited_seconds) / 60,
                others=max(0.0, busy - self._busy - sum(spent.values())) / 60,
                held=held,
            )
        )

    def verdicts(self) -> list[Verdict]:
        """Return what is to be said of all of it; takes a while, and ends the events."""
        time.sleep(_TAKEN_UP_SECONDS)
        self._look_at_certificate()
        reloads = self.stage.server.scrape().value(_RELOADS, outcome="loaded") or 0
        return [
            verdicts.memory(self.resident),
            *verdicts.speed(self.minutes),
            verdicts.answers(self.minutes),
            *verdicts.leaks(self.minutes, _MOST_CONNECTIONS_MORE),
            verdicts.took_effect("policies are reloaded", self.policies_changed, int(reloads)),
            verdicts.took_effect(
                "certificates are renewed", self.certificates_made, self.certificates_seen
            ),
            verdicts.same(differences(self.stage)),
        ]

    def _change_policies(self) -> None:
        """Change a weight to and fro; a comment makes each version another one."""
        self.policies_changed += 1
        text = self.stage.plan.policy.read_text(encoding="utf-8")
        if self.policies_changed % 2:
            text = text.replace("weight: 2", "weight: 3")
        new = self.stage.policy.with_suffix(".new")
        new.write_text(f"{text}# version {self.policies_changed}\n", encoding="utf-8")
        new.replace(self.stage.policy)

    def _look_at_certificate(self) -> None:
        """Count the last certificate that was made, if the server uses it."""
        if self._expires_at and self.stage.server.scrape().value(_EXPIRY) == self._expires_at:
            self.certificates_seen += 1


def endure(stage: Stage, minutes: int, rate: float, progress: Progress) -> Endurance:
    """Send reviews for some minutes while everything changes."""
    phase = Phase(
        target=stage.server.target,
        arrival=Arrival.RANDOM,
        seconds=minutes * 60.0,
        rate=rate,
        reviews_per_connection=_REVIEWS_PER_CONNECTION,
        window_seconds=_WINDOW_SECONDS,
    )
    endurance, minute = Endurance(stage), Window()
    task = progress.add_task(f"{rate:.0f} reviews/s, events, changes", total=phase.seconds)
    endurance.begin_minute()
    for number, window in enumerate(stage.sender.send(phase), 1):
        endurance.take(number, window, minute)
        progress.advance(task, _WINDOW_SECONDS)
        if number % _WINDOWS_PER_MINUTE == 0:
            endurance.close_minute(minute)
            endurance.begin_minute()
            minute = Window()
            progress.console.print(_line(len(endurance.minutes), endurance.minutes[-1]))
    return endurance


def _line(number: int, minute: Minute) -> str:
    held = ", ".join(f"{value:.0f} {name}" for name, value in minute.held.items())
    return (
        f"minute {number:3}: p50 {minute.p50:.2f} ms, p99 {minute.p99:.2f} ms, cpu"
        f" {minute.cpu:.2f} ms, {minute.lost} lost, {held};"
        f" waited {minute.waited:.0%}, others {minute.others:.0%}"
    )


def _show(run: Run, console: Console) -> None:
    table = Table(title=f"{len(run.minutes)} minutes, {run.events:,} events of pods and nodes")
    for name in ("verdict", "", "found"):
        table.add_column(name)
    for one in run.verdicts:
        table.add_row(one.about, "good" if one.good else "[red]bad", one.found)
    console.print(run.machine)
    console.print(table)


def main() -> None:
    """Run it, print the verdicts, and exit 1 if one is bad."""
    parser = command.parser_of(__doc__)
    parser.add_argument("--minutes", type=int, default=30, help="how long")
    parser.add_argument("--rate", type=float, default=200, help="reviews per second")
    asked = parser.parse_args()
    command.end_in_good_order()
    console, began = command.console(), datetime.now(UTC)
    with (
        command.folder_of(asked) as folder,
        command.progress(console) as progress,
        staged(command.plan_of(asked), folder) as stage,
    ):
        stage.api_server.begin_events()
        endurance = endure(stage, asked.minutes, asked.rate, progress)
        events = stage.api_server.end_events()
        comparing = progress.add_task("a second server is asked the same", total=None)
        found = endurance.verdicts()
        progress.update(comparing, total=1, completed=1)
    sizes: dict[str, Any] = {"nodes": asked.nodes, "pods": asked.pods, "events/s": asked.events}
    run = Run(
        machine=command.machine(),
        date=began.isoformat(timespec="seconds"),
        sizes={**sizes, "reviews/s": asked.rate},
        events=events,
        minutes=endurance.minutes,
        resident=endurance.resident,
        verdicts=found,
    )
    _show(run, console)
    if asked.json is not None:
        asked.json.write_bytes(msgspec.json.format(msgspec.json.encode(run)))
    sys.exit(0 if run.good else 1)


if __name__ == "__main__":
    main()
