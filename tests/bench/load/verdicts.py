"""What an endurance run must show, each with its bound and what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

MOST_GROWTH = 0.5
"""MiB a minute, over the second half: what can be told from noise within half an hour."""

MOST_SLOWER = {"p50": 1.25, "p99": 1.5, "cpu": 1.15}
"""Last third to first third, medians of minutes."""

MOST_OF_OTHERS = 0.3
"""Of one processor: in a minute in which others had more, waiting tells of them and not of us."""

MOST_LOST = 0.0001
"""Of the reviews: without an answer in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """What one minute showed.

    Attributes:
        p50: of the client, milliseconds from the moment a review was due to its answer.
        p99: the same.
        cpu: milliseconds of the server's processor time for each review, events included.
        answered: reviews with an answer in time.
        lost: those without.
        waited: the share of the minute that the server waited for a processor.
        others: what all that is not of the bench had, in processors.
        held: what the server held at its end: MiB resident, threads, descriptors, tasks.
    """

    p50: float
    p99: float
    cpu: float
    answered: int
    lost: int
    waited: float
    others: float
    held: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether something is as it must be.

    Attributes:
        found: in words, with its bound.
    """

    about: str
    good: bool
    found: str


def memory(resident: Sequence[tuple[float, float]]) -> Verdict:
    """Judge the memory by samples of minutes and MiB."""
    half = np.array(resident[len(resident) // 2 :])
    slope = float(np.polyfit(half[:, 0], half[:, 1], 1)[0])
    found = f"{slope:+.2f} MiB a minute over the second half, at most {MOST_GROWTH:+.2f}"
    return Verdict(about="memory is flat", good=slope <= MOST_GROWTH, found=found)


def speed(minutes: Sequence[Minute]) -> list[Verdict]:
    """Judge the time of a review: what it takes of the processor, and how long callers wait.

    Callers wait for others too: that is judged by the minutes when they had little to do.
    """
    third = max(1, len(minutes) // 3)
    first, last = minutes[:third], minutes[-third:]
    quiet = [[one for one in some if one.others <= MOST_OF_OTHERS] for some in (first, last)]
    return [_flat("cpu", first, last), _flat("p50", *quiet), _flat("p99", *quiet)]


def _flat(name: str, first: Sequence[Minute], last: Sequence[Minute]) -> Verdict:
    about = f"{name} of a review is flat"
    if first and last:
        early, late = (median(getattr(one, name) for one in some) for some in (first, last))
        most = MOST_SLOWER[name]
        found = f"{early:.2f} ms at first, {late:.2f} ms at last, at most {most} times as much"
        return Verdict(about=about, good=late <= early * most, found=found)
    found = "not judged: at first, at last or both others had the processors"
    return Verdict(about=about, good=True, found=found)


def leaks(minutes: Sequence[Minute], connections: int) -> list[Verdict]:
    """Judge whether anything is held that was let go: threads, descriptors, tasks.

    Args:
        minutes: all of them.
        connections: how many more callers may have by chance, each a descriptor and a task.
    """
    verdicts = []
    for name in ("threads", "descriptors", "tasks"):
        held = [one.held[name] for one in minutes if name in one.held]
        if not held:
            continue
        slack = 0 if name == "threads" else connections
        found = f"{held[0]:.0f} after a minute, {held[-1]:.0f} at the end, at most {slack} more"
        good = held[-1] <= held[0] + slack
        verdicts.append(Verdict(about=f"no {name} leak", good=good, found=found))
    return verdicts


def answers(minutes: Sequence[Minute]) -> Verdict:
    """Judge how many reviews got no answer in time."""
    lost, sent = sum(one.lost for one in minutes), sum(one.answered + one.lost for one in minutes)
    found = f"{lost} of {sent:,} were not answered in time, at most {MOST_LOST:.2%}"
    return Verdict(about="reviews are answered", good=lost <= MOST_LOST * sent, found=found)


def took_effect(about: str, made: int, seen: int) -> Verdict:
    """Judge whether changes that were made were all taken up."""
    return Verdict(about=about, good=made == seen, found=f"{made} made, {seen} taken up")


def same(differences: Sequence[str]) -> Verdict:
    """Judge whether the server knows what one knows that starts now."""
    found = "; ".join(differences) or "the same numbers and the same answers"
    return Verdict(about="the view is that of a rebuild", good=not differences, found=found)
